"""The price of a kernel that has no schedule yet: its estimate with the best tile of the menu."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from ...codegen.target import Target
from .kernel_estimate import KernelEstimate, Pricing
from .tile_menu import Estimate, Tiles


class Price(NamedTuple):
    """What a kernel takes, predicted. reason: why it has no price.

    form: what schedules tell kernels apart by: contraction, row or flat; folds, contractions, sweeps, whether rows that
    are folded are stored.
    """

    seconds: float
    bytes: float
    kind: str
    reason: str = ""
    tile: tuple[tuple[int, int], ...] = ()
    form: tuple[object, ...] = ()

    @property
    def legal(self) -> bool:
        return not self.reason


def impossible(reason: str) -> Price:
    return Price(math.inf, 0.0, "none", reason)


def price(estimate: KernelEstimate, target: Target) -> Price:
    """The price of a kernel with the best tile of the menu."""
    kernel = Pricing(estimate, target)
    reason = kernel.refused()
    if reason:
        return impossible(reason)
    tiles = Tiles(kernel)
    kind = "contraction" if kernel.products else "row" if kernel.folded else "flat"
    found: Estimate | None = None
    for sides in itertools.product(*tiles.sides):
        tiles.take(sides)
        for resident in (True, False) if kernel.again else (True,):
            if tiles.shared(resident) > target.smem:
                continue
            for split in tiles.splits():
                one = tiles.estimate(resident, split)
                if found is None or one.seconds < found.seconds:
                    found = one
    if found is None:
        return impossible("a row does not fit and cannot be swept again")
    tile = tuple(sorted(zip(tiles.axes, found.sides, strict=True)))
    return Price(found.seconds, found.dram, kind, "", tile, kernel.form(kind))
