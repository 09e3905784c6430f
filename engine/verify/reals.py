"""Where a program of Tensor IR is about real numbers: the elements of its outputs that depend on nothing else.

An equation between real numbers says nothing of an element that divides by zero on its way; of all others it does.
Which they are is computed as a program computes: a mark beside every value, set where the value is no number, carried
along by the same reductions and index maps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...ir import compose
from ...ir.diagnostic import DplcError
from ...ir.dtypes import FLOATS
from ...ir.functions import FUNCTIONS, SELECT
from ...ir.interp import tensor as meaning
from ...ir.monoids import of_part
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Input,
    Mat,
    Output,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    postorder,
    read_by,
)

COUNT = "n0"


def real_places(graph: TensorGraph, data: Any) -> list[Any]:
    """A mask for every output: True where no value on the way to an element is infinite or NaN."""
    terms = postorder(out.value for out in graph.outs)
    floats = [term for term in terms if dtype(term) in FLOATS]
    shown = tuple(Output(f"value{n}", axes(term), term) for n, term in enumerate(floats))
    try:
        values = meaning.run(TensorGraph(graph.name, graph.ins, shown), data)
    except DplcError:  # a side of a Case that is not taken reads out of bounds
        return [np.full([axis.extent for axis in out.axes], True) for out in graph.outs]
    given = {f"bad{n}": ~np.isfinite(value) for n, value in enumerate(values)}
    own: dict[Term, Term] = {
        term: Input(f"bad{n}", axes(term), "b8") for n, term in enumerate(floats) if given[f"bad{n}"].any()
    }
    marks: dict[Term, Term] = {}
    for term in terms:
        marks[term] = _either(([own[term]] if term in own else []) + _below(term, marks))
    outs = tuple(Output(out.name, out.axes, marks[out.value]) for out in graph.outs)
    marked = TensorGraph(graph.name, (*graph.ins, *own.values()), outs)  # type: ignore[arg-type]
    return [~bad for bad in meaning.run(marked, {**data, **given})]  # the data too: places are looked up in it


def in_domain(graph: TensorGraph, data: Any) -> bool:
    """Whether what partial results call a count is one: 0, or 1 and more. Below, they are no monoid."""
    counts = [x.args[0] for x in postorder(out.value for out in graph.outs) if isinstance(x, Fold) and counted(x.part)]
    if not counts:
        return True
    shown = tuple(Output(f"count{n}", axes(term), term) for n, term in enumerate(counts))
    try:
        values = meaning.run(TensorGraph(graph.name, graph.ins, shown), data)
    except DplcError:
        return True
    return all(bool(((value == 0) | (value >= 1)).all()) for value in values)


def whole_sums(graph: TensorGraph, data: Any) -> bool:
    """Whether all that a program adds up is whole, so that the order of its sums changes nothing."""
    terms = postorder(out.value for out in graph.outs)
    summed = {x.x for x in terms if isinstance(x, Reduce)} | {y for x in terms if isinstance(x, Fold) for y in x.args}
    shown = tuple(Output(f"summed{n}", axes(term), term) for n, term in enumerate(summed))
    try:
        values = meaning.run(TensorGraph(graph.name, graph.ins, shown), data) if shown else []
    except DplcError:
        return True
    return all(bool((value == np.round(value)).all()) for value in values)


def counted(part: str) -> bool:
    """Whether the first operand of a reduction over partial results is how many elements they are of."""
    return of_part(part)[0].operands[0] == COUNT


def _below(term: Any, marks: dict[Term, Term]) -> list[Term]:
    """The marks of what an element depends on."""
    kind = term.__class__
    if kind is Elementwise and FUNCTIONS[term.fn].kind == SELECT:  # the side that is not taken does not count
        condition, a, b = term.args
        return [marks[condition], Elementwise("where", (compose.cast(condition, "b8"), marks[a], marks[b]))]
    if kind is Elementwise:
        return [marks[x] for x in term.args]
    if kind is Reduce:
        return [Reduce("logical_or", term.over, marks[term.x])]
    if kind is Fold:
        return [Reduce("logical_or", term.over, marks[x]) for x in read_by(term)]
    if kind is Remap:
        return [Remap(marks[term.x], term.map)]
    if kind is Case:
        return [Case(term.cond, marks[term.a], marks[term.b])]
    return [marks[term.x]] if kind is Mat else []


def _either(marks: Iterable[Term]) -> Term:
    nothing = Const(False, "b8")
    found: Term = nothing
    for mark in dict.fromkeys(marks):
        if mark is not nothing:
            found = mark if found is nothing else Elementwise("logical_or", (found, mark))
    return found
