"""Facts about accesses that go on with an axis, and about two axes that are one index."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dplc.engine.facts.accesses import loads_along, neighbours, running, runs_along, strided, vectors, widest
from dplc.ir.expr import Var, add, multiply
from dplc.ir.text.programs import read_program

ROWS = """## level: tile
kernel f(x: {dtype}[4, 64], w: {dtype}[64, 4]) -> y: {dtype}[4, 64]:
    Tile(i:4=THREAD, j:8=THREAD, r:8=REG):
        for k in 0..4 serial:
            a = load w[j*8 + r, k]
            b = load x[k, j*8 + r]
            p = multiply(a, b)
            s <- add(s, p)
        y[i, {column}] = s
"""
GUARDED = """## level: tile
kernel f(x: f32[64]) -> y: f32[64]:
    Tile(j:8=THREAD, r:8=REG):
        if {condition}:
            a = load x[j*8 + r]
            y[j*8 + r] = a
"""


def at(text: str, **parts: str) -> tuple[Any, Any]:
    """The site of a Tile, and its body."""
    kernel = read_program(text.format(**parts))[1][0]
    tile = kernel.body[0]
    return SimpleNamespace(kernel=kernel, tile=tile, target=None), tile.body


def test_what_runs_along_an_axis():
    site, body = at(ROWS, dtype="f32", column="j*8 + r")
    assert [stmt.buf for stmt in running(site, body, Var("r"))] == ["x", "y"]
    assert [stmt.buf for stmt in vectors(site, body, Var("r"), 4)] == ["x", "y"]
    assert vectors(site, body, Var("r"), 8) == () == vectors(site, body, Var("j"), 4)
    assert [stmt.buf for stmt in running(site, body, Var("k"))] == ["w"]
    assert loads_along(site, body, Var("r")) and not loads_along(site, body, Var("j"))
    assert runs_along(site, body[1:], Var("r")) and not loads_along(site, body[1:], Var("r"))


def test_a_load_that_no_loop_repeats_does_not_count():
    site, body = at(GUARDED, condition="j*8 + r < 60")
    load, store = body[0].body
    assert not runs_along(site, (load,), Var("r")) and runs_along(site, (store,), Var("r"))
    assert not loads_along(site, body, Var("r")) and runs_along(site, body, Var("r"))


@pytest.mark.parametrize(
    ("dtype", "column", "most"),
    [
        ("f32", "j*8 + r", 4),
        ("bf16", "j*8 + r", 8),
        ("bf16", "(j*8 + r + 4) % 64", 4),
        ("bf16", "(j*8 + r + 8) % 64", 8),
    ],
)
def test_the_widest_vector_is_that_of_the_elements(dtype, column, most):
    site, body = at(ROWS, dtype=dtype, column=column)
    assert widest(site, body, [Var("r")]) == most
    assert widest(site, body, [Var("i")]) == 4  # nothing runs along it


def test_the_widest_vector_of_what_starts_between_two():
    site, body = at(ROWS, dtype="bf16", column="j*8 + r + 4")
    assert widest(site, body, [Var("r")]) == 4


@pytest.mark.parametrize(
    ("column", "one"),
    [("j*8 + r", True), ("j*8 + r + 3", True), ("j*4 + r", False), ("j", False), ("r", False), ("i", True)],
)
def test_two_axes_are_one_index_wherever_they_stand(column, one):
    _, body = at(ROWS, dtype="f32", column=column)
    assert strided(body, Var("j"), Var("r"), 8) is one
    assert strided(body[:1], Var("j"), Var("r"), 8) and not strided(body, Var("j"), Var("r"), 4)


@pytest.mark.parametrize(
    ("condition", "one"),
    [("j*8 + r < 60", True), ("j*16 + r*2 < 60", True), ("j < 4", False), ("(j*8 + r) // 3 < r", False)],
)
def test_guards_are_indices_too(condition, one):
    _, body = at(GUARDED, condition=condition)
    assert strided(body, Var("j"), Var("r"), 8) is one


def test_axes_that_stand_nowhere_are_no_index():
    _, body = at(ROWS, dtype="f32", column="j*8 + r")
    assert not strided(body, Var("gone"), Var("also"), 8)
    assert neighbours((Var("k"),), Var("gone"), Var("also"), 8)


def test_one_index_of_places():
    j, r = Var("j"), Var("r")
    assert neighbours((add(multiply(j, 8), r), Var("k")), j, r, 8)
    assert not neighbours((add(multiply(j, 8), r), r), j, r, 8)
