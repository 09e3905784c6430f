"""Artefact of a compiled model or `-c` text: a folder with every stage, CUDA, cubins, constants and the launch plan.

    NAME/
      dplc-artefact.json       the files that dplc wrote here, with sizes and digests: it alone marks an artefact
      figures.json             results of the compile: times, memory, counts (compiling.Figures)
      plan.json                launches, buffers, which weights go where (plan_file.py is the schema)
      constants.safetensors    values that were computed ahead and that no weight file holds
      ir/torch.ir ..           the program at every stage
      cuda/KERNEL.cu           the text of every distinct kernel
      cubin/KERNEL.cubin       the same assembled for the plan's target, where an assembler was there
      rows/N/..                of a model with sizes: plan, constants, ir, cuda, cubin for a part of their range

Which row serves a call is data in plan.json (`rows`); kernels with sizes are the same for all calls of a row.

`plan_file.py` writes a temporary folder next to the artefact and then exchanges both. Loading executes nothing:
the emulator later compiles only CUDA that dplc prints itself. Apart from figures.json, the same model gives the same
bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from ...codegen.arrays import torch_dtype
from ...codegen.build import build_device, device_text
from ...codegen.compiler import find_nvrtc, find_program
from ...codegen.cuda import print_cuda, safe_kernel_name
from ...codegen.emulator.executor import EmulatorExecutor
from ...codegen.kernel import Buffer, CudaKernel, Program
from ...codegen.launch import executor, memory_of
from ...codegen.target import Target, target as find_target
from ...ir.diagnostic import DplcError, InternalError, did_you_mean
from ...ir.dtypes import FLOAT_NAMES
from ...ir.expr import Size, only_sizes
from ...ir.node import Node, immutable
from ...ir.program import Kernel
from ...ir.schemas import aten_name
from ...ir.sizes import AT_HINTS, Binding, sizes_in, telling
from ...ir.text.programs import read_program
from ...ir.torch import TorchGraph
from ...ir.verify.kernel import problems
from ...ir.verify.sorts import sort_problems
from ...version import __version__
from ..api import RuleSource, choose_device, compile_options, logged
from ..capture.dynamic_shapes import Dim
from ..capture.signature import Capture, Tensors
from ..compiler import STAGES, Compiler, SizePlaces
from ..rewrite.statements.driver import Settings
from ..run.calls import Wanted, row_for
from . import sources
from .compiling import (
    BoundModel,
    CapturedModel,
    CompiledModel,
    DynamicModelRunner,
    Figures,
    ModelShape,
    compile_call,
    compile_model as compile_source,
    vocabulary,
)
from .plan_file import (
    DAMAGED,
    FURTHEST,
    MANIFEST,
    BufferRecord,
    ExampleRecord,
    LaunchRecord,
    PlanFile,
    buffer_record,
    buffers_at,
    check_file,
    read_file,
    read_manifest,
    read_record,
    replacing,
    seal,
    write_record,
)
from .sources import ModelSource, Tell, WeightRequest, explained, find, silent

# ---- Print the kernels again from Kernel IR and compare them with the CUDA of the artefact.


PLAN, FIGURES, CONSTANTS, KERNEL_IR = "plan.json", "figures.json", "constants.safetensors", "ir/kernel.ir"


def read_text(path: Path) -> str:
    """Return the text of a file of an artefact. Raises DplcError."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise DplcError(f"{DAMAGED}: {path} is not UTF-8: {error.reason} at byte {error.start}") from None


@contextmanager
def units_of(path: Path, sizes: Binding | None = None) -> Iterator[tuple[Node, ...]]:
    """Yield the kernels or graphs of a dump. Raises DplcError, also if the block meets one that nests too deep."""
    try:
        yield read_program(read_text(path), str(path), sizes)[1]
    except RecursionError:
        raise DplcError(f"{DAMAGED}: {path} nests too deep") from None


def kernels_of(folder: Path, plan: PlanFile, units: Mapping[str, Kernel], trust: bool) -> dict[str, CudaKernel]:
    """Return {name: kernel} of all kernels in a plan.

    units: of `read_kernels`; trust: accept CUDA that dplc did not print. Raises DplcError if plan, Kernel IR and CUDA
    do not agree.
    """
    made: dict[str, CudaKernel] = {}
    for name, comment in plan.kernels.items():
        if name not in units:
            raise DplcError(f"{DAMAGED}: {folder / PLAN}: kernel `{name}` is not in {KERNEL_IR}")
        unit = units[name]
        try:  # the comment names the rules that shaped the kernel, which no IR does
            printed = print_cuda(unit, _rules(comment))
        except (InternalError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            what = getattr(error, "what", "") or str(error) or type(error).__name__
            raise DplcError(f"{DAMAGED}: {folder / KERNEL_IR}: kernel `{unit.name}`: {what}") from None
        if comment != printed.comment:
            raise DplcError(f"{DAMAGED}: {folder / PLAN}: `comment` of kernel `{name}` names no rules alone")
        file = folder / "cuda" / f"{name}.cu"
        made[name] = replace(printed, text=read_text(file))
        if made[name] != printed and not trust:
            raise DplcError(
                f"{file} is not what this dplc ({__version__}) prints of {KERNEL_IR}",
                notes=("it would be compiled and run on this machine",),
                hint="compile the model again, or say --trust-edited-cuda if you edited it yourself and trust"
                " all of it",
            )
    return made


def read_kernels(path: Path) -> dict[str, Kernel]:
    """Return {name of the kernel in CUDA: its Kernel IR}, verified. Raises DplcError for anything else."""
    found: dict[str, Kernel] = {}
    with units_of(path) as units:
        for unit in units:
            if not isinstance(unit, Kernel):
                raise DplcError(f"{DAMAGED}: {path} holds what is no kernel")
            loose = (p.name for p in (*unit.ins, *unit.outs) if not all(map(only_sizes, p.shape)))
            unknown = [f"`{name}` has an extent that is neither a number nor made of sizes" for name in loose]
            if wrong := unknown or sort_problems(unit) or problems(unit):
                raise DplcError(f"{DAMAGED}: {path}: kernel `{unit.name}`: {wrong[0]}")
            found[safe_kernel_name(unit.name)] = unit
    return found


def _rules(comment: str) -> tuple[str, ...]:
    """Return the rules that a comment names. It skips words that are not names of rules; the text will differ."""
    *lines, _ = comment.splitlines() or [""]  # the last is about the grid
    return tuple(re.findall(r"[A-Za-z_][A-Za-z0-9_]*(?=\s|$)", " ".join(lines).removeprefix("rules: ")))


# ---- Compile a `-c` text as a model without configuration and weight files.


LONGEST = 60  # characters of a text that name it


def compile_text(text: str, capture: Callable[[], Capture], options: Compiler, tell: Tell = silent) -> CompiledModel:
    """Compile a text for an artefact. capture: of the text.

    Raises DplcError for one without inputs, and for one that reads their memory by strides.
    """
    line = " ".join(text.split())
    source = ModelSource(line if len(line) <= LONGEST else line[: LONGEST - 2] + "..", {})
    made = compile_call(source, ModelShape(0, 0), lambda: CapturedModel(_fit(capture()), {}), options, tell)
    graph = made.compilation.captured.graph
    kinds = {kind.dtype for kind in (*graph.ins, *graph.outs)}
    # results are judged by the dtype that rounds most
    coarsest = next((name for name in ("bf16", "f16", "f32", "f64") if name in kinds), "f32")
    return replace(made, shape=ModelShape(0, 0, coarsest))


def _fit(captured: Capture) -> Capture:
    """Return the program as an artefact has it: weights stay unchanged. Raises DplcError if it cannot have one."""
    if not captured.inputs:
        raise DplcError("the text has no inputs: an artefact would give the same at every run")
    if captured.strides:
        name = next(iter(captured.strides))
        raise DplcError(f"an artefact's inputs are in order, and this text reads the memory of `{name}` by strides")
    return replace(captured, folds=False)


def examples(captured: Capture) -> tuple[ExampleRecord, ...]:
    """Return the inputs of a text for a plan, with their least and greatest finite elements (0 and 1 without any)."""
    made = []
    for param in captured.graph.ins:
        if captured.kinds[param.name] == "input":
            elements = captured.tensors[param.name].detach().double()
            elements = elements[elements.isfinite()].clamp(-FURTHEST, FURTHEST)
            ends = map(float, elements.aminmax()) if elements.numel() else (0.0, 1.0)
            made.append(ExampleRecord(*msgspec.structs.astuple(buffer_record(param)), *ends))
    return tuple(made)


def drawn(records: Sequence[ExampleRecord], sizes: Binding, seed: int = 0) -> Tensors:
    """Return {input: random tensor} at a binding of the sizes, the same for the same seed.

    Elements are evenly spread between the ends of a record.
    """
    generator, made = torch.Generator().manual_seed(seed), {}
    for record, buffer in zip(records, buffers_at(records, sizes), strict=True):
        dtype, room = torch_dtype(buffer.dtype), record.high - record.low
        spread = torch.rand(buffer.shape, generator=generator, dtype=torch.double)
        values = spread * room if dtype.is_floating_point else (spread * (room + 1)).floor()
        made[record.name] = (record.low + values).to(dtype)
    return made


WORKERS = 2


@immutable
class Artefact:
    """A compiled model that was read back. constants: {name: tensor} of those that no weight file holds.

    program: at the hints of its sizes. units, kernels: {name: its Kernel IR}, {name: as it is at the hints}. images:
    {(text of a kernel, arch): its cubin}, of all rows, for the executor. rows: of the plan's table, in its order.
    sources: {kernel: the kernel of Loop IR that it was scheduled from}, of a model that was compiled now.
    """

    folder: Path
    plan: PlanFile
    program: Program
    units: Mapping[str, Kernel]
    kernels: Mapping[str, CudaKernel]
    constants: Tensors
    images: Mapping[tuple[str, str], bytes]
    figures: Figures
    rows: tuple[Artefact, ...] = ()
    sources: Mapping[str, Kernel] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, WeightRequest]:
        """{buffer: the weight it takes}, of all rows: these take no others than the whole."""
        return self.plan.weights

    @cached_property
    def sizes(self) -> dict[str, Size]:
        """The lengths that are known at a call."""
        return self.plan.symbols

    @property
    def inputs_with_sizes(self) -> SizePlaces:
        """The dimensions of inputs that tell the sizes of a call."""
        plan = self.plan
        shapes = {e.name: e.shape for e in plan.examples} or {plan.inputs[0].name: (plan.batch, plan.length)}
        return tuple(
            (n, d, self.sizes[e]) for n, shape in shapes.items() for d, e in enumerate(shape) if e in self.sizes
        )

    def at(self, sizes: Binding) -> BoundModel:
        """Return the model that serves calls of such lengths, which must be within their ranges."""
        place = row_for(self.plan.rows, sizes)
        part = self if place is None else self.rows[place]
        program = part.program
        if part.sizes:
            program = part.plan.program(part.units, part.kernels, sizes)
        return BoundModel(program, buffers_at(part.plan.results, sizes), part.constants)

    def ir(self, stage: str) -> str:
        """Return the program's text at a stage. Raises DplcError for a stage that is not there."""
        if stage == STAGES[-1]:
            return "\n".join(kernel.text for kernel in self.program.distinct_kernels())
        return read_text(self.folder / "ir" / f"{stage}.ir")

    def torch_graph(self, sizes: Binding) -> TorchGraph:
        """Return the program's Torch IR where the sizes are these numbers.

        The reference runs it in float64. Raises DplcError for an invalid graph.
        """
        path = self.folder / "ir" / "torch.ir"
        with units_of(path, sizes) as units:
            if len(units) != 1 or not isinstance(units[0], TorchGraph):
                raise DplcError(f"{DAMAGED}: {path} does not hold one graph")
            return units[0]


def save(
    compiled: CompiledModel, folder: Path, cubins: bool = True, weights: Path | None = None, tell: Tell = silent
) -> None:
    """Write the artefact of a compiled model. It replaces a folder that dplc wrote completely.

    cubins: whether to assemble the kernels (if NVRTC or nvcc is there). weights: the folder where a run finds them.
    Raises DplcError for any other folder or file of this name.
    """
    from safetensors.torch import save_file

    cubins = cubins and (find_nvrtc() is not None or find_program("nvcc") is not None)

    def write(part: CompiledModel, place: Path) -> None:
        """Write a plan with all files that it names."""
        compilation, kernels = part.compilation, part.compilation.cuda_kernels
        for kind in ("ir", "cuda", "cubin")[: 2 + cubins]:
            (place / kind).mkdir(parents=True)
        for stage in STAGES[:-1]:
            (place / "ir" / f"{stage}.ir").write_text(compilation.ir(stage))
        for kernel in kernels:
            (place / "cuda" / f"{kernel.name}.cu").write_text(kernel.text)
        if cubins:
            tell("assembling", 0, len(kernels))
            with ThreadPoolExecutor(WORKERS) as pool:
                images = pool.map(lambda kernel: build_device(device_text([kernel]), compilation.target.arch), kernels)
                for done, (kernel, image) in enumerate(zip(kernels, images), 1):
                    (place / "cubin" / f"{kernel.name}.cubin").write_bytes(image)
                    tell("assembling", done, len(kernels))
        constants = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in part.constants().items()}
        save_file(constants, place / CONSTANTS)
        write_record(place / PLAN, plan_of(part, weights))

    with replacing(folder) as workshop:
        write(compiled, workshop)
        count = len(compiled.rows.rows)
        for row in range(count):
            tell("compiling rows", row, count)
            write(compiled.of_row(row), workshop / "rows" / str(row))
        write_record(workshop / FIGURES, compiled.figures)
        seal(workshop, __version__)


def plan_of(compiled: CompiledModel, weights: Path | None = None) -> PlanFile:
    """Return the plan of a compiled model."""
    compilation, program, shape, source = compiled.compilation, compiled.program, compiled.shape, compiled.source
    if program.loops:
        raise DplcError("an artefact holds no loops of a program", hint="`dplc run` runs the program itself")
    if program.calls:
        named = ", ".join(f"`{aten_name(step.call.statement.op)}`" for step in program.calls)
        what = f"torch computes {named} of this program, and an artefact holds no calls of torch"
        raise DplcError(what, hint="a rule for the op, or `dplc run` of the program itself")
    buffers = compilation.buffers if compilation.sizes else program
    kinds: dict[str, Any] = {
        kind: [*map(buffer_record, getattr(buffers, kind))]
        for kind in ("inputs", "outputs", "constants", "temporaries")
    }
    batch, length = (n.name if isinstance(n, Dim) else n for n in (shape.batch, shape.length))
    return PlanFile(
        **kinds, kernels={kernel.name: kernel.comment for kernel in program.distinct_kernels()},
        launches=[LaunchRecord(launch.kernel.name, launch.buffers) for launch in program.launches()],
        dplc=__version__, rules=compilation.compiler.tools.rules.digest, model=source.name, config=source.config,
        length=length, batch=batch, layers=shape.layers,
        dtype=shape.dtype,  # type: ignore[arg-type]
        target=compilation.target.name, arch=compilation.target.arch,
        results=[*map(buffer_record, compilation.results)],
        weights=compiled.weights,
        weights_from="" if weights is None else str(weights.absolute()),
        aliases=dict(program.aliases),
        sizes=tuple(map(Dim.of, compilation.sizes.values())),
        rows=tuple(tuple(replace(dim, hint=None) for dim in row) for row in compiled.rows.rows),
        examples=() if source.config else examples(compilation.captured),
    )  # fmt: skip


def load(folder: Path, trust_edited_cuda: bool = False) -> Artefact:
    """Return the artefact in a folder. trust_edited_cuda: accept CUDA that dplc did not print, which the emulator runs.

    Raises DplcError for a folder that is not an artefact, or is damaged.
    """
    if not (folder / MANIFEST).is_file():
        what = f"is not an artefact: it has no {MANIFEST}" if folder.is_dir() else "is not there"
        raise DplcError(f"{folder} {what}", hint="`dplc compile MODEL -o DIR` writes one")
    manifest = read_manifest(folder)
    check_file(folder, FIGURES, manifest)
    figures, images = read_record(folder / FIGURES, Figures), dict[tuple[str, str], bytes]()

    def part(within: str) -> Artefact:
        """Read a plan with all files that it names. within: its folder in the artefact, with `/`. Raises DplcError."""
        place = folder / within
        for name in (PLAN, CONSTANTS, *(f"ir/{stage}.ir" for stage in STAGES[:-1])):
            check_file(folder, within + name, manifest)
        plan = read_record(place / PLAN, PlanFile)
        units = read_kernels(place / KERNEL_IR)
        kernels = kernels_of(place, plan, units, trust_edited_cuda)
        program = plan.program(units, kernels, plan.hints)
        _raise_first(_problems(plan, units, kernels), place / PLAN)
        for name, kernel in kernels.items():
            cubin = f"{within}cubin/{name}.cubin"
            if cubin in manifest.files:
                check_file(folder, cubin, manifest)
                images[kernel.text, plan.arch] = read_file(folder / cubin)
        own = [buffer for buffer in program.constants if buffer.name not in plan.weights]
        return Artefact(place, plan, program, units, kernels, _constants(place / CONSTANTS, own), images, figures)

    whole = part("")
    rows = tuple(part(f"rows/{place}/") for place in range(len(whole.plan.rows)))
    table = enumerate(zip(whole.plan.rows, rows))
    problems = (f"row {n}: {what}" for n, (when, row) in table for what in _row(whole.plan, when, row.plan))
    _raise_first(problems, folder / PLAN)
    return replace(whole, rows=rows)


def _constants(path: Path, buffers: Iterable[Buffer]) -> Tensors:
    """Return the tensors in a file, among them one for each of the buffers. Raises DplcError."""
    from safetensors.torch import load_file

    with explained(f"{DAMAGED}: cannot read {path}"):
        found: Tensors = load_file(path)
    for buffer in buffers:
        if buffer.name not in found:
            raise DplcError(f"{DAMAGED}: {path} has no `{buffer.name}`")
        tensor = found[buffer.name]
        if (tensor.dtype, tensor.numel()) != (torch_dtype(buffer.dtype), buffer.size):
            raise DplcError(f"{DAMAGED}: {path}: `{buffer.name}` is not {buffer.dtype}{list(buffer.shape)}")
    return found


# ---- Check that a plan agrees with itself and with the buffers of its kernels.


def _raise_first(problems: Iterator[str], path: Path) -> None:
    """Raise DplcError for the first problem of a plan, if there is one. path: of the plan."""
    try:
        problem = next(problems, None)
    except DplcError as error:
        problem = error.what
    if problem is not None:
        raise DplcError(f"{DAMAGED}: {path}: {problem}")


def _problems(plan: PlanFile, units: Mapping[str, Kernel], kernels: Mapping[str, CudaKernel]) -> Iterator[str]:
    """Yield the problems of a plan by field, those at the ends of its sizes last; only the first one is sure.

    units, kernels: of `read_kernels`, of `kernels_of`. Raises DplcError for a problem of another kind.
    """
    try:
        find_target(plan.arch)
    except DplcError as error:
        yield f"`arch`: {error.what}"
    sizes = plan.symbols
    if len(sizes) != len(plan.sizes):
        yield "`sizes`: a name is there twice"
    for unit in units.values():
        for name, size in sizes_in(unit).items():
            if sizes.get(name) is not size:
                yield f"`sizes`: `{name}` has another range in kernel `{unit.name}`, or is not a size"
    if sizes and plan.aliases:
        yield "`aliases`: of a plan with sizes there are none"
    yield from _results(plan, plan.hints)
    yield from _weights(plan)
    yield from _inputs(plan)
    for ends in telling(sizes)[:2] if sizes else ():  # all at their least numbers, and all at their greatest
        plan.program(units, kernels, ends)
        yield from _results(plan, ends)


def _results(plan: PlanFile, sizes: Binding) -> Iterator[str]:
    if len(plan.results) != len(plan.outputs):
        yield f"`results` has {len(plan.results)} entries for {len(plan.outputs)} outputs"
    for output, result in zip(buffers_at(plan.outputs, sizes), buffers_at(plan.results, sizes)):
        if (output.name, output.dtype, output.size) != (result.name, result.dtype, result.size):
            yield f"`results`: {result.dtype}{list(result.shape)} is not what output `{output.name}` holds"


def _weights(plan: PlanFile) -> Iterator[str]:
    for constant in plan.constants:
        if any(isinstance(n, str) for n in constant.shape):
            yield f"`constants`: `{constant.name}` depends on a size"
    known = {buffer.name: (buffer.dtype, buffer.size) for buffer in buffers_at(plan.constants, AT_HINTS)}
    for name, weight in plan.weights.items():
        if name not in known:
            yield f"`weights`: `{name}` is not a constant of the program"
        elif known[name] != (weight.dtype, math.prod(weight.shape)):
            yield f"`weights`: {weight.dtype}{list(weight.shape)} is not what constant `{name}` holds"


def _inputs(plan: PlanFile) -> Iterator[str]:
    """Yield errors in tokens, or in the inputs of a text: at both ends of its sizes, and for a size they lack."""
    if not plan.inputs:
        yield "`inputs` is empty"
    elif plan.config:
        words = vocabulary(plan.config)
        if not isinstance(words, int) or not 0 < words < 2**31:
            yield f"`config`: vocab_size is {words!r}"
        first, *others = buffers_at(plan.inputs, plan.hints)
        batch, length = plan.tokens_at(plan.hints)
        if not others and first.dtype == "i64" and first.size != batch * length:
            yield f"`inputs`: {list(first.shape)} is not {batch} x {length} tokens"
    else:
        found = {example.name: example for example in plan.examples}
        if len(found) != len(plan.examples) or any(not -FURTHEST <= e.low <= e.high <= FURTHEST for e in plan.examples):
            yield "`examples`: a name is there twice, or its ends are not a range"
        for buffer in plan.inputs:
            if buffer.name not in found:
                yield f"`examples`: `{buffer.name}` is not there"
        for ends in telling(plan.symbols)[:2]:
            if _at([found[buffer.name] for buffer in plan.inputs], ends) != _at(plan.inputs, ends):
                yield "`examples`: an input has other elements than in `inputs`"
        if missing := {n.name for n in plan.sizes}.difference(*(e.shape for e in plan.examples)):
            yield f"`examples`: no input tells `{min(missing)}`"


def _row(whole: PlanFile, when: tuple[Dim, ...], row: PlanFile) -> Iterator[str]:
    """Yield why a row cannot serve the calls that the table gives it, as `_problems` does.

    Its tokens, results and weights must be those of the plan of the whole range.
    """
    own, sizes, conditions = row.symbols, whole.symbols, {n.name: n.size() for n in when}
    if row.rows or len(conditions) != len(when) or not own.keys() | conditions.keys() <= sizes.keys():
        yield "rows within rows, or sizes that the whole has not"
    asked = sizes | conditions
    for name, condition in asked.items():
        if not _holds(sizes[name], condition):
            yield f"`{name}` is {condition.low}..{condition.high}, which is not a part of its range"
        elif name in own and not _holds(own[name], condition):
            yield f"`{name}` is {own[name].low}..{own[name].high} in its plan, which is not enough"
        elif name not in own and condition.low != condition.high:
            yield f"`{name}` is a number in its plan"
    for ends in telling(asked)[:2]:
        for kind in ("inputs", "outputs", "results"):
            if _at(getattr(whole, kind), ends) != _at(getattr(row, kind), ends):
                yield f"`{kind}` are others than those of the whole range"
        if [b.name for b in whole.inputs] != [b.name for b in row.inputs]:
            yield "`inputs` have other names than those of the whole range"
        if whole.tokens_at(ends) != row.tokens_at(ends):
            yield "it is for another number of tokens"
    if not row.weights.items() <= whole.weights.items():
        yield "`weights`: the whole range takes others"
    if (row.dtype, row.arch, row.config) != (whole.dtype, whole.arch, whole.config):
        yield "it is of another model, or for another device"


def _holds(outer: Size, inner: Size) -> bool:
    """Return whether a range has all numbers of another."""
    return outer.low <= inner.low and inner.high <= outer.high and inner.multiple % outer.multiple == 0


def _at(records: Iterable[BufferRecord], sizes: Binding) -> list[tuple[str, int]]:
    """Return the dtype and the number of elements of each buffer, which all plans share.

    The shapes may differ: a row of one length drops a dimension of one element.
    """
    return [(buffer.dtype, buffer.size) for buffer in buffers_at(records, sizes)]


# ---- Models from Python: `dplc.compile_model(path_or_id)` and `dplc.load_model(folder)`.


def emulator() -> EmulatorExecutor:
    """Return the emulator as models run on it: temporaries in the arena, as on a GPU."""
    return EmulatorExecutor(arena=True)


class Model:
    """Compiled model: call it with tokens, i64[batch, length] as it was compiled for, and it returns the logits.

    A model of images or spectra accepts these instead. Where a length was compiled as a range, it is that of each call,
    and the table of rows says which kernels serve it.

    `.load_weights(folder)` reads safetensors; without it, the first call generates random weights. `.save(folder)`
    writes an artefact; `.figures` holds the figures of the compile; `.ir(stage)` and `.cuda` are its texts;
    `.remembered` has a line for everything that a tuning store decided.
    """

    def __init__(self, compiled: CompiledModel | Artefact, device: str, remembered: tuple[str, ...] = ()):
        self.compiled, self.device, self.remembered = compiled, device, remembered
        self.figures = compiled.figures
        self._runner: DynamicModelRunner | None = None

    def __call__(self, *inputs: Tensor) -> Any:
        """Return the logits, on the device of the kernels; of a model with several results, their tuple.

        inputs: tokens, images, spectra, in the order of the program. Raises DplcError for another shape or dtype.
        """
        names = [buffer.name for buffer in self.compiled.program.inputs]
        if len(inputs) != len(names):
            raise DplcError(f"the model takes {', '.join(names)}: {len(inputs)} tensors were given")
        results = self.run(dict(zip(names, inputs, strict=True)))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Tensors) -> list[Tensor]:
        """Return the results in order, on the device of the kernels. inputs: by name."""
        runner = self._runner or self.place(sources.make(self.compiled.weights))
        return runner.run({name: x.to(memory_of(self.device)) for name, x in inputs.items()})

    def load_weights(self, folder: str | Path) -> Model:
        """Take the weights of a folder. Raises DplcError for what is missing or of another shape."""
        self.place(sources.load(Path(folder), self.compiled.weights))
        return self

    def save(self, folder: str | Path, cubins: bool = True) -> None:
        """Write the artefact, which `dplc run` and `dplc.load_model` take. Raises DplcError."""
        if not isinstance(self.compiled, CompiledModel):
            raise DplcError("this model was read from an artefact: copy its folder")
        save(self.compiled, Path(folder), cubins)

    def ir(self, stage: str) -> str:
        """Return the program's text at a stage: torch, tensor, loop, tile, kernel, cuda."""
        return self.compiled.ir(stage)

    @property
    def cuda(self) -> str:
        return self.ir("cuda")

    def __repr__(self) -> str:
        found = self.figures
        return f"<dplc.Model for {self.device}: {found.launches} launches of {found.kernels} kernels>"

    def place(self, values: Tensors) -> DynamicModelRunner:
        """Take weights by name, and move them to the device. Returns what runs the model with them."""
        images = self.compiled.images if isinstance(self.compiled, Artefact) else None
        runner = emulator() if self.device == "emulator" else executor(self.device, images)
        memory = memory_of(self.device)
        placed = {name: tensor.to(memory) for name, tensor in values.items()}
        self._runner = DynamicModelRunner(self.compiled, runner, placed, memory)
        return self._runner


def compile_model(
    path_or_id: str | Path,
    *,
    seq_len: int | Dim = 32,
    batch: int | Dim = 1,
    layers: int | None = None,
    dtype: str = "f32",
    device: str | None = None,
    rules: RuleSource = None,
    target: str | Target | None = None,
    settings: Settings | None = None,
    db: str | Path | bool | None = None,
    explore: bool = False,
    exact: bool = False,
    tf32: str = "auto",
    rows: Wanted = True,
) -> Model:
    """Compile a model for `batch` sequences of `seq_len` tokens.

    It returns the logits of a causal language model or the results of an encoder (of an encoder and a decoder, the
    encoder) for tokens, `batch` images or spectra.

    Either may be a range, `dplc.Dim("s", 1, 4096, hint=512)`: one model for all its lengths. Weights are symbolic until
    `load_weights` or a call.

    Args:
        path_or_id: a configuration (JSON), a folder with one, or an id of the hub.
        seq_len: tokens of a sequence, or their range.
        batch: sequences at once, or their range.
        layers: only the first so many.
        dtype: f32, f16 or bf16.
        device: cuda, cuda:N or emulator; by default the GPU if there is one.
        rules, target, settings: as in `dplc.compile`.
        db: the tuning store whose schedules are replayed, False for none; as in `dplc.compile`.
        explore: search spellings and cuts together, weights as their files have them.
        exact, tf32: as in `dplc.compile`.
        rows: the parts of the range that are compiled separately when a call first needs them, as in `dplc.compile`; by
            default the usual ones of one size, False for none.

    Returns:
        The compiled model.

    Raises:
        DplcError: if the model cannot be compiled.
    """
    if dtype not in FLOAT_NAMES:
        raise DplcError(f"there is no dtype `{dtype}` here", hint=did_you_mean(dtype, FLOAT_NAMES))
    decisions, shape = list[str](), ModelShape(seq_len, batch, FLOAT_NAMES[dtype], layers)
    where, options = compile_options(
        _device(device), rules, target, settings, exact=exact, tf32=tf32, db=db, explore=explore, tell=decisions.append
    )
    made = compile_source(find(str(path_or_id)), shape, options, rows)
    return Model(made, where, logged(decisions, made.compilation))


def load_model(folder: str | Path, *, device: str | None = None, trust_edited_cuda: bool = False) -> Model:
    """Return the model of an artefact. It executes nothing now, and later only CUDA that dplc prints of its Kernel IR.

    trust_edited_cuda: also accept CUDA that was edited since: the emulator compiles and runs it on this machine. Raises
    DplcError for a folder that is not an artefact, or is damaged.
    """
    chosen = _device(device)
    return Model(load(Path(folder), trust_edited_cuda), chosen)


def _device(device: str | None) -> str:
    chosen = choose_device(device)
    if chosen == "reference":
        raise DplcError("models run on cuda and on the emulator", hint="`dplc run DIR --device reference` is there too")
    return chosen
