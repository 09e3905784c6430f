"""How far the kernels of a program are from what no schedule goes below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...codegen.target import Target
from ...ir.program import Kernel
from ..cost.limits import least_seconds
from ..kernels.sharing import Sharing, share


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
    sharing = share(loops)
    kernels = sharing.kernels
    owners = [_owner(kernels, scheduled, place) for place in range(len(scheduled))]
    least = [least_seconds(kernel, target) * _variants(kernel, scheduled) for kernel in kernels]
    taken_in = [number for number in range(len(kernels)) if number not in owners]
    for number in taken_in:
        least[_reader(sharing, number)] += least[number]
    took = [sum(taken for owner, taken in zip(owners, seconds, strict=True) if owner == n) for n in range(len(kernels))]
    return [Limit(k.name, took[n], least[n]) for n, k in enumerate(kernels) if n not in taken_in]


def _variants(kernel: Kernel, scheduled: Sequence[Kernel]) -> int:
    """How many scheduled kernels do all that a kernel of Loop IR does: more than one where some took another in."""
    outs = {p.name for p in kernel.outs}
    return max(1, sum(outs <= {p.name for p in other.outs} for other in scheduled))


def _reader(sharing: Sharing, number: int) -> int:
    """The kernel of Loop IR that reads first what another one stores, in some launch."""
    places = [place for place, index in enumerate(sharing.place) if index == number]
    return next(
        sharing.place[later]
        for place in places
        for later in range(place + 1, len(sharing.launches))
        if _reads(sharing.launches[later], sharing.launches[place])
    )


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
