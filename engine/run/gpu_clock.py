"""How a GPU is timed: always from the same state, by events, and the runs that warm it up do not count.

Before every run the L2 cache is filled with other data; the write that does it also hides the cost of the launch. Who
times runs on torch's stream and who times them on the driver's say the same here, each with its own events.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

LEAST_FLUSH = 1 << 20  # bytes


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


class DriverClock:
    """Times with the driver's events on a stream, without torch: in a context that may go down.

    bytes: of the data that fills the L2 cache.
    """

    def __init__(self, driver: Any, l2_bytes: int):
        self.bytes = max(2 * l2_bytes, LEAST_FLUSH)
        self.stream: Any = None
        self._driver, self._other, self._turn = driver, driver.mem_alloc(self.bytes), 0

    def prepare(self) -> None:
        self._turn += 1
        self._driver.memset_d8_async(self._other, self._turn % 256, self.bytes, self.stream)

    def seconds(self, run: Callable[[], Any]) -> float:
        start, end = self._driver.Event(), self._driver.Event()
        start.record(self.stream)
        run()
        end.record(self.stream)
        end.synchronize()
        return float(start.time_till(end)) * 1e-3


def times(run: Callable[[], Any], clock: RunClock, warm_up: int, runs: int, most: float = math.inf) -> list[float]:
    """Seconds of every run that counts, each from the prepared state; at least three, then until `most` seconds are
    over."""
    found: list[float] = []
    until = time.monotonic() + most
    for number in range(warm_up + runs):
        if len(found) > 2 and time.monotonic() > until:
            break
        clock.prepare()
        taken = clock.seconds(run)
        if number >= warm_up:
            found.append(taken)
    return found
