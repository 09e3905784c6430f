"""The constants of a device file, fitted to what a pack measured: `dplc model fit`.

`dplc calibrate` measures each constant with micro kernels; here all are moved together, so that the predictions of real
kernels come near: coordinate descent on the mean of |log(predicted / measured)|, each constant within a factor of the
published one. Every second shape is left out of a fit and says what the fit is worth on shapes that it has not seen.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..bench.records import PackedResult, PackResults
from ..cost.instruction_counts import InstructionCounts, counts_of
from ..cost.predict import Agreement, MeasuredVariant, agreement, predict
from .calibrate import FITTED

CONSTANTS = (*FITTED, "memory_latency_seconds", "warp_product_share")
SHARES = frozenset(name for name in CONSTANTS if name.endswith("_share"))  # at most 1
FURTHEST = 3.0  # a constant over the published one, either way
STEPS = (1.25, 1.08, 1.025, 1.008)
ROUNDS = 8  # over all constants, of each step, at most
LEAST = 8  # measurements; of fewer, seven constants say nothing


@dataclass(frozen=True)
class FitPoint:
    """A program that was measured. shape: the case, with all its schedules; seconds: of all launches."""

    shape: str
    seconds: float
    launches: tuple[InstructionCounts, ...]

    def variant(self, target: Target) -> MeasuredVariant:
        predicted = sum(predict(launch, target).seconds for launch in self.launches)
        return MeasuredVariant(self.shape, self.seconds, predicted)


@dataclass(frozen=True)
class Fit:
    """The fitted target, and how well the model agrees. rows: (points, constants, agreement) for a table."""

    target: Target
    rows: tuple[tuple[str, str, Agreement], ...]


def fit_points(results: PackResults) -> list[FitPoint]:
    """Return the right measurements, each program once. Raises DplcError if they are too few for a fit."""
    found = [_point(one) for one in results.cases if one.status == "ok" and one.dplc is not None and not one.same]
    if len(found) < LEAST:
        what = f"{len(found)} programs were measured; a fit needs {LEAST}"
        raise DplcError(what, hint="dplc bench --unpack FILE.dplc --minutes 8 -o results.json")
    return found


def _point(one: PackedResult) -> FitPoint:
    assert one.dplc is not None
    launches = tuple(counts_of(launch) for launch in one.launches)
    return FitPoint(f"{one.suite} {one.name}", one.dplc.median_us * 1e-6, launches)


def fit(points: Sequence[FitPoint], base: Target) -> Fit:
    """Fit CONSTANTS to all points, and to each half of the shapes alone to see what that says of the other half."""
    shapes = sorted({point.shape for point in points})
    even = set(shapes[::2])
    halves = [p for p in points if p.shape in even], [p for p in points if p.shape not in even]
    rows = [("all", "published", _agreement(points, base))]
    for own, other, name in ((*halves, "one half"), (*halves[::-1], "the other")):
        if own and other:
            moved = fitted(own, base)
            rows.append((f"{name}", "fitted to it", _agreement(own, moved)))
            rows.append(("the rest", "published", _agreement(other, base)))
            rows.append(("the rest", f"fitted to {name}", _agreement(other, moved)))
    whole = fitted(points, base)
    return Fit(whole, (*rows, ("all", "fitted to all", _agreement(points, whole))))


def fitted(points: Sequence[FitPoint], base: Target) -> Target:
    """The target with the constants that bring predictions nearest to the points."""
    best, least = base, distance(points, base)
    for step in STEPS:
        for _ in range(ROUNDS):
            before = least
            for name in CONSTANTS:
                for factor in (step, 1 / step):
                    while (moved := _moved(best, base, name, factor)) is not None:
                        found = distance(points, moved)
                        if found >= least:
                            break
                        best, least = moved, found
            if least > before - 1e-6:
                break
    return best


def distance(points: Iterable[FitPoint], target: Target) -> float:
    """The mean of |log(predicted / measured)|."""
    return statistics.fmean(abs(math.log(v.predicted / v.measured)) for v in (p.variant(target) for p in points))


def _moved(target: Target, base: Target, name: str, factor: float) -> Target | None:
    """The target with a constant times a factor; None where that is too far from the published one."""
    value, published = getattr(target, name) * factor, getattr(base, name)
    if not 1 / FURTHEST <= value / published <= FURTHEST or (name in SHARES and value > 1):
        return None
    changed: Any = {name: value}
    return dataclasses.replace(target, **changed)


def _agreement(points: Sequence[FitPoint], target: Target) -> Agreement:
    return agreement(point.variant(target) for point in points)[-1]
