"""A rule on torch on a program with a size: what torch gives at some of its numbers says what the program is.

Types and fields of a captured program with a size are lines over it (`2*s + 1`). They are found here by two numbers,
and kept where torch gives what the line says at the others, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ...ir.expr import Size, add, multiply
from ...ir.node import Node, replace
from ...ir.sizes import numbers
from ...ir.substitute import with_sizes
from ...ir.torch import TorchGraph
from .sized import NAME, size_for
from .torch_subjects import NoSubject, retyped, with_extent, with_fields

Change = Callable[[int, int, int], int]
FEWEST = 3  # numbers: through two there is always a line


class _NoLine(Exception):
    """Two programs are no two places of one."""


def with_a_size(graph: TorchGraph, seed: int) -> tuple[TorchGraph, dict[int, TorchGraph], Size] | None:
    """(the program with one of its extents a size, what it is at each number, the size); None where none may be one.
    The seed decides."""
    found = sorted({n for param in graph.ins for n in param.shape if n > 1})
    if not found:
        return None
    dice = random.Random(seed)
    number = dice.choice(found)
    size = size_for(number, dice)
    for change in (_multiples, _equals, None):  # a number of a list is an extent, or it is not
        each = {n: made for n in numbers(size) if (made := _at(graph, number, n, change)) is not None}
        if number in each and len(each) >= FEWEST:
            other = next(n for n in each if n != number)
            try:
                made = _through((each[number], number), (each[other], other), size)
            except _NoLine:
                continue
            kept = {n: one for n, one in each.items() if with_sizes(made, {NAME: n}) == one}
            if len(kept) >= FEWEST:
                return made, kept, size
    return None


def _at(graph: TorchGraph, number: int, other: int, change: Change | None) -> TorchGraph | None:
    """The program with another extent, with the types that torch gives; None where it refuses it."""

    def changed(value: Any) -> Any:
        return tuple(change(item, number, other) for item in value) if change and _list(value) else value

    try:
        return retyped(with_fields(with_extent(graph, number, other), changed))
    except NoSubject:
        return None


def _multiples(item: int, number: int, other: int) -> int:
    return item // number * other if item > 0 and item % number == 0 else item


def _equals(item: int, number: int, other: int) -> int:
    return other if item == number else item


def _list(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(item) is int for item in value)


def _through(one: tuple[Any, int], other: tuple[Any, int], size: Size) -> Any:
    """What is these at two numbers, numbers in it lines over the size. Raises _NoLine."""
    (a, at), (b, there) = one, other
    if type(a) is int and type(b) is int and a != b:
        step, rest = divmod(b - a, there - at)
        if rest:
            raise _NoLine
        return add(multiply(step, size), a - step * at)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(_through((x, at), (y, there), size) for x, y in zip(a, b, strict=True))
    if isinstance(a, Node) and type(a) is type(b):
        fields = [field.name for field in type(a).fields]
        return replace(a, **{f: _through((getattr(a, f), at), (getattr(b, f), there), size) for f in fields})
    if a != b:
        raise _NoLine
    return a
