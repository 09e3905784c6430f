"""Facts about values that climb: `x` is what is stored, `y` what would be stored in its place."""

from __future__ import annotations

from typing import Any

from ...ir.tensor import Fold, Reduce
from ..cost import fusing as cost
from ..language.facts import fact


@fact("climbed(term) -> num", levels="tensor")
def climbed(site: Any, y: Any) -> float:
    """Seconds of memory to store a value and to read it once for every reader."""
    times = len(site.flow.readers[y]) + 1
    return cost.traffic_seconds(times * cost.bytes_of(site.flow, [y]), site.target)


@fact("folds_across(term, term) -> bool", levels="tensor")
def folds_across(site: Any, y: Any, x: Any) -> bool:
    """Whether making y of x takes a fold of something else, along an axis that x varies with."""
    made, _ = cost.parts(y, {*site.fusion.kept, x})
    return _folds_along(site, made, x)


@fact("waits_across(term, term) -> bool", levels="tensor")
def waits_across(site: Any, y: Any, x: Any) -> bool:
    """Whether y reads a stored fold, along an axis that x varies with, of what x reads too: x waits for it nowhere."""
    kept = site.fusion.kept
    _, read = cost.parts(y, {*kept, x})
    for leaf in read:
        if leaf is not x and leaf in kept:
            made, below = cost.parts(leaf, kept)
            if _folds_along(site, made, x) and not set(below).isdisjoint(cost.parts(x, kept)[1]):
                return True
    return False


def _folds_along(site: Any, made: Any, x: Any) -> bool:
    """Whether one of some values is a fold along an axis that x varies with."""
    along = site.flow.mask[x]
    folds = (term for term in made if term.__class__ in (Reduce, Fold))
    return any(site.flow.mask_of_axes(term.over) & along for term in folds)


@fact("left(term, term) -> num", levels="tensor")
def left(site: Any, x: Any, y: Any) -> float:
    """Seconds to store x, and for each reader of y to make y of x and of what else is in memory."""
    flow, readers_of_y = site.flow, len(site.flow.readers[y])
    made, read = cost.parts(y, {*site.fusion.kept, x})
    others = cost.bytes_of(flow, [leaf for leaf in read if leaf is not x])
    size = (readers_of_y + 1) * cost.bytes_of(flow, [x]) + readers_of_y * others
    again = readers_of_y * cost.slots_of(flow, made, site.target)
    return cost.traffic_seconds(size, site.target) + cost.issue_seconds(again, site.target)
