"""The meaning of a Tensor IR program: numpy in float64, integers and booleans exact.

An element read out of bounds is poison. A `Case` drops the poison of the side that it does not select, every other
operation passes it on, and an output that holds any is an error.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..diagnostic import DplcError
from ..dtypes import FLOATS
from ..expr import Axis, Order, extents_of
from ..functions import CAST, FUNCTIONS, LOGICAL, SELECT
from ..monoids import of_part
from ..tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    OperatorCall,
    Output,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    delivered,
    dtype,
    factors,
    terms,
)
from .loop import fold_tuples
from .scalar import KINDS, as_kind, evaluate, folded

Array = np.ndarray[Any, Any]


class TermValue(NamedTuple):
    """An array with one dimension per axis of its term, in that order. bad: where it was read out of bounds."""

    data: Array
    bad: Array | None = None


def run(graph: TensorGraph, data: Mapping[str, Any], partial: bool = False) -> list[Array]:
    """Return the outputs, each with one dimension per axis (a dimension of size 1 is not an axis).

    data: {input name: array of the declared extents}; the arrays may have dimensions of size 1. Raises DplcError if an
    index leaves its operand. If a result is `partial`, such elements are not read and hold anything.
    """
    found, results = values(graph, data), []
    for out in delivered(graph):
        value = found[out.value]
        if value.bad is not None and value.bad.any() and not partial:
            raise DplcError(f"`{out.name}` reads out of bounds")
        results.append(stored(value.data, out))
    return results


def values(graph: TensorGraph, data: Mapping[str, Any], real: bool = False) -> dict[Term, TermValue]:
    """Return the value of every term of a program, operands first.

    real: a float that is infinite or NaN is bad, too, and a `where` drops what is bad of the side that it does not
    select.
    """
    data = dict(data)
    for call in graph.calls:
        read = tuple(out for out in graph.outs if out.name in {param.name for param in call.given})
        found = run(TensorGraph(graph.name, graph.ins, read), data)
        stored_for = dict(zip((out.name for out in read), found, strict=True))
        data |= _called(call, data | stored_for)
    meaning = TensorMeaning({x.name: np.asarray(data[x.name]) for x in graph.ins if x.name in data}, real)
    for term in terms(graph):
        meaning.add(term)
    return meaning.values


def _called(call: OperatorCall, data: Mapping[str, Array]) -> dict[str, Array]:
    """Return {result: array} of a call, which torch computes."""
    import torch

    from . import torch as torch_meaning

    buffers = {param.name: torch.from_numpy(np.array(data[param.name])) for param in call.given}
    return {name: made.numpy() for name, made in torch_meaning.called(call, buffers, True).items()}


def stored(data: Array, out: Output) -> Array:
    """Return an array of the axes of a value with one dimension per axis of the output that stores it."""
    return np.broadcast_to(_spread(data, axes(out.value), out.axes), extents_of(out.axes))


def _spread(data: Array, own: Order, order: Order) -> Array:
    """Return data with its dimensions in `order`, and size 1 for axes that it lacks."""
    there = [a for a in order if a in own]
    moved = np.transpose(data, [own.index(a) for a in there]) if own else data
    return moved.reshape([a.extent if a in own else 1 for a in order])


class TensorMeaning:
    """The values of terms over some inputs, operands first. data, real: as for `values`."""

    def __init__(self, data: dict[str, Array], real: bool = False):
        self.data, self.real = data, real
        self.values: dict[Term, TermValue] = {}

    def add(self, term: Term) -> TermValue:
        """Compute a term from the values of its operands, and keep its value."""
        with np.errstate(all="ignore"):  # constants such as -inf and masked rows make inf and nan on purpose
            value, bad = self._value(term)
        if self.real and dtype(term) in FLOATS:
            bad = _any(bad, ~np.isfinite(value))
        made = self.values[term] = TermValue(value, None if bad is None else _full(bad, axes(term)))
        return made

    def _value(self, term: Any) -> TermValue:
        kind = term.__class__
        if kind is Input:
            extents = extents_of(term.axes)
            return TermValue(as_kind(self.data[term.name], term.dtype).reshape(extents))
        if kind is Const:
            return TermValue(np.asarray(term.value, KINDS[term.dtype]))
        if kind is Index:
            return self._index(term.expr, axes(term), KINDS[dtype(term)])
        if kind is Elementwise:
            return self._elementwise(term)
        if kind is Reduce:
            return self._contraction(term) or self._reduce(term)
        if kind is Fold:
            return self._fold(term)
        if kind is Remap:
            return self._remap(term)
        return self._case(term) if kind is Case else self.values[term.x]

    def operand(self, term: Term, order: Order) -> TermValue:
        """Return the value of a term with its dimensions in `order`."""
        value = self.values[term]
        bad = None if value.bad is None else _spread(value.bad, axes(term), order)
        return TermValue(_spread(value.data, axes(term), order), bad)

    def _elementwise(self, term: Elementwise) -> TermValue:
        order = axes(term)
        args = [self.operand(x, order) for x in term.args]
        function = FUNCTIONS[term.fn]
        to = KINDS[dtype(term)]
        if function.kind == CAST:
            return TermValue(as_kind(args[0].data, dtype(term)), args[0].bad)
        # numpy has no arithmetic on booleans; torch's is that of integers
        numbers = [
            v.data.astype(np.int64) if v.data.dtype == bool and function.kind != LOGICAL else v.data for v in args
        ]
        data = np.asarray(function.numpy(*numbers)).astype(to, copy=False)
        masks = [v.bad for v in args]
        if self.real and function.kind == SELECT:
            masks[1:] = [_selected(args[0].data, *args[1:])]
        return TermValue(_full(data, order), _any(*masks))

    def _contraction(self, term: Reduce) -> TermValue | None:
        """Return a sum of products computed without the products in memory, or None."""
        x: Any = term.x
        if not factors(term) or dtype(x) not in FLOATS:
            return None
        values = [self.values[y] for y in x.args]
        if any(v.bad is not None for v in values) or any(a not in axes(x) for a in term.over):
            return None
        number = {a: n for n, a in enumerate(axes(x))}
        pairs = [part for y, v in zip(x.args, values, strict=True) for part in (v.data, [number[a] for a in axes(y)])]
        total = np.einsum(*pairs, [number[a] for a in axes(term)], optimize=True)
        return TermValue(total + 0.0)  # a sum starts at 0.0 and is never -0.0, whichever factor einsum takes out of it

    def _reduce(self, term: Reduce) -> TermValue:
        kept = axes(term)
        order = (*kept, *term.over)
        value = self.operand(term.x, order)
        swept = tuple(range(len(kept), len(order)))
        data = np.broadcast_to(value.data, extents_of(order))
        total = np.asarray(folded(term.fn, data, swept)).astype(KINDS[dtype(term)], copy=False)
        return TermValue(total, None if value.bad is None else np.asarray(np.any(value.bad, axis=swept)))

    def _fold(self, term: Fold) -> TermValue:
        """Return a part of a tuple reduction. Its operands, with the reduced axes in front, are lifted and combined."""
        monoid, part = of_part(term.part)
        kept = axes(term)
        order, read = (*kept, *term.over), monoid.reads(part)
        count = math.prod(extents_of(term.over))
        lanes, bad = [], []
        for name, x in zip(monoid.operands, term.args, strict=True):
            value = self.operand(x, order) if name in read else TermValue(np.zeros(()))
            bad.append(value.bad)
            flat = _full(value.data, order).reshape(*extents_of(kept), count)
            lanes.append(np.moveaxis(flat, -1, 0))
        total = fold_tuples(monoid, lanes, count)[monoid.parts.index(part)]
        outside, swept = _any(*bad), tuple(range(len(kept), len(order)))
        poison = None if outside is None else np.asarray(np.any(_full(outside, order), axis=swept))
        return TermValue(_full(np.asarray(total), kept), poison)

    def _case(self, term: Case) -> TermValue:
        order = axes(term)
        condition = self._index(term.cond, order, np.bool_)
        a, b = self.operand(term.a, order), self.operand(term.b, order)
        bad = _any(_selected(condition.data, a, b), condition.bad)
        return TermValue(_full(np.where(condition.data, a.data, b.data), order), bad)

    def _remap(self, term: Remap) -> TermValue:
        order = axes(term)
        base, mapping = self.values[term.x], dict(term.map)
        places, bad = [], []
        for axis in axes(term.x):
            place = self._index(mapping.get(axis, axis), order, np.int64)
            outside = (place.data < 0) | (place.data >= axis.extent)
            bad += [place.bad, outside if outside.any() else None]
            places.append(np.clip(place.data, 0, axis.extent - 1))
        if base.bad is not None:
            bad.append(base.bad[tuple(places)])
        return TermValue(_full(base.data[tuple(places)], order), _any(*bad))

    # ---- index expressions
    def _index(self, e: Any, order: Order, to: Any) -> TermValue:
        bad: list[Array | None] = []

        def leaf(part: Any) -> Any:
            if part.__class__ is Axis:
                return np.arange(part.extent).reshape([part.extent if a is part else 1 for a in order])
            if not isinstance(part, Term):
                return part
            value = self.operand(part, order)
            bad.append(value.bad)
            return value.data

        return TermValue(_full(np.asarray(evaluate(e, {}, leaf)).astype(to), order), _any(*bad))


def _full(data: Array, order: Order) -> Array:
    return np.broadcast_to(data, extents_of(order))


def _selected(condition: Array, a: TermValue, b: TermValue) -> Array | None:
    """Return where the side that a condition selects is bad."""
    if a.bad is None and b.bad is None:
        return None
    return np.where(condition, False if a.bad is None else a.bad, False if b.bad is None else b.bad)


def _any(*masks: Array | None) -> Array | None:
    given = [mask for mask in masks if mask is not None]
    return functools.reduce(operator.or_, given) if given else None
