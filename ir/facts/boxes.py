"""Which slabs TMA can fill: boxes of a buffer, in rows as they lie there or in rows of 128 bytes that it swizzles."""

from __future__ import annotations

from ..tile import Stage
from .layout import CHUNK, ROW, WORD


def is_box(stage: Stage, source: tuple[int, ...], item: int = WORD) -> bool:
    """Whether TMA can copy the slab: rank, order of dimensions, rows of whole 16 bytes, 256 elements a side."""
    if stage.gathered:
        return False
    inner, dims, chunk = stage.slab[-1], [axis.dim or 0 for axis in stage.slab], CHUNK // item
    aligned = inner.dim == len(source) - 1 and inner.extent % chunk == 0 and source[-1] % chunk == 0
    return aligned and len(source) <= 5 and dims == sorted(dims) and all(axis.extent <= 256 for axis in stage.slab)


def is_swizzled_box(stage: Stage, source: tuple[int, ...], item: int = WORD) -> bool:
    """Whether TMA can copy the slab, in boxes whose rows are each 128 bytes that it swizzles."""
    if stage.gathered:
        return False
    inner = stage.slab[-1]
    rows = inner.extent * item == ROW and inner.dim == len(source) - 1 and source[-1] * item % CHUNK == 0
    return rows and len(source) <= 5 and all(axis.extent <= 256 for axis in stage.slab)
