"""What each place along some axes has when it takes over what all before it have."""

from __future__ import annotations

import numpy as np

from .scalar import fold


def running(fn: str, values: np.ndarray, dimensions: tuple[int, ...]) -> np.ndarray:
    """The values, each folded with all before it along the dimensions, the first of which is the slowest."""
    last = tuple(range(values.ndim - len(dimensions), values.ndim))
    moved = np.moveaxis(values, dimensions, last)
    flat = moved.reshape(*moved.shape[: last[0]], -1)
    found = fold(fn).accumulate(flat, axis=-1, dtype=values.dtype if values.dtype.kind in "iu" else None)
    return np.moveaxis(found.reshape(moved.shape), last, dimensions)
