"""Values of threads and registers along axes: folded into one, or each with all before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..monoids import monoid
from ..tile import Combine, CombineTuple
from .scalar import fold, folded
from .tuples import folded_tuples


def running(fn: str, values: np.ndarray, dimensions: tuple[int, ...]) -> np.ndarray:
    """The values, each folded with all before it along the dimensions, the first of which is the slowest."""
    last = tuple(range(values.ndim - len(dimensions), values.ndim))
    moved = np.moveaxis(values, dimensions, last)
    flat = moved.reshape(*moved.shape[: last[0]], -1)
    found = fold(fn).accumulate(flat, axis=-1, dtype=values.dtype if values.dtype.kind in "iu" else None)
    return np.moveaxis(found.reshape(moved.shape), last, dimensions)


def folded_along(stmt: Combine | CombineTuple, values: list[Any], axis: int) -> list[Any]:
    """The arrays of the accumulators of a statement, folded along one dimension, which stays."""
    if isinstance(stmt, Combine):
        return [np.expand_dims(folded(stmt.fn, values[0], axis), axis)]
    return folded_tuples(monoid(stmt.fn), tuple(values), axis)
