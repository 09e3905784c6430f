"""Kernels that differ in their sizes only: what a schedule found for one of them may be tried on another.

`engine.kernels.key` tells kernels apart by structure and sizes. Here the sizes are taken out: a family is the structure
with every number left out (extents, offsets, and constants such as 1/n), and the extents are the sizes that were in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ir.loop import For
from ...ir.node import Expr, memoised, nodes
from ...ir.program import Kernel
from ...ir.sizes import at_hint
from ..kernels.sharing import spelled


@memoised
def family(kernel: Kernel) -> str:
    """A hash of a kernel's structure with its names and all of its numbers left out; dtypes stay."""
    return spelled(kernel, lambda shape: str(len(shape)), _leaf)


def _leaf(value: Any) -> str:
    return "number" if value.__class__ in (int, float) else repr(value)


@memoised
def extents(kernel: Kernel) -> tuple[int, ...]:
    """The sizes of a kernel: dimensions of its buffers, then ends of its loops; as many in all kernels of a family.

    What is known at a call is there as its hint."""
    known = map(at_hint, written_extents(kernel))
    return tuple(size if size.__class__ is int else 1 for size in known)


def written_extents(kernel: Kernel) -> tuple[Expr, ...]:
    """The same as the kernel says them."""
    sizes = [extent for param in (*kernel.ins, *kernel.outs) for extent in param.shape]
    return (*sizes, *(loop.stop for loop in nodes(kernel.body, For)))


def distance(one: Sequence[int], other: Sequence[int], farthest: float) -> float:
    """How far two shapes of a family are apart, in octaves summed over the extents; infinite where no one should
    try: farthest is how many octaves one extent may be away."""
    if len(one) != len(other):
        return math.inf
    octaves = [abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True)]
    return math.inf if any(octave > farthest for octave in octaves) else sum(octaves)
