"""The structural key of a kernel: equal for kernels that differ in names only.

Names that the kernel itself binds (parameters, loops, values, accumulators) are numbered in order of first use;
everything else is spelled out. Layers of a model then share one compiled kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ...ir.expr import Size
from ...ir.node import Node, memoised, nodes
from ...ir.program import Kernel
from ...ir.sizes import sizes_in
from ...ir.substitute import with_sizes


@memoised
def key(kernel: Kernel) -> str:
    """A hash of a kernel's structure, with the kernel's own name left out."""
    return spelled(kernel, lambda shape: str(shape), lambda leaf: f"{leaf.__class__.__name__}:{leaf!r}")


@memoised
def key_of_range(kernel: Kernel) -> str:
    """The same for every hint and name of its sizes: what is legal does not depend on these."""
    found = sizes_of(kernel)
    if not found:
        return key(kernel)
    plain = {size.name: _bounds(size, f"size{number}") for number, size in enumerate(found)}
    return key(with_sizes(kernel, plain))


def sizes_of(kernel: Kernel) -> tuple[Size, ...]:
    """The sizes of a kernel in the order in which it mentions them, which is that of `TuningKey.ranges`."""
    found = sizes_in(kernel)
    return tuple(found[name] for name in dict.fromkeys(size.name for size in nodes(kernel, Size)))


def _bounds(size: Size, name: str) -> Size:
    return Size(name, size.low, size.high, size.multiple, size.high // size.multiple * size.multiple)


def spelled(kernel: Kernel, sizes: Callable[[Any], str], leaf: Callable[[Any], str]) -> str:
    """A hash of a kernel with its names by number. sizes: of a shape; leaf: of what is neither a node nor a list."""
    params = [("in", param) for param in kernel.ins] + [("out", param) for param in kernel.outs]
    numbers = {name: f"#{n}" for n, name in enumerate(dict.fromkeys(param.name for _, param in params))}
    written = [f"{side} {param.dtype}{sizes(param.shape)}" for side, param in params]
    _spell(kernel.body, numbers, written.append, leaf)
    return hashlib.sha256(" ".join(written).encode()).hexdigest()[:DIGITS]


def _spell(value: Any, numbers: dict[str, str], put: Any, leaf: Callable[[Any], str]) -> None:
    """A value in text order. Every name gets its number where it is first met: binders stand before their uses."""
    kind = value.__class__
    if kind is tuple:
        put("(")
        for item in value:
            _spell(item, numbers, put, leaf)
        put(")")
    elif isinstance(value, Node):
        put(kind.__name__)
        for field in kind.fields:
            child = getattr(value, field.name)
            if field.sort == "Name" and child.__class__ is str and field.name not in _SYMBOLS:
                if child not in numbers:
                    numbers[child] = f"#{len(numbers)}"
                put(numbers[child])
            else:
                _spell(child, numbers, put, leaf)
    else:
        put(leaf(value))


DIGITS = 16  # of a hash: enough for every kernel that there is
_SYMBOLS = frozenset(("op",))  # Binary.op is a Name by sort and a sign by meaning
