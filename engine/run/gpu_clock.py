"""Time runs on torch's current stream: always from the same state, by events, without the runs that warm the GPU up.

Before every run the L2 cache is filled with other data; the write that does it also hides the cost of the launch.
`codegen/pack/worker.py` times launches on a stream of the driver in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch


class RunClock(Protocol):
    """Something that can time a run. `prepare` puts the machine in the state in which every run starts."""

    def prepare(self) -> None: ...

    def seconds(self, run: Callable[[], Any]) -> float: ...


class TorchClock:
    """Times with events on torch's current stream."""

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._other = torch.empty(max(2 * size, 1 << 26), dtype=torch.int8, device="cuda")

    def prepare(self) -> None:
        self._other.zero_()

    def seconds(self, run: Callable[[], Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


def times(run: Callable[[], Any], clock: RunClock, warm_up: int, runs: int) -> list[float]:
    """Return the seconds of every run after those that warm up, each from the prepared state."""
    found: list[float] = []
    for _ in range(warm_up + runs):
        clock.prepare()
        found.append(clock.seconds(run))
    return found[warm_up:]
