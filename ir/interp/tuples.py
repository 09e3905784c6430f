"""The meaning of reductions over tuple monoids: arrays of elements, lifted and combined pairwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..monoids import Monoid
from ..program import Block
from .scalar import evaluate

Parts = tuple[Any, ...]  # one array for each part


def lifted(monoid: Monoid, operands: Sequence[Any]) -> Parts:
    """The parts of single elements."""
    return _defined(monoid, monoid.lift, dict(zip(monoid.operands, operands, strict=True)))


def combined(monoid: Monoid, left: Parts, right: Parts) -> Parts:
    """The parts of two partial results put together."""
    names = {f"{part}1": value for part, value in zip(monoid.parts, left, strict=True)}
    names |= {f"{part}2": value for part, value in zip(monoid.parts, right, strict=True)}
    return _defined(monoid, monoid.combine, names)


def _defined(monoid: Monoid, block: Block, names: dict[str, Any]) -> Parts:
    for stmt in block:
        names[stmt.dst] = evaluate(stmt.val, names)  # type: ignore[attr-defined]
    return tuple(names[part] for part in monoid.parts)


def reduced(monoid: Monoid, parts: Parts, axis: int = 0) -> Parts:
    """The parts folded along an axis, neighbours first."""
    shape = np.broadcast_shapes(*(np.shape(part) for part in parts))
    every = tuple(np.moveaxis(np.broadcast_to(part, shape), axis, 0) for part in parts)
    while len(every[0]) > 1:
        pairs = len(every[0]) // 2 * 2
        both = combined(monoid, tuple(p[0:pairs:2] for p in every), tuple(p[1:pairs:2] for p in every))
        every = tuple(np.concatenate((made, rest[pairs:])) for made, rest in zip(both, every, strict=True))
    return tuple(part[0] for part in every)


def folded_tuples(monoid: Monoid, parts: Parts, axis: int) -> list[Any]:
    """The same with the axis kept, of extent 1; a part is no wider than the parts that it depends on."""
    shapes, out = dict(zip(monoid.parts, map(np.shape, parts), strict=True)), []
    for name, folded in zip(monoid.parts, reduced(monoid, parts, axis), strict=True):
        own = np.broadcast_shapes(shapes[name], *(shapes[other] for other in monoid.beside(name)))
        whole = np.expand_dims(folded, axis)
        out.append(whole[tuple(slice(0, 1) if extent == 1 else slice(None) for extent in own)])
    return out


def fold_tuples(monoid: Monoid, operands: Sequence[Any], count: int) -> Parts:
    """The reduction of `count` elements, which lie along the first dimension of the operands (or of none of them)."""
    if not count:
        return monoid.identity
    parts = lifted(monoid, operands)
    shape = np.broadcast_shapes((count,), *(np.shape(part)[:1] for part in parts))
    spread = tuple(np.broadcast_to(part, (*shape, *np.shape(part)[1:]) if np.ndim(part) else shape) for part in parts)
    ranks = max(part.ndim for part in spread)
    return reduced(monoid, tuple(p.reshape(p.shape[0], *(1,) * (ranks - p.ndim), *p.shape[1:]) for p in spread))
