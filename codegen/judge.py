"""The judge: whether outputs are right, element by element. Every comparison of a kernel with float64 is made here.

An element is right if it is of float64's class (finite, inf, -inf, NaN, all as the output's dtype has them) and as near
as the gate says: a share of the largest value, or twice the largest error of PyTorch's own eager result. Where eager
itself fails it says nothing of its neighbours, and the gate is not widened by it: there an element is right if it
equals float64 or eager. An element that equals neither, but is not worse than eager, is not judged, and the report
says so. An element that references with errors of rounding explain is right, too: on either side of a step that its
operands are near, and where a sum cancels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..ir.dtypes import DTYPES

GATE = 1e-5  # of max|y - reference| / max|reference| in f32; twice what eager itself has, if that is larger
GATE_OF_F64 = 1e-12  # the reference is eager itself there, and sums of another order differ
# Of the output of one kernel, where there is no eager result to compare with; other dtypes are exact.
GATES = {"f32": GATE, "f16": 2.0**-9, "bf16": 2.0**-6, "e4m3": 2.0**-2, "e5m2": 2.0**-1, "f64": GATE_OF_F64}

# Eager fails where its error is this many times larger than both what its dtype explains and the next smaller error:
# a step of a discontinuous function, or a pole. Errors of rounding have no such gap.
GAP = 16.0
# Elements this much larger than nine of ten others are judged by themselves, and do not set the scale of the others.
GIANT = 1e4
_SAMPLE = 1 << 20  # elements that are looked at to find that scale
_NAMES = {getattr(torch, DTYPES[name].torch): name for name in GATES}


@dataclass(frozen=True)
class Judgement:
    """Knowledge about some outputs.

    count: elements. wrong: those that are wrong. as_eager: those that are as eager has them where float64 differs.
    unjudged: those that are undecided, because eager fails there. rounded: those that only errors of rounding explain.
    absolute, relative: the largest distance from float64 of all others, and the same over the largest value; inf where
    a class differs. overflows: whether eager fails by overflow wherever it fails.
    """

    count: int = 0
    wrong: int = 0
    as_eager: int = 0
    unjudged: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    overflows: bool = True
    rounded: int = 0

    @property
    def ok(self) -> bool:
        return not self.wrong

    def __add__(self, other: Judgement) -> Judgement:
        return Judgement(
            self.count + other.count, self.wrong + other.wrong, self.as_eager + other.as_eager,
            self.unjudged + other.unjudged, max(self.absolute, other.absolute), max(self.relative, other.relative),
            self.overflows and other.overflows, self.rounded + other.rounded,
        )  # fmt: skip

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a person on elements that float64 did not decide."""
        why = "eager overflows there" if self.overflows else "eager itself fails there"
        found = []
        if self.as_eager:
            found.append(f"{self.as_eager:,} of {self.count:,} elements are as eager has them, not float64: {why}")
        if self.rounded:
            found.append(f"{self.rounded:,} of {self.count:,} elements are not float64's, as rounding explains")
        if self.unjudged:
            found.append(f"{self.unjudged:,} of {self.count:,} elements were not judged: {why}")
        return tuple(found)

    @property
    def verdict(self) -> str:
        """For a line of a report: `ok`, or how much is wrong."""
        return "ok" if self.ok else f"WRONG at {self.wrong:,} of {self.count:,} elements"


def judge(
    results: Sequence[Any],
    references: Sequence[Any],
    eager: Sequence[Any] | None = None,
    gates: Mapping[str, float] | None = None,
    rounded: Iterable[Sequence[Any]] = (),
) -> Judgement:
    """Judge outputs against float64, and against eager where that is known.

    results: tensors of the outputs' dtypes. references: the same in float64; integers and bools exact. eager: what
    PyTorch gives, in the outputs' dtypes. gates: {dtype: share of the largest value}; GATE with an eager result,
    else GATES. rounded: the references with errors of rounding, several times; they are computed only if an
    element is wrong. All of one shape, on any device; they are compared on that of the references.
    """
    known: Sequence[Any] = [None] * len(references) if eager is None else eager
    total, moved = Judgement(), list[Sequence[Any]]()
    for place, (result, reference, own) in enumerate(zip(results, references, known, strict=True)):
        found = _judge(result, reference, own, gates)
        if found.wrong and result.shape == reference.shape:
            moved = moved or list(rounded)
            explained = _explained(result, reference, [each[place] for each in moved])
            other = _judge(explained, reference, own, gates)
            found = replace(other, rounded=found.wrong - other.wrong)
        total += found
    return total


def _explained(result: Any, reference: Any, rounded: Sequence[Any]) -> Any:
    """Return a result with float64's values for all elements that errors of rounding explain.

    Such an element is a value that they give, on either side of a step, or a float at most twice as far from float64 as
    they move it. rounded: references with such errors.
    """
    got = result.detach().to(reference.device)
    explained = torch.zeros_like(got, dtype=torch.bool)
    for each in rounded:
        explained |= torch.isclose(got, each.to(got.dtype), 0, 0, equal_nan=True)
        if got.is_floating_point() and reference.is_floating_point():
            far = (each - reference).abs()
            explained |= ((got - reference).abs() <= 2 * far) & torch.isfinite(far)
    return torch.where(explained, reference.to(got.dtype), got)


def _judge(result: Any, reference: Any, eager: Any, gates: Mapping[str, float] | None) -> Judgement:
    want = reference.detach().reshape(-1)
    got = result.detach().to(want.device).reshape(-1)
    count = max(want.numel(), 1)
    if result.shape != reference.shape:
        return Judgement(count, count, absolute=float("inf"), relative=float("inf"))
    own = None if eager is None else eager.detach().to(want.device).reshape(-1)
    if not (want.dtype.is_floating_point and got.dtype.is_floating_point):
        return _exactly(got, want, own)
    if gates is None and own is not None:
        gate = GATE_OF_F64 if got.dtype is torch.float64 else GATE
    else:
        gate = (gates or GATES).get(_NAMES.get(got.dtype, ""), GATE)
    return _nearly(got, want.double(), own, gate)


def _exactly(got: Any, want: Any, eager: Any) -> Judgement:
    """Judge integers and bools: they are float64's, or eager's where a float falls to another side of a step."""
    right = got.to(want.dtype) == want
    as_eager = torch.zeros_like(right) if eager is None else ~right & (got == eager)
    wrong = int((~right & ~as_eager).sum())
    off = float(wrong > 0)
    return Judgement(want.numel(), wrong, int(as_eager.sum()), absolute=off, relative=off, overflows=not as_eager.any())


def _nearly(got: Any, want: Any, eager: Any, gate: float) -> Judgement:
    """Judge floats. got, eager: in the output's dtype; want: in float64; all flat."""
    reached = _classes(want.to(got.dtype))  # what lies beyond the dtype is infinite in it
    distance = _distance(got, want, reached)
    own = torch.zeros_like(distance) if eager is None else _distance(eager, want, reached)
    limits = _limits(own, want, reached, gate, got.dtype)
    rounded = got == want.to(got.dtype)  # no value of the dtype is nearer
    right = (distance <= limits.allowed) | rounded | _at_the_brink(got, want, limits.allowed)
    as_eager = unjudged = torch.zeros_like(right)
    overflows = True
    if eager is not None and limits.failing.any():
        hers = _classes(eager)
        near = (got.double() - eager.double()).abs() <= torch.maximum(limits.allowed, gate * eager.double().abs())
        left = limits.failing & ~right
        as_eager = left & (_classes(got) == hers) & (near | (hers != 0))
        worse = (_classes(got) != 0) | (reached != 0) | (distance > limits.slack)
        unjudged = left & ~as_eager & ~worse
        overflows = bool(((hers != 0) & (reached == 0))[as_eager | unjudged].all())
    if unjudged.any() and unjudged.all():  # then nothing vouches for this output
        return Judgement(want.numel(), want.numel(), absolute=float("inf"), relative=float("inf"))
    wrong = ~(right | as_eager | unjudged)
    return Judgement(
        want.numel(), int(wrong.sum()), int(as_eager.sum()), int(unjudged.sum()),
        *_largest(distance, torch.where(reached == 0, want.abs(), 0), ~(as_eager | unjudged)), overflows,
    )  # fmt: skip


@dataclass(frozen=True)
class _Limits:
    """Limits of each element.

    allowed: distance from float64. failing: whether eager fails there, and then slack: how far off it may be at its
    worst.
    """

    allowed: Any
    failing: Any
    slack: Any


def _limits(own: Any, want: Any, reached: Any, gate: float, kind: Any) -> _Limits:
    """Return the limits of each element. own: eager's distance from float64, inf where its class differs."""
    failing = torch.isinf(own)
    slack = torch.where(failing, own, 0)
    magnitude = want.abs()
    allowed = torch.where(torch.isfinite(magnitude), gate * magnitude, 0)  # of an element by itself
    smallest = 2 * torch.finfo(kind).smallest_normal * torch.finfo(kind).eps
    for group in _groups(magnitude, (reached == 0) & ~failing):
        jumps = _jumps(own, group, float(magnitude[group].max()), gate, kind)
        if jumps.any():
            failing = failing | jumps
            slack[jumps] = 2 * own[jumps].max()
        sound = group & ~jumps
        scale = float(magnitude[sound].max())
        limit = max(gate * scale, 2 * float(own[sound].max()), smallest)
        allowed[sound] = torch.full_like(allowed[sound], limit)
    return _Limits(allowed, failing, slack)


def _groups(magnitude: Any, where: Any) -> list[Any]:
    """Return masks of the elements that are of one scale: giants, and the others."""
    values = magnitude[where]
    if not values.numel():
        return []
    sample = values[:: values.numel() // _SAMPLE + 1]
    most = float(sample.kthvalue(max(1, sample.numel() * 9 // 10)).values) if sample.numel() >= 10 else 0.0
    if not most or float(values.max()) <= GIANT * most:
        return [where]
    giants = where & (magnitude > GIANT * most)
    return [giants, where & ~giants]


def _jumps(own: Any, group: Any, scale: float, gate: float, kind: Any) -> Any:
    """Return the elements of a group where eager's error is not one of rounding; none if that were most of them."""
    explained = max(gate, torch.finfo(kind).eps / 2) * scale
    far = own[group & (own > explained)].sort().values
    if scale and far.numel() and float(far[-1]) > GAP * explained:
        before = torch.cat([torch.full_like(far[:1], explained), far[:-1]])
        gaps = (far > GAP * before).nonzero()
        if gaps.numel():
            jumps = group & (own >= far[gaps[0, 0]])
            if 2 * int(jumps.sum()) <= int(group.sum()):
                return jumps
    return torch.zeros_like(group)


def _classes(values: Any) -> Any:
    """Return 0 where finite, 1 inf, 2 -inf, 3 NaN."""
    return (values == torch.inf) * 1 + (values == -torch.inf) * 2 + torch.isnan(values) * 3


def _distance(values: Any, want: Any, reached: Any) -> Any:
    """Return the distance from float64: 0 for what is not finite as it should be, inf where a class differs."""
    off = (values.double() - want).abs()
    same = (_classes(values) != 0) & (_classes(values) == reached)
    return torch.where(same, 0.0, torch.where(torch.isfinite(off), off, torch.inf))


def _at_the_brink(got: Any, want: Any, allowed: Any) -> Any:
    """Return a mask of infinite elements where a value that is near enough is infinite too."""
    near = ((want.abs() + allowed) * want.sign()).to(got.dtype)
    return torch.isinf(got) & (got == near)


def _largest(distance: Any, magnitude: Any, judged: Any) -> tuple[float, float]:
    """Return the largest distance of those that were judged, and the same over the largest value of theirs."""
    if not judged.any():
        return 0.0, 0.0
    worst, scale = float(distance[judged].max()), float(magnitude[judged].max())
    return worst, worst / scale if scale else (0.0 if worst == 0 else float("inf"))
