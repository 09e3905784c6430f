"""Functions of expressions visit each distinct node a bounded number of times, however many others share it."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from growing import DEPTH, GROWING, GROWTH, MOST, TooMany, calls_of, grown
from hypothesis import given, strategies as st

import dplc.codegen
import dplc.ir
from dplc.codegen import dtypes as c_types
from dplc.codegen.materialise import expressions
from dplc.ir import compose, expr, node, ranges, sizes, substitute as names
from dplc.ir.expr import Axis, Binary, Call, Size, Var, compare
from dplc.ir.facts import index, layout, structure
from dplc.ir.interp import scalar
from dplc.ir.kernel import Define, Launch
from dplc.ir.loop import For, Load, Store
from dplc.ir.program import Kernel, Param
from dplc.ir.tensor import Index, Output, TensorGraph, axes, index_axes, is_condition, operands
from dplc.ir.text.print_statements import print_head
from dplc.ir.verify import kernel, loop, tensor

TAKEN = ("Expr", "Iterable[Expr]", "Sequence[Expr]", "tuple[Expr, ...]", "Expr | None")
RANGES = {"x": (0, 9), "y": (0, 9)}
OF_SIZES = {f"ir.sizes.{name}" for name in ("compared", "decide_sizes", "highest", "lowest", "size_ends", "value_of")}
LEAVES = {"name": Var("x"), "axis": Axis("i", 10), "size": Size("s", 1, 64, 1, 8)}


class Lowering:
    """What functions of the code generator read of a kernel: no register is known, and names have ranges."""

    def __init__(self) -> None:
        self.ranges, self.env, self.replicated, self.tidied = RANGES, {}, {}, {}

    def register_type(self, name: str) -> str:
        return "i32"


TAKING: dict[str, Callable[[Any], Any]] = {
    "ir.compose.index": compose.index,
    "ir.compose.remap_expr": lambda e: compose.remap_expr(e, {Axis("i", 10): Axis("j", 10)}),
    "ir.expr.linear": expr.linear,
    "ir.expr.invert": expr.invert,
    "ir.expr.negate": expr.negate,
    "ir.expr.only_sizes": expr.only_sizes,
    "ir.expr.multiple_of": expr.multiple_of,
    "ir.expr.rejoined": lambda e: expr.rejoined(e, expr.floordiv),
    "ir.expr.split": lambda e: expr.split(e, 3),
    "ir.expr.free_names": expr.free_names,
    "ir.expr.add": lambda e: expr.add(e, Var("z")),
    "ir.expr.subtract": lambda e: expr.subtract(e, Var("z")),
    "ir.expr.multiply": lambda e: expr.multiply(e, Var("z")),
    "ir.expr.floordiv": lambda e: expr.floordiv(e, 6),
    "ir.expr.modulo": lambda e: expr.modulo(e, 6),
    "ir.expr.xor": lambda e: expr.xor(e, 6),
    "ir.expr.compare": lambda e: expr.compare("<", e, 6),
    "ir.expr.both": lambda e: expr.both(e, Var("z")),
    "ir.expr.either": lambda e: expr.either(e, Var("z")),
    "ir.expr.total": lambda e: expr.total((e, Var("z"))),
    "ir.facts.index.divisor": lambda e: index.divisor(e, {}),
    "ir.facts.index.interval": index.interval,
    "ir.facts.index.greatest": index.greatest,
    "ir.facts.index.operate": lambda e: [index.operate(op, e, 6) for op in ("+", "//", "%", "<")],
    "ir.facts.index.substitute": lambda e: index.substitute(e, {Axis("i", 10): Axis("j", 10)}),
    "ir.facts.index.simplify": index.simplify,
    "ir.facts.layout.tidy": lambda e: layout.tidy(e, RANGES),
    "ir.facts.layout.is_vector": lambda e: layout.is_vector(e, "x", 4),
    "ir.facts.layout.vector_step": lambda e: layout.vector_step(e, "x", 4),
    "ir.facts.structure.expr_dtype": lambda e: structure.expr_dtype(e, lambda name: "i64"),
    "ir.facts.structure.names_read": structure.names_read,
    "ir.interp.scalar.evaluate": lambda e: scalar.evaluate(e, {"x": np.int64(3)}, lambda leaf: np.int64(2)),
    "ir.node.contains": lambda e: node.contains(e, Binary),
    "ir.node.distinct": lambda e: list(node.distinct(e, Binary)),
    "ir.node.names_in": node.names_in,
    "ir.ranges.interval": lambda e: ranges.interval(e, RANGES),
    "ir.ranges.at_ends": lambda e: ranges.at_ends(e, lambda atom: None, {}),
    "ir.ranges.decide": lambda e: ranges.decide(e, RANGES),
    "ir.ranges.simplify": lambda e: ranges.simplify(e, RANGES),
    "ir.ranges.by_steps": lambda e: ranges.by_steps(e, RANGES),
    "ir.sizes.at_hint": sizes.at_hint,
    "ir.sizes.bound_to": lambda e: sizes.bound_to(e, {"s": 3}),
    "ir.sizes.divides_sizes": sizes.divides_sizes,
    "ir.sizes.compared": lambda e: sizes.compared("<", e, 6),
    "ir.sizes.decide_sizes": lambda e: sizes.decide_sizes("<", e, 6),
    "ir.sizes.has_sizes": sizes.has_sizes,
    "ir.sizes.highest": sizes.highest,
    "ir.sizes.lowest": sizes.lowest,
    "ir.sizes.size_ends": sizes.size_ends,
    "ir.sizes.value_of": lambda e: sizes.value_of(e, {"s": 3}),
    "ir.sizes.sizes_in": sizes.sizes_in,
    "ir.sizes.known_at_launch": sizes.known_at_launch,
    "ir.substitute.substitute": lambda e: names.substitute(e, {"x": Var("y")}),
    "ir.substitute.substitute_expr": lambda e: names.substitute_expr(e, {"x": Var("y")}),
    "ir.substitute.substitute_affine": lambda e: names.substitute_affine(e, Var("x"), Var("y")),
    "ir.substitute.with_sizes": lambda e: names.with_sizes(e, {"s": 3}),
    "ir.tensor.index_axes": index_axes,
    "ir.tensor.operands": lambda e: operands(Index(e)),
    "ir.tensor.is_condition": is_condition,
    "ir.text.print_statements.print_head": print_head,
    "ir.verify.loop.not_positive": lambda e: list(loop.not_positive(e)),
    "codegen.dtypes.is_literal": c_types.is_literal,
    "codegen.dtypes.dtype_of": lambda e: c_types.dtype_of(e, lambda name: "i64", "i64"),
    "codegen.materialise.expressions.widen": lambda e: expressions.widen(e, RANGES),
    "codegen.materialise.expressions.exact": lambda e: expressions.exact(e, RANGES),
    "codegen.materialise.expressions.wide": lambda e: expressions.wide(e, RANGES),
    "codegen.materialise.expressions.fits": lambda e: expressions.fits(e, RANGES),
    "codegen.materialise.expressions.divisions": expressions.divisions,
    "codegen.materialise.expressions.tidied": lambda e: expressions.tidied(Lowering(), e),
    "codegen.materialise.expressions.rounded_down": lambda e: expressions.rounded_down(Lowering(), e),
    "codegen.materialise.expressions.dtype_in": lambda e: expressions.dtype_in(Lowering(), e),
    "codegen.materialise.expressions.read": lambda e: expressions.read(Lowering(), e),
    "codegen.materialise.expressions.in_registers": lambda e: expressions.in_registers(Lowering(), e),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKING)
def test_twice_the_levels_take_at_most_thrice_the_calls(name: str) -> None:
    leaf = LEAVES["size" if name.startswith("ir.sizes") else "name"]
    for family in ("sums", "quotients") if name in OF_SIZES else ("calls", "quotients"):
        few, many = grown(family, leaf, DEPTH), grown(family, leaf, 2 * DEPTH)
        calls, more = (calls_of(functools.partial(TAKING[name], e), MOST) for e in (few, many))
        assert more <= GROWTH * calls + 100, (
            family
        )  # numbers alone: pytest would print a shared expression without an end


def broken(e: Any) -> dict[str, Callable[[], Any]]:
    """The checks of programs that are wrong at an expression, by the place of the expression."""
    x, y = Param("x", "i64", (10,)), Param("y", "i64", (10,))
    blocks = {
        "value": (Store("y", (0,), e),),
        "index": (For("x", 0, 10, (Load("v", "x", (e,)), Store("y", (Var("x"),), Var("v")))),),
        "guard": (Load("v", "x", (0,), compare("<", e, 0.5)),),
        "register": (Launch((1,), 32, (Define("v", "i64", e), Define("v", "i64", e))),),
    }
    check = {"register": kernel.problems}
    found = {
        name: functools.partial(check.get(name, loop.problems), Kernel("k", (x,), (y,), block))
        for name, block in blocks.items()
    }
    value = Index(compare("<", names.substitute_expr(e, {"x": Axis("i", 10)}), 0.5))
    graph = TensorGraph("g", (), (Output("y", axes(value), value),))
    return {**found, "tensor": lambda: tensor.check(graph)}


@pytest.mark.parametrize("name", broken(Var("x")))
def test_messages_about_shared_expressions_are_short_and_linear(name: str) -> None:
    for family in ("sums", "quotients", "choices"):
        few, many = (broken(grown(family, Var("x"), depth))[name] for depth in (DEPTH, 2 * DEPTH))
        assert calls_of(many, MOST) <= GROWTH * calls_of(few, MOST) + 100, family
        assert max(map(len, many()), default=0) <= 1000


def test_calls_of_a_tree_walk_exceed_the_limit() -> None:
    def walk(e: Any) -> int:
        return 1 + sum(map(walk, e.args)) if e.__class__ is Call else 1

    with pytest.raises(TooMany):
        calls_of(lambda: walk(grown("calls", Var("x"), DEPTH)), MOST)


@given(st.lists(st.sampled_from(sorted(GROWING)), min_size=8, max_size=12))
def test_values_of_shared_expressions_survive_simplification(levels: list[str]) -> None:
    e: Any = Var("x")
    for family in levels:
        if family != "conditions":
            e = GROWING[family](e)
    simple = ranges.simplify(names.substitute(e, {"x": Var("y")}), RANGES)
    with np.errstate(over="ignore"):
        for x in (np.int64(0), np.int64(7)):
            assert scalar.evaluate(e, {"x": x}) == scalar.evaluate(simple, {"y": x})


NOT_WALKED = {
    "ir.compose": "of_sizes case",  # make one node
    "ir.expr": "binary rebuild",  # make one node
    "ir.facts.layout": "strides cell_of row_of row_and_column address place_in_source",  # call the functions above
    "ir.facts.structure": "positions",  # walks statements
    "ir.sizes": "hinted decided settled",  # call the functions above
    "ir.text.print_statements": "print_expr",  # a text has no sharing: it is as long as the tree
    "ir.verify.loop": "implied greatest",  # call `decide` and `interval`
    "codegen.materialise.blocks": "place_checks address_of vector_axis source_position",  # call the functions above
    "codegen.materialise.expressions": "least greatest counter_dtype guarded filled declared assigned varies computed "
    "flat global_address resolve level_of ring weaken on_edge simplify_condition narrowed in_chunks conjunction",
    "codegen.materialise.shared_memory": "shared_tile_element shared_tile_address cell_address slot_start within_unit "
    "flip parts possible_bits",  # of addresses, which are sums of few atoms
    "codegen.materialise.values": "inlined_value",  # makes one value
}


def test_functions_that_take_expressions_are_tested_or_named() -> None:
    named = {f"{module}.{name}" for module, found in NOT_WALKED.items() for name in found.split()}
    found = set()
    for package in (dplc.ir, dplc.codegen):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(each.name)
            for name, function in vars(module).items():
                plain = inspect.unwrap(function) if callable(function) else None
                if inspect.isfunction(plain) and plain.__module__ == each.name and not name.startswith("_"):
                    sorts = [sort for given, sort in plain.__annotations__.items() if given != "return"]
                    if any(sort in TAKEN for sort in sorts):
                        found.add(f"{each.name.removeprefix('dplc.')}.{name}")
    assert found <= named | TAKING.keys()
    assert named <= found
