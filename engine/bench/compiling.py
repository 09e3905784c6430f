"""Compiling a whole suite cold, timed; and what is known of its kernels before anything runs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import torch

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ..capture.capture import capture
from ..compiler import Compilation, CompileOptions, compile_captured
from ..cost.limits import program_seconds
from ..rewrite.pinned import tell_unheard, unheard_by_all
from ..ruleset import Toolchain, extended
from .limits import limits
from .predicting import kernel_record
from .records import CaseRecord
from .subject import BenchSubject, Written


@dataclass
class CompiledCase:
    """A case on its way: what was compiled (None: the record says why not), and what is known so far."""

    subject: BenchSubject | Written
    compilation: Compilation | None
    record: CaseRecord


@dataclass(frozen=True)
class CompileTimes:
    """Seconds of compiling a suite: by the clock, of the processor; and milliseconds of loading and compiling rules."""

    wall: float
    cpu: float
    rules_ms: float


def import_everything() -> None:
    """What torch.export imports when first called is not part of a compile, nor is looking through it for garbage."""
    capture(lambda x: torch.relu(x), [torch.empty(8)])
    gc.collect()
    gc.freeze()


def compile_all(
    subjects: Sequence[BenchSubject], rules: Callable[[], Toolchain], target: Target, say: Callable[[str], None]
) -> tuple[list[CompiledCase], CompileTimes]:
    """Every case, one after the other. A case that cannot be compiled is recorded and does not stop the others."""
    import_everything()
    wall, cpu = time.perf_counter(), time.process_time()
    tools = rules()
    loaded = time.perf_counter() - wall
    compiled = []
    for subject in subjects:
        say(f"compiling {subject.case.name}")
        compiled.append(_compile(subject, tools, target))
    tell_unheard(unheard_by_all([one.compilation.unheard for one in compiled if one.compilation is not None]))
    times = CompileTimes(time.perf_counter() - wall, time.process_time() - cpu, loaded * 1e3)
    for one in compiled:
        describe(one, target)
    return compiled, times


def _compile(subject: BenchSubject, tools: Toolchain, target: Target) -> CompiledCase:
    case = subject.case
    record = CaseRecord(
        name=case.name, operation=case.operation, sizes=case.sizes, dtype=case.dtype, published=case.published
    )
    start = time.perf_counter()
    try:
        captured = subject.capture()
        capture_ms = (time.perf_counter() - start) * 1e3
        compilation = compile_captured(captured, CompileOptions(extended(tools, case.rules), target), capture_ms)
    except DplcError as error:
        record.error = error.render()
        return CompiledCase(subject, None, record)
    record.compile_ms = (time.perf_counter() - start) * 1e3
    record.stages = compilation.timings
    return CompiledCase(subject, compilation, record)


def describe(compiled: CompiledCase, target: Target, registers: dict[str, int] | None = None) -> None:
    """Fill in what the launch plan and the model say. registers: {kernel text: registers of a thread}, where known."""
    compilation, record = compiled.compilation, compiled.record
    if compilation is None:
        return
    program = compilation.program
    once = [
        kernel_record(kernel, text, target, (registers or {}).get(text.text))
        for kernel, text in zip(compilation.kernels, compilation.cuda_kernels, strict=True)
    ]
    kernels = [msgspec.structs.replace(once[index]) for index in compilation.launched]
    record.kernels = kernels
    record.compulsory_bytes = sum(b.nbytes for b in (*program.inputs, *program.constants, *program.outputs))
    record.hbm_ratio = sum(kernel.hbm_bytes for kernel in kernels) / max(record.compulsory_bytes, 1)
    record.predicted_us = sum(kernel.predicted_us for kernel in kernels)
    seconds = [kernel.predicted_us * 1e-6 for kernel in once]
    found = limits(compilation.plan.kernels, compilation.kernels, seconds, target)
    record.least_us = 1e6 * program_seconds(compilation.plan.kernels, record.compulsory_bytes, len(kernels), target)
    record.times_limit = max((limit.times for limit in found), default=None)
