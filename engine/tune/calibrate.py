"""Measurement of the model's constants: `dplc calibrate`.

Every rate is a slope. Two micro kernels differ only in their amount of work, and the rate is the difference of the work
divided by the difference of the times, so that launches and first loads cancel. The fitted constants are:

- the share of DRAM's published bandwidth that is reached: a copy many times as large as L2;
- the bandwidth of L2: repeated reads of a quarter of it, shifted so that no multiprocessor hits in its L1;
- the clock: chains of fused multiply-adds on all lanes;
- the time of a launch: empty kernels in sequence;
- the share of the schedulers' slots that a product fills at that clock: an f32 kernel of dplc on random numbers,
  because a device clocks higher on zeros.

All other values of a device file are published ones and do not change.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...codegen.kernel import Buffer, CudaKernel, KernelParam, Program
from ...codegen.launch import DeviceError
from ...codegen.target import DEVICE_FIELDS, Target
from ...ir.diagnostic import DplcError
from ..bench.records import PackResults
from ..capture.capture import capture_text
from ..compiler import compiler_with
from ..cost.instruction_counts import InstructionCounts, counts_of, instruction_counts
from ..cost.predict import Agreement, MeasuredVariant, agreement, predict
from .evaluators import Build, Measure, TuningSubject, WorkerProcess, subject_of

THREADS = 256
UNROLLED = 64  # multiply-adds of an iteration
CHAINS = 8  # of them independent
FITTED = ("dram_share", "l2_bytes_per_second", "clock", "launch_seconds", "issue_share")
LIMIT = 60.0  # seconds for one micro kernel

COPY = """\
extern "C" __global__ void {name}(float* __restrict__ from, float* __restrict__ to, float* __restrict__ done) {{
  const int at = blockIdx.x * {threads} + threadIdx.x;
  for (int i = at; i < {items}; i += {lanes}) {{
    float read[4];
    ldg128(read, from + i * 4ll);
    stg128(to + i * 4ll, float4{{read[0], read[1], read[2], read[3]}});
  }}
  if (at < {threads}) done[at] = 0.0f;
}}
"""
L2 = """\
extern "C" __global__ void {name}(float* __restrict__ from, float* __restrict__ done) {{
  const int at = blockIdx.x * {threads} + threadIdx.x;
  float sum = 0.0f;
  int i = at % {items};
  for (int iteration = 0; iteration < {iterations}; ++iteration) {{
    float read[4];
    ldg128(read, from + i * 4ll);
    sum += (read[0] + read[1]) + (read[2] + read[3]);
    i += {step};
    if (i >= {items}) i -= {items};
  }}
  done[at] = sum == 1.0f ? 1.0f : 0.0f;
}}
"""
FMA = """\
extern "C" __global__ void {name}(float* __restrict__ done) {{
  const int at = blockIdx.x * {threads} + threadIdx.x;
  const float by = 1.0f - threadIdx.x * 1e-6f;
  float sum[{chains}];
#pragma unroll
  for (int i = 0; i < {chains}; ++i) sum[i] = threadIdx.x + i;
  for (int iteration = 0; iteration < {iterations}; ++iteration) {{
#pragma unroll
    for (int i = 0; i < {unrolled}; ++i) sum[i % {chains}] = fmaf(sum[i % {chains}], by, 1.0f);
  }}
  float all = 0.0f;
#pragma unroll
  for (int i = 0; i < {chains}; ++i) all += sum[i];
  done[at] = all;
}}
"""
EMPTY = """\
extern "C" __global__ void {name}(float* __restrict__ done) {{
  done[threadIdx.x] = 0.0f;
}}
"""


@dataclass(frozen=True)
class Sizes:
    """Amounts of work of the first micro kernels: bytes, iterations, launches. The second ones do twice as much.

    side: of the matrices that are multiplied.
    """

    copied: int
    l2_bytes: int
    l2_iterations: int
    fma_iterations: int
    launches: int = 16
    side: int = 4096


def sizes_for(target: Target) -> Sizes:
    """Return amounts of work that run for some tenths of a millisecond each."""
    return Sizes(max(4 * target.l2_bytes, 1 << 26), target.l2_bytes // 4, 256, 4096)


@dataclass(frozen=True)
class Micro:
    """Program with its amount of work, in the unit of its constant."""

    program: Program
    work: float
    subject: TuningSubject


def micro_kernel(name: str, target: Target, sizes: Sizes, times: int) -> Micro:
    """Return the program for one constant of FITTED that does so many times its work.

    target: with the preceding constants fitted.
    """
    blocks = target.multiprocessors * (target.threads // THREADS)
    lanes = blocks * THREADS
    if name == "dram_share":  # work: seconds at the published bandwidth
        items = sizes.copied * times // 16
        work = 2.0 * items * 16 / target.dram_bytes_per_second
        return _micro(f"copy_{times}", COPY, work, blocks, THREADS, ("from", "to"), items=items, lanes=lanes)
    if name == "l2_bytes_per_second":  # work: bytes
        items, iterations = sizes.l2_bytes // 16, sizes.l2_iterations * times
        numbers = {"items": items, "iterations": iterations, "step": (blocks + 7) * THREADS % items}
        return _micro(f"reads_{times}", L2, 16.0 * iterations * lanes, blocks, lanes, ("from",), **numbers)
    if name == "clock":  # work: clocks of the whole device
        iterations = sizes.fma_iterations * times
        work = iterations * UNROLLED * lanes / (target.multiprocessors * target.fp32_per_clock)
        return _micro(f"multiply_adds_{times}", FMA, work, blocks, lanes, iterations=iterations)
    if name == "launch_seconds":
        return _repeated(_micro("empty", EMPTY, 1.0, 1, THREADS), sizes.launches * times)
    # issue_share; work: seconds in which every scheduler issues an instruction at every clock
    text = f"torch.randn({sizes.side}, {sizes.side}) @ torch.randn({sizes.side}, {sizes.side})"
    made = compiler_with(target).compile(capture_text(text, values=False))
    counts = [instruction_counts(made.kernels[index]) for index in made.launched]
    slots = target.multiprocessors * target.schedulers * target.clock
    work = sum(n.issued * n.blocks for n in counts) / slots
    return _repeated(Micro(made.program, work, subject_of(made.plan.kernels)), times)


def _micro(
    name: str, text: str, work: float, blocks: int, done: int, between: tuple[str, ...] = (), **numbers: int
) -> Micro:
    """Return a program of one launch. It writes `done` elements, so that the compiler cannot remove its work."""
    out, others = Buffer("done", "f32", (done,)), [Buffer(one, "f32", (numbers["items"] * 4,)) for one in between]
    params = tuple(KernelParam(b.name, b.dtype, b.shape, "out") for b in (*others, out))
    cuda = text.format(name=name, threads=THREADS, unrolled=UNROLLED, chains=CHAINS, **numbers)
    kernel = CudaKernel(name, cuda, (blocks, 1, 1), THREADS, 0, params)
    program = Program((kernel,), (), (out,), (), tuple(others), (tuple(param.name for param in params),))
    nothing = torch.zeros(done)
    return Micro(program, work, TuningSubject({}, {"done": (nothing, nothing.bool())}))


def _repeated(micro: Micro, count: int) -> Micro:
    """Return a program that runs several times."""
    one = micro.program
    program = replace(one, kernels=one.kernels * count, bindings=one.bindings * count)
    return replace(micro, program=program, work=micro.work * count)


def calibrate(target: Target, process: WorkerProcess, folder: Path, build: Build, sizes: Sizes | None) -> Target:
    """Measure the constants of a target. Return the target with them and with the name of the GPU.

    folder: an empty one, for the process. Raises DeviceError if measuring is impossible, or if the times are
    implausible.
    """
    process.start()
    asked, fitted, gpu = sizes or sizes_for(target), target, ""
    for name in FITTED:
        one, two = (micro_kernel(name, fitted, asked, times) for times in (1, 2))
        (first, gpu), (second, _) = (_run(micro, target, process, folder, build) for micro in (one, two))
        if second <= first:
            raise DeviceError(f"twice the work for {name} took no longer: {first:.3g} and {second:.3g} s")
        rate = (two.work - one.work) / (second - first)
        constant: dict[str, Any] = {name: 1 / rate if name == "launch_seconds" else rate}
        fitted = replace(fitted, **constant)
    return replace(fitted, name=gpu)


def _run(micro: Micro, target: Target, process: WorkerProcess, folder: Path, build: Build) -> tuple[float, str]:
    """Return the seconds of a program, and the name of the GPU."""
    program, name = micro.program, micro.program.kernels[0].name
    arrays = str(folder / f"{name}-{len(program.kernels)}")
    micro.subject.save(arrays)
    images = {kernel.name: build(kernel, target.arch) for kernel in program.distinct_kernels()}
    score = process.ask(Measure(program, images, arrays), LIMIT)
    if score.seconds is None:
        raise DeviceError(f"the micro kernel `{name}` was not measured: {score.detail}")
    return score.seconds, score.details["gpu"]


def device_file(
    target: Target, base: str, fitted: Sequence[str] = FITTED, how: str = "Measured by `dplc calibrate`"
) -> str:
    """Return the text of a device file, with a header that names the measured constants.

    All other values are those of the target, as in the file of `base`.
    """
    lines = [
        f"# {how} on {target.name}: {', '.join(fitted)}.",
        f"# Everything else is published, as in the file of {base}. Sizes in bytes, rates per second.",
    ]
    for field in DEVICE_FIELDS:
        value = getattr(target, field.name)
        shown = f'"{value}"' if isinstance(value, str) else repr(value)
        lines.append(f"{field.name} = {float(f'{value:.4g}') if field.name in fitted else shown}")
    return "\n".join(lines) + "\n"


# ---- Fitting all constants to measured kernels: `dplc model fit`.
#
# Coordinate descent on the mean of |log(predicted / measured)| keeps each constant within a factor of the published
# one. Each half of the shapes is also fitted alone, to see how well that predicts the other half.


CONSTANTS = (*FITTED, "memory_latency_seconds", "warp_product_share")
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
