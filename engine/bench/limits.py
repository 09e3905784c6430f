"""How far the kernels of a program are from what no schedule goes below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...codegen.target import Target
from ...ir.program import Kernel
from ..cost.limits import least_seconds
from ..kernels.sharing import share


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
    """loops: the launches of a program before schedules; scheduled: every distinct kernel after; seconds: of each.

    A kernel of Loop IR that others took in (`schedule/fewer_launches.py`) is part of the first of them.
    """
    kernels = share(loops).kernels
    owners = [_owner(kernels, scheduled, place) for place in range(len(scheduled))]
    least = [least_seconds(kernel, target) for kernel in kernels]
    found = []
    for number, kernel in enumerate(kernels):
        own = [taken for place, taken in zip(owners, seconds, strict=True) if place == number]
        if own:
            found.append(Limit(kernel.name, sum(own), least[number]))
        else:
            reader = next(k for k in range(number + 1, len(kernels)) if _reads(kernels[k], kernel))
            least[reader] += least[number]
    return found


def _owner(kernels: Sequence[Kernel], scheduled: Sequence[Kernel], place: int) -> int:
    """The kernel of Loop IR that a scheduled one is part of: the last whose results it stores, or its reader's."""
    outs = {p.name for p in scheduled[place].outs}
    stored = [number for number, kernel in enumerate(kernels) if not outs.isdisjoint(p.name for p in kernel.outs)]
    if stored:
        return stored[-1]
    reader = next(other for other in range(place + 1, len(scheduled)) if _reads(scheduled[other], scheduled[place]))
    return _owner(kernels, scheduled, reader)


def _reads(kernel: Kernel, other: Kernel) -> bool:
    return not {p.name for p in kernel.ins}.isdisjoint(p.name for p in other.outs)
