"""What one instruction of a warp costs in memory: sectors of global memory, wavefronts of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

LANES, BANKS, SECTOR, LINE = 32, 32, 32, 128


def sectors(places: Any, mask: Any) -> float:
    """Sectors that warps touch. places: the first byte of each lane (warps, lanes), aligned to what the lane moves."""
    rows = zip(np.broadcast_to(places, mask.shape) // SECTOR, mask, strict=True)
    return float(sum(len(np.unique(row[here])) for row, here in rows))


def wavefronts(words: Any, width: int, mask: Any) -> float:
    """Wavefronts that warps take. words: the first word of each lane (warps, lanes); width: words a lane.

    A warp goes in groups of 32 / width lanes; a group takes as many as the most different words of one bank.
    """
    every = (np.broadcast_to(words, mask.shape)[..., None] + np.arange(width)).reshape(-1, BANKS)
    here = np.repeat(mask[..., None], width, axis=2).reshape(-1, BANKS)
    rows = ((row[present], present) for row, present in zip(every, here, strict=True))
    return float(sum(int(np.bincount(np.unique(row) % BANKS).max()) for row, present in rows if present.any()))


def least(mask: Any, size: int, unit: int) -> float:
    """The least units (sectors, wavefronts) that `size` bytes a lane can take."""
    return float(np.ceil(mask.sum(axis=1) * size / unit).sum())
