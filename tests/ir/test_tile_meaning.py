"""What the parallel meaning of Tile IR finds: races, missing waits, divergence, bounds, stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplc.ir.interp import loop, tile
from dplc.ir.interp.scalar import ScheduleError
from dplc.ir.text.programs import read_program

HEAD = "kernel f(x: f32[64]) -> y: f32[64]:\n"
RING = """
    Tile(t:16=THREAD):
        for k in 0..4 serial:
            s = Stage(x, origin=(k*16), box=(c:16@0), depth=2, slot=k % 2{via})
            {first}
            {second}
            a = load s[k % 2, 15 - t]
            y[k*16 + t] = a
            {last}
"""
ROWS = """
    Tile(t:16=THREAD):
        for k in 0..4 serial:
            s = Stage(x, origin=(k*16), box=(c:16@0){fields})
            Sync()
            a = load s[15 - t]
            y[k*16 + t] = a
            Sync()
"""


def run(body: str, seeds: range = range(6), **inputs: Any) -> Any:
    text = body if body.lstrip().startswith("kernel") else HEAD + body.strip("\n")
    text = "\n".join(line for line in text.splitlines() if line.strip())
    program: Any = read_program(text)[1]
    made: Any = None
    for seed in seeds:
        made = tile.run(program, inputs or {"x": np.arange(64)}, seed)
    return made


def found(body: str, what: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        run(body, range(12))
    assert what in caught.value.render()


def ring(via: str = "", first: str = "Sync()", second: str = "", last: str = "") -> str:
    return RING.format(via=via, first=first, second=second, last=last)


REVERSED = np.arange(64).reshape(4, 16)[:, ::-1].ravel()


@pytest.mark.parametrize("body", [
    ROWS.format(fields=""),
    ROWS.format(fields=", pad=3"),
    ROWS.format(fields=", lanes=2"),
    ring(),
    ring(", via=ASYNC", "Wait()", "Sync()"),
    ring(", via=TMA", "Wait()", "Sync()"),
    ring().replace("depth=2", "depth=3").replace("k % 2", "k % 3"),
])  # fmt: skip
def test_right_schedules_run(body: str) -> None:
    np.testing.assert_array_equal(run(body)["y"], REVERSED)


def test_no_barrier_after_the_copy() -> None:
    found(ring(first=""), "in `a = load s[")


def test_no_barrier_before_the_slot_is_used_again() -> None:
    found(
        ROWS.format(fields="").replace("            Sync()\n\n", "", 1).rstrip()[: -len("Sync()")],
        "race: s is overwritten",
    )


def test_no_wait() -> None:
    found(ring(", via=ASYNC"), "in flight")


def test_a_wait_that_keeps_too_many() -> None:
    found(ring(", via=ASYNC", "Wait(keep=1)", "Sync()"), "in flight")


def test_tma_is_waited_for_by_every_thread() -> None:
    found(ring(", via=TMA"), "s is read")


def test_a_barrier_some_threads_miss() -> None:
    found("    Tile(t:64=THREAD):\n        if t < 32:\n            Sync()\n        y[t] = 1.0", "divergent")


def test_uninitialised_shared_memory() -> None:
    body = "    Tile(t:64=THREAD):\n        s = Stage(x, origin=(0), box=(c:16@0), depth=2)\n        Sync()\n"
    found(body + "        a = load s[1, t % 16]\n        y[t] = a", "uninitialised")


def test_two_layouts_of_one_shared_tile() -> None:
    body = "    Tile(t:64=THREAD):\n        s = Stage(x, origin=(0), box=(c:16@0))\n        Sync()\n"
    found(
        body + "        s = Stage(x, origin=(16), box=(c:16@0), pad=1)\n        Sync()\n        y[t] = 1.0",
        "two layouts",
    )


def test_an_origin_that_varies_by_thread() -> None:
    found("    Tile(t:64=THREAD):\n        s = Stage(x, origin=(t), box=(c:16@0))\n        y[t] = 1.0", "not uniform")


def test_bounds_and_stores() -> None:
    found("    Tile(t:64=THREAD):\n        a = load x[t + 1]\n        y[t] = a", "load out of bounds")
    found("    Tile(t:65=THREAD):\n        y[t] = 1.0", "store out of bounds")
    found("    Tile(t:32=THREAD):\n        y[t] = 1.0", "32 elements never stored")
    found("    Tile(t:128=THREAD):\n        y[t % 64] = 1.0", "64 stored more than once")
    found(
        "    Tile(t:16=THREAD):\n        s = Stage(x, origin=(0), box=(c:8@0))\n        Sync()\n        a = load s[t]",
        "outside of the shared tile",
    )


def test_beyond_the_source_is_zero() -> None:
    body = "    Tile(t:64=THREAD):\n        s = Stage(x, origin=(32), box=(c:64@0))\n        Sync()\n        a = load s[t]\n        y[t] = a"
    np.testing.assert_array_equal(run(body)["y"], np.concatenate([np.arange(32, 64), np.zeros(32)]))


def test_combine_over_threads_and_registers() -> None:
    body = """
kernel f(x: f32[4, 64]) -> y: f32[4]:
    Tile(i:4=BLOCK, t:8=THREAD, q:8=REG):
        a = load x[i, q*8 + t]
        s <- add(s, a)
        Combine(s, add, over=(q, t))
        if t < 1:
            y[i] = s
"""
    x = np.arange(256.0).reshape(4, 64)
    np.testing.assert_array_equal(run(body, x=x)["y"], x.sum(1))


def test_a_combine_over_an_axis_the_value_lacks() -> None:
    found(
        "    Tile(t:64=THREAD, q:8=REG):\n        s <- add(s, 1.0)\n        Combine(s, add, over=(q))\n        y[t] = s",
        "does not vary",
    )


def test_scan_over_threads_and_registers() -> None:
    """The first axis is the slowest: a place has what all before it and its own add up to."""
    body = """
kernel f(x: f32[4, 64]) -> y: f32[4, 64]:
    Tile(i:4=BLOCK, t:8=THREAD, q:2=REG, v:4=REG):
        a = load x[i, q*32 + t*4 + v]
        s <- add(s, a)
        Scan(s, add, over=(q, t, v))
        y[i, q*32 + t*4 + v] = s
"""
    x = np.arange(256.0).reshape(4, 64)
    np.testing.assert_array_equal(run(body, x=x)["y"], np.cumsum(x, 1))


def test_a_scan_that_not_all_threads_reach() -> None:
    found(
        "    Tile(t:64=THREAD):\n        a = load x[t]\n        if t < 9:\n            s <- add(s, a)\n            Scan(s, add, over=[t])\n            y[t] = s",
        "divergent",
    )


def test_accumulators_start_in_their_block() -> None:
    """An accumulator that lives inside of a loop starts again in each turn."""
    text = "kernel f(x: f32[3, 4]) -> y: f32[3]:\n    for i in 0..3 free:\n        for k in 0..4 reduce:\n            a = load x[i, k]\n            s <- add(s, a)\n        y[i] = s"
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(loop.run(read_program(text)[1], {"x": x})["y"], x.sum(1))  # type: ignore[arg-type]


def test_a_value_that_does_not_vary_is_folded_as_often_as_the_loop_turns() -> None:
    text = "kernel f(x: f32[1]) -> y: f32[3]:\n    for i in 0..3 free:\n        for k in 0..4 reduce:\n            for l in 0..5 reduce:\n                s <- add(s, 2.0)\n        y[i] = s"
    np.testing.assert_array_equal(loop.run(read_program(text)[1], {"x": [0]})["y"], [40.0] * 3)  # type: ignore[arg-type]


def test_integers_are_exact() -> None:
    text = "kernel f(x: i64[2]) -> y: i64[2]:\n    for i in 0..2 free:\n        a = load x[i]\n        b = add(a, 1)\n        y[i] = b"
    big = 2**53
    np.testing.assert_array_equal(loop.run(read_program(text)[1], {"x": [big, -big]})["y"], [big + 1, 1 - big])  # type: ignore[arg-type]


IN_PLACE = """
    Tile(t:64=THREAD):
        s = Stage(x, origin=(0), box=(c:64@0))
        Sync()
        a = load s[t]
        b = multiply(a, 2.0)
        s[{to}] = b
        {barrier}
        d = load s[63 - t]
        y[t] = d
"""


def test_threads_write_to_a_shared_tile_word_by_word() -> None:
    np.testing.assert_array_equal(run(IN_PLACE.format(to="t", barrier="Sync()"))["y"], 2 * np.arange(64)[::-1])


def test_a_word_is_written_by_two_threads() -> None:
    found(IN_PLACE.format(to="t // 2", barrier="Sync()"), "race")


def test_a_shared_tile_is_read_before_a_barrier_after_a_write() -> None:
    found(IN_PLACE.format(to="t", barrier="pass"), "race")


def test_a_write_outside_of_a_shared_tile() -> None:
    found(IN_PLACE.format(to="t + 64", barrier="Sync()"), "outside of the shared tile")


def test_a_write_into_a_copy_in_flight() -> None:
    body = "    Tile(t:64=THREAD):\n        s = Stage(x, origin=(0), box=(c:64@0), via=ASYNC)\n        s[t] = 1.0\n"
    found(body + "        Wait()\n        Sync()\n        a = load s[t]\n        y[t] = a", "in flight")


@pytest.mark.parametrize("shift", [0, 56])
def test_a_guarded_load_reads_nothing_where_its_guard_fails(shift: int) -> None:
    """Neither beyond the buffer, nor within: there is what stands behind `else`."""
    body = f"    Tile(t:16=THREAD):\n        a = load x[t + {shift}] if t < 8 else 0.5\n        y[t] = a\n"
    body = "kernel f(x: f32[64]) -> y: f32[16]:\n" + body
    np.testing.assert_array_equal(run(body)["y"], [*range(shift, shift + 8), *[0.5] * 8])
