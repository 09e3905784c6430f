"""The dimensions under which a kernel sees a buffer: the same elements, in the same order, in others."""

from __future__ import annotations

import math
from typing import Any

from ..expr import add, floordiv, modulo, multiply
from ..ranges import Ranges, simplify

Places = tuple[Any, ...]


def respelled(idx: Places, now: Places, then: Places, ranges: Ranges) -> Places | None:
    """An index of a buffer with some dimensions, in others that hold the same elements in the same order. None where
    they differ and are made of sizes."""
    if now == then:
        return idx
    if any(extent.__class__ is not int for extent in (*now, *then)):
        return None
    out: list[Any] = []
    left, right = list(zip(idx, now, strict=True)), list(then)
    while left or right:  # the shortest runs of dimensions that hold as many elements
        mine, other = [left.pop(0)] if left else [], [right.pop(0)] if right else []
        while (have := math.prod(n for _, n in mine)) != (want := math.prod(other)):
            if have < want:
                mine.append(left.pop(0))
            else:
                other.append(right.pop(0))
        place: Any = 0
        for e, extent in mine:
            place = add(multiply(place, extent), e)
        digits = []
        for extent in reversed(other):
            digits.append(simplify(modulo(place, extent), ranges) if extent is not other[0] else place)
            place = simplify(floordiv(place, extent), ranges)
        out += reversed(digits)
    return tuple(out)
