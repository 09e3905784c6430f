"""Kernels that differ in their sizes only: what a schedule found for one of them may be tried on another.

`engine.kernels.key` tells kernels apart by structure and sizes. Here the sizes are taken out: a family is the structure
with every number left out (extents, offsets, and constants such as 1/n), and the extents are the sizes that were in it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from ...ir.loop import For
from ...ir.node import Node, memoised, nodes
from ...ir.program import Kernel

DIGITS = 16  # of a hash: enough for every kernel that there is
_SYMBOLS = frozenset(("op",))  # Binary.op is a Name by sort and a sign by meaning


@memoised
def family(kernel: Kernel) -> str:
    """A hash of a kernel's structure with its names and all of its numbers left out; dtypes stay."""
    names: dict[str, str] = {}
    written: list[str] = []
    for side, params in (("in", kernel.ins), ("out", kernel.outs)):
        for param in params:
            names[param.name] = f"#{len(names)}"
            written.append(f"{side} {param.dtype}{len(param.shape)}")
    _spell(kernel.body, names, written)
    return hashlib.sha256(" ".join(written).encode()).hexdigest()[:DIGITS]


def _spell(value: Any, names: dict[str, str], written: list[str]) -> None:
    if isinstance(value, Node):
        written.append(type(value).__name__)
        for field in type(value).fields:
            child = getattr(value, field.name)
            if field.sort == "Name" and child.__class__ is str and field.name not in _SYMBOLS:
                written.append(names.setdefault(child, f"#{len(names)}"))
            else:
                _spell(child, names, written)
    elif value.__class__ is tuple:
        written.append("(")
        for item in value:
            _spell(item, names, written)
        written.append(")")
    elif value.__class__ is int or value.__class__ is float:
        written.append("number")
    else:
        written.append(repr(value))


@memoised
def extents(kernel: Kernel) -> tuple[int, ...]:
    """The sizes of a kernel: dimensions of its buffers, then ends of its loops; as many in all kernels of a family."""
    sizes = [extent for param in (*kernel.ins, *kernel.outs) for extent in param.shape]
    sizes += [loop.stop for loop in nodes(kernel.body, For)]
    return tuple(size if size.__class__ is int else 1 for size in sizes)


def distance(one: Sequence[int], other: Sequence[int], farthest: float) -> float:
    """How far two shapes of a family are apart, in octaves summed over the extents; infinite where no one should
    try: farthest is how many octaves one extent may be away."""
    if len(one) != len(other):
        return math.inf
    octaves = [abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(one, other, strict=True)]
    return math.inf if any(octave > farthest for octave in octaves) else sum(octaves)
