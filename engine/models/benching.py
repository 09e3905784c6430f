"""Bench of a model on this machine, and packs of suites that are measured on a machine with a GPU."""

from __future__ import annotations

import io
import math
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...codegen.arrays import as_numpy
from ...codegen.build import HEADERS
from ...codegen.cache import digest
from ...codegen.cuda import safe_kernel_name
from ...codegen.judge import Judgement, judge
from ...codegen.kernel import CudaKernel, Program
from ...codegen.launch import Executor
from ...codegen.pack.contents import CONTENTS, FORMAT
from ...codegen.target import Target, target as find_target
from ...ir.diagnostic import DplcError, first_line
from ...ir.interp import torch as meaning
from ...ir.kernel import Loop, Replicate
from ...ir.node import immutable
from ...ir.program import Block
from ...ir.sizes import Binding
from ..bench.bench import (
    END_TO_END,
    Assembled,
    CudaClock,
    assembler,
    each_assembled,
    kernel_record,
    measured_run,
    note_limits,
    provenance,
    row,
    sources_of,
    sums,
    time_kernels,
    totals,
)
from ..bench.cases import BenchCase, BenchSubject, Say, Suite, import_everything, subject_of, with_rules
from ..bench.records import BenchRecord, CaseRecord, totals_line
from ..capture.signature import Tensors
from ..compiler import Compilation, Compiler
from ..cost.instruction_counts import features, instruction_counts
from ..cost.predict import predict
from ..kernels.sharing import key
from ..ruleset import Toolchain
from ..schedule.space import FusionVariant, ProgramSpace
from .artefact import Artefact, plan_of
from .compiling import CompiledModel, DynamicModelRunner, Figures, called, drawn, inputs_of, plain
from .sources import ModelSource, Tell, build

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
        sources=sources_of(made),
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
    seconds = sum(figures.seconds.values())
    return ModelBench(
        suite=subject.plan.model,
        about=f"{subject.plan.length} tokens, {subject.plan.dtype}; every distinct kernel with all its launches.",
        totals=msgspec.structs.replace(totals(cases, seconds, seconds), predicted_geomean_us=None),
        cases=cases,
        figures=figures,
        **provenance(command, target, tools),
    )  # fmt: skip


def predicted(subject: Artefact, target: Target, assemble: bool, tell: Tell) -> list[CaseRecord]:
    """Return a record of every distinct kernel, over all its launches, and of the whole."""
    dtype, launches = subject.plan.dtype, Counter(kernel.name for kernel in subject.program.kernels)
    kernels = {kernel.text: kernel for kernel in subject.program.distinct_kernels()}
    found = each_assembled(kernels, target.arch) if assemble else ((text, None) for text in kernels)
    cases = []
    for place, (text, made) in enumerate(found):
        tell("assembling and predicting" if assemble else "predicting", place, len(launches))
        kernel, image = kernels[text], made if isinstance(made, Assembled) else None
        case = row(kernel_record(subject.units[kernel.name], kernel, target, image), launches[kernel.name], dtype)
        if isinstance(made, DplcError):
            case.error = made.render()
        cases.append(case)
    note_limits(cases, subject.sources, target)
    return [*cases, CaseRecord(name=END_TO_END, operation="model", dtype=dtype, **sums(cases))]


def summary(record: ModelBench) -> str:
    """Return one paragraph of totals."""
    found = record.figures
    return (
        f"{found.launches} launches of {found.kernels} kernels, at most {found.per_block} in a block; "
        f"{totals_line(record)}; "
        f"peak of temporaries {found.planned_bytes / 2**20:.2f} MiB planned"
    )


# ---- Compare outputs with Torch IR in float64, if that fits in memory.


# Of max|y - reference| / max|reference|: in f32 what whole models are held to, else eight roundings of the dtype.
GATES = {
    "f64": 1e-10,
    "f32": 1e-4,
    "f16": 8 * torch.finfo(torch.float16).eps,
    "bf16": 8 * torch.finfo(torch.bfloat16).eps,
}
LARGEST = 1 << 28  # elements of weights that are worth a run in float64


def _judged(subject: Artefact, results: Sequence[Tensor], wanted: Sequence[Tensor], times: int = 1) -> Judgement:
    """Judge outputs by the gate of the model's dtype, or by some times that."""
    return judge(results, wanted, gates=dict.fromkeys(GATES, times * GATES[subject.plan.dtype]))


def compare(found: Artefact, tensors: Tensors, results: Sequence[Tensor], sizes: Binding) -> Judgement | str:
    """Compare outputs with the reference, or return why they were not compared.

    tensors: weights, constants and inputs by name; sizes: the lengths of these. Raises DplcError for a Torch IR that
    cannot be run.
    """
    elements = sum(math.prod(want.shape) for want in found.weights.values())
    if elements > LARGEST:
        return f"{elements / 1e9:.1f} billion weights would take {8 * elements / 1e9:.0f} GB"
    graph = found.torch_graph(sizes)
    try:
        return _judged(found, results, meaning.run(graph, tensors))
    except DplcError:
        raise
    except Exception as error:  # torch has many classes for a damaged graph
        path = found.folder / "ir" / "torch.ir"
        raise DplcError(f"the artefact is damaged: {path} cannot be run: {first_line(error)}") from None


# ---- Measure a model on a GPU: each distinct kernel, and the whole next to eager and torch.compile.


def measure(
    subject: Artefact,
    cases: list[CaseRecord],
    weights: Tensors,
    executor: Executor,
    clock: CudaClock,
    device: str,
) -> None:
    """Fill in the measured times of the cases. weights: {name: tensor on the device}."""
    plan = subject.plan
    runner = DynamicModelRunner(subject, executor, weights, device).runner({})
    eager = eager_model(subject, weights, device)
    numbers = (n for n in (plan.length, plan.batch) if isinstance(n, int))
    part, given = called(eager), inputs_of(eager, *numbers)
    flags, inputs = plain(part), {name: tensor.to(device) for name, tensor in drawn(given, plan.config).items()}
    tensors, wrong = tuple(inputs.values()), "off by {:.1e} from eager: not timed"

    def of_eager(*tensors: Tensor) -> Tensor:
        return part(**dict(zip(inputs, tensors, strict=True)), **flags)[0]

    def judged(results: list[Tensor]) -> Judgement:
        return _judged(subject, results[:1], [of_eager(*tensors)], times=2)

    with torch.no_grad():
        cases[-1].measured = measured_run(lambda: runner.run(inputs), judged, lambda: (of_eager, tensors), clock, wrong)
        if cases[-1].measured.dplc is not None:
            runner.run(inputs)
            time_kernels(cases[:-1], runner.session, clock)


def eager_model(subject: Artefact, weights: Tensors, device: str) -> PreTrainedModel:
    """Return the module of transformers itself on the same tensors."""
    plan = subject.plan
    model = build(ModelSource(plan.model, dict(plan.config)), plan.dtype, plan.layers)
    named = {name: weights[buffer] for buffer, wanted in subject.weights.items() for name in wanted.names}
    model.load_state_dict(named, strict=False, assign=True)
    for module in model.modules():
        for name, tensor in module.named_buffers(recurse=False):
            module._buffers[name] = tensor.to(device)
    return model


# ---- Suites as one file for a machine with a GPU: compiled and assembled here, measured there (`codegen/pack`).
#
# Programs that are the same (one expression at the same sizes) are packed once. Every launch keeps the features that
# the model predicts from, so that `dplc model fit` needs the results alone.


SCHEDULES = 5  # of a case that is packed for calibration, from the fastest to the slowest as predicted
DRAWN = 24  # random schedules of which these are chosen
SLOWEST = 16.0  # of them, predicted, over the default
MOST_STATEMENTS = 8192  # of a kernel once its loops are unrolled: the assembler takes minutes for some larger ones
UNROLLED = 4  # iterations, in this count, of a loop that the assembler may unroll
ROOT = Path(__file__).resolve().parents[2]
# What the machine with the GPU runs: nothing of it compiles, and it needs torch and numpy alone.
RUNNER = """
    ir/diagnostic.py ir/dtypes.py ir/dtypes.toml codegen/arrays.py codegen/compiler.py codegen/driver.py
    codegen/judge.py codegen/kernel.py codegen/pack/contents.py codegen/pack/runner.py codegen/pack/worker.py
"""
PACKAGES = ("", "ir/", "codegen/", "codegen/pack/")
MAIN = "import sys\n\nfrom dplc.codegen.pack.runner import main\n\nsys.exit(main())\n"


@immutable
class PickedSuite:
    """A suite and the cases of it that are packed. part: how both are called in the pack."""

    path: Path
    suite: Suite
    cases: Sequence[BenchCase]
    part: str


@immutable
class PackReport:
    """Counts of packed cases and kernels. refused: {case: the reason for its absence}."""

    cases: int
    kernels: int
    refused: Mapping[str, DplcError]


@immutable
class _Made:
    """A case that was compiled. candidate, same: as in `PackedCase`."""

    subject: BenchSubject
    picked: PickedSuite
    compilation: Compilation
    candidate: int | None = None
    same: str = ""

    @property
    def kernels(self) -> tuple[CudaKernel, ...]:
        """The kernel of every launch."""
        return self.compilation.program.kernels


def pack(
    file: IO[bytes], suites: Sequence[PickedSuite], compiler: Compiler, command: str,
    candidates: int = 0, say: Say = lambda line: None,
) -> PackReport:  # fmt: skip
    """Write a pack.

    candidates: cases of the second suite (the first, if it is alone) that are packed with SCHEDULES schedules each.
    A case that cannot be compiled is left out and reported. Raises DplcError for an error that is not due to a case.
    """
    refused, target = dict[str, DplcError](), compiler.target
    import_everything()
    made = [one for picked in suites for one in _compiled(picked, compiler, refused, say)]
    measured = suites[min(1, len(suites) - 1)]
    chosen = [one for one in made if one.picked is measured and not one.same]
    for one in chosen[:: max(1, len(chosen) // candidates)][:candidates] if candidates else ():
        say(f"drawing schedules of {one.subject.case.name}")
        made += _candidates(one, compiler)
    kernels = {kernel.text: kernel for one in made for kernel in one.kernels}
    owners = {kernel.text: one.subject.case.name for one in made for kernel in one.kernels}
    say(f"assembling {len(kernels)} kernels")
    images: dict[str, Assembled] = {}
    for text, found in each_assembled(kernels, target.arch):
        if isinstance(found, Assembled):
            images[text] = found
        else:
            refused[owners[text]] = found
    made = [one for one in made if all(kernel.text in images for kernel in one.kernels)]
    constants: dict[str, NDArray[np.generic]] = {}
    head = {
        "format": FORMAT,
        "parts": [one.part for one in suites],
        **provenance(command, target, compiler.tools),
        "cases": [_record(one, images, constants) for one in made],
    }
    packed = {kernel.text: kernel for one in made for kernel in one.kernels}
    with zipfile.ZipFile(file, "w") as out:
        for name, data in _files(head, packed.values(), images, constants):
            # no date: the same pack is the same file
            out.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)
    return PackReport(len(made), len(images), refused)


# ---- programs ------------------------------------------------------------------------------------


def _compiled(
    picked: PickedSuite, compiler: Compiler, refused: dict[str, DplcError], say: Say
) -> Iterator[_Made]:  # fmt: skip
    """Yield the cases of a suite, those that are the same program compiled once. refused: receives the others."""
    known: dict[Hashable, _Made] = {}
    for case in picked.cases:
        subject = subject_of(picked.suite, case)
        key = subject.expression, str(subject.shapes), str(subject.spreads), case.dtype, case.rules
        if key in known:
            yield replace(known[key], subject=subject, same=known[key].subject.case.name)
            continue
        say(f"compiling {case.name}")
        try:
            known[key] = _Made(subject, picked, subject.compile(compiler))
        except DplcError as error:
            refused[case.name] = error
        else:
            yield known[key]


def _candidates(one: _Made, compiler: Compiler) -> Iterator[_Made]:
    """Yield random schedules of a program, from fast to slow by the model."""
    from ..tune.search import decided, mutated  # not before: other users of this file need no search
    from ..tune.tuning import winners

    compiler = with_rules(compiler, one.subject.case.rules)
    values = compiler.values(one.subject.capture())
    _, plan = compiler.fused(values)
    space = ProgramSpace(compiler.tools, [FusionVariant("", lambda: plan.kernels)], compiler.target)
    candidate, dice = space.default(), random.Random(0)
    most = SLOWEST * one.compilation.predicted_seconds
    found: dict[str, tuple[float, Compilation]] = {}
    for _ in range(DRAWN):
        changed = decided(space, mutated(candidate, dice), 0)
        schedules = winners({key(part.loops[0]): part.schedule for part, _ in changed.parts})
        try:
            made = replace(compiler, schedules=schedules).compile_values(values)
        except DplcError:
            continue
        seconds = made.predicted_seconds
        if seconds <= most and all(_statements(kernel.body) <= MOST_STATEMENTS for kernel in made.kernels):
            found[_texts(made.program.kernels)], candidate = (seconds, made), changed
    found.pop(_texts(one.kernels), None)
    ranked = [made for _, made in sorted(found.values(), key=lambda each: each[0])]
    places = {round((len(ranked) - 1) * step / (SCHEDULES - 1)) for step in range(SCHEDULES)} if ranked else ()
    for number, place in enumerate(sorted(places)):
        yield replace(one, compilation=ranked[place], candidate=number)


def _statements(block: Block) -> int:
    """Return the number of statements once replicated ones are written out, and loops are partly unrolled."""
    count = 0
    for stmt in block:
        copies = stmt.extent if isinstance(stmt, Replicate) else UNROLLED if isinstance(stmt, Loop) else 1
        count += 1 + copies * _statements(getattr(stmt, "body", ()))
    return count


# ---- records -------------------------------------------------------------------------------------


def _record(
    one: _Made, images: Mapping[str, Assembled], constants: dict[str, NDArray[np.generic]]
) -> dict[str, object]:
    """Return the entry of a case in `pack.json`. constants: receives its arrays, by digest.

    `part` names the part of the suite that was packed. `parameters` are the buffers of the inputs, in order. `results`
    have a name, a dtype and torch's shape. `launches` holds the counts of the model for each launch. `texts` is a
    digest of the texts of all kernels, which identifies the kernels that were measured.
    """
    case, made = one.subject.case, one.compilation
    program, captured, target = made.program, made.captured, made.target
    once = [
        instruction_counts(kernel, images[text.text].registers)
        for kernel, text in zip(made.kernels, made.cuda_kernels, strict=True)
    ]
    counted = [once[index] for index in made.launched]
    found: dict[str, str] = {}
    for buffer in program.constants:
        array = as_numpy(buffer, captured.tensors[buffer.name].reshape(buffer.shape))
        found[buffer.name] = digest([array.tobytes(), str(array.dtype), str(array.shape)])
        constants[found[buffer.name]] = array
    return {
        "suite": one.picked.path.stem, "part": one.picked.part, "name": case.name, "dtype": case.dtype,
        "expression": one.subject.expression, "inputs": one.subject.shapes, "spreads": one.subject.spreads,
        "parameters": captured.inputs, "results": [(b.name, b.dtype, b.shape) for b in made.outputs_at()],
        "program": _launch_plan(program), "constants": found, "least_us": made.least_seconds * 1e6,
        "launches": [features(counts) for counts in counted], "texts": _texts(program.kernels),
        "predicted_us": sum(predict(counts, target).seconds for counts in counted) * 1e6,
        "rules": [Path(rule).stem for rule in case.rules], "candidate": one.candidate, "same": one.same,
    }  # fmt: skip


def _launch_plan(program: Program) -> dict[str, object]:
    """Return a program as data, with the names of files instead of the texts of its kernels."""
    if program.loops:
        raise DplcError("a pack holds no loops of a program")
    kernels, arena = program.distinct_kernels(), program.arena
    place = {kernel.name: index for index, kernel in enumerate(kernels)}
    return {
        "inputs": program.inputs, "outputs": program.outputs, "constants": program.constants,
        "temporaries": program.temporaries, "arena_bytes": arena.bytes, "offsets": dict(arena.offsets),
        "launches": [(place[launch.kernel.name], launch.buffers) for launch in program.launches()],
        "kernels": [replace(kernel, text=_texts([kernel]), comment="") for kernel in kernels],
    }  # fmt: skip


def _texts(kernels: Iterable[CudaKernel]) -> str:
    """Return a digest of the texts of kernels; of one kernel, it names its files."""
    return digest([kernel.text for kernel in kernels])[:20]


def _files(
    head: Mapping[str, object], kernels: Iterable[CudaKernel], images: Mapping[str, Assembled],
    constants: Mapping[str, NDArray[np.generic]],
) -> Iterator[tuple[str, bytes | str]]:  # fmt: skip
    """Yield (name, content) of the files of a pack."""
    yield CONTENTS, msgspec.json.encode(head)
    yield "__main__.py", MAIN
    yield from ((f"dplc/{folder}__init__.py", "") for folder in PACKAGES)
    yield from ((f"dplc/{name}", (ROOT / name).read_bytes()) for name in RUNNER.split())
    yield from ((f"include/{path.name}", path.read_bytes()) for path in sorted(HEADERS.glob("*.cuh")))
    for kernel in kernels:
        name = _texts([kernel])
        yield f"cubin/{name}.cubin", images[kernel.text].cubin
        yield f"cuda/{name}.cu", kernel.text
    for name, array in constants.items():
        room = io.BytesIO()
        np.save(room, array, allow_pickle=False)
        yield f"constants/{name}.npy", room.getvalue()
