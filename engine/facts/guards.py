"""What a guard is needed for."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Var, free_names, linear
from ...ir.facts.structure import dependencies
from ...ir.loop import For, If
from ...ir.ranges import decide
from ..language.facts import fact
from .structure import TILE


@fact("place_needs(expr, [expr]) -> bool", TILE)
def place_needs(site: Any, condition: Any, index: Any) -> bool:
    """Whether a guard may be what keeps an index in its buffer.

    It is not where the two vary with nothing in common, nothing around asks more of what the guard varies with, and
    the guard holds somewhere: what is read where it fails is then read where it holds, too.
    """
    if not _bounds_axes(condition) or decide(condition, site.ranges) is False:
        return True
    mine = free_names(condition)
    if not mine <= set(site.ranges) or not mine.isdisjoint(dependencies(index, site.kernel.body)):
        return True
    around: list[Any] = [stmt.cond for stmt in site.enclosing if isinstance(stmt, If)]
    around += [(stmt.start, stmt.stop, stmt.step) for stmt in site.enclosing if isinstance(stmt, For)]
    return not mine.isdisjoint(free_names(tuple(around)))


def _bounds_axes(condition: Any) -> bool:
    """Whether a condition bounds a sum of axes: the least it can be, or the most, is known."""
    if getattr(condition, "op", None) not in ("<", "<=", ">", ">="):
        return False
    return all(atom.__class__ is Var for side in (condition.a, condition.b) for atom in linear(side)[0])
