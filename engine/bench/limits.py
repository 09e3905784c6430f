"""How far the kernels of a program are from what no schedule goes below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...codegen.target import Target
from ...ir.program import Kernel
from ..cost.limits import least_seconds
from ..kernels.sharing import chains, share


class Limit(NamedTuple):
    """A kernel of Loop IR. seconds: predicted for all that its schedule made of it; least: its limit."""

    name: str
    seconds: float
    least: float

    @property
    def times(self) -> float:
        """How often the limit fits into what is predicted."""
        return self.seconds / self.least


def limits(
    loops: Sequence[Kernel], scheduled: Sequence[Kernel], seconds: Sequence[float], target: Target
) -> list[Limit]:
    """loops: the launches of a program before schedules; scheduled: every distinct kernel after; seconds: of each."""
    kernels = share(loops).kernels
    return [
        Limit(kernel.name, sum(seconds[place] for place in chain), least_seconds(kernel, target))
        for kernel, chain in zip(kernels, chains(kernels, scheduled), strict=True)
    ]
