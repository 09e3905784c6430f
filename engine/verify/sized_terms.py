"""A rule on tensor on a program with a size: what it makes for a range must mean the same at each of its numbers.

As `sized.py` does for kernels: an extent of a subject becomes a size, with all that are that number or a multiple of
it. Where the rule fires on that program, both are bound to numbers that tell most, and compared.
"""

from __future__ import annotations

import math
import random
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.expr import Size, multiply, subtract
from ...ir.sizes import highest, numbers
from ...ir.substitute import with_sizes
from ...ir.tensor import TensorGraph, axes, postorder
from ...ir.verify.tensor import verify
from .sized import NAME, size_for
from .term_neighbours import with_numbers

MOST_ELEMENTS = 1 << 18  # over the axes of a term, where the size is greatest


def with_a_size(graph: TensorGraph, seed: int) -> tuple[TensorGraph, Size] | None:
    """The program with one of its extents a size; None where none may be one. The seed decides."""
    found = sorted({axis.extent for x in graph.ins for axis in x.axes if axis.extent > 1})
    if not found:
        return None
    dice = random.Random(seed)
    number = dice.choice(found)
    size, last = size_for(number, dice), number > 2 and dice.random() < 0.5

    def change(n: int) -> Any:
        if n and n % number == 0:
            return multiply(n // number, size)
        return subtract(size, 1) if last and n == number - 1 else n

    try:
        made = with_numbers(graph, change)
        verify(made)
    except (DplcError, TypeError, ValueError):  # not for every number, or an extent that is none
        return None
    terms = postorder(out.value for out in made.outs)
    large = any(math.prod(highest(axis.extent) for axis in axes(term)) > MOST_ELEMENTS for term in terms)
    return None if large else (made, size)


def bindings(before: TensorGraph, made: Any, size: Size) -> list[tuple[int, TensorGraph, Any]]:
    """(a number, the program there, what was made of it there)"""
    each = ((n, {NAME: n}) for n in numbers(size))
    return [(n, with_sizes(before, values), with_sizes(made, values)) for n, values in each]
