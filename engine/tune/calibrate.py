"""The constants of the model, measured: `dplc calibrate`.

Every rate is a slope: two micro kernels that differ in their amount of work only, the difference of the work over the
difference of the times, so that launches and first loads cancel. Fitted are the share of DRAM's published bandwidth
that is reached (a copy many times as large as L2), the bandwidth of L2 (reads of a quarter of it, round after round,
shifted so that no multiprocessor finds in its L1 what it read before), the clock (chains of fused multiply-adds on all
lanes), the time of a launch (empty kernels in a row), and the share of the schedulers' slots that a product fills at
that clock (our own in f32, of random numbers: of zeros a device clocks higher). Everything else that a device file says
is published, and stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen.arrays import as_numpy
from ...codegen.kernel import Buffer, CudaKernel, KernelParam, Program
from ...codegen.launch import DeviceError
from ...codegen.target import DEVICE_FIELDS, Target
from ..capture.text import capture_text
from ..compiler import CompileOptions, compile_captured
from ..cost.instruction_counts import instruction_counts
from ..ruleset import toolchain
from .measure import Build, WorkerProcess, cubin
from .measure_protocol import Measure, Measured
from .subject import TuningSubject, subject_of

THREADS = 256
UNROLLED = 64  # multiply-adds a turn
CHAINS = 8  # of them independent
FITTED = ("dram_share", "l2_bytes_per_second", "clock", "launch_seconds", "issue_share")
WARM_UP, RUNS, SECONDS, LIMIT = 3, 20, 2.0, 60.0
Progress = Callable[[str], None]

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
  for (int turn = 0; turn < {turns}; ++turn) {{
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
  for (int turn = 0; turn < {turns}; ++turn) {{
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
    """How much the micro kernels do at first; the second of each does twice as much. Bytes, turns, launches.

    side: of the matrices that are multiplied.
    """

    copied: int
    l2_bytes: int
    l2_turns: int
    fma_turns: int
    launches: int = 16
    side: int = 4096


def sizes_for(target: Target) -> Sizes:
    """Some tenths of a millisecond each."""
    return Sizes(max(4 * target.l2_bytes, 1 << 26), target.l2_bytes // 4, 256, 4096)


@dataclass(frozen=True)
class Micro:
    """A program, and how much work it is, in the unit of what it calibrates. subject: its inputs, if it has any."""

    program: Program
    work: float
    subject: TuningSubject | None = None


def micro_kernels(name: str, target: Target, sizes: Sizes) -> tuple[Micro, Micro]:
    """The two programs that one of FITTED is fitted with. target: with the constants that come before it fitted."""
    blocks = target.multiprocessors * (target.threads // THREADS)
    if name == "dram_share":
        return _pair(lambda n: _copy(f"copy_{n}", sizes.copied * n, blocks, target))
    if name == "l2_bytes_per_second":
        return _pair(lambda n: _reads(f"reads_{n}", sizes.l2_bytes, sizes.l2_turns * n, blocks))
    if name == "clock":
        return _pair(lambda n: _fma(f"multiply_adds_{n}", sizes.fma_turns * n, blocks, target))
    if name == "launch_seconds":
        return _pair(lambda n: _launches(sizes.launches * n))
    one = _product(sizes.side, target)
    return one, dataclasses.replace(one, program=_repeated(one.program, 2), work=2 * one.work)


def _pair(make: Callable[[int], Micro]) -> tuple[Micro, Micro]:
    return make(1), make(2)


def _copy(name: str, nbytes: int, blocks: int, target: Target) -> Micro:
    """Work in seconds at the published bandwidth."""
    items = nbytes // 16
    text = COPY.format(name=name, threads=THREADS, items=items, lanes=blocks * THREADS)
    buffers = Buffer("from", "f32", (items * 4,)), Buffer("to", "f32", (items * 4,))
    return Micro(_program(name, text, blocks, THREADS, buffers), 2.0 * items * 16 / target.dram_bytes_per_second)


def _reads(name: str, nbytes: int, turns: int, blocks: int) -> Micro:
    items = nbytes // 16
    step = (blocks + 7) * THREADS % items
    text = L2.format(name=name, threads=THREADS, items=items, turns=turns, step=step)
    made = _program(name, text, blocks, blocks * THREADS, (Buffer("from", "f32", (items * 4,)),))
    return Micro(made, 16.0 * turns * blocks * THREADS)


def _fma(name: str, turns: int, blocks: int, target: Target) -> Micro:
    """Work in clocks of the whole device."""
    text = FMA.format(name=name, threads=THREADS, turns=turns, unrolled=UNROLLED, chains=CHAINS)
    lanes = target.multiprocessors * target.fp32_per_clock
    return Micro(_program(name, text, blocks, blocks * THREADS), turns * UNROLLED * blocks * THREADS / lanes)


def _launches(count: int) -> Micro:
    one = _program("empty", EMPTY.format(name="empty"), 1, THREADS)
    return Micro(_repeated(one, count), float(count))


def _product(side: int, target: Target) -> Micro:
    """Work in seconds in which every scheduler issues an instruction at every clock."""
    text = f"torch.randn({side}, {side}) @ torch.randn({side}, {side})"
    made = compile_captured(capture_text(text, values=False), CompileOptions(toolchain(), target))
    counts = [instruction_counts(made.kernels[index]) for index in made.launched]
    slots = target.multiprocessors * target.schedulers * target.clock
    return Micro(made.program, sum(n.issued * n.blocks for n in counts) / slots, subject_of(made.plan.kernels))


def _repeated(program: Program, count: int) -> Program:
    return dataclasses.replace(program, kernels=program.kernels * count, bindings=program.bindings * count)


def _program(name: str, text: str, blocks: int, done: int, between: tuple[Buffer, ...] = ()) -> Program:
    """A launch over temporaries; `done` elements are written, so that nothing can be left out."""
    out = Buffer("done", "f32", (done,))
    params = tuple(KernelParam(b.name, b.dtype, b.shape, "out") for b in (*between, out))
    kernel = CudaKernel(name, text, (blocks, 1, 1), THREADS, 0, params)
    return Program((kernel,), (), (out,), (), between, (tuple(param.name for param in params),))


def calibrate(target: Target, process: WorkerProcess, folder: Path, build: Build = cubin, sizes: Sizes | None = None,
              say: Progress = lambda line: None) -> tuple[Target, str]:  # fmt: skip
    """A target with the fitted constants, and the name of the GPU. folder: an empty one, for the process.

    Raises DeviceError where nothing can be measured, or where what was measured makes no sense.
    """
    process.start()
    asked, fitted, gpu = sizes or sizes_for(target), target, ""
    for name in FITTED:
        say(f"measuring {name}")
        one, two = micro_kernels(name, fitted, asked)
        answers = [_run(micro, target, process, folder, build) for micro in (one, two)]
        gpu, times = answers[0].gpu, [float(np.median(answer.seconds)) for answer in answers]
        if times[1] <= times[0]:
            raise DeviceError(f"twice the work for {name} took no longer: {times[0]:.3g} and {times[1]:.3g} s")
        rate = (two.work - one.work) / (times[1] - times[0])
        found: Any = {name: 1 / rate if name == "launch_seconds" else rate}
        fitted = dataclasses.replace(fitted, **found)
    return dataclasses.replace(fitted, name=gpu), gpu


def _run(micro: Micro, target: Target, process: WorkerProcess, folder: Path, build: Build) -> Measured:
    program = micro.program
    here = folder / f"{program.kernels[0].name}-{len(program.kernels)}"
    here.mkdir()
    tensors = micro.subject.tensors if micro.subject else {}
    nothing = {b.name: (np.zeros(b.shape), np.zeros(b.shape, bool)) for b in program.outputs}
    arrays: dict[str, Any] = {f"={b.name}": as_numpy(b, tensors[b.name]) for b in program.inputs}
    np.savez(here / "inputs.npz", **arrays)
    expected: dict[str, Any] = {}
    for name, (values, where) in (micro.subject.expected if micro.subject else nothing).items():
        expected |= {f"={name}": values, f"@{name}": where}
    np.savez(here / "expected.npz", **expected)
    images = {kernel.name: build(kernel, target.arch) for kernel in set(program.kernels)}
    answer = process.ask(Measure(program, images, str(here), WARM_UP, RUNS, SECONDS), LIMIT)
    if not isinstance(answer, Measured) or answer.status != "ok":
        raise DeviceError(f"the micro kernel `{program.kernels[0].name}` was not measured: {answer.detail}")
    return answer


def device_file(
    target: Target, base: str, fitted: Sequence[str] = FITTED, how: str = "Measured by `dplc calibrate`"
) -> str:
    """The text of a device file: what was measured is marked, the rest is what the file of `base` says."""
    lines = [
        f"# {how} on {target.name}: {', '.join(fitted)}.",
        f"# Everything else is published, as in the file of {base}. Sizes in bytes, rates per second.",
    ]
    for field in DEVICE_FIELDS:
        value = getattr(target, field.name)
        shown = f'"{value}"' if isinstance(value, str) else f"{value:.4g}" if field.name in fitted else repr(value)
        lines.append(f"{field.name} = {_float(shown) if field.name in fitted else shown}")
    return "\n".join(lines) + "\n"


def _float(text: str) -> str:
    return str(float(text))
