"""Bench of a model on this machine, and packs of suites that are measured on a machine with a GPU."""

from __future__ import annotations

import io
import math
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from ...codegen.arrays import as_numpy
from ...codegen.build import HEADERS
from ...codegen.cache import digest
from ...codegen.cuda import safe_kernel_name
from ...codegen.kernel import Arena, CudaKernel, Program
from ...codegen.launch import Executor
from ...codegen.pack.contents import CONTENTS, FORMAT
from ...codegen.target import Target
from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError
from ...ir.interp import torch as meaning
from ...ir.kernel import Loop, Replicate
from ...ir.program import Block, Kernel
from ...ir.sizes import Binding
from ..bench.bench import (
    note_limits,
    provenance,
    row,
    time_kernels,
    totals,
    totals_line,
    whole,
)
from ..bench.cases import (
    Assembled,
    BenchCase,
    BenchSubject,
    Build,
    CudaClock,
    Suite,
    assembler,
    each_assembled,
    import_everything,
    kernel_record,
    measured_run,
    note_assembled,
    subject_of,
    with_rules,
)
from ..bench.records import BenchRecord, CaseRecord
from ..capture.signature import Tensors
from ..compiler import Compilation, Compiler
from ..cost.instruction_counts import features, instruction_counts
from ..cost.limits import program_seconds
from ..cost.predict import predict
from ..kernels.sharing import key
from ..ruleset import Toolchain
from ..run.calls import Judgement, judge
from ..schedule.scheduling import seconds_of
from ..schedule.space import FusionVariant, ProgramCandidate, ProgramSpace
from .artefact import Artefact, plan_of
from .compiling import TOKENS, CompiledModel, Figures, ModelRunner, called, drawn, extents, plain
from .sources import ModelSource, Tell, build


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
    seconds = sum(figures.seconds.values())
    return ModelBench(
        suite=subject.plan.model,
        about=f"{subject.plan.length} tokens, {subject.plan.dtype}; every distinct kernel with all its launches.",
        published="",
        totals=msgspec.structs.replace(totals(cases, seconds, seconds, 0.0), predicted_geomean_us=None),
        cases=cases,
        figures=figures,
        **provenance(command, target, tools),
    )  # fmt: skip


def predicted(subject: Artefact, target: Target, assemble: bool, tell: Tell) -> list[CaseRecord]:
    """Return a record of every distinct kernel, over all its launches, and of the whole."""
    program, dtype = subject.program, subject.plan.dtype
    launches = Counter(kernel.name for kernel in program.kernels)
    cases = []
    kernels = {kernel.text: kernel for kernel in program.distinct_kernels()}
    found = each_assembled(kernels, target.arch) if assemble else zip(kernels, [None] * len(kernels), strict=True)
    for place, (text, made) in enumerate(found):
        tell("assembling and predicting" if assemble else "predicting", place, len(launches))
        kernel, registers = kernels[text], made.registers if isinstance(made, Assembled) else None
        case = row(kernel_record(subject.units[kernel.name], kernel, target, registers), launches[kernel.name], dtype)
        if isinstance(made, Assembled):
            note_assembled(case.kernels[0], made)
        elif made is not None:
            case.error = made.render()
        cases.append(case)
    note_limits(cases, subject.loops, tuple(subject.units.values()), target)
    return [*cases, whole(cases, "model", dtype)]


def summary(record: ModelBench) -> str:
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


# ---- Compare outputs with Torch IR in float64, if that fits in memory.


# Of max|y - reference| / max|reference|: in f32 what whole models are held to, else eight roundings of the dtype.
GATES = {
    "f64": 1e-10,
    "f32": 1e-4,
    "f16": 8 * torch.finfo(torch.float16).eps,
    "bf16": 8 * torch.finfo(torch.bfloat16).eps,
}
LARGEST = 1 << 28  # elements of weights that are worth a run in float64


def compare(found: Artefact, tensors: Tensors, results: Sequence[Any], sizes: Binding | None = None) -> Judgement | str:
    """Compare outputs with the reference, or return why they were not compared.

    tensors: weights, constants and inputs by name; sizes: the lengths of these. Raises DplcError for a Torch IR that
    cannot be run.
    """
    elements = sum(math.prod(want.shape) for want in found.weights.values())
    if elements > LARGEST:
        return f"{elements / 1e9:.1f} billion weights would take {8 * elements / 1e9:.0f} GB"
    graph = found.torch_graph(sizes)
    try:
        wanted = meaning.run(graph, tensors)
        return judge(results, wanted, gates=dict.fromkeys(GATES, GATES[found.plan.dtype]))
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
    weights: Tensors,
    executor: Executor,
    clock: CudaClock,
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

    def judged(results: list[Any]) -> Judgement:
        gates = dict.fromkeys(GATES, 2 * GATES[subject.plan.dtype])
        return judge(results[:1], [of_eager(*inputs.values())], gates=gates)

    found, wrong = tuple(inputs.values()), "off by {:.1e} from eager: not timed"
    with torch.no_grad():
        cases[-1].measured = measured_run(lambda: runner.run(inputs), judged, of_eager, found, clock, wrong)
        if cases[-1].measured.dplc is not None:
            runner.run(inputs)
            time_kernels(cases[:-1], runner.program, runner.session.launch, clock)


def eager_model(subject: Artefact, weights: Tensors, device: str) -> Any:
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
RUNNER = (
    "ir/diagnostic.py", "ir/dtypes.py", "codegen/arrays.py", "codegen/compiler.py", "codegen/driver.py",
    "codegen/judge.py", "codegen/kernel.py", "codegen/pack/contents.py", "codegen/pack/runner.py",
    "codegen/pack/worker.py",
)  # fmt: skip
PACKAGES = ("", "ir/", "codegen/", "codegen/pack/")
MAIN = "import sys\n\nfrom dplc.codegen.pack.runner import main\n\nsys.exit(main())\n"

Say = Callable[[str], None]


@dataclass(frozen=True)
class PickedSuite:
    """A suite and the cases of it that are packed. part: how both are called in the pack."""

    path: Path
    suite: Suite
    cases: Sequence[BenchCase]
    part: str


@dataclass
class _Made:
    """A case that was compiled. kernels: Kernel IR of every launch."""

    subject: BenchSubject
    picked: PickedSuite
    compilation: Compilation
    program: Program
    kernels: tuple[Kernel, ...]
    candidate: int | None = None
    same: str = ""


@dataclass
class PackReport:
    """Counts of packed cases and kernels. refused: {case: the reason for its absence}."""

    cases: int = 0
    kernels: int = 0
    refused: dict[str, DplcError] = field(default_factory=dict)


def pack(
    file: IO[bytes], suites: Sequence[PickedSuite], compiler: Compiler, command: str,
    candidates: int = 0, build: Build | None = None, say: Say = lambda line: None,
) -> PackReport:  # fmt: skip
    """Write a pack.

    candidates: cases of the second suite (the first, if it is alone) that are packed with SCHEDULES schedules each.
    build: assembles a kernel. A case that cannot be compiled is left out and reported. Raises
    DplcError for an error that is not due to a case.
    """
    packed, made, target = PackReport(), list[_Made](), compiler.target
    import_everything()
    for picked in suites:
        made += _compiled(picked, compiler, packed, say)
    measured = suites[min(1, len(suites) - 1)]
    chosen = [one for one in made if one.picked is measured and not one.same]
    for one in chosen[:: max(1, len(chosen) // candidates)][:candidates] if candidates else ():
        say(f"drawing schedules of {one.subject.case.name}")
        made += _candidates(one, compiler)
    images = _images(made, target, packed, build, say)
    made = [one for one in made if all(kernel.text in images for kernel in one.program.kernels)]
    packed.cases, packed.kernels = len(made), len(images)
    constants: dict[str, NDArray[Any]] = {}
    head: dict[str, Any] = {"format": FORMAT, "parts": [one.part for one in suites]}
    head |= {
        **provenance(command, target, compiler.tools),
        "cases": [_record(one, target, images, constants) for one in made],
    }
    _write(file, head, made, images, constants)
    return packed


# ---- programs ------------------------------------------------------------------------------------


def _compiled(picked: PickedSuite, compiler: Compiler, packed: PackReport, say: Say) -> Iterator[_Made]:
    """Yield the cases of a suite, those that are the same program compiled once."""
    known: dict[Any, _Made] = {}
    for case in picked.cases:
        subject = subject_of(picked.suite, case)
        key = subject.expression, str(subject.shapes), str(subject.spreads), case.dtype, case.rules
        if key in known:
            first = known[key]
            kernels = first.kernels
            same = first.subject.case.name
            yield _Made(subject, picked, first.compilation, first.program, kernels, same=same)
            continue
        say(f"compiling {case.name}")
        try:
            compilation = with_rules(compiler, case.rules).compile(subject.capture())
        except DplcError as error:
            packed.refused[case.name] = error
            continue
        kernels = tuple(compilation.kernels[index] for index in compilation.launched)
        known[key] = _Made(subject, picked, compilation, compilation.program, kernels)
        yield known[key]


def _candidates(one: _Made, compiler: Compiler) -> Iterator[_Made]:
    """Yield random schedules of a program, from fast to slow by the model."""
    from ..tune.search import decided, mutated  # not before: other users of this file need no search
    from ..tune.tuning import winners

    compiler, captured = with_rules(compiler, one.subject.case.rules), one.subject.capture()
    _, plan = compiler.cut(captured)
    target, dice = compiler.target, random.Random(0)
    space = ProgramSpace(compiler.tools, [FusionVariant("", lambda: plan.kernels)], target)
    most = SLOWEST * seconds_of(one.kernels, target)
    candidate: ProgramCandidate = space.default()
    found: dict[str, tuple[float, Program, tuple[Kernel, ...]]] = {}
    for _ in range(DRAWN):
        changed = decided(space, mutated(candidate, dice), 0)
        schedules = winners({key(part.loops[0]): part.schedule for part, _ in changed.parts})
        try:
            made = replace(compiler, schedules=schedules).compile(captured)
        except DplcError:
            continue
        kernels = tuple(made.kernels[index] for index in made.launched)
        seconds = seconds_of(kernels, target)
        if seconds <= most and all(_statements(kernel.body) <= MOST_STATEMENTS for kernel in kernels):
            found[_texts(made.program)], candidate = (seconds, made.program, kernels), changed
    found.pop(_texts(one.program), None)
    ranked = sorted(found.values(), key=lambda each: each[0])
    last = len(ranked) - 1
    places = sorted({round(last * step / (SCHEDULES - 1)) for step in range(SCHEDULES)}) if ranked else []
    for number, place in enumerate(places):
        _, program, kernels = ranked[place]
        yield _Made(one.subject, one.picked, one.compilation, program, kernels, number)


def _statements(block: Block) -> int:
    """Return the number of statements once replicated ones are written out, and loops are partly unrolled."""
    count = 0
    for stmt in block:
        copies = stmt.extent if isinstance(stmt, Replicate) else UNROLLED if isinstance(stmt, Loop) else 1
        count += 1 + copies * _statements(getattr(stmt, "body", ()))
    return count


def _images(
    made: list[_Made], target: Target, packed: PackReport, build: Build | None, say: Say
) -> dict[str, Assembled]:
    """Return {text of a kernel: its image}. A kernel that the assembler refuses leaves its case out."""
    kernels = {kernel.text: kernel for one in made for kernel in one.program.kernels}
    of = {kernel.text: one.subject.case.name for one in made for kernel in one.program.kernels}
    say(f"assembling {len(kernels)} kernels")
    images: dict[str, Assembled] = {}
    for text, found in each_assembled(kernels, target.arch, build):
        if isinstance(found, Assembled):
            images[text] = found
        else:
            packed.refused[of[text]] = found
    return images


# ---- records -------------------------------------------------------------------------------------


def _record(
    one: _Made, target: Target, images: Mapping[str, Assembled], constants: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    """Return the entry of a case in `pack.json`. constants: receives its arrays, by digest.

    `part` names the part of the suite that was packed. `parameters` are the buffers of the inputs, in order. `results`
    have a name, a dtype and torch's shape. `launches` holds the counts of the model for each launch. `texts` is a
    digest of the texts of all kernels, which identifies the kernels that were measured.
    """
    case, program, captured = one.subject.case, one.program, one.compilation.captured
    launches = zip(one.kernels, program.kernels, strict=True)
    counted = [instruction_counts(kernel, images[text.text].registers) for kernel, text in launches]
    found: dict[str, str] = {}
    for buffer in program.constants:
        array = as_numpy(buffer, captured.tensors[buffer.name].reshape(buffer.shape))
        found[buffer.name] = digest([array.tobytes(), str(array.dtype), str(array.shape)])
        constants[found[buffer.name]] = array
    outputs = zip(one.compilation.plan.outputs, one.compilation.plan.results, strict=True)
    compulsory = sum(b.nbytes for b in (*program.inputs, *program.constants, *program.outputs))
    least = program_seconds(one.compilation.plan.kernels, compulsory, len(program.kernels), target)
    return {
        "suite": one.picked.path.stem, "part": one.picked.part, "name": case.name, "dtype": case.dtype,
        "expression": one.subject.expression, "inputs": one.subject.shapes, "spreads": one.subject.spreads,
        "parameters": captured.inputs,
        "results": [(param.name, kind.dtype, tuple(map(int, kind.shape))) for param, kind in outputs],
        "program": _launch_plan(program), "constants": found, "least_us": least * 1e6,
        "launches": [features(counts) for counts in counted], "texts": _texts(program),
        "predicted_us": sum(predict(counts, target).seconds for counts in counted) * 1e6,
        "rules": [Path(rule).stem for rule in case.rules], "candidate": one.candidate, "same": one.same,
    }  # fmt: skip


def _launch_plan(program: Program) -> dict[str, Any]:
    """Return a program as data, with the names of files instead of the texts of its kernels."""
    kernels, arena = program.distinct_kernels(), program.arena or Arena(0, {})
    place = {kernel.name: index for index, kernel in enumerate(kernels)}
    return {
        "inputs": program.inputs, "outputs": program.outputs, "constants": program.constants,
        "temporaries": program.temporaries, "arena_bytes": arena.bytes, "offsets": dict(arena.offsets),
        "launches": [(place[launch.kernel.name], launch.buffers) for launch in program.launches()],
        "kernels": [replace(kernel, text=_name(kernel), comment="") for kernel in kernels],
    }  # fmt: skip


def _name(kernel: CudaKernel) -> str:
    """Return the file name of a kernel, without a suffix."""
    return digest([kernel.text])[:20]


def _texts(program: Program) -> str:
    """Return a digest of all kernels of a program."""
    return digest([kernel.text for kernel in program.kernels])[:20]


# ---- the file ------------------------------------------------------------------------------------


def _write(
    file: IO[bytes], head: Mapping[str, Any], made: Sequence[_Made], images: Mapping[str, Assembled],
    constants: Mapping[str, NDArray[Any]],
) -> None:  # fmt: skip
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:

        def add(name: str, data: bytes | str) -> None:
            out.writestr(
                zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9
            )  # no date: the same pack is the same file

        add(CONTENTS, msgspec.json.encode(head))
        add("__main__.py", MAIN)
        for folder in PACKAGES:
            add(f"dplc/{folder}__init__.py", "")
        for name in RUNNER:
            add(f"dplc/{name}", (ROOT / name).read_bytes())
        for path in sorted(HEADERS.glob("*.cuh")):
            add(f"include/{path.name}", path.read_bytes())
        for text, kernel in {kernel.text: kernel for one in made for kernel in one.program.kernels}.items():
            add(f"cubin/{_name(kernel)}.cubin", images[text].cubin)
            add(f"cuda/{_name(kernel)}.cu", text)
        for name, array in constants.items():
            room = io.BytesIO()
            np.save(room, array, allow_pickle=False)
            add(f"constants/{name}.npy", room.getvalue())
