"""Complete benchmarks: a suite or one program as input, a record as output."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...codegen.compiler import find_program, program_identity
from ...codegen.sass import find_nvdisasm
from ...codegen.target import Target
from ...version import __version__
from ..api import Compiled as Callee
from ..compiler import Compilation, Compiler
from ..ruleset import Toolchain
from ..run.inputs import Preparation
from .cases import CompiledCase, CompileTimes, assemble_all, assembler, compile_all, describe
from .records import BenchRecord, CaseRecord, Totals, geomean
from .running import Clock, CudaClock, build_all, can_measure, device_name, measured, run_case
from .suites import BenchCase, Suite, Written, subject_of
from .tables import (
    WHOLE,
    note_limits,
    rows,
    time_kernels,
    totals_line,
    whole,
)

Say = Callable[[str], None]


@dataclass(frozen=True)
class BenchSteps:
    """Steps of a benchmark in addition to compiling."""

    run: bool = True
    assemble: bool = True
    command: str = ""


def bench(
    path: Path, suite: Suite, cases: list[BenchCase], compiler: Callable[[], Compiler], steps: BenchSteps, say: Say
) -> BenchRecord:
    """Compile the cases cold; assemble, run and measure them as requested.

    Raises DplcError for an error outside of a case.
    """
    compiled, times = compile_all([subject_of(suite, case) for case in cases], compiler, say)
    made = compiler()
    _assemble_and_run(compiled, made.target.arch, steps, say)
    for one in compiled if steps.run and can_measure() else ():
        if one.compilation is not None:
            say(f"measuring {one.record.name}")
            tensors = {name: tensor.cuda() for name, tensor in one.subject.inputs().items()}
            one.record.measured = measured(one, tensors, Callee(one.compilation, "cuda"), CudaClock())
    records, head = [one.record for one in compiled], provenance(steps.command, made.target, made.tools)
    return BenchRecord(
        suite=str(path), about=suite.about, published=suite.published, totals=totals(records, times), cases=records,
        **head,
    )  # fmt: skip


def _assemble_and_run(suite: list[CompiledCase], arch: str, steps: BenchSteps, say: Say) -> None:
    if steps.assemble and assembler():
        assemble_all(suite, arch, say)
    if steps.run:
        build_all(suite, say)
        for compiled in suite:
            say(f"running {compiled.record.name} on the emulator")
            run_case(compiled)


def provenance(command: str, target: Target, tools: Toolchain) -> dict[str, Any]:
    """Return the command, date, machine, target and versions of a record."""
    return {
        "command": command, "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), "machine": machine(),
        "target": target.name, "arch": target.arch, "dram_bytes_per_second": target.dram_bytes_per_second,
        "versions": versions(tools),
    }  # fmt: skip


def totals(records: list[CaseRecord], times: CompileTimes) -> Totals:
    """Return the totals under the table."""
    spills = [record.spills for record in records if record.spills is not None]
    runs = [record.run for record in records if record.run is not None]
    return Totals(
        cases=len(records),
        failed=sum(bool(record.error) for record in records),
        kernels=sum(len(record.kernels) for record in records),
        compile_seconds=times.wall,
        compile_cpu_seconds=times.cpu,
        rules_ms=times.rules_ms,
        spill_bytes=sum(spills) if spills else None,
        wrong=sum(not run.ok for run in runs) if runs else None,
        predicted_geomean_us=geomean(record.predicted_us for record in records if record.predicted_us is not None),
    )


def versions(tools: Toolchain) -> dict[str, str]:
    """Return the versions of all tools; "" for a missing one."""
    host, disassembler = find_program("g++"), find_nvdisasm()
    return {
        "dplc": __version__,
        "rules": tools.rules.digest[:12],
        "python": platform.python_version(),
        "torch": version("torch"),
        "assembler": assembler(),
        "disassembler": program_identity(disassembler).splitlines()[-1] if disassembler else "",
        "host compiler": program_identity(host).splitlines()[0] if host else "",
        **(_launching() if can_measure() else {}),
    }


def _launching() -> dict[str, str]:
    """Return the versions of what launches kernels, and the GPU."""
    import pycuda.driver
    import torch

    number = pycuda.driver.get_driver_version()
    driver = f"for CUDA {number // 1000}.{number % 1000 // 10}"
    cuda = str(torch.version.cuda)
    return {"pycuda": version("pycuda"), "CUDA of torch": cuda, "driver": driver, "gpu": device_name()}


def machine() -> str:
    """Describe this machine."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {device_name() if can_measure() else 'no GPU'}"


# ---- one program


def bench_program(compilation: Compilation, text: str, steps: BenchSteps, say: Say, measuring: bool) -> BenchRecord:
    """Benchmark a compiled program on the inputs that its text generated. measuring: whether to measure on a GPU."""
    target, milliseconds = compilation.target, sum(compilation.timings.values())
    record = CaseRecord(name=WHOLE, operation="expression", sizes={}, dtype="", compile_ms=milliseconds)
    compiled = CompiledCase(Written(compilation.captured), compilation, record)
    describe(compiled)
    _assemble_and_run([compiled], target.arch, steps, say)
    kernels = rows(record.kernels, "")
    note_limits(kernels, compilation.plan.kernels, compilation.kernels, target)
    if measuring and not record.wrong:
        say("measuring")
        measure(compiled, kernels, Callee(compilation, "cuda"), CudaClock(), lambda tensor: tensor.cuda())
    last, seconds = whole(kernels, "expression", ""), milliseconds / 1e3
    last.run, last.measured, last.error = record.run, record.measured, record.error
    last.times_limit, last.stages, last.compile_ms = record.times_limit, compilation.timings, milliseconds
    about = "Every distinct kernel with all its launches, and the whole."
    return BenchRecord(
        suite=text, about=about, published="", totals=totals([record], CompileTimes(seconds, seconds, 0.0)),
        cases=[*kernels, last], **provenance(steps.command, target, compilation.compiler.tools),
    )  # fmt: skip


def measure(
    compiled: CompiledCase, kernels: list[CaseRecord], callee: Callee, clock: Clock, place: Callable[[Any], Any]
) -> None:
    """Measure the whole program if its result is right, then each kernel alone.

    The last argument is a function that moves a tensor to the GPU.
    """
    assert compiled.compilation is not None
    tensors = {name: place(tensor) for name, tensor in compiled.subject.inputs().items()}
    compiled.record.measured = measured(compiled, tensors, callee, clock)
    if compiled.record.measured.dplc is None:
        return
    program, captured = compiled.compilation.program, compiled.compilation.captured
    constants = {name: place(tensor) for name, tensor in captured.tensors.items() if name not in tensors}
    constants |= Preparation().now(compiled.compilation.prepared, constants)
    session = callee.executor.prepare(program, {b.name: constants[b.name].reshape(b.shape) for b in program.constants})
    session.run({buffer.name: tensors[buffer.name].reshape(buffer.shape) for buffer in program.inputs})
    time_kernels(kernels, program, session.launch, clock)


def summary(record: BenchRecord) -> str:
    """Return one paragraph: number of launches, their time, and whether the result is right."""
    last, run = record.cases[-1], record.cases[-1].run
    launches, kernels = last.sizes["launches"], len(record.cases) - 1
    said = [f"{launches} launch{'es' * (launches > 1)} of {kernels} kernel{'s' * (kernels > 1)}", totals_line(record)]
    if last.measured is not None and last.measured.dplc is not None:
        said.append(f"{last.measured.dplc.median_us:.1f} us measured on {last.measured.device}")
    if run is not None and run.relative_error is not None:
        said.append(
            f"{run.relative_error:.0e} off float64 on the emulator ({run.extent})" + ("" if run.ok else ", WRONG")
        )
    return "; ".join(said)
