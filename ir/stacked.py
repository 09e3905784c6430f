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
from .expr import Axis, Binary, extents_of
from .facts.index import operate
from .node import Expr
from .tensor import Case, Const, Elementwise, Fold, Index, Reduce, Remap, Term, axes, dtype, index_axes

Terms = tuple[Term, ...]  # the value at each index of the axis
Other = Callable[[Terms], Term | None]  # computed from terms that are the steps of a recurrence


class RecurrenceStep(NamedTuple):
    """A value computed from its predecessor: factor * before + summand."""

    factor: Term
    summand: Term


def steps(terms: Terms) -> tuple[RecurrenceStep, ...]:
    """Return how each term is computed from its predecessor, or nothing if one of them is not."""
    found = [_step(term, before) for before, term in itertools.pairwise(terms)]
    known = tuple(filter(None, found))
    return known if len(known) == len(found) else ()


def _step(term: Term, before: Term) -> RecurrenceStep | None:
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


def _factor(term: Term, before: Term) -> Term | None:
    """Return the factor by which the preceding value is multiplied, or None."""
    term = _opened(term)
    while term.__class__ is Elementwise and term.fn == "multiply" and any(map(_is_one, term.args)):
        term = _opened(term.args[1] if _is_one(term.args[0]) else term.args[0])  # `alpha` of torch's sums
    if term.__class__ is Elementwise and term.fn == "multiply" and before in term.args:
        return term.args[1] if term.args[0] is before else term.args[0]
    return None


def _is_one(term: Term) -> bool:
    return term.__class__ is Const and term.value == 1


def stacked(axis: Axis, terms: Terms, other: Other, known: dict[Terms, Term | None] | None = None) -> Term | None:
    """Return the value that is terms[n] at index n of an axis, or None if the terms are not computed alike.

    Args:
        other: called for operands that are the steps of a recurrence, which no function of the index expresses.
        known: results for operands, which a caller keeps for further terms along the same axis.
    """
    return terms[0] if all(term is terms[0] for term in terms) else _Stacking(axis, other, known).whole(terms)


class _Unknown(Exception):
    """Raised for operands that are to be stacked first."""


class _Unlike(Exception):
    """Raised if terms are not computed alike."""


class _Stacking:
    """Stacking of terms along one axis. known: results of operands. Terms may be deeper than the stack of Python."""

    def __init__(self, axis: Axis, other: Other, known: dict[Terms, Term | None] | None):
        self.axis, self.other = axis, other
        self.known = {} if known is None else known

    def whole(self, terms: Terms) -> Term | None:
        """Return the term of which all terms are instances, or None. Their operands are stacked before them."""
        waiting = [terms]
        while True:
            operands = waiting[-1]
            try:
                recurrent = len(waiting) > 1 and (steps(operands) or steps(operands[::-1]))
                found = self.other(operands) if recurrent else self.alike(operands)
            except _Unknown as unknown:
                waiting.append(unknown.args[0])
                continue
            except _Unlike:
                found = None
            waiting.pop()
            if not waiting:
                return found
            self.known[operands] = found

    def of(self, terms: Terms) -> Term:
        """Return the stacked operands. Raises _Unknown or _Unlike."""
        if all(term is terms[0] for term in terms):
            return terms[0]
        if terms not in self.known:
            raise _Unknown(terms)
        found = self.known[terms]
        if found is None:
            raise _Unlike
        return found

    def alike(self, terms: Terms) -> Term:
        """Return the term of which all terms are instances. Raises _Unknown for operands, and _Unlike."""
        opened: tuple[Any, ...] = tuple(map(_opened, terms))
        for read in (terms, opened):
            if len(set(map(_source, read))) == 1 and (found := self._read(read)) is not None:
                return found
        kinds = {term.__class__ for term in opened}
        first = opened[0]
        if len(kinds) > 1:
            raise _Unlike
        if first.__class__ is Elementwise and len({(term.fn, dtype(term), len(term.args)) for term in opened}) == 1:
            return Elementwise(first.fn, self._each([term.args for term in opened]))
        if first.__class__ in (Reduce, Fold):
            return self._folded(opened)
        if first.__class__ is Const:
            return self._number(opened)
        if first.__class__ is Index:
            return compose.index(self._place(tuple(term.expr for term in opened)))
        if first.__class__ is Case:
            condition = self._place(tuple(term.cond for term in opened))
            return Case(condition, *self._each([(term.a, term.b) for term in opened]))
        raise _Unlike

    def _each(self, operands: list[Terms]) -> Terms:
        return tuple(self.of(terms) for terms in zip(*operands, strict=True))

    def _folded(self, terms: tuple[Any, ...]) -> Term:
        """Return stacked reductions by one function over axes of equal length."""
        first = terms[0]
        extents = {extents_of(term.over) for term in terms}
        names = {term.fn if term.__class__ is Reduce else term.part for term in terms}
        if len(extents) > 1 or len(names) > 1:
            raise _Unlike
        given = []
        for term in terms:
            over = dict(zip(term.over, first.over, strict=True))
            inner = (term.x,) if term.__class__ is Reduce else term.args
            given.append(tuple(compose.remap(x, over) for x in inner))
        args = self._each(given)
        return Reduce(first.fn, first.over, *args) if first.__class__ is Reduce else Fold(first.part, first.over, args)

    def _read(self, terms: tuple[Any, ...]) -> Term | None:
        """Return the tensor that all terms read, at counted indices, or None if an index is numbers of no such form.

        A number selects a side of a `Case`. Any other index remains an index of an operand, where it is as unlike.
        """
        source, found = _source(terms[0]), dict[Axis, Expr]()
        maps = [dict(term.map) if term.__class__ is Remap else {} for term in terms]
        for axis in axes(source):
            places = tuple(each.get(axis, axis) for each in maps)
            try:
                found[axis] = self._place(places)
            except _Unlike:
                if any(place.__class__ is not int for place in places):
                    raise
        return compose.remap(source, found) if len(found) == len(axes(source)) else None

    def _place(self, places: tuple[Any, ...]) -> Expr:
        """Return the index expression of which all are instances."""
        first = places[0]
        if all(place is first or (place.__class__ is int and place == first) for place in places):
            return first
        if all(place.__class__ is int for place in places):
            return _counted(self.axis, places)
        if all(place.__class__ is Binary and place.op == first.op for place in places):
            left, right = (self._place(tuple(getattr(place, side) for place in places)) for side in "ab")
            return operate(first.op, left, right)
        if all(isinstance(place, Term) for place in places):
            return self.of(places)
        raise _Unlike

    def _number(self, terms: tuple[Any, ...]) -> Term:
        """Return stacked whole numbers that grow by a constant step."""
        values = tuple(term.value for term in terms)
        kinds = {term.dtype for term in terms}
        if len(kinds) > 1 or any(value.__class__ is bool or value != value // 1 for value in values):
            raise _Unlike
        e = _counted(self.axis, tuple(map(int, values)))
        if max(map(abs, values)) > 2**24:
            raise _Unlike
        return compose.cast(compose.index(e), *kinds)


def _source(term: Term) -> Term:
    """Return the value that a term reads at other indices, or else the term itself."""
    return term.x if term.__class__ is Remap else term


def _counted(axis: Axis, numbers: tuple[int, ...]) -> Expr:
    """Return first + step*digit if the numbers have this form. The digit is axis // run % count. Raises _Unlike."""
    start = numbers[0]
    run = next(place for place, number in enumerate(numbers) if number != start)
    step = numbers[run] - start
    iterations = next((n for n, number in enumerate(numbers[::run]) if n and number == start), len(numbers))
    if any(number != start + step * (place // run % iterations) for place, number in enumerate(numbers)):
        raise _Unlike
    digit = operate("//", axis, run)
    if iterations * run < len(numbers):
        digit = operate("%", digit, iterations)
    return operate("+", operate("*", digit, step), start)


def _opened(term: Term) -> Term:
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
            return term
    return term
