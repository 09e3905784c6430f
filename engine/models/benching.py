"""A model's bench: every distinct kernel and the whole, predicted; measured beside eager and torch.compile on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...codegen.cuda import safe_kernel_name
from ...codegen.kernel import Program
from ...codegen.target import Target
from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ..bench.bench import provenance
from ..bench.cases import Assembled, assembler, kernel_record, note_assembled, tried
from ..bench.records import BenchRecord, CaseRecord, Totals
from ..bench.tables import (
    KERNEL_COLUMNS,
    KERNEL_LEGEND,
    PROFILE,
    PROFILE_LEGEND,
    TableLayout,
    kernel_columns,
    note_limits,
    row,
    totals_line,
    whole,
)
from ..ruleset import Toolchain
from .artefact import Artefact, plan_of
from .compiling import CompiledModel, Figures
from .kernel_texts import KERNEL_IR, read_kernels
from .plan_file import PlanFile
from .running import TorchOutput
from .weights import Tell, WeightRequest


@dataclass(frozen=True)
class BenchedModel:
    """What is benched: a model compiled now, or an artefact. kernels: Kernel IR by name in CUDA."""

    plan: PlanFile
    program: Program
    outputs: tuple[TorchOutput, ...]
    loops: tuple[Kernel, ...]
    kernels: Mapping[str, Kernel]
    constants: Mapping[str, Any]
    weights: Mapping[str, WeightRequest]
    figures: Figures

    @property
    def target(self) -> Target:
        return find_target(self.plan.arch)


class ModelBench(BenchRecord, kw_only=True):
    """The bench of a model. Its cases are the distinct kernels, each with its `launches`, and then the whole."""

    figures: Figures


def of_compiled(compiled: CompiledModel) -> BenchedModel:
    """The subject of a model that was compiled just now. Raises DplcError for one with sizes."""
    _ = compiled.shape.numbers  # which says so
    kernels = {safe_kernel_name(kernel.name): kernel for kernel in compiled.compilation.kernels}
    return BenchedModel(
        plan_of(compiled),
        compiled.program,
        compiled.outputs,
        compiled.compilation.plan.kernels,
        kernels,
        compiled.constants(),
        compiled.weights,
        compiled.figures,
    )


def of_artefact(found: Artefact) -> BenchedModel:
    """The subject of an artefact: its `ir/kernel.ir` is what predictions look at. Raises DplcError for many lengths."""
    if not found.plan.config:
        raise DplcError(f"{found.folder} is of a text, which has no model to compare with", hint="dplc bench -c TEXT")
    if found.sizes:
        raise DplcError(f"{found.folder} is of many lengths", hint="dplc bench MODEL --seq-len 1..4096 --size s=512")
    kernels = read_kernels(found.folder / KERNEL_IR)
    return BenchedModel(
        found.plan, found.program, found.outputs, (), kernels, found.constants, found.weights, found.figures
    )


def bench(
    subject: BenchedModel,
    tools: Toolchain,
    command: str,
    assemble: bool,
    measure: Callable[[BenchedModel, list[CaseRecord]], None] | None,
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
        totals=Totals(
            cases=len(cases), failed=sum(bool(case.error) for case in cases), kernels=figures.kernels,
            compile_seconds=seconds, compile_cpu_seconds=seconds, rules_ms=0.0,
            spill_bytes=sum(spills) if spills else None, wrong=None, predicted_geomean_us=None,
        ),
        cases=cases,
        figures=figures,
        **provenance(command, target, tools),
    )  # fmt: skip


def predicted(subject: BenchedModel, target: Target, assemble: bool, tell: Tell) -> list[CaseRecord]:
    """A record of every distinct kernel, over all its launches, and of the whole."""
    program, dtype = subject.program, subject.plan.dtype
    launches = Counter(kernel.name for kernel in program.kernels)
    cases = []
    for place, text in enumerate(program.distinct_kernels()):
        tell("assembling and predicting" if assemble else "predicting", place, len(launches))
        made = tried(text, target.arch) if assemble else None
        registers = made.registers if isinstance(made, Assembled) else None
        case = row(kernel_record(subject.kernels[text.name], text, target, registers), launches[text.name], dtype)
        if isinstance(made, Assembled):
            note_assembled(case.kernels[0], made)
        elif made is not None:
            case.error = made.render()
        cases.append(case)
    note_limits(cases, subject.loops, tuple(subject.kernels.values()), target)
    return [*cases, whole(cases, "model", dtype)]


def _summary(record: ModelBench) -> str:
    """One paragraph of totals."""
    found = record.figures
    return "; ".join(
        (
            f"{found.launches} launches of {found.kernels} kernels, at most {found.per_block} in a block",
            totals_line(record),
            f"peak of temporaries {found.planned_bytes / 2**20:.2f} MiB planned, of eager at least "
            f"{found.eager_bytes / 2**20:.2f} MiB (computed)",
        )
    )


LAYOUT = TableLayout(kernel_columns(KERNEL_COLUMNS), KERNEL_LEGEND, _summary)
PROFILED = TableLayout(kernel_columns(PROFILE), PROFILE_LEGEND + KERNEL_LEGEND, _summary)
