"""Facts about the statements of a block, one step away from where they hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dplc.engine.facts.fragments import asynchronous_mma_copies, masked
from dplc.engine.facts.shared_memory import leaves
from dplc.engine.language.check import load_facts
from dplc.engine.language.evaluate import SITE
from dplc.engine.language.rule import built_in_files
from dplc.engine.rewrite.torch_rules.pattern import Numbers
from dplc.ir.expr import Axis, Binary, Var, add, subtract
from dplc.ir.facts.structure import matmul_loops, team_loops
from dplc.ir.loop import If
from dplc.ir.node import nodes
from dplc.ir.text.programs import read_program
from dplc.ir.tile import Tile

CHUNKS = """## level: tile
kernel f(x: f32[32, 64], w: f32[32, 64]) -> y: f32[32]:
    Tile(i:32=THREAD):
        {before}
        for k in 0..2 serial:
            a = Stage(x, origin=(0, k*32), box=(r:32@0, c:32@1))
            b = Stage(w, origin=(0, k*32), box=(r:32@0, c:32@1))
            Sync()
            for l in 0..32 reduce:
                u = load a[i, l]
                v = load b[i, l]
                p = multiply(u, v)
                s <- add(s, p)
            Sync()
        y[i] = s
"""
PRODUCTS = """## level: loop
kernel f(x: f32[8, 16], w: f32[{rows}16]) -> y: f32[8, 4]:
    for i in 0..8 free:
        for j in 0..4 free:
            for k in 0..16 reduce:
                a = load x[i, k]
                b = load w[{row}k]
                p = multiply(a, b)
                s <- add(s, p)
            y[i, j] = s
"""
SUMS = """## level: loop
kernel f(x: f32[8], z: f32[8]) -> y: f32[1], v: f32[1]:
    for k in 0..8 reduce:
        a = load x[k]
        s <- add(s, a)
    for {other} in 0..8 reduce:
        b = load z[{other}]
        {acc} <- add({acc}, b)
    y[0] = s
    v[0] = {acc}
"""
SCORES = """## level: tile
kernel f(x: f32[9], z: f32[9]) -> y: f32[9]:
    Tile(i:9=THREAD, j:9=REG):
        v = load x[j]
        if {guard}:
            m = where({kept}, v, -inf)
            s <- maximum(s, m)
        y[i] = s
"""


def kernel(text: str) -> Any:
    return read_program(text)[1][0]


@pytest.mark.parametrize(
    ("before", "found"), [("Sync()", ("a", "b")), ("e = Stage(x, origin=(0, 0), box=(r:32@0, c:32@1))", ())]
)
def test_the_copies_of_a_loop_are_all_that_there_are(before: str, found: tuple[str, ...]) -> None:
    """A third shared tile would have to be there before the boxes arrive that the loop waits for."""
    whole = kernel(CHUNKS.format(before=before))
    (tile,) = nodes(whole.body, Tile)
    copies = asynchronous_mma_copies(SimpleNamespace(kernel=whole), tile.body)
    assert tuple(stage.dst for stage in copies) == found


@pytest.mark.parametrize(
    ("guard", "kept", "hidden"),
    [("i < 7", "j < 5", False), ("i < 7", "i < 5", True), ("j <= i", "i < 5", True), ("j < 4", "i < 5", False)],
)
def test_what_a_guard_hides_is_minus_infinity(guard: str, kept: str, hidden: bool) -> None:
    """Asked of the condition `i < 7`, or `j < 7`: it must follow from the guard and from what is kept."""
    whole = kernel(SCORES.format(guard=guard, kept=kept))
    site = SimpleNamespace(kernel=whole, enclosing=tuple(nodes(whole.body, If)))
    wanted = kernel(SCORES.format(guard="j < 7" if "j" in guard else "i < 7", kept=kept))
    (condition,) = (stmt.cond for stmt in nodes(wanted.body, If))
    assert masked(site, Var("m"), condition) is hidden


@pytest.mark.parametrize(("rows", "row", "products"), [("4, ", "j, ", 1), ("", "", 0)])
def test_a_product_with_a_vector_is_no_outer_product(rows: str, row: str, products: int) -> None:
    whole = kernel(PRODUCTS.format(rows=rows, row=row))
    assert len(matmul_loops(whole.body, frozenset({"i", "j"}))) == products


def test_what_a_reduction_keeps_has_one_element() -> None:
    site: Any = SimpleNamespace(axis=lambda extent: Axis("one", extent))
    load_facts()
    fact = next(fact for file in built_in_files() for fact in file.facts if fact.name == "reduced_axes")
    value = Numbers().compile(fact.value)

    def reduced(os: tuple[Axis, ...], ds: tuple[int, ...], keep: bool) -> Any:
        return value({"os": os, "ds": ds, "keep": keep, SITE: site})

    i, j = Axis("i", 4), Axis("j", 5)
    assert reduced((i, j), (-1,), True) == (i, Axis("one", 1))
    assert reduced((i, j), (0,), False) == (j,) and reduced((), (0,), True) == ()


@pytest.mark.parametrize(
    ("other", "acc", "shared"), [("l", "t", ("k", "l")), ("l", "s", ()), ("k", "t", ()), ("k", "s", ())]
)
def test_loops_that_threads_share_out_have_their_own_names(other: str, acc: str, shared: tuple[str, ...]) -> None:
    """An accumulator that two loops feed would be combined twice, and one name of two loops stands for either."""
    assert tuple(loop.var for loop in team_loops(kernel(SUMS.format(other=other, acc=acc)).body)) == shared


@pytest.mark.parametrize(("place", "beyond"), [(add(Var("i"), Var("k")), True), (subtract(Var("i"), Var("k")), False)])
def test_every_place_has_to_be_beyond_the_end_where_a_guard_fails(place: Any, beyond: bool) -> None:
    """From row 8 on `i - k` may still be inside of 8 elements."""
    text = (
        "## level: loop\nkernel f(x: f32[8]) -> y: f32[12]:\n    for i in 0..12 free:\n        for k in 0..4 reduce:\n"
    )
    (kernel,) = read_program(f"{text}            a = load x[i]\n            s <- add(s, a)\n        y[i] = s\n")[1]
    assert leaves(kernel, "x", (place,), Binary("<", Var("i"), 8)) is beyond
