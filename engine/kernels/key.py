"""The structural key of a kernel: equal for kernels that differ in names only.

Names that the kernel itself binds (parameters, loops, values, accumulators) are numbered in order of first use;
everything else is spelled out. Layers of a model then share one compiled kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ...ir.node import Node, memoised
from ...ir.program import Kernel


@memoised
def key(kernel: Kernel) -> str:
    """A hash of a kernel's structure, with the kernel's own name left out."""
    return spelled(kernel, lambda shape: str(shape), lambda leaf: f"{leaf.__class__.__name__}:{leaf!r}")


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
