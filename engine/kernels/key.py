"""The structural key of a kernel: equal for kernels that differ in names only.

Names that the kernel itself binds (parameters, loops, values, accumulators) are numbered in order of first use;
everything else is spelled out. Layers of a model then share one compiled kernel.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ...ir.node import Node, memoised
from ...ir.program import Kernel


@memoised
def key(kernel: Kernel) -> str:
    """A hash of a kernel's structure, with the kernel's own name left out."""
    numbers: dict[str, str] = {}
    for param in (*kernel.ins, *kernel.outs):
        numbers[param.name] = f"#{len(numbers)}"
    written: list[str] = []
    for side, params in (("in", kernel.ins), ("out", kernel.outs)):
        written += [f"{side} {param.dtype}{param.shape}" for param in params]
    _spell(kernel.body, numbers, written.append)
    return hashlib.sha256(" ".join(written).encode()).hexdigest()[:16]


def _spell(value: Any, numbers: dict[str, str], put: Any) -> None:
    """A value in text order. Every name gets its number where it is first met: binders stand before their uses."""
    kind = value.__class__
    if kind is tuple:
        put("(")
        for item in value:
            _spell(item, numbers, put)
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
                _spell(child, numbers, put)
    else:
        put(f"{kind.__name__}:{value!r}")


_SYMBOLS = frozenset(("op",))  # Binary.op is a Name by sort and a sign by meaning
