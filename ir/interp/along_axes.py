"""Values of threads and registers along axes: folded into one, or each with all before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..monoids import monoid
from ..tile import Combine, CombineTuple, Scan, ScanTuple
from .scalar import fold, folded
from .tuples import combined, folded_tuples


def running(stmt: Scan | ScanTuple, values: list[Any], dimensions: tuple[int, ...]) -> list[Any]:
    """The arrays of the accumulators, each place folded with all before it along the dimensions, the first of which is
    the slowest."""
    shape = np.broadcast_shapes(*(value.shape for value in values))
    last = tuple(range(len(shape) - len(dimensions), len(shape)))
    moved = [np.moveaxis(np.broadcast_to(value, shape), dimensions, last) for value in values]
    flat = [value.reshape(*value.shape[: last[0]], -1) for value in moved]
    found = [_accumulated(stmt.fn, flat[0])] if isinstance(stmt, Scan) else _tuples_accumulated(stmt.fn, flat)
    return [np.moveaxis(one.reshape(moved[0].shape), last, dimensions) for one in found]


def _accumulated(fn: str, values: np.ndarray) -> np.ndarray:
    found: np.ndarray = fold(fn).accumulate(values, axis=-1, dtype=values.dtype if values.dtype.kind in "iu" else None)
    return found


def _tuples_accumulated(name: str, parts: list[np.ndarray]) -> list[np.ndarray]:
    so_far = tuple(part[..., 0] for part in parts)
    found = [so_far]
    for place in range(1, parts[0].shape[-1]):
        so_far = combined(monoid(name), so_far, tuple(part[..., place] for part in parts))
        found.append(so_far)
    return [np.stack(part, axis=-1) for part in zip(*found, strict=True)]


def folded_along(stmt: Combine | CombineTuple, values: list[Any], axis: int) -> list[Any]:
    """The arrays of the accumulators of a statement, folded along one dimension, which stays."""
    if isinstance(stmt, Combine):
        return [np.expand_dims(folded(stmt.fn, values[0], axis), axis)]
    return folded_tuples(monoid(stmt.fn), tuple(values), axis)
