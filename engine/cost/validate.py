"""The model held against measurements: does it rank the variants of a kernel as a GPU does, and how far off is it?

Kendall's tau over pairs of variants: 1 where every pair is ordered alike, 0 where the model is no help, -1 where it is
always wrong; ties on one side count for neither (tau-b, Kendall, "The treatment of ties in ranking problems", 1945).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...codegen.target import Target
from .features import Features, counts_of
from .predict import predict


@dataclass(frozen=True)
class MeasuredVariant:
    """One variant of a kernel: measured and predicted, in seconds."""

    kernel: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class Agreement:
    """Over the variants of one kernel. tau: None where all of them tie. error: the median of |predicted / measured -
    1|; ratio: the median of predicted over measured. loss: measured time of the variant that the model prefers, over
    the fastest."""

    kernel: str
    variants: int
    tau: float | None
    error: float
    ratio: float
    loss: float


def point(kernel: str, seconds: float, launches: Iterable[Features], target: Target) -> MeasuredVariant:
    """A measurement with the features of its launches, predicted. Raises DplcError for features of another model."""
    return MeasuredVariant(kernel, seconds, sum(predict(counts_of(launch), target).seconds for launch in launches))


def agreement(points: Iterable[MeasuredVariant]) -> list[Agreement]:
    """For each kernel, and last for all of them together (under the name "all"), where only the errors count."""
    every = list(points)
    groups: dict[str, list[MeasuredVariant]] = {}
    for one in every:
        groups.setdefault(one.kernel, []).append(one)
    return [*(_of(name, group) for name, group in sorted(groups.items())), _all(every, list(groups.values()))]


def _of(name: str, group: list[MeasuredVariant]) -> Agreement:
    tau = kendall([p.measured for p in group], [p.predicted for p in group])
    preferred = min(group, key=lambda p: p.predicted)
    return Agreement(name, len(group), tau, *_errors(group), preferred.measured / min(p.measured for p in group))


def _all(every: list[MeasuredVariant], groups: list[list[MeasuredVariant]]) -> Agreement:
    """Kernels differ by orders of magnitude, so a tau over all of them would flatter: it is the mean of theirs."""
    each = [_of("", group) for group in groups]
    taus = [one.tau for one in each if one.tau is not None]
    loss = math.exp(statistics.fmean(math.log(one.loss) for one in each))
    return Agreement("all", len(every), statistics.fmean(taus) if taus else None, *_errors(every), loss)


def _errors(group: list[MeasuredVariant]) -> tuple[float, float]:
    ratios = [p.predicted / p.measured for p in group]
    return statistics.median(abs(ratio - 1) for ratio in ratios), statistics.median(ratios)


def kendall(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Kendall's tau-b of two lists of the same things; None where either has only ties."""
    first, second = (np.sign(np.subtract.outer(values, values)) for values in (np.asarray(one), np.asarray(other)))
    pairs = np.sqrt(float((first != 0).sum()) * float((second != 0).sum()))
    return float((first * second).sum() / pairs) if pairs else None
