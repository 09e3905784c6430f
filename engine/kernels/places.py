"""At how many places a kernel would compute a value for one element of another."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from ...ir.compose import remap_expr
from ...ir.tensor import Input, Remap, axes, operands

Place = tuple[Any, ...]  # where each axis of a value is read, over the axes of what reads it


class Places:
    """The places of values that maps read, below each term of a kernel. Terms are asked operands first.

    A chain in which every step reads the one before at several places reads the first one at many: each of them is
    computed by itself, in text and in time.
    """

    def __init__(self, order: Iterable[Any], kept: Set[Any]):
        self.kept = kept
        self.read = {term.x for term in order if term.__class__ is Remap and term.x.__class__ is not Input}
        self.below: dict[Any, dict[Any, frozenset[Place]]] = {}

    def visit(self, term: Any) -> int:
        """The most places of one value that an element of a term needs."""
        found: dict[Any, frozenset[Place]] = {}
        through = dict(term.map) if term.__class__ is Remap else {}
        for operand in operands(term):
            if operand in self.kept:
                continue
            below = tuple(self.below[operand].items())
            if operand in self.read:
                below = (*below, (operand, frozenset((axes(operand),))))
            for value, places in below:
                moved = frozenset(_moved(place, through) for place in places) if through else places
                found[value] = found.get(value, frozenset()) | moved
        self.below[term] = found
        return max(map(len, found.values()), default=1)


def _moved(place: Place, through: dict[Any, Any]) -> Place:
    """A place, read under a map."""
    return tuple(remap_expr(e, through) for e in place)
