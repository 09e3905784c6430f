"""Stacking of values along a new axis, if all are computed alike: common subterms occur once.

The result is the least general term of which all values are instances (Plotkin, "A Note on Inductive Generalization",
1970). Functions that all values share stay, numbers that grow by a constant step from one value to the next are
counted along the axis, and operands that read one tensor at counted indices become one read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from . import compose
from .expr import Axis, Binary
from .facts.index import operate
from .node import Expr
from .tensor import Case, Const, Elementwise, Fold, Index, Input, Reduce, Remap, Term, axes, dtype, index_axes

Terms = tuple[Term, ...]  # the value at each index of the axis
Other = Callable[[Terms], Term | None]  # computed from terms that are the steps of a recurrence


class RecurrenceStep(NamedTuple):
    """A value computed from its predecessor: factor * before + summand."""

    factor: Term
    summand: Term


def steps(terms: Terms) -> tuple[RecurrenceStep, ...]:
    """Return how each term is computed from its predecessor, or nothing if one of them is not."""
    found = tuple(_step(term, before) for before, term in itertools.pairwise(terms))
    return () if None in found else found  # type: ignore[return-value]


def _step(term: Any, before: Term) -> RecurrenceStep | None:
    term = _opened(term)
    if term.__class__ is not Elementwise:
        return None
    kind = dtype(term)
    if term.fn == "add":
        for part, summand in (term.args, term.args[::-1]):
            if part is before:
                return RecurrenceStep(compose.const(1.0, kind), summand)
            factor = _factor(part, before)
            if factor is not None:
                return RecurrenceStep(factor, summand)
    factor = _factor(term, before)
    return None if factor is None else RecurrenceStep(factor, compose.const(0.0, kind))


def _factor(term: Any, before: Term) -> Term | None:
    """Return the factor by which the preceding value is multiplied, or None."""
    term = _opened(term)
    while term.__class__ is Elementwise and term.fn == "multiply" and any(map(_is_one, term.args)):
        term = _opened(term.args[1] if _is_one(term.args[0]) else term.args[0])  # `alpha` of torch's sums
    if term.__class__ is Elementwise and term.fn == "multiply" and before in term.args:
        return term.args[1] if term.args[0] is before else term.args[0]  # type: ignore[no-any-return]
    return None


def _is_one(term: Any) -> bool:
    return term.__class__ is Const and term.value == 1


def stacked(axis: Axis, terms: Terms, other: Other) -> Term | None:
    """Return the value that is terms[n] at index n of an axis, or None if the terms are not computed alike.

    other: called for operands that are the steps of a recurrence, which no function of the index expresses.
    """
    return terms[0] if all(term is terms[0] for term in terms) else _Stacking(axis, other).whole(terms)


class _Unknown(Exception):
    """Raised for operands that are to be stacked first."""


class _Stacking:
    """Stacking of terms along one axis. known: the results so far. Terms may be deeper than the stack of Python."""

    def __init__(self, axis: Axis, other: Other):
        self.axis, self.other = axis, other
        self.known: dict[Terms, Term | None] = {}

    def whole(self, terms: Terms) -> Term | None:
        """Return the term of which all terms are instances, or None. Their operands are stacked before them."""
        waiting = [terms]
        while waiting:
            operands = waiting[-1]
            recurrent = len(waiting) > 1 and (steps(operands) or steps(operands[::-1]))
            try:
                self.known[operands] = self.other(operands) if recurrent else self.alike(operands)
                waiting.pop()
            except _Unknown as unknown:
                waiting.append(unknown.args[0])
        return self.known[terms]

    def of(self, terms: Terms) -> Term | None:
        """Return the stacked operands, or None. Raises _Unknown."""
        if all(term is terms[0] for term in terms):
            return terms[0]
        if terms not in self.known:
            raise _Unknown(terms)
        return self.known[terms]

    def alike(self, terms: Terms) -> Term | None:
        """Return the term of which all terms are instances, or None. Raises _Unknown for operands."""
        read = self._read(terms)
        if read is not None:
            return read
        opened: tuple[Any, ...] = tuple(map(_opened, terms))
        kinds = {term.__class__ for term in opened}
        if kinds <= {Input, Remap}:
            return self._read(opened)
        if len(kinds) > 1:
            return None
        first = opened[0]
        if first.__class__ is Elementwise:
            same = len({(term.fn, dtype(term), len(term.args)) for term in opened}) == 1
            args = self._each([term.args for term in opened]) if same else None
            return None if args is None else Elementwise(first.fn, args)
        if first.__class__ in (Reduce, Fold):
            return self._folded(opened)
        if first.__class__ is Const:
            return self._number(opened)
        if first.__class__ is Index:
            e = self._place(tuple(term.expr for term in opened))
            return None if e is None else compose.index(e)
        if first.__class__ is Case:
            condition = self._place(tuple(term.cond for term in opened))
            sides = self._each([(term.a, term.b) for term in opened])
            return None if condition is None or sides is None else Case(condition, *sides)
        return None

    def _each(self, operands: list[Terms]) -> Terms | None:
        found = tuple(self.of(terms) for terms in zip(*operands, strict=True))
        return None if None in found else found  # type: ignore[return-value]

    def _folded(self, terms: tuple[Any, ...]) -> Term | None:
        """Return stacked reductions by one function over axes of equal length, or None."""
        first = terms[0]
        extents = {tuple(axis.extent for axis in term.over) for term in terms}
        names = {term.fn if term.__class__ is Reduce else term.part for term in terms}
        if len(extents) > 1 or len(names) > 1:
            return None
        given = []
        for term in terms:
            over = dict(zip(term.over, first.over, strict=True))
            inner = (term.x,) if term.__class__ is Reduce else term.args
            given.append(tuple(compose.remap(x, over) for x in inner))
        args = self._each(given)
        if args is None:
            return None
        return Reduce(first.fn, first.over, *args) if first.__class__ is Reduce else Fold(first.part, first.over, args)

    def _read(self, terms: tuple[Any, ...]) -> Term | None:
        """Return one tensor read at counted indices, or None."""
        sources = {term.x if term.__class__ is Remap else term for term in terms}
        if len(sources) > 1:
            return None
        (source,) = sources
        maps = [dict(term.map) if term.__class__ is Remap else {} for term in terms]
        found = {axis: self._place(tuple(places.get(axis, axis) for places in maps)) for axis in axes(source)}
        return None if None in found.values() else compose.remap(source, found)

    def _place(self, places: tuple[Any, ...]) -> Expr | None:
        """Return the index expression of which all are instances, or None."""
        first = places[0]
        if all(place is first or (place.__class__ is int and place == first) for place in places):
            return first  # type: ignore[no-any-return]
        if all(place.__class__ is int for place in places):
            return _counted(self.axis, places)
        if all(place.__class__ is Binary and place.op == first.op for place in places):
            left, right = (self._place(tuple(getattr(place, side) for place in places)) for side in "ab")
            return None if left is None or right is None else operate(first.op, left, right)
        return self.of(places) if all(isinstance(place, Term) for place in places) else None

    def _number(self, terms: tuple[Any, ...]) -> Term | None:
        """Return stacked whole numbers that grow by a constant step, or None."""
        values = tuple(term.value for term in terms)
        kinds = {term.dtype for term in terms}
        if len(kinds) > 1 or any(value.__class__ is bool or value != value // 1 for value in values):
            return None
        e = _counted(self.axis, tuple(map(int, values)))
        return None if e is None or max(map(abs, values)) > 2**24 else compose.cast(compose.index(e), *kinds)


def _counted(axis: Axis, numbers: tuple[int, ...]) -> Expr | None:
    """Return first + step*digit if the numbers have this form, or None. The digit is axis // run % count."""
    start = numbers[0]
    run = next(place for place, number in enumerate(numbers) if number != start)
    step = numbers[run] - start
    iterations = next((n for n, number in enumerate(numbers[::run]) if n and number == start), len(numbers))
    if any(number != start + step * (place // run % iterations) for place, number in enumerate(numbers)):
        return None
    digit = operate("//", axis, run)
    if iterations * run < len(numbers):
        digit = operate("%", digit, iterations)
    return operate("+", operate("*", digit, step), start)


def _opened(term: Any) -> Term:
    """Return a computed value that is read at other indices as a computation on operands that are read there."""
    while term.__class__ is Remap and term.x.__class__ in (Elementwise, Reduce, Case):
        inner: Any = term.x
        places = dict(term.map)
        if inner.__class__ is Elementwise:
            term = Elementwise(inner.fn, tuple(compose.remap(x, places) for x in inner.args))
        elif inner.__class__ is Case:
            condition = compose.remap_expr(inner.cond, places)
            if isinstance(condition, bool):
                term = compose.remap(inner.a if condition else inner.b, places)
            else:
                term = Case(condition, compose.remap(inner.a, places), compose.remap(inner.b, places))
        elif inner.__class__ is Reduce and {a for e in places.values() for a in index_axes(e)}.isdisjoint(inner.over):
            term = Reduce(inner.fn, inner.over, compose.remap(inner.x, places))
        else:
            return term  # type: ignore[no-any-return]
    return term  # type: ignore[no-any-return]
