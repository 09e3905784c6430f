"""The verifiers of Loop and Tile IR: each invariant broken once."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import numpy as np
import pytest
from altered_texts import altered

from dplc.codegen.materialise import materialise
from dplc.codegen.materialise.blocks import LOWER
from dplc.codegen.target import target
from dplc.ir.diagnostic import DplcError
from dplc.ir.interp import tile as tile_meaning
from dplc.ir.node import CLASSES, Buffer, Expr, nodes, replace
from dplc.ir.program import Kernel, Stmt
from dplc.ir.text.print_statements import print_statement
from dplc.ir.text.programs import read_program
from dplc.ir.tile import STATEMENTS, Collective, Tile
from dplc.ir.verify import kernel as kernels, loop, tile

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
        u = Stage(x, origin=(i, 0), box=(k:16@1))
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
    ("x[i, k]", "z[i, k]", "`z` is not a buffer"),
    ("x[i, k]", "x[i, j]", "`j` is not defined here"),
    ("y[i] = s", "x[i, 0] = s", "`x` is not an output"),
    ("s <- add(s, a)", "s <- subtract(s, a)", "`subtract` has no identity"),
    ("a = load x[i, k]", "a = load x[i, k]\n            a = exp(a)", "`a` is defined twice"),
    ("s <- add(s, a)", "s <- add(s, a)\n            y[i] = a", "a reduction stores"),
    ("y[i] = s", "Sync()", "Sync is not a statement of this level"),
    ("y[i] = s", "z[i] = s", "`z` is not a buffer"),
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
    ("box=(k:16@1)", "box=(k:i@1)", "no number as its extent"),
    ("Sync()", "u = Stage(x, origin=(i, 0), box=(k:16@1), pad=4)\n        Sync()", "two layouts: `pad` differs"),
    ("origin=(i, 0)", "origin=(i, t)", "varies by thread"),
    ("origin=(i, 0)", "origin=(i)", "`x` has 2 dimensions"),
    ("Stage(x", "Stage(y", "`y` is not an input"),
    ("Stage(x", "Stage(z", "`z` is not a buffer"),
    ("load u[t]", "load s[t]", "`s` is not a buffer"),
    ("Combine(s", "Combine(r", "`r` is not an accumulator"),
    ("Combine(s, add, over=[t])", "Scan(r, add, over=[t])", "`r` is not an accumulator"),
    ("Combine(s, add, over=[t])", "Scan(s, add, over=(t, t))", "an axis is named twice"),
    ("Combine(s, add, over=[t])", "Scan(s, add, over=[i])", "`i` is not an axis inside of a block"),
    ("Combine(s, add, over=[t])", "if t < 3:\n            Scan(s, add, over=[t])", "Scan in divergent control flow"),
    ("s <- add(s, a)", "s <- add(s, a)\n        t <- add(t, a)", "`t` has two meanings"),
    ("a = load u[t]", "i = load u[t]", "`i` has two meanings"),
    ("t < 1:", "t < 1.5:", "places, which are whole numbers"),
    ("over=[t]", "over=[i]", "`i` is not an axis inside of a block"),
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


# ---- all statements, by what their classes declare

OF_EVERY_STATEMENT = {  # a program for each statement that names memory
    "loop": (LOOP, loop.problems),
    "tile": (TILE, tile.problems),
    "kernel": (
        """
        kernel f(x: f32[64, 8]) -> y: f32[64, 8]:
            Launch(grid=(1, 1, 1), block=32, shared=2048):
                x_map = TensorMap(x, box=(8, 8))
                StoreTo(f32, Address(y), values=(1.0))
        """,
        kernels.problems,
    ),
}


def _naming_memory(level: str) -> list[Any]:
    text, _ = OF_EVERY_STATEMENT[level]
    return [stmt for stmt in nodes(kernel(textwrap.dedent(text)).body, Stmt) if type(stmt).memory]


def test_every_statement_that_names_memory_is_in_a_program_of_this_file() -> None:
    ours = [cls for cls in CLASSES if issubclass(cls, Stmt) and cls.__module__.startswith("dplc.ir")]
    declared = {cls for cls in ours if cls.memory}
    assert {type(stmt) for level in OF_EVERY_STATEMENT for stmt in _naming_memory(level)} == declared
    named = {(cls, field.name) for cls in ours for field in cls.fields if field.name in ("buf", "src")}
    assert named == {(cls, name) for cls in declared for name, _ in cls.memory}


@pytest.mark.parametrize("level", OF_EVERY_STATEMENT)
def test_a_statement_that_names_no_memory_is_an_error_at_its_place(level: str) -> None:
    text, problems = OF_EVERY_STATEMENT[level]
    unit = kernel(textwrap.dedent(text))
    for stmt in _naming_memory(level):
        for buffer, index in type(stmt).memory:
            other = replace(stmt, **{buffer: "zz"})
            told = problems(_changed(unit, stmt, other))
            assert any(
                "zz" in one.replace(print_statement(other), "") and print_statement(other) in one for one in told
            )
            if index is not None:
                longer = replace(stmt, **{index: (*getattr(stmt, index), 0)})
                told = problems(_changed(unit, stmt, longer))
                assert any(f"dimensions, in `{print_statement(longer)}`" in one for one in told)


def _changed(unit: Any, old: Any, new: Any) -> Any:
    def walk(node: Any) -> Any:
        if node is old:
            return new
        if isinstance(node, tuple):
            return tuple(map(walk, node))
        return replace(node, body=walk(node.body)) if "body" in getattr(type(node), "by_name", ()) else node

    return Kernel(unit.name, unit.ins, unit.outs, walk(unit.body))


class Fetch(Stmt):
    """A statement that nobody but this test knows."""

    buf: Buffer
    idx: tuple[Expr, ...]


class FetchTogether(Collective):
    """Another, in which all threads take part."""

    buf: Buffer
    idx: tuple[Expr, ...]


@pytest.mark.parametrize(("buffer", "what"), [("zz", "`zz` is not a buffer"), ("x", "`x` has 2 dimensions")])
def test_a_new_statement_is_checked_by_the_sorts_of_its_fields(buffer: str, what: str) -> None:
    unit = kernel(LOOP)
    check = loop.Check(unit, (*loop.LOOP_STATEMENTS, Fetch))
    body = (Fetch(buffer, (0,)), *unit.body)
    if check.grounded(body):
        check.block(body, loop.Scope())
    assert what in check.found[0]


BLOCKS = tile_meaning._Blocks.block, tile_meaning._Blocks.plain, tile_meaning._Blocks.collective


def test_every_statement_of_tile_ir_has_a_check_a_meaning_and_a_lowering() -> None:
    statements = {*loop.LOOP_STATEMENTS, *STATEMENTS} - {Tile}
    assert all(issubclass(cls, loop.TILE_STATEMENTS) for cls in statements)
    assert statements == set(LOWER)
    sources = "".join(inspect.getsource(part) for part in BLOCKS)
    words = set(re.findall(r"\w+", sources)) - {"Stmt", "Collective"}
    assert all({base.__name__ for base in cls.__mro__} & words for cls in statements)


@pytest.mark.parametrize("stranger", [Fetch("x", (0, 0)), FetchTogether("x", (0, 0))])
def test_a_statement_without_a_meaning_or_a_lowering_is_an_error_that_names_it(stranger: Any) -> None:
    unit = kernel(TILE)
    (launch,) = unit.body
    unit = Kernel(unit.name, unit.ins, unit.outs, (replace(launch, body=(stranger, *launch.body)),))
    with pytest.raises(DplcError, match=f"`{type(stranger).__name__}` has no lowering"):
        materialise(unit, target("sm_80"))
    with pytest.raises(DplcError, match=f"{type(stranger).__name__} is not a statement of Tile IR"):
        tile_meaning.run((unit,), {"x": np.zeros((8, 16), np.float32), "n": np.zeros(8, np.int64)})
