"""A fold of what stands up to a place is a scan if what it takes behind the place changes nothing, and is what it says else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scheduling import difference, schedule

from dplc.ir.interp import tile
from dplc.ir.node import nodes
from dplc.ir.text.programs import read_program
from dplc.ir.tile import Scan, ScanTuple

ROW = "i:3=THREAD, n:64=THREAD", "[i, {}]", (3, 64)
COLUMN = "n:64=THREAD, j:32=THREAD", "[{}, j]", (64, 32)
TUPLES = """
kernel f(a: f32{shape}, b: f32{shape}) -> y: f32{shape}:
    Tile({axes}):
        for k in 0..64 reduce:
            at = k <= n
            x = load a{read}
            left = where(at, x, {first})
            z = load b{read}
            right = where(at, z, {second})
            (p, h) <- affine((p, h), (left, right))
        y{write} = h
"""
NUMBERS = """
kernel f(a: f32{shape}, b: f32{shape}) -> y: f32{shape}:
    Tile({axes}):
        for k in 0..64 reduce:
            at = k <= n
            x = load a{read}
            chosen = where(at, x, {first})
            h <- {second}(h, chosen)
        y{write} = h
"""


def scheduled(text: str, place: Any, first: str, second: str) -> int:
    """How many scans the default schedule of a program has, after its meaning was compared."""
    axes, index, shape = place
    names = {"axes": axes, "shape": list(shape), "read": index.format("k"), "write": index.format("n")}
    program: Any = read_program(text.format(first=first, second=second, **names))[1]
    random = np.random.default_rng(0)
    inputs = {"a": random.uniform(0.9, 1.1, shape), "b": random.standard_normal(shape)}
    wanted = tile.run(program, inputs)
    made = schedule(program)
    assert difference(made, inputs, {"y": wanted["y"]}, (0,)) is None
    return sum(1 for _ in nodes(tuple(stmt for kernel in made for stmt in kernel.body), Scan, ScanTuple))


@pytest.mark.parametrize("place", (ROW, COLUMN), ids=("row", "column"))
@pytest.mark.parametrize("first, second", [("1.0", "0.0"), ("1", "0"), ("1.0", "-0.0")])
def test_the_tuple_of_no_steps_is_left_out(place: Any, first: str, second: str) -> None:
    assert scheduled(TUPLES, place, first, second) == 1


@pytest.mark.parametrize("place", (ROW, COLUMN), ids=("row", "column"))
@pytest.mark.parametrize(
    "first, second", [("0.9", "0.0"), ("1.0", "0.5"), ("0.0", "1.0"), ("-1.0", "0.0"), ("0.0", "0.0")]
)
def test_any_other_step_is_taken(place: Any, first: str, second: str) -> None:
    assert scheduled(TUPLES, place, first, second) == 0


@pytest.mark.parametrize("place", (ROW, COLUMN), ids=("row", "column"))
@pytest.mark.parametrize(
    "number, function, scans",
    [("0.0", "add", 1), ("0.1", "add", 0), ("1.0", "add", 0), ("1.0", "multiply", 1), ("0.99", "multiply", 0), ("0.0", "maximum", 0), ("0.0", "minimum", 0)],
)  # fmt: skip
def test_numbers(place: Any, number: str, function: str, scans: int) -> None:
    assert scheduled(NUMBERS, place, number, function) == scans
