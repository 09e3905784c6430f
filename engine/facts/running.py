"""Facts about fusing folds of what stands up to each place, as running sums are: `v` and `y` as in `fusion.py`."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Axis
from ...ir.facts.dataflow import common_key, places_of_fold
from ...ir.sizes import at_hint
from ...ir.tensor import Fold, Reduce, Remap, axes, index_axes, operands
from ..language.facts import fact


@fact("runs(term, int) -> bool", levels="tensor")
def runs(site: Any, v: Any, places: int) -> bool:
    """Whether computing a value means folding what stands up to each of so many places or more, as running sums do."""
    folds = (one for one in (v, *site.fusion.open.get(v, ())) if places_of_fold(one) is not None)
    return any(at_hint(one.over[0].extent) >= places for one in folds)


@fact("sum_before_scan(term, int) -> bool", levels="tensor")
def sum_before_scan(site: Any, y: Any, places: int) -> bool:
    """Whether y's kernel folds two things, each of at most so many: what stands up to each place of its rows, and what
    all places of a row share.
    """
    below = y.x if y.__class__ is Remap else y
    seen = site.seen if below is y else site.fusion.open.get(below, {})
    folds = [one for one in dict.fromkeys((below, *seen)) if one.__class__ in (Reduce, Fold)]
    folds.sort(key=lambda one: places_of_fold(one) is None)
    if y is not site.reader or [one.__class__ for one in folds] != [Reduce, Reduce]:
        return False
    scan, shared = folds
    place = places_of_fold(scan)
    return (
        place is not None
        and places_of_fold(shared) is None
        and place in _side_by_side(site, below)
        and place not in site.flow.axes_in(seen.get(shared, 0))
        and len(shared.over) == 1
        and max(at_hint(axis.extent) for axis in (*scan.over, *shared.over)) <= places
    )


@fact("beside_scan(term, term, int) -> bool", levels="tensor")
def beside_scan(site: Any, v: Any, y: Any, places: int) -> bool:
    """Whether y would bring a value and a fold of what stands up to each of so many places or more, in another loop
    than the value's, into one kernel.
    """
    open_values = site.fusion.open
    decided = {one for x in operands(y) if v in open_values.get(x, ()) for one in open_values[x]}
    folds = [one for one in dict.fromkeys((y, *site.seen)) if one.__class__ in (Reduce, Fold) and one not in decided]
    scans = [one for one in folds if places_of_fold(one) is not None and at_hint(one.over[0].extent) >= places]
    return any(_loop(one) != _loop(v) for one in scans)


def _loop(one: Any) -> Any:
    """What tells the loop of a fold: parts of a tuple share one."""
    return common_key(one) if one.__class__ is Fold else one


def _side_by_side(site: Any, y: Any) -> set[Axis]:
    """The axes of y along which what is stored of it, and only that, has neighbours; none where it is stored again and
    again.
    """
    path = [y]
    while path[-1] not in site.fusion.kept:
        readers = site.flow.readers[path[-1]]
        if len(readers) != 1:
            return set()
        path.append(readers[0])
    order = site.fusion.result_axes.get(path[-1], axes(path[-1]))
    if site.flow.elements(site.flow.mask_of_axes(order)) > site.flow.elements(site.flow.mask[y]):
        return set()
    side_by_side = set(order[-1:])
    for term in reversed(path[1:]):
        if term.__class__ is Remap:
            replaced = {axis for axis, _ in term.map}
            moved = {axis for axis, e in term.map if not side_by_side.isdisjoint(index_axes(e))}
            side_by_side = side_by_side - replaced | moved
    return side_by_side
