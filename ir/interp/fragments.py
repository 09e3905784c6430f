"""The meaning of an Mma in Tile IR: what every warp of some blocks adds to its accumulators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..atoms import ATOMS, multiplied
from ..expr import Axis
from ..tile import Mma
from .scalar import ScheduleError


def added(stmt: Mma, a: Any, b: Any, registers: Sequence[Axis]) -> Any:
    """What an Mma adds, of the values of all threads: arrays of (blocks, threads, *registers).

    registers: the replicated axes; along one that an operand does not vary with its dimension is 1. Raises
    ScheduleError where the axes are not the atom's, as those of a program that was made smaller.
    """
    atom, names = ATOMS[stmt.atom], [axis.name for axis in registers]
    if len(stmt.axes) != len(atom.axes):
        raise ScheduleError(f"`{stmt.atom}` has {len(atom.axes)} axes, an Mma names {len(stmt.axes)}")
    lanes = [extent for _, extent in atom.lanes]
    own = [2 + n for n in range(len(lanes))]
    own += [2 + len(lanes) + names.index(axis.name) for axis in stmt.axes[len(lanes) :]]
    last = range(-len(own), 0)

    def fragments(value: Any) -> Any:
        """The warps of each block apart, and the atom's axes at the end."""
        blocks, threads, *inner = value.shape
        return np.moveaxis(value.reshape(blocks, threads // math.prod(lanes), *lanes, *inner), own, last)

    product = np.moveaxis(multiplied(atom, fragments(a), fragments(b)), last, own)
    over = tuple(2 + len(lanes) + names.index(axis.name) for axis in stmt.over)
    total = product.sum(axis=over, keepdims=True)
    blocks, warps = total.shape[:2]
    return total.reshape(blocks, warps * math.prod(lanes), *total.shape[2 + len(lanes) :])
