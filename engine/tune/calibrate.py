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

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen.kernel import Buffer, CudaKernel, KernelParam, Program
from ...codegen.launch import DeviceError
from ...codegen.target import DEVICE_FIELDS, Target
from ...ir.diagnostic import DplcError
from ..bench.records import PackResults
from ..capture.capture import capture_text
from ..compiler import compiler_with
from ..cost.instruction_counts import InstructionCounts, counts_of, instruction_counts
from ..cost.predict import Agreement, MeasuredVariant, agreement, predict
from .evaluators import Build, Measure, Measured, TuningSubject, WorkerProcess, cubin, save_arrays, subject_of

THREADS = 256
UNROLLED = 64  # multiply-adds of an iteration
CHAINS = 8  # of them independent
FITTED = ("dram_share", "l2_bytes_per_second", "clock", "launch_seconds", "issue_share")
WARM_UP, RUNS, SECONDS, LIMIT = 3, 20, 2.0, 60.0

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
    """Program with its amount of work, in the unit of its constant. subject: its inputs, if it has any."""

    program: Program
    work: float
    subject: TuningSubject | None = None


def micro_kernels(name: str, target: Target, sizes: Sizes) -> tuple[Micro, Micro]:
    """Return the two programs for one constant of FITTED. target: with the preceding constants fitted."""
    if name == "launch_seconds":
        one = Micro(_program("empty", EMPTY.format(name="empty"), 1, THREADS), 1.0)
        return _times(one, sizes.launches), _times(one, 2 * sizes.launches)
    if name == "issue_share":  # work: seconds in which every scheduler issues an instruction at every clock
        text = f"torch.randn({sizes.side}, {sizes.side}) @ torch.randn({sizes.side}, {sizes.side})"
        made = compiler_with(target).compile(capture_text(text, values=False))
        counts = [instruction_counts(made.kernels[index]) for index in made.launched]
        slots = target.multiprocessors * target.schedulers * target.clock
        work = sum(n.issued * n.blocks for n in counts) / slots
        one = Micro(made.program, work, subject_of(made.plan.kernels))
        return one, _times(one, 2)
    blocks = target.multiprocessors * (target.threads // THREADS)
    lanes = blocks * THREADS

    def micro(n: int) -> Micro:
        if name == "dram_share":  # work: seconds at the published bandwidth
            items = sizes.copied * n // 16
            text = COPY.format(name=f"copy_{n}", threads=THREADS, items=items, lanes=lanes)
            between = Buffer("from", "f32", (items * 4,)), Buffer("to", "f32", (items * 4,))
            program = _program(f"copy_{n}", text, blocks, THREADS, between)
            return Micro(program, 2.0 * items * 16 / target.dram_bytes_per_second)
        if name == "l2_bytes_per_second":  # work: bytes
            items, iterations = sizes.l2_bytes // 16, sizes.l2_iterations * n
            step = (blocks + 7) * THREADS % items
            text = L2.format(name=f"reads_{n}", threads=THREADS, items=items, iterations=iterations, step=step)
            source = Buffer("from", "f32", (items * 4,))
            return Micro(_program(f"reads_{n}", text, blocks, lanes, (source,)), 16.0 * iterations * lanes)
        kernel, iterations = f"multiply_adds_{n}", sizes.fma_iterations * n  # work: clocks of the whole device
        text = FMA.format(name=kernel, threads=THREADS, iterations=iterations, unrolled=UNROLLED, chains=CHAINS)
        width = target.multiprocessors * target.fp32_per_clock
        return Micro(_program(kernel, text, blocks, lanes), iterations * UNROLLED * lanes / width)

    return micro(1), micro(2)


def _times(micro: Micro, count: int) -> Micro:
    """Return a program that runs several times."""
    one = micro.program
    program = dataclasses.replace(one, kernels=one.kernels * count, bindings=one.bindings * count)
    return dataclasses.replace(micro, program=program, work=micro.work * count)


def _program(name: str, text: str, blocks: int, done: int, between: tuple[Buffer, ...] = ()) -> Program:
    """Return a program of one launch. It writes `done` elements, so that the compiler cannot remove its work."""
    out = Buffer("done", "f32", (done,))
    params = tuple(KernelParam(b.name, b.dtype, b.shape, "out") for b in (*between, out))
    kernel = CudaKernel(name, text, (blocks, 1, 1), THREADS, 0, params)
    return Program((kernel,), (), (out,), (), between, (tuple(param.name for param in params),))


def calibrate(
    target: Target, process: WorkerProcess, folder: Path, build: Build = cubin, sizes: Sizes | None = None
) -> tuple[Target, str]:
    """Measure the constants of a target. Return the target with them, and the name of the GPU.

    folder: an empty one, for the process. Raises DeviceError if measuring is impossible, or if the times are
    implausible.
    """
    process.start()
    asked, fitted, gpu = sizes or sizes_for(target), target, ""
    for name in FITTED:
        one, two = micro_kernels(name, fitted, asked)
        answers = [_run(micro, target, process, folder, build) for micro in (one, two)]
        gpu, times = answers[0].details["gpu"], [float(np.median(answer.seconds)) for answer in answers]
        if times[1] <= times[0]:
            raise DeviceError(f"twice the work for {name} took no longer: {times[0]:.3g} and {times[1]:.3g} s")
        rate = (two.work - one.work) / (times[1] - times[0])
        found: Any = {name: 1 / rate if name == "launch_seconds" else rate}
        fitted = dataclasses.replace(fitted, **found)
    return dataclasses.replace(fitted, name=gpu), gpu


def _run(micro: Micro, target: Target, process: WorkerProcess, folder: Path, build: Build) -> Measured:
    program, subject = micro.program, micro.subject
    here = folder / f"{program.kernels[0].name}-{len(program.kernels)}"
    nothing = {b.name: (np.zeros(b.shape), np.zeros(b.shape, bool)) for b in program.outputs}
    save_arrays(here, program, subject.tensors if subject else {}, subject.expected if subject else nothing)
    images = {kernel.name: build(kernel, target.arch) for kernel in set(program.kernels)}
    answer = process.ask(Measure(program, images, str(here), WARM_UP, RUNS, SECONDS), LIMIT)
    if not isinstance(answer, Measured) or answer.status != "ok":
        raise DeviceError(f"the micro kernel `{program.kernels[0].name}` was not measured: {answer.detail}")
    return answer


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


@dataclass(frozen=True)
class Fit:
    """Fitted target, and the accuracy of the model. rows: (points, constants, agreement) for a table."""

    target: Target
    rows: tuple[tuple[str, str, Agreement], ...]


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


def fit(points: Sequence[FitPoint], base: Target) -> Fit:
    """Fit CONSTANTS to all points, and to each half of the shapes, to see how well that predicts the other half."""
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
    """Return the target with the constants whose predictions are closest to the points."""
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
    """Return the mean of |log(predicted / measured)|."""
    return statistics.fmean(abs(math.log(v.predicted / v.measured)) for v in (p.variant(target) for p in points))


def _moved(target: Target, base: Target, name: str, factor: float) -> Target | None:
    """Return the target with a constant multiplied by a factor, or None if that is too far from the published value."""
    value, published = getattr(target, name) * factor, getattr(base, name)
    if not 1 / FURTHEST <= value / published <= FURTHEST or (name in SHARES and value > 1):
        return None
    changed: Any = {name: value}
    return dataclasses.replace(target, **changed)


def _agreement(points: Sequence[FitPoint], target: Target) -> Agreement:
    return agreement(point.variant(target) for point in points)
