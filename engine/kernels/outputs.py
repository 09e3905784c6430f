"""Outputs over the loops of the folds that they are made of.

A reshape moves nothing: its elements stand in memory as those of what it cuts anew. Where it cuts an axis that a fold
varies with (the groups of a group norm, say), a loop over the pieces would fold anew for each, so the fold's values
were stored and read again. An output that is made of such a reshape is computed over the axes before the cut; its
places in memory are the same, and what runs a program gives results torch's shapes anyway.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from ...ir.compose import rebuilt, remap
from ...ir.expr import Axis, Binary, add, multiply
from ...ir.facts.dataflow import topological
from ...ir.facts.index import operate, simplify
from ...ir.node import Expr, nodes
from ...ir.tensor import Elementwise, Fold, Input, Output, Reduce, Remap, TensorGraph, Term, axes, operands

MOST = 4  # axes whose orders are tried: 24


def uncut_outputs(graph: TensorGraph) -> TensorGraph:
    """The same program, its outputs over the axes of folds where a reshape cuts them. Places in memory stay."""
    values = {out.value for out in graph.outs}
    outs = tuple(_uncut(out, values) for out in graph.outs)
    return TensorGraph(graph.name, graph.ins, outs, graph.names) if outs != graph.outs else graph


def _uncut(out: Output, values: set[Any]) -> Output:
    region = topological([out.value], _beside)
    for view in region:
        if view.__class__ is Remap and view.x not in values and _cuts_folds(view):
            order = _order(view, out.axes)
            if order is not None:
                return Output(out.name, order, _moved(region, _digits(out.axes, order)))
    return out


def _beside(term: Term) -> Sequence[Term]:
    """What is computed at the same places as its reader."""
    return operands(term) if term.__class__ is Elementwise else ()


def _cuts_folds(view: Remap) -> bool:
    """Whether something folded below varies with an axis that the map cuts: a loop over pieces would fold anew."""
    if view.x.__class__ is Input:
        return False
    cut = {axis for axis, e in view.map if any(True for _ in nodes(e, Binary))}
    folds = (term for term in topological([view.x]) if term.__class__ is Reduce or term.__class__ is Fold)
    return any(not cut.isdisjoint(axes(term)) for term in folds)


def _order(view: Remap, outer: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
    """The order of the axes before the cut in which every element stands where it stands after; None if there is
    none.
    """
    own, mapping, wanted = axes(view.x), dict(view.map), _place(outer, {})
    if len(own) > MOST or set(axes(view)) != set(outer) or _elements(own) != _elements(outer):
        return None
    return next((order for order in itertools.permutations(own) if _place(order, mapping) == wanted), None)


def _elements(own: Sequence[Axis]) -> Expr:
    return functools.reduce(multiply, (axis.extent for axis in own), 1)


def _place(order: Sequence[Axis], mapping: dict[Axis, Expr]) -> Expr:
    """The place in memory of an element, its axes in an order, each read where the map says."""
    place: Expr = 0
    for axis in order:
        place = add(multiply(place, axis.extent), mapping.get(axis, axis))
    return simplify(place)


def _digits(outer: Sequence[Axis], order: Sequence[Axis]) -> dict[Axis, Expr]:
    """Each axis after the cut by those before it."""
    place, stride, digits = _place(order, {}), 1, {}
    for axis in reversed(outer):
        high = operate("//", place, stride)
        digits[axis] = high if axis is outer[0] else operate("%", high, axis.extent)
        stride = multiply(stride, axis.extent)
    return digits


def _moved(region: Sequence[Term], digits: dict[Axis, Expr]) -> Term:
    """The last value of a region with its axes replaced."""
    new: dict[Any, Term] = {}
    for term in region:
        new[term] = rebuilt(term, new.__getitem__) if term.__class__ is Elementwise else remap(term, digits)
        axes(new[term])  # remembered from below: no recursion later
    return new[region[-1]]
