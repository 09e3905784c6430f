"""Bench of a model: each distinct kernel and the whole, predicted; measured with eager and torch.compile on a GPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...codegen.cuda import safe_kernel_name
from ...codegen.emulator.executor import EmulatorExecutor
from ...codegen.launch import Executor
from ...codegen.target import Target
from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError
from ...ir.interp import torch as meaning
from ...ir.sizes import Binding
from ..bench.bench import provenance
from ..bench.cases import Assembled, assembler, kernel_record, note_assembled, tried
from ..bench.records import BenchRecord, CaseRecord, Totals
from ..bench.running import Clock, compiled_by_torch, timing
from ..bench.tables import (
    KERNEL_COLUMNS,
    KERNEL_LEGEND,
    PROFILE,
    PROFILE_LEGEND,
    TableLayout,
    kernel_columns,
    note_limits,
    nothing_measured,
    row,
    time_kernels,
    totals_line,
    whole,
)
from ..ruleset import Toolchain
from ..run.judge import Judgement, judge
from .artefact import Artefact, plan_of
from .compiling import TOKENS, CompiledModel, Figures, called, drawn, extents, plain
from .runtime import ModelRunner
from .sources import ModelSource, build
from .weights import Tell


class ModelBench(BenchRecord, kw_only=True):
    """The bench of a model. Its cases are the distinct kernels, each with its `launches`, and then the whole."""

    figures: Figures


def of_compiled(compiled: CompiledModel) -> Artefact:
    """Return a model that was compiled just now as an artefact in memory. Raises DplcError for one with sizes."""
    _ = compiled.shape.numbers  # which says so
    made = compiled.compilation
    kernels = {safe_kernel_name(kernel.name): kernel for kernel in made.kernels}
    return Artefact(
        Path(), plan_of(compiled), compiled.program, kernels, {}, compiled.constants(), {}, compiled.figures,
        loops=made.plan.kernels,
    )  # fmt: skip


def of_artefact(found: Artefact) -> Artefact:
    """Return the artefact of a model. Raises DplcError for one of a text or of many lengths."""
    if not found.plan.config:
        raise DplcError(f"{found.folder} is of a text, which has no model to compare with", hint="dplc bench -c TEXT")
    if found.sizes:
        raise DplcError(f"{found.folder} is of many lengths", hint="dplc bench MODEL --seq-len 1..4096 --size s=512")
    return found


def bench(
    subject: Artefact,
    tools: Toolchain,
    command: str,
    assemble: bool,
    measure: Callable[[Artefact, list[CaseRecord]], None] | None,
    tell: Tell,
) -> ModelBench:
    """Predict, assemble if wished (and an assembler is there), measure if there is something to measure with."""
    target, figures = find_target(subject.plan.arch), subject.figures
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


def predicted(subject: Artefact, target: Target, assemble: bool, tell: Tell) -> list[CaseRecord]:
    """Return a record of every distinct kernel, over all its launches, and of the whole."""
    program, dtype = subject.program, subject.plan.dtype
    launches = Counter(kernel.name for kernel in program.kernels)
    cases = []
    for place, text in enumerate(program.distinct_kernels()):
        tell("assembling and predicting" if assemble else "predicting", place, len(launches))
        made = tried(text, target.arch) if assemble else None
        registers = made.registers if isinstance(made, Assembled) else None
        case = row(kernel_record(subject.units[text.name], text, target, registers), launches[text.name], dtype)
        if isinstance(made, Assembled):
            note_assembled(case.kernels[0], made)
        elif made is not None:
            case.error = made.render()
        cases.append(case)
    note_limits(cases, subject.loops, tuple(subject.units.values()), target)
    return [*cases, whole(cases, "model", dtype)]


def _summary(record: ModelBench) -> str:
    """Return one paragraph of totals."""
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


# ---- Compare outputs with Torch IR in float64, if that fits in memory.


# Of max|y - reference| / max|reference|: in f32 what whole models are held to, else eight roundings of the dtype.
GATES = {
    "f64": 1e-10,
    "f32": 1e-4,
    "f16": 8 * torch.finfo(torch.float16).eps,
    "bf16": 8 * torch.finfo(torch.bfloat16).eps,
}
LARGEST = 1 << 28  # elements of weights that are worth a run in float64


@dataclass(frozen=True)
class Comparison:
    """Comparison of results. judged: the judgement, None if nothing was compared, for the reason in `why`."""

    judged: Judgement | None
    gate: float
    why: str = ""

    @property
    def relative(self) -> float | None:
        """The largest error over the largest value."""
        return None if self.judged is None else self.judged.relative

    @property
    def ok(self) -> bool:
        return self.judged is None or self.judged.ok

    def line(self) -> str:
        if self.judged is None:
            return f"not compared with float64: {self.why}"
        error, verdict = self.judged.relative, self.judged.verdict
        return f"against float64: max|error| over max|reference| {error:.2e}, gate {self.gate:.0e}: {verdict}"

    def record(self) -> dict[str, Any]:
        return {"ok": self.ok, "max_rel_err": self.relative, "compared": self.relative is not None}


def emulator() -> EmulatorExecutor:
    """Return the emulator as models run on it: temporaries in the arena, as on a GPU."""
    return EmulatorExecutor(arena=True)


def compare(
    found: Artefact, tensors: Mapping[str, Any], results: Sequence[Any], sizes: Binding | None = None
) -> Comparison:
    """Compare outputs with the reference. tensors: weights, constants and inputs by name; sizes: the lengths of these.

    Raises DplcError for a Torch IR that cannot be run.
    """
    gate = GATES[found.plan.dtype]
    elements = sum(math.prod(want.shape) for want in found.weights.values())
    if elements > LARGEST:
        return Comparison(None, gate, f"{elements / 1e9:.1f} billion weights would take {8 * elements / 1e9:.0f} GB")
    graph = found.torch_graph(sizes)
    try:
        wanted = meaning.run(graph, tensors)
        return Comparison(judge(results, wanted, gates=dict.fromkeys(GATES, gate)), gate)
    except DplcError:
        raise
    except Exception as error:  # torch has many classes for a damaged graph
        why = str(error).splitlines()[:1] or [type(error).__name__]
        raise DplcError(
            f"the artefact is damaged: {found.folder / 'ir' / 'torch.ir'} cannot be run: {why[0]}"
        ) from None


# ---- Measure a model on a GPU: each distinct kernel, and the whole next to eager and torch.compile.


def measure(
    subject: Artefact,
    cases: list[CaseRecord],
    weights: Mapping[str, Any],
    executor: Executor,
    clock: Clock,
    device: str,
) -> None:
    """Fill in the measured times of the cases. weights: {name: tensor on the device}."""
    constants = {**weights, **{name: tensor.to(device) for name, tensor in subject.constants.items()}}
    runner = ModelRunner(subject.program, subject.outputs, executor, constants)
    eager = eager_model(subject, weights, device)
    shapes, part = extents(eager, subject.plan.length, subject.plan.batch), called(eager)  # type: ignore[arg-type]
    kinds = {name: ("i64" if name == TOKENS else subject.plan.dtype, shape) for name, shape in shapes.items()}
    inputs = {name: tensor.to(device) for name, tensor in drawn(kinds, subject.plan.config).items()}  # type: ignore[arg-type]
    names, flags = tuple(inputs), plain(part)

    def of_eager(*given: Any) -> Any:
        return part(**dict(zip(names, given, strict=True)), **flags)[0]

    whole = cases[-1]
    whole.measured = nothing_measured()
    try:
        with torch.no_grad():
            first = runner.run(inputs)[0]
            found = judge(
                [first], [of_eager(*inputs.values())], gates=dict.fromkeys(GATES, 2 * GATES[subject.plan.dtype])
            )
            whole.measured.relative_error = found.relative
            if not found.ok:
                whole.measured.wrong = f"off by {found.relative:.1e} from eager: not timed"
                return
            whole.measured.dplc = timing(lambda: runner.run(inputs), clock)
            whole.measured.eager = timing(lambda: of_eager(*inputs.values()), clock)
            whole.measured.torch_compile = compiled_by_torch(of_eager, tuple(inputs.values()), clock)
            runner.run(inputs)
            time_kernels(cases[:-1], runner.program, runner.launch, clock)
    except DplcError as error:
        whole.measured.wrong = error.render()


def eager_model(subject: Artefact, weights: Mapping[str, Any], device: str) -> Any:
    """Return the module of transformers itself on the same tensors."""
    plan = subject.plan
    model = build(ModelSource(plan.model, dict(plan.config)), plan.dtype, plan.layers)
    named = {name: weights[buffer] for buffer, wanted in subject.weights.items() for name in wanted.names}
    model.load_state_dict(named, strict=False, assign=True)
    for module in model.modules():
        for name, tensor in module.named_buffers(recurse=False):
            module._buffers[name] = tensor.to(device)
    return model
