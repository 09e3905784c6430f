"""The clock of a context without torch: what fills the cache is new before every run."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from dplc.engine.run.gpu_clock import DriverClock


def test_every_run_finds_other_bytes() -> None:
    filled: list[tuple[object, int, int]] = []
    driver = SimpleNamespace(
        mem_alloc=lambda size: f"memory of {size}",
        memset_d8_async=lambda where, value, size, stream: filled.append((where, value, size)),
    )
    clock = DriverClock(driver, l2_bytes=1 << 20)
    for _ in range(600):
        clock.prepare()
    values = [value for _, value, _ in filled]
    assert all(0 <= value < 256 for value in values)
    assert all(one != other for one, other in itertools.pairwise(values))
    assert {(where, size) for where, _, size in filled} == {(f"memory of {clock.bytes}", clock.bytes)}
