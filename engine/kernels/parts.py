"""Results side by side: values that read one computed value at ranges of one of its axes, as q, k, v read one matmul.

Such values share a kernel though their extents differ. It runs over the places of the whole; what they have in common
is computed for each, and each value is stored where its own range is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.expr import Axis, Sum, subtract
from ...ir.tensor import Input, Remap, operands

Range = tuple[Any, int]  # the axis of a value, and the place of the whole where it starts


def translation(e: Any) -> Range | None:
    """The axis that an index expression shifts, and by how much; None where it does more."""
    if e.__class__ is Axis:
        return e, 0
    if e.__class__ is Sum and len(e.terms) == 1 and e.terms[0][1] == 1 and e.terms[0][0].__class__ is Axis:
        return e.terms[0][0], e.constant
    return None


def side_by_side(views: Sequence[Mapping[Any, Range]], extents: Mapping[Any, int]) -> tuple[Any, list[Range]] | None:
    """What several values read at ranges that follow each other without a gap, and these ranges; None where nothing is.

    views: for each value, {what it reads at a range: which}.
    """
    for whole in views[0]:
        found = [view[whole] for view in views if whole in view]
        if len(found) < len(views):
            continue
        ordered = sorted(found, key=lambda part: part[1])
        ends = [start + extents[axis] for axis, start in ordered]
        if ends[:-1] == [start for _, start in ordered[1:]]:
            return whole, found
    return None


@dataclass(frozen=True)
class Parts:
    """The kernel's axis along the whole, and for each value where it finds that and where it is stored."""

    axis: Axis
    places: tuple[Mapping[Axis, Any], ...]  # for each value: {its own axis: the place of it, over `axis`}
    ranges: tuple[tuple[int, int], ...]


def parts_of(values: Sequence[Any], loops: Sequence[Sequence[Axis]], stored: Container[Any]) -> Parts | None:
    """How values with these loops stand side by side, if they do. stored: what is read from memory."""
    views = [dict(_views(value, own, stored)) for value, own in zip(values, loops, strict=True)]
    extents = {axis: axis.extent for own in loops for axis in own}
    found = side_by_side(views, extents)
    if found is None:
        return None
    (_, axis), ranges = found
    place = list(loops[0]).index(ranges[0][0])
    others = {tuple(a.extent for a in own if a is not mine) for own, (mine, _) in zip(loops, ranges, strict=True)}
    if len(others) > 1 or any(own[place] is not mine for own, (mine, _) in zip(loops, ranges, strict=True)):
        return None
    least = min(start for _, start in ranges)
    along = Axis(axis.name, sum(extents[mine] for mine, _ in ranges))
    return Parts(
        along,
        tuple({mine: subtract(along, start - least)} for mine, start in ranges),
        tuple((start - least, start - least + extents[mine]) for mine, start in ranges),
    )


def _views(value: Any, loops: Sequence[Axis], stored: Container[Any]) -> Iterable[tuple[Any, Range]]:
    """What a value reads at a range of one of its own axes, among what its kernel computes."""
    pending, seen = [value], {value}
    while pending:
        term = pending.pop()
        if term.__class__ is Remap and len(term.map) == 1 and term.x.__class__ is not Input and term.x not in stored:
            ((axis, e),) = term.map
            moved = translation(e)
            if moved is not None and moved[0] in loops:
                yield (term.x, axis), moved
        for operand in operands(term):
            if operand not in stored and operand not in seen:
                seen.add(operand)
                pending.append(operand)
