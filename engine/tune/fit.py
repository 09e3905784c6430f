"""Fitting all constants of a device to measured kernels: `dplc model fit`.

Coordinate descent on the mean of |log(predicted / measured)| keeps each constant within a factor of the published one.
Each half of the shapes is also fitted alone, to see how well that predicts the other half.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...codegen.target import DEVICE_FIELDS, Target
from ...ir.diagnostic import DplcError
from ..bench.records import PackResults
from ..cost.instruction_counts import InstructionCounts, counts_of
from ..cost.predict import Agreement, MeasuredVariant, agreement, predict

CONSTANTS = (
    "dram_share", "l2_bytes_per_second", "clock", "launch_seconds", "issue_share", "memory_latency_seconds",
    "warp_product_share",
)  # fmt: skip
SHARES = frozenset(name for name in CONSTANTS if name.endswith("_share"))  # at most 1
FURTHEST = 3.0  # a constant over the published one, either way
STEPS = (1.25, 1.08, 1.025, 1.008)
ROUNDS = 8  # over all constants, of each step, at most
LEAST = 8  # measurements; of fewer, seven constants say nothing


@dataclass(frozen=True)
class FitPoint:
    """Measured program. shape: the case, with all its schedules; seconds: of all launches."""

    shape: str
    seconds: float
    launches: tuple[InstructionCounts, ...]

    def variant(self, target: Target) -> MeasuredVariant:
        predicted = sum(predict(launch, target).seconds for launch in self.launches)
        return MeasuredVariant(self.shape, self.seconds, predicted)


def fit_points(results: PackResults) -> list[FitPoint]:
    """Return the right measurements, each program once. Raises DplcError if they are too few for a fit."""
    found = [
        FitPoint(f"{one.suite} {one.name}", one.dplc.median_us * 1e-6, tuple(map(counts_of, one.launches)))
        for one in results.cases
        if one.status == "ok" and one.dplc is not None and not one.same
    ]
    if len(found) < LEAST:
        what = f"{len(found)} programs were measured; a fit needs {LEAST}"
        raise DplcError(what, hint="dplc bench --unpack FILE.dplc --minutes 8 -o results.json")
    return found


def fit(points: Sequence[FitPoint], base: Target) -> tuple[Target, list[tuple[str, str, Agreement]]]:
    """Fit CONSTANTS to all points, and to each half of the shapes, to see how well that predicts the other half.

    Returns the fitted target, and the accuracy of the model as (points, constants, agreement) for a table.
    """
    shapes = sorted({point.shape for point in points})
    even = set(shapes[::2])
    halves = [p for p in points if p.shape in even], [p for p in points if p.shape not in even]
    rows = [("all", "published", points, base)]
    for own, other, name in ((*halves, "one half"), (*halves[::-1], "the other")):
        if own and other:
            moved = fitted(own, base)
            rows.append((name, "fitted to it", own, moved))
            rows.append(("the rest", "published", other, base))
            rows.append(("the rest", f"fitted to {name}", other, moved))
    whole = fitted(points, base)
    rows.append(("all", "fitted to all", points, whole))
    return whole, [
        (name, constants, agreement(point.variant(target) for point in some)) for name, constants, some, target in rows
    ]


def fitted(points: Sequence[FitPoint], base: Target) -> Target:
    """Return the target with the constants whose predictions are closest to the points."""
    best, least = base, distance(points, base)
    for step in STEPS:
        for _ in range(ROUNDS):
            before = least
            for name, factor in itertools.product(CONSTANTS, (step, 1 / step)):
                while (moved := _moved(best, base, name, factor)) and (found := distance(points, moved)) < least:
                    best, least = moved, found
            if least > before - 1e-6:
                break
    return best


def distance(points: Iterable[FitPoint], target: Target) -> float:
    """Return the mean of |log(predicted / measured)|."""
    return statistics.fmean(abs(math.log(v.predicted / v.measured)) for v in (p.variant(target) for p in points))


def _moved(target: Target, base: Target, name: str, factor: float) -> Target | None:
    """Return the target with a constant multiplied by a factor, or None if that is too far from the published value."""
    value, published = getattr(target, name) * factor, getattr(base, name)
    if not 1 / FURTHEST <= value / published <= FURTHEST or (name in SHARES and value > 1):
        return None
    return replace(target, **{name: value})


def device_file(target: Target, base: str) -> str:
    """Return the text of a device file, with a header that names the fitted constants.

    All other values are those of the target, as in the file of `base`.
    """
    lines = [
        f"# Fitted by `dplc model fit` on {target.name}: {', '.join(CONSTANTS)}.",
        f"# Everything else is published, as in the file of {base}. Sizes in bytes, rates per second.",
    ]
    for field in DEVICE_FIELDS:
        value = getattr(target, field.name)
        shown = f'"{value}"' if isinstance(value, str) else repr(value)
        lines.append(f"{field.name} = {float(f'{value:.4g}') if field.name in CONSTANTS else shown}")
    return "\n".join(lines) + "\n"
