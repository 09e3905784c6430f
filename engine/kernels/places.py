"""At how many places a kernel would compute values for one element of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any

from ...ir.compose import remap_expr
from ...ir.expr import invert
from ...ir.facts.dataflow import Dataflow
from ...ir.tensor import Case, Input, Remap, axes, operands

Place = tuple[Any, ...]  # where each axis of a value is read, over the axes of what reads it
Guard = tuple[Any, ...]  # conditions under which a place is read, the outermost first
Below = dict[Any, dict[Place, Guard]]


class Places:
    """The places of values that views and others read, below each term of a kernel. Terms are visited operands first.

    A chain in which every step reads its predecessor at several places reads the first step at many. Each place is
    computed by itself, in text and in time. A place under conditions that exclude each other is not computed.
    """

    def __init__(self, flow: Dataflow, kept: Set[Any]):
        self.flow, self.kept = flow, kept
        self.views: dict[Any, list[dict[Any, Any]]] = {}  # the maps under which a value of several readers is read
        for term in flow.order:
            if term.__class__ is Remap and term.x.__class__ is not Input and len(flow.readers[term.x]) > 1:
                self.views.setdefault(term.x, []).append(dict(term.map))
        self.below: dict[Any, Below] = {}
        self.count: dict[Any, int] = {}

    def visit(self, term: Any) -> None:
        """Counts the places that the readers of a term need: one, and each further place of a value below it or of
        itself.
        """
        found: Below = {}
        for places in self._seen(term):
            found = _merged(found, places) if found else places
        self.below[term] = found
        views = self.views.get(term)
        if views is not None:
            everything = {**found, term: {axes(term): ()}}
            found = everything if len(views) < len(self.flow.readers[term]) else {}
            for view in views:
                found = _merged(found, _moved(everything, view))
        self.count[term] = 1 + sum(len(places) - 1 for places in found.values())

    def _seen(self, term: Any) -> Iterator[Below]:
        """The places of values below each operand of a term."""
        for operand, condition in _conditions(term):
            if operand in self.kept:
                continue
            places = self.below[operand]
            if operand in self.views:
                places = {**places, operand: {axes(operand): ()}}
            if term.__class__ is Remap:
                places = _moved(places, dict(term.map))
            if condition is not None:
                places = {
                    value: {place: (condition, *guard) for place, guard in each.items()}
                    for value, each in places.items()
                }
            if places:
                yield places


def _conditions(term: Any) -> Iterator[tuple[Any, Any]]:
    """The operands of a term, with the conditions that a selection reads its sides under."""
    if term.__class__ is not Case:
        yield from ((operand, None) for operand in operands(term))
        return
    yield from ((operand, None) for operand in operands(term)[:-2])
    yield term.a, term.cond
    yield term.b, invert(term.cond)


def _merged(one: Below, other: Below) -> Below:
    """All places of two. A place that both have is read under what its guards begin with."""
    found = dict(one)
    for value, places in other.items():
        mine = found.get(value)
        if mine is not None and mine is not places:
            places = {**mine, **{p: _common(mine[p], guard) if p in mine else guard for p, guard in places.items()}}
        found[value] = places
    return found


def _common(guard: Guard, other: Guard) -> Guard:
    if guard == other:
        return guard
    same = 0
    for one, another in zip(guard, other, strict=False):
        if one is not another:
            break
        same += 1
    return guard[:same]


def _moved(below: Below, view: dict[Any, Any]) -> Below:
    """Places, read through a view: without those whose guard is false there."""
    through: dict[Any, Any] = {}  # what an expression is under the view: guards of a chain have their parts in common

    def read(e: Any) -> Any:
        if e not in through:
            through[e] = remap_expr(e, view)
        return through[e]

    found: Below = {}
    for value, places in below.items():
        moved: dict[Place, Guard] = {}
        for place, guard in places.items():
            there = _reached(guard, read)
            if there is None:
                continue
            at = tuple(map(read, place))
            if not _is_one_side(value, at):
                moved[at] = _common(moved[at], there) if at in moved else there
        if moved:
            found[value] = moved
    return found


def _reached(guard: Guard, read: Callable[[Any], Any]) -> Guard | None:
    """A guard, read through a view; None where it is false."""
    conditions = []
    for condition in guard:
        there = read(condition)
        if there is False:
            return None
        if there is not True:
            conditions.append(there)
    return tuple(conditions)


def _is_one_side(value: Any, place: Place) -> bool:
    """Whether a selection is one of its sides at a place: then nothing is computed for it there."""
    if value.__class__ is not Case:
        return False
    return isinstance(remap_expr(value.cond, dict(zip(axes(value), place, strict=True))), bool)
