"""The verifiers of Loop and Tile IR: each invariant broken once."""

from __future__ import annotations

from typing import Any

import pytest
from altered_texts import altered

from dplc.ir.text.read import read_program
from dplc.ir.verify import loop, tile

LOOP = """
kernel f(x: f32[8, 16], n: i64[8]) -> y: f32[8]:
    for i in 0..8 free:
        for k in 0..16 reduce:
            a = load x[i, k]
            s <- add(s, a)
        y[i] = s
"""
TILE = """
kernel f(x: f32[8, 16], n: i64[8]) -> y: f32[8]:
    Tile(i:8=BLOCK, t:16=THREAD):
        u = Stage(x, origin=(i, 0), slab=(k:16@1))
        Sync()
        a = load u[t]
        s <- add(s, a)
        Combine(s, add, over=[t])
        if t < 1:
            y[i] = s
"""


def kernel(text: str) -> Any:
    return read_program(text)[1][0]


def test_good_ones() -> None:
    assert loop.problems(kernel(LOOP)) == ()
    assert tile.problems(kernel(TILE)) == ()


@pytest.mark.parametrize("old, new, what", [
    ("0..16 reduce", "0..17 reduce", "index `k` may leave 0..16"),
    ("x[i, k]", "x[i, k - 1]", "index `k - 1` may leave 0..16"),
    ("x[i, k]", "x[i]", "`x` has 2 dimensions"),
    ("x[i, k]", "z[i, k]", "`z` is no buffer"),
    ("x[i, k]", "x[i, j]", "`j` is not defined here"),
    ("y[i] = s", "x[i, 0] = s", "`x` is no output"),
    ("s <- add(s, a)", "s <- subtract(s, a)", "`subtract` has no identity"),
    ("a = load x[i, k]", "a = load x[i, k]\n            a = exp(a)", "`a` is defined twice"),
    ("s <- add(s, a)", "s <- add(s, a)\n            y[i] = a", "a reduction stores"),
    ("y[i] = s", "Sync()", "Sync is no statement of this level"),
    ("y[i] = s", "z[i] = s", "`z` is no buffer"),
    ("a = load x[i, k]", "a = x[i, k]", "reads memory"),
    ("a = load x[i, k]", "k = load x[i, k]", "`k` has two meanings"),
    ("a = load x[i, k]", "s = load x[i, k]", "`s` has two meanings"),
    ("load x[i, k]", "load x[i, k] if k < 1.5 else 0.0", "places, which are whole numbers"),
    ("y[i] = s", "if i < 1.5:\n            y[i] = s", "places, which are whole numbers"),
])  # fmt: skip
def test_loop_problems(old: str, new: str, what: str) -> None:
    found = loop.problems(kernel(altered(LOOP, old, new)))
    assert any(what in problem for problem in found), found


@pytest.mark.parametrize("guard, position", [
    ("k >= 1", "k - 1"), ("k < 8", "k + 8"), ("k >= 2 and k < 9", "k*2 - 4"), ("i + k < 12", "i + k + 4"), ("k >= 4", "(k - 4) // 2"),
    ("k < 8", "k // 4 * 4 + 8"), ("k < 8", "8 - k // 4 * 8"),
])  # fmt: skip
def test_guards_bound_indices(guard: str, position: str) -> None:
    guarded = LOOP.replace("load x[i, k]", f"load x[i, {position}] if {guard} else 0.0")
    assert loop.problems(kernel(guarded)) == ()
    assert loop.problems(kernel(LOOP.replace("x[i, k]", f"x[i, {position}]"))) != () or position.startswith("(")


def test_gathers_are_the_programs_business() -> None:
    gather = LOOP.replace("a = load x[i, k]", "j = load n[i]\n            a = load x[j, k]")
    assert loop.problems(kernel(gather)) == ()


@pytest.mark.parametrize("old, new, what", [
    ("t:16=THREAD", "t:2048=THREAD", "2048 threads, the limit is 1024"),
    ("k:16@1", "k:100000@1", "bytes of shared memory, the limit is"),
    ("Sync()", "u = Stage(x, origin=(i, 0), slab=(k:16@1), pad=4)\n        Sync()", "two layouts: `pad` differs"),
    ("origin=(i, 0)", "origin=(i, t)", "varies by thread"),
    ("origin=(i, 0)", "origin=(i)", "`x` has 2 dimensions"),
    ("Stage(x", "Stage(y", "`y` is no input"),
    ("Stage(x", "Stage(z", "`z` is no buffer"),
    ("load u[t]", "load s[t]", "`s` is no buffer"),
    ("Combine(s", "Combine(r", "`r` is no accumulator"),
    ("Combine(s, add, over=[t])", "Scan(r, add, over=[t])", "`r` is no accumulator"),
    ("Combine(s, add, over=[t])", "Scan(s, add, over=(t, t))", "an axis is named twice"),
    ("Combine(s, add, over=[t])", "Scan(s, add, over=[i])", "`i` is no axis inside of a block"),
    ("Combine(s, add, over=[t])", "if t < 3:\n            Scan(s, add, over=[t])", "Scan in divergent control flow"),
    ("s <- add(s, a)", "s <- add(s, a)\n        t <- add(t, a)", "`t` has two meanings"),
    ("a = load u[t]", "i = load u[t]", "`i` has two meanings"),
    ("t < 1:", "t < 1.5:", "places, which are whole numbers"),
    ("over=[t]", "over=[i]", "`i` is no axis inside of a block"),
    ("        Sync()", "        if t < 3:\n            Sync()", "Sync in divergent control flow"),
    ("u[t]", "u[t + 1]", "index `t + 1` may leave 0..16"),
    ("t:16=THREAD", "i:16=THREAD", "two axes are called `i`"),
    ("a = load u[t]", "a = load x[i, t]", "`u` is never read"),
])  # fmt: skip
def test_tile_problems(old: str, new: str, what: str) -> None:
    found = tile.problems(kernel(altered(TILE, old, new)))
    assert any(what in problem for problem in found), found


def test_not_one_tile() -> None:
    assert tile.problems(kernel(LOOP)) == ("the body of kernel `f` is not one Tile",)
