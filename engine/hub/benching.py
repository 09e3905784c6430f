"""A model's bench: every distinct kernel and the whole, predicted; measured beside eager and torch.compile on a GPU."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...codegen.build import BuildError
from ...codegen.kernel import CudaKernel, Program
from ...codegen.names import safe_kernel_name
from ...codegen.target import Target
from ...codegen.target import target as find_target
from ...ir.program import Kernel
from ..model.census import census
from ..model.predict import predict
from ..suite.assembling import Assembled, assembled, assembler
from ..suite.bench import machine, versions
from ..suite.limits import limits
from ..suite.records import BenchRecord, CaseRecord, KernelRecord, Totals
from ..suite.tables import Column, Layout, bound, ffma_share, median, number
from ..toolchain import Toolchain
from .artefact import Artefact, plan_of
from .compiling import CompiledModel, Figures
from .kernel_texts import KERNEL_IR, read_kernels
from .plan_file import PlanFile
from .running import Output
from .weights import Tell, Wanted

WHOLE = "end to end"


@dataclass(frozen=True)
class Subject:
    """What is benched: a model compiled now, or an artefact. kernels: Kernel IR by name in CUDA."""

    plan: PlanFile
    program: Program
    outputs: tuple[Output, ...]
    loops: tuple[Kernel, ...]
    kernels: Mapping[str, Kernel]
    constants: Mapping[str, Any]
    weights: Mapping[str, Wanted]
    figures: Figures

    @property
    def target(self) -> Target:
        return find_target(self.plan.arch)


class ModelBench(BenchRecord, kw_only=True):
    """The bench of a model. Its cases are the distinct kernels, each with its `launches`, and then the whole."""

    figures: Figures


def of_compiled(compiled: CompiledModel) -> Subject:
    """The subject of a model that was compiled just now."""
    kernels = {safe_kernel_name(kernel.name): kernel for kernel in compiled.compilation.kernels}
    return Subject(
        plan_of(compiled),
        compiled.program,
        compiled.outputs,
        compiled.compilation.plan.kernels,
        kernels,
        compiled.constants(),
        compiled.weights,
        compiled.figures,
    )


def of_artefact(found: Artefact) -> Subject:
    """The subject of an artefact: its `ir/kernel.ir` is what predictions look at."""
    kernels = read_kernels(found.folder / KERNEL_IR)
    return Subject(found.plan, found.program, found.outputs, (), kernels, found.constants, found.weights, found.figures)


def bench(
    subject: Subject,
    tools: Toolchain,
    command: str,
    assemble: bool,
    measure: Callable[[Subject, list[CaseRecord]], None] | None,
    tell: Tell,
) -> ModelBench:
    """Predict, assemble if wished (and an assembler is there), measure if there is something to measure with."""
    target, figures = subject.target, subject.figures
    cases = predicted(subject, target, assemble and bool(assembler()), tell)
    if measure is not None:
        measure(subject, cases)
    spills = [case.spills for case in cases if case.spills is not None]
    seconds = sum(figures.seconds.values())
    return ModelBench(
        suite=subject.plan.model,
        about=f"{subject.plan.length} tokens, {subject.plan.dtype}; every distinct kernel with all its launches.",
        published="",
        command=command,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        machine=machine(),
        target=target.name,
        arch=target.arch,
        dram_bytes_per_second=target.dram_bytes_per_second,
        versions=versions(tools),
        totals=Totals(
            cases=len(cases), failed=sum(bool(case.error) for case in cases), kernels=figures.kernels,
            compile_seconds=seconds, compile_cpu_seconds=seconds, rules_ms=0.0,
            spill_bytes=sum(spills) if spills else None, wrong=None, predicted_geomean_us=None,
        ),
        cases=cases,
        figures=figures,
    )  # fmt: skip


def predicted(subject: Subject, target: Target, assemble: bool, tell: Tell) -> list[CaseRecord]:
    """A record of every distinct kernel, over all its launches, and of the whole."""
    program = subject.program
    launches = Counter(kernel.name for kernel in program.kernels)
    cases = []
    for place, text in enumerate(program.distinct_kernels()):
        tell("assembling and predicting" if assemble else "predicting", place, len(launches))
        case = CaseRecord(
            name=text.name, operation="kernel", sizes={"launches": launches[text.name]}, dtype=subject.plan.dtype
        )
        _predict(case, text, subject.kernels[text.name], target, assemble)
        cases.append(case)
    _limit(cases, subject, target)
    whole = CaseRecord(
        name=WHOLE, operation="model", sizes={"launches": len(program.kernels)}, dtype=subject.plan.dtype
    )
    whole.compulsory_bytes = sum(case.compulsory_bytes for case in cases)
    whole.predicted_us = sum(case.predicted_us or 0.0 for case in cases)
    return [*cases, whole]


def _limit(cases: list[CaseRecord], subject: Subject, target: Target) -> None:
    """Say how far each kernel is from its limit; where a schedule made several of it, the last one says it."""
    by_name = {case.name: case for case in cases}
    seconds = [by_name[name].kernels[0].predicted_us * 1e-6 for name in subject.kernels]
    for limit in limits(subject.loops, tuple(subject.kernels.values()), seconds, target) if subject.loops else ():
        by_name[safe_kernel_name(limit.name)].times_limit = limit.times


def _predict(case: CaseRecord, text: CudaKernel, kernel: Kernel, target: Target, assemble: bool) -> None:
    """Fill in what is known of a kernel without running it."""
    made: Assembled | None = None
    if assemble:
        try:
            made = assembled(text, target.arch)
        except BuildError as error:
            case.error = error.render()
    counted = census(kernel, made.registers if made else None)
    found = predict(counted, target)
    record = KernelRecord(
        name=text.name, grid=text.grid, block=text.block, smem=text.smem, hbm_bytes=round(counted.dram),
        predicted_us=found.seconds * 1e6, predicted_bound=found.binding, waves=found.waves, resident=found.resident,
    )  # fmt: skip
    if made is not None:
        record.registers, record.spill_bytes = made.registers, made.spill_bytes
        if made.loop is not None:
            record.has_loop, record.ffma_share = made.loop.has_loop, made.loop.ffma_share
            record.instructions, record.widths = made.loop.instructions, made.loop.widths
    count = case.sizes["launches"]
    case.kernels = [record]
    case.compulsory_bytes, case.predicted_us = record.hbm_bytes * count, record.predicted_us * count


COLUMNS: tuple[Column, ...] = (
    ("kernel", lambda c: c.name, str),
    ("launches", lambda c: c.sizes["launches"], str),
    ("registers", lambda c: c.registers, number("{}")),
    ("spills B", lambda c: c.spills, number("{}")),
    ("smem KB", lambda c: c.smem / 1024 if c.kernels else None, number("{:.1f}")),
    ("FFMA", ffma_share, number("{:.3f}")),
    ("MB", lambda c: c.compulsory_bytes / 1e6, number("{:.1f}")),
    ("predicted us", lambda c: c.predicted_us, number("{:.1f}")),
    ("bound", bound, str),
    ("x limit", lambda c: c.times_limit, number("{:.1f}")),
)
MEASURED: tuple[Column, ...] = tuple(
    (title, median(field), number("{:.1f}"))
    for title, field in (("measured us", "dplc"), ("eager us", "eager"), ("torch.compile us", "torch_compile"))
)


def _columns(record: ModelBench) -> tuple[Column, ...]:
    return (*COLUMNS, *MEASURED) if any(case.measured for case in record.cases) else COLUMNS


def _summary(record: ModelBench) -> str:
    """One paragraph of totals."""
    found, whole = record.figures, record.cases[-1]
    assert whole.predicted_us is not None
    floor = whole.compulsory_bytes / record.dram_bytes_per_second * 1e6
    return "; ".join(
        (
            f"{found.launches} launches of {found.kernels} kernels, at most {found.per_block} in a block",
            f"{whole.predicted_us:.0f} us predicted, {floor:.0f} us if DRAM alone counted",
            f"peak of temporaries {found.planned_bytes / 2**20:.2f} MiB planned, of eager at least "
            f"{found.eager_bytes / 2**20:.2f} MiB (computed)",
        )
    )


LEGEND = (
    "launches: of one run. MB: what the kernel takes from its buffers, each once, over all its launches. "
    "predicted us: over all its launches, by the analytic model for the target, from published peaks, not calibrated, "
    "never measured. x limit: the same over what no schedule goes below (every byte and every operation once, at "
    "published peaks, and a launch). FFMA: share of the hot loop, in SASS. Columns of measured times are there only "
    "where a GPU was: medians, a kernel alone times its launches, the whole beside eager and torch.compile on the "
    "same weights."
)
LAYOUT = Layout(_columns, LEGEND, _summary)
