"""The bench of one program: right first; each of its kernels and the whole, predicted; on a GPU measured, the whole
beside eager and torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..api import Compiled as Callee
from ..compiler import Compilation
from ..ruleset import Toolchain
from ..run.load_time_weights import Preparation
from .assembling import assemble_all, assembler
from .bench import BenchSteps, provenance, totals
from .compiling import CompiledCase, CompileTimes, describe
from .emulating import build_all, run_case
from .kernels import (
    COLUMNS,
    LEGEND,
    PROFILE,
    PROFILE_LEGEND,
    WHOLE,
    columns,
    note_limits,
    rows,
    time_kernels,
    totals_line,
    whole,
)
from .measuring import Clock, CudaClock, measured
from .records import BenchRecord, CaseRecord
from .subject import Written
from .tables import TableLayout

Say = Callable[[str], None]


def bench_program(
    compilation: Compilation, text: str, tools: Toolchain, steps: BenchSteps, say: Say, measuring: bool
) -> BenchRecord:
    """A program that was compiled, on the inputs that its text made. measuring: there is a GPU, and it is meant."""
    target, milliseconds = compilation.target, sum(compilation.timings.values())
    record = CaseRecord(name=WHOLE, operation="expression", sizes={}, dtype="", compile_ms=milliseconds)
    compiled = CompiledCase(Written(compilation.captured), compilation, record)
    describe(compiled, target)
    if steps.assemble and assembler():
        assemble_all([compiled], target, say)
    if steps.run:
        build_all([compiled], say)
        say("running on the emulator")
        run_case(compiled)
    kernels = rows(record.kernels, "")
    note_limits(kernels, compilation.plan.kernels, compilation.kernels, target)
    if measuring and not record.wrong:
        say("measuring")
        measure(compiled, kernels, Callee(compilation, "cuda"), CudaClock(), lambda tensor: tensor.cuda())
    last = whole(kernels, "expression", "")
    last.run, last.measured, last.error = record.run, record.measured, record.error
    last.times_limit, last.stages, last.compile_ms = record.times_limit, compilation.timings, milliseconds
    seconds = milliseconds / 1e3
    return BenchRecord(
        suite=text,
        about="Every distinct kernel with all its launches, and the whole.",
        published="",
        totals=totals([record], CompileTimes(seconds, seconds, 0.0)),
        cases=[*kernels, last],
        **provenance(steps.command, target, tools),
    )


def measure(
    compiled: CompiledCase, kernels: list[CaseRecord], callee: Callee, clock: Clock, place: Callable[[Any], Any]
) -> None:
    """Fill in measured times: of the whole where it is right, then of each kernel alone. place: a tensor on the GPU."""
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


def _summary(record: BenchRecord) -> str:
    """One paragraph: how many launches, what they take, whether the result is right."""
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


LAYOUT = TableLayout(columns(COLUMNS), LEGEND, _summary)
PROFILED = TableLayout(columns(PROFILE), PROFILE_LEGEND + LEGEND, _summary)
