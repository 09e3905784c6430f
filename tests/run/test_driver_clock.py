"""The clock of a context without torch: what fills the cache is new before every run."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from dplc.engine.run.gpu_clock import LEAST_FLUSH, DriverClock


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


@pytest.mark.parametrize("l2_bytes", [0, 1, LEAST_FLUSH // 2, LEAST_FLUSH, 50 << 20])
def test_the_whole_cache_is_filled_twice(l2_bytes: int) -> None:
    """A device that tells of no cache has one all the same."""
    driver = SimpleNamespace(mem_alloc=lambda size: size)
    found = DriverClock(driver, l2_bytes).bytes
    assert found >= LEAST_FLUSH and found >= 2 * l2_bytes
