"""What one instruction of a warp costs in memory: sectors of global memory, wavefronts of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

LANES, BANKS, SECTOR, LINE = 32, 32, 32, 128


FAR = np.iinfo(np.int64).max  # stands where a lane is idle


def busy_warps(mask: Any) -> float:
    """Warps with a lane that is not idle."""
    return float(mask.any(axis=1).sum())


def sectors(places: Any, mask: Any) -> float:
    """Sectors that warps touch. places: the first byte of each lane (warps, lanes), aligned to what the lane moves."""
    return float(_first_ones(np.broadcast_to(places, mask.shape) // SECTOR, mask)[1].sum())


def wavefronts(words: Any, width: int, mask: Any) -> tuple[float, float]:
    """Wavefronts that warps take, and the least that they could. words: the first word of each lane (warps, lanes).

    width: words a lane. A warp goes in groups of 32 / width lanes, of twice as many where lanes of more than a word are
    read in pairs; a group takes as many as the most different words of one bank.
    """
    first = np.broadcast_to(words, mask.shape)
    pairs = paired(first, mask) if width > 1 else np.zeros(len(mask), bool)
    taken = fewest = 0.0
    for chosen, lanes in ((~pairs, LANES // width), (pairs, 2 * LANES // width)):
        if chosen.any():
            taken += _taken(first[chosen], width, mask[chosen], lanes)
            fewest += least(mask[chosen], 1, lanes)
    return taken, fewest


def paired(first: Any, mask: Any) -> Any:
    """Of each warp, whether all lanes n and n ^ 1, or all lanes n and n ^ 2, that are not idle have one address.

    What a load gives back then goes two lanes at a time: 16 bytes a lane take two wavefronts at best, not four. Source:
    an NVIDIA engineer on the developer forum (unexpected-shared-memory-bank-conflict/77228), of 7.0 and later.
    """
    lanes, found = np.arange(mask.shape[1]), np.zeros(len(mask), bool)
    for step in (1, 2):
        other = lanes ^ step
        apart = mask & mask[:, other] & (first != first[:, other])
        found |= ~apart.any(axis=1)
    return found


def _taken(first: Any, width: int, mask: Any, lanes: int) -> float:
    every = (first[..., None] + np.arange(width)).reshape(-1, lanes * width)
    here = np.repeat(mask[..., None], width, axis=2).reshape(-1, lanes * width)
    found, new = _first_ones(every, here)
    rows = np.broadcast_to(np.arange(len(found))[:, None], found.shape)
    banks = np.bincount(rows[new] * BANKS + found[new] % BANKS, minlength=len(found) * BANKS)
    return float(banks.reshape(-1, BANKS).max(axis=1).sum())


def _first_ones(values: Any, mask: Any) -> tuple[Any, Any]:
    """The values of each row in order, and where each of them that is not masked stands first."""
    found = np.sort(np.where(mask, values, FAR), axis=1)
    new = found != FAR
    new[:, 1:] &= found[:, 1:] != found[:, :-1]
    return found, new


def least(mask: Any, size: int, unit: int) -> float:
    """The least units (sectors, wavefronts) that `size` bytes a lane can take."""
    return float(np.ceil(mask.sum(axis=1) * size / unit).sum())
