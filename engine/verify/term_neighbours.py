"""Neighbours of a Tensor IR program: other extents, functions and inputs, values that are read once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.functions import FUNCTIONS
from ...ir.node import Node
from ...ir.tensor import Const, Elementwise, Input, Output, TensorGraph, Term, axes, dtype, postorder
from .outcome import Dice, constant, numeral
from .statement_neighbours import renumbered

SIZES = (3, 4, 2, 5, 8, 7, 6)
LONGEST = 16  # of the extents that a rule names


def perturbed(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """The program after one to three changes; what results need not be well formed."""
    for _ in range(dice.number(1, 3)):
        graph = dice.pick(CHANGES)(graph, dice)
    return _lean(graph)


def other_extent(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """One extent becomes another, in axes, in places and in numbers that are the extent; its multiples with it."""
    found = sorted({axis.extent for x in graph.ins for axis in x.axes})
    if not found:
        return graph
    old, new = dice.pick(found), numeral(dice, SIZES, 1, LONGEST)

    def change(number: int) -> int:
        if old > 2 and number and number % old == 0:
            return int(number // old * new)
        return new if number == old else number

    def edit(term: Term) -> Term:
        return Const(type(term.value)(new), term.dtype) if isinstance(term, Const) and term.value == old else term

    return _edited(graph, edit, change)


def with_numbers(graph: TensorGraph, change: Callable[[int], Any]) -> TensorGraph:
    """The program with the whole numbers of axes and places changed; constants stay."""
    return _lean(_edited(graph, lambda term: term, change))


def other_function(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Another function of as many arguments, and of the same kind."""
    found = [x for x in _terms(graph) if isinstance(x, Elementwise) and x.fn in OTHERS]
    if not found:
        return graph
    chosen = dice.pick(found)
    other = dice.pick(OTHERS[chosen.fn])
    return _edited(graph, lambda term: Elementwise(other, term.args) if term is chosen else term)


def other_number(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """Another constant."""
    found = [x for x in _terms(graph) if isinstance(x, Const) and dtype(x) in ("f32", "i64")]
    if not found:
        return graph
    chosen = dice.pick(found)
    value = type(chosen.value)(constant(dice, (2.0, 0.5, 3.0, 1.0, 0.0, -1.0, 8.0)))
    return _edited(graph, lambda term: Const(value, term.dtype) if term is chosen else term)


def computed_input(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """A function of an input in its place."""
    found = [x for x in graph.ins if x.dtype == "f32"]
    if not found:
        return graph
    chosen, fn = dice.pick(found), dice.pick(("exp", "negative", "copy", "abs"))
    return _edited(graph, lambda term: Elementwise(fn, (term,)) if term is chosen else term)


def read_again(graph: TensorGraph, dice: Dice) -> TensorGraph:
    """A value is a result too, or a function of it is."""
    found = [x for x in _terms(graph) if dtype(x) == "f32" and axes(x)]
    if not found:
        return graph
    chosen = dice.pick(found)
    shown = Elementwise(dice.pick(("copy", "negative", "relu", "exp")), (chosen,))
    taken = {out.name for out in graph.outs}
    name = next(f"more{n}" for n in range(len(taken) + 1) if f"more{n}" not in taken)
    return TensorGraph(graph.name, graph.ins, (*graph.outs, Output(name, axes(shown), shown)))


CHANGES = (other_extent, other_extent, other_function, computed_input, read_again, other_number)
_ALIKE = (
    ("exp", "tanh", "abs", "negative", "sigmoid", "relu", "sin"),
    ("add", "multiply", "subtract", "maximum", "minimum", "divide"),
)
OTHERS = {fn: tuple(other for other in group if other != fn) for group in _ALIKE for fn in group if fn in FUNCTIONS}


def _terms(graph: TensorGraph) -> list[Term]:
    return postorder(out.value for out in graph.outs)


def _edited(graph: TensorGraph, edit: Callable[[Any], Term], change: Callable[[int], Any] | None = None) -> TensorGraph:
    """The program with every term passed through `edit`, and the whole numbers of axes and places through `change`."""
    known: dict[Any, Any] = {}

    def place(e: Any) -> Any:
        return e if change is None else renumbered(e, change)

    def visit(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(visit(item) for item in value)
        if not isinstance(value, Term):
            return place(value) if isinstance(value, Node | int) else value
        if value not in known:
            made = edit(value)
            if made is value and not isinstance(value, Const):
                made = type(value)(*(visit(getattr(value, field.name)) for field in type(value).fields))
            elif made is not value and isinstance(value, Elementwise):
                made = Elementwise(made.fn, visit(value.args))  # type: ignore[attr-defined]
            known[value] = made
        return known[value]

    outs = tuple(Output(out.name, place(out.axes), visit(out.value)) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs)


def _lean(graph: TensorGraph) -> TensorGraph:
    """The inputs that are still read; results with all their axes."""
    ins = sorted((x for x in _terms(graph) if isinstance(x, Input)), key=lambda x: x.name)
    outs = (Output(out.name, tuple(dict.fromkeys((*out.axes, *axes(out.value)))), out.value) for out in graph.outs)
    return TensorGraph(graph.name, tuple(ins), tuple(outs))
