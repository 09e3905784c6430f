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

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...codegen.build import build_device, device_text
from ...codegen.compiler import find_nvrtc, find_program
from ...codegen.cuda import bound, print_cuda, safe_kernel_name
from ...codegen.emulator.executor import EmulatorExecutor
from ...codegen.kernel import Buffer, CudaKernel, Program
from ...codegen.launch import executor, memory_of
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, InternalError, did_you_mean
from ...ir.dtypes import COMPUTING_FLOATS, FLOAT_NAMES
from ...ir.expr import Size, only_sizes
from ...ir.program import Kernel
from ...ir.schemas import DTYPES
from ...ir.sizes import Binding
from ...ir.text.programs import read_program
from ...ir.torch import TorchGraph
from ...ir.verify.kernel import problems
from ...ir.verify.sorts import sort_problems
from ...version import __version__
from ..api import RuleSource, choose_device, compile_options, logged
from ..capture.capture import Capture
from ..capture.dynamic_shapes import Dim
from ..capture.signature import Tensors
from ..compiler import STAGES, Compiler
from ..rewrite.statements.driver import Settings
from ..run.calls import row_for
from . import sources
from .compiling import BoundModel, CapturedModel, CompiledModel, DynamicModelRunner, Figures, ModelShape, compile_call
from .compiling import compile_model as compile_source
from .plan_file import (
    DAMAGED,
    FURTHEST,
    MANIFEST,
    ExampleRecord,
    Manifest,
    PlanFile,
    check_file,
    check_plan,
    check_rows,
    elements,
    extent_at,
    launch_fields,
    read_file,
    read_manifest,
    read_record,
    replacing,
    result_record,
    seal,
)
from .sources import ModelSource, Tell, WeightRequest, find, silent

# ---- Print the kernels again from Kernel IR and compare them with the CUDA of the artefact.


KERNEL_IR = "ir/kernel.ir"
TRUST = "--trust-edited-cuda"


def read_text(path: Path) -> str:
    """Return the text of a file of an artefact. Raises DplcError."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise DplcError(f"{DAMAGED}: {path} is not UTF-8: {error.reason} at byte {error.start}") from None


def kernels_of(folder: Path, plan: PlanFile, trust: bool = False) -> tuple[dict[str, Kernel], dict[str, CudaKernel]]:
    """Return {name: its Kernel IR} and {name: kernel} of all kernels in a plan.

    trust: accept CUDA that dplc did not print. Raises DplcError if plan, Kernel IR and CUDA do not agree.
    """
    path = folder / KERNEL_IR
    units = read_kernels(path)
    made: dict[str, CudaKernel] = {}
    for name, comment in plan.kernels.items():
        if name not in units:
            raise DplcError(f"{DAMAGED}: {folder / 'plan.json'}: kernel `{name}` is not in {KERNEL_IR}")
        try:  # the comment names the rules that shaped the kernel, which no IR does
            printed = print_cuda(units[name], _rules(comment))
        except (InternalError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            what = getattr(error, "what", "") or str(error) or type(error).__name__
            raise DplcError(f"{DAMAGED}: {path}: kernel `{units[name].name}`: {what}") from None
        if comment != printed.comment:
            raise DplcError(f"{DAMAGED}: {folder / 'plan.json'}: `comment` of kernel `{name}` names no rules alone")
        text = read_text(folder / "cuda" / f"{name}.cu")
        if text != printed.text and not trust:
            raise DplcError(
                f"{folder / 'cuda' / name}.cu is not what this dplc ({__version__}) prints of {KERNEL_IR}",
                notes=("it would be compiled and run on this machine",),
                hint=f"compile the model again, or say {TRUST} if you edited it yourself and trust all of it",
            )
        made[name] = replace(printed, text=text)
    return {name: units[name] for name in made}, made


def read_kernels(path: Path) -> dict[str, Kernel]:
    """Return {name of the kernel in CUDA: its Kernel IR}, verified. Raises DplcError for anything else."""
    try:
        _, units = read_program(read_text(path), str(path), None)
        found: dict[str, Kernel] = {}
        for unit in units:
            if not isinstance(unit, Kernel):
                raise DplcError(f"{DAMAGED}: {path} holds what is no kernel")
            loose = (p.name for p in (*unit.ins, *unit.outs) if not all(map(only_sizes, p.shape)))
            unknown = [f"`{name}` has an extent that is neither a number nor made of sizes" for name in loose]
            if wrong := unknown or sort_problems(unit) or problems(unit):
                raise DplcError(f"{DAMAGED}: {path}: kernel `{unit.name}`: {wrong[0]}")
            found[safe_kernel_name(unit.name)] = unit
    except RecursionError:
        raise DplcError(f"{DAMAGED}: {path} nests too deep") from None
    return found


def _rules(comment: str) -> tuple[str, ...]:
    """Return the rules that a comment names. It skips words that are not names of rules; the text will differ."""
    lines = [line for line in comment.splitlines() if not line.startswith("grid ")]
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
    held = sum(buffer.nbytes for buffer in made.program.constants)
    told = msgspec.structs.replace(made.figures, weight_bytes=held)
    graph = made.compilation.captured.graph
    kinds = {kind.dtype for kind in (*graph.ins, *graph.outs)}
    floats = [name for name in COMPUTING_FLOATS if name in kinds]
    # results are judged by the dtype that rounds most
    coarsest = max(floats, key=lambda name: torch.finfo(getattr(torch, DTYPES[name])).eps, default="f32")
    return replace(made, shape=ModelShape(0, 0, coarsest), figures=told)


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
            low, high = (float(elements.min()), float(elements.max())) if elements.numel() else (0.0, 1.0)
            record = result_record(param.name, param)
            made.append(ExampleRecord(record.name, record.dtype, record.shape, low, high))
    return tuple(made)


def drawn(records: Sequence[ExampleRecord], sizes: Binding, seed: int = 0) -> dict[str, Any]:
    """Return {input: random tensor} at a binding of the sizes, the same for the same seed.

    Elements are evenly spread between the ends of a record.
    """
    generator, made = torch.Generator().manual_seed(seed), {}
    for record in records:
        dtype = getattr(torch, DTYPES[record.dtype])
        shape = [extent_at(n, sizes) for n in record.shape]
        spread = torch.rand(shape, generator=generator, dtype=torch.double)
        room = record.high - record.low
        values = spread * room if dtype.is_floating_point else (spread * (room + 1)).floor()
        made[record.name] = (record.low + values).to(dtype)
    return made


PLAN, FIGURES, CONSTANTS = "plan.json", "figures.json", "constants.safetensors"
LARGEST_CUBIN = 64 << 20
WORKERS = 2


@dataclass(frozen=True)
class Artefact:
    """A compiled model that was read back. constants: {name: tensor} of those that no weight file holds.

    program: at the hints of its sizes. units, kernels: {name: its Kernel IR}, {name: as it is at the hints}. cubins:
    {kernel: what the driver loads, for the plan's arch}. rows: of the plan's table, in its order.
    loops: Loop IR of a model that was compiled now.
    """

    folder: Path
    plan: PlanFile
    program: Program
    units: Mapping[str, Kernel]
    kernels: Mapping[str, CudaKernel]
    constants: Tensors
    cubins: Mapping[str, bytes]
    figures: Figures
    rows: tuple[Artefact, ...] = ()
    loops: tuple[Kernel, ...] = ()

    @property
    def weights(self) -> dict[str, WeightRequest]:
        """{buffer: the weight it takes}, of all rows."""
        return {name: want for part in (*self.rows, self) for name, want in part.plan.weights.items()}

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        return self.plan.torch_outputs(self.plan.hints)

    @cached_property
    def sizes(self) -> dict[str, Size]:
        """The lengths that are known at a call."""
        return {dim.name: dim.size() for dim in self.plan.sizes}

    @property
    def inputs_with_sizes(self) -> tuple[tuple[str, int, Size], ...]:
        """The inputs that tell the sizes of a call: (name, dimension, size)."""
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
        if part.sizes:  # the same kernels, with the grids and buffers of the binding
            kernels = {name: bound(unit, part.kernels[name], sizes) for name, unit in part.units.items()}
            program = part.plan.program(kernels, sizes)
        return BoundModel(program, part.plan.torch_outputs(sizes), part.constants, place)

    def images(self) -> dict[tuple[str, str], bytes]:
        """Return {(text of a kernel, arch): its cubin}, for the executor."""
        return {
            (part.kernels[name].text, part.plan.arch): image
            for part in (*self.rows, self)
            for name, image in part.cubins.items()
            if name in part.kernels
        }

    def ir(self, stage: str) -> str:
        """Return the program's text at a stage. Raises DplcError for a stage that is not there."""
        if stage == STAGES[-1]:
            return "\n".join(kernel.text for kernel in self.program.distinct_kernels())
        return read_text(self.folder / "ir" / f"{stage}.ir")

    def torch_graph(self, sizes: Binding | None = None) -> TorchGraph:
        """Return the program's Torch IR where the sizes are these numbers (by default their hints).

        The reference runs it in float64. Raises DplcError for an invalid graph.
        """
        path = self.folder / "ir" / "torch.ir"
        try:
            _, units = read_program(read_text(path), str(path), self.plan.hints if sizes is None else sizes)
        except RecursionError:
            raise DplcError(f"{DAMAGED}: {path} nests too deep") from None
        if len(units) != 1 or not isinstance(units[0], TorchGraph):
            raise DplcError(f"{DAMAGED}: {path} does not hold one graph")
        return units[0]


def is_artefact(folder: Path) -> bool:
    """Return whether dplc wrote a folder, by its manifest."""
    return (folder / MANIFEST).is_file()


def save(
    compiled: CompiledModel, folder: Path, cubins: bool = True, weights: Path | None = None, tell: Tell = silent
) -> None:
    """Write the artefact of a compiled model. It replaces a folder that dplc wrote completely.

    cubins: whether to assemble the kernels (if NVRTC or nvcc is there). weights: the folder where a run finds them.
    Raises DplcError for any other folder or file of this name.
    """
    cubins = cubins and (find_nvrtc() is not None or find_program("nvcc") is not None)
    with replacing(folder) as workshop:
        _save_plan(compiled, workshop, cubins, weights, tell)
        count = len(compiled.rows.rows)
        for place in range(count):
            tell("compiling rows", place, count)
            _save_plan(compiled.of_row(place), _row(workshop, place), cubins, weights, tell)
        _save_record(workshop / FIGURES, compiled.figures)
        seal(workshop, __version__)


def _row(folder: Path, place: int) -> Path:
    return folder / "rows" / str(place)


def _save_plan(compiled: CompiledModel, folder: Path, cubins: bool, weights: Path | None, tell: Tell) -> None:
    """Write a plan with all files that it names."""
    (folder / "ir").mkdir(parents=True)
    for stage in STAGES[:-1]:
        (folder / "ir" / f"{stage}.ir").write_text(compiled.compilation.ir(stage))
    (folder / "cuda").mkdir()
    for kernel in compiled.compilation.cuda_kernels:
        (folder / "cuda" / f"{kernel.name}.cu").write_text(kernel.text)
    if cubins:
        kernels, arch = compiled.compilation.cuda_kernels, compiled.compilation.target.arch
        (folder / "cubin").mkdir()
        tell("assembling", 0, len(kernels))
        pool = ThreadPoolExecutor(WORKERS)
        try:
            images = pool.map(lambda kernel: build_device(device_text([kernel]), arch), kernels)
            for done, (kernel, image) in enumerate(zip(kernels, images, strict=True), 1):
                (folder / "cubin" / f"{kernel.name}.cubin").write_bytes(image)
                tell("assembling", done, len(kernels))
        finally:
            pool.shutdown(cancel_futures=True)
    _save_constants(compiled.constants(), folder / CONSTANTS)
    _save_record(folder / PLAN, plan_of(compiled, weights))


def _save_record(path: Path, record: Any) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))


def plan_of(compiled: CompiledModel, weights: Path | None = None) -> PlanFile:
    """Return the plan of a compiled model."""
    compilation, program, shape = compiled.compilation, compiled.program, compiled.shape
    sizes = compilation.sizes
    results = zip(compilation.plan.outputs, compilation.plan.results, strict=True)
    batch, length = (n.name if isinstance(n, Dim) else n for n in (shape.batch, shape.length))
    return PlanFile(
        dplc=__version__, rules=compilation.compiler.tools.rules.digest, model=compiled.source.name,
        config=compiled.source.config, length=length, batch=batch, layers=shape.layers,
        dtype=shape.dtype,  # type: ignore[arg-type]
        target=compilation.target.name, arch=compilation.target.arch,
        results=[result_record(param.name, kind) for param, kind in results],
        weights=dict(compiled.weights),
        weights_from="" if weights is None else str(weights.absolute()),
        aliases=dict(program.aliases), **launch_fields(program, compilation.buffers if sizes else None),
        sizes=tuple(map(Dim.of, sizes.values())),
        rows=tuple(tuple(replace(dim, hint=None) for dim in row) for row in compiled.rows.rows),
        examples=() if compiled.source.config else examples(compilation.captured),
    )  # fmt: skip


def load(folder: Path, trust_edited_cuda: bool = False) -> Artefact:
    """Return the artefact in a folder. trust_edited_cuda: accept CUDA that dplc did not print, which the emulator runs.

    Raises DplcError for a folder that is not an artefact, or is damaged.
    """
    if not is_artefact(folder):
        what = f"is not an artefact: it has no {MANIFEST}" if folder.is_dir() else "is not there"
        raise DplcError(f"{folder} {what}", hint="`dplc compile MODEL -o DIR` writes one")
    manifest = read_manifest(folder)
    for name in sorted({FIGURES, *_needed(), *manifest.files}):
        if "cuda/" not in name:  # `kernels_of` reports an edited text
            check_file(folder, name, manifest)
    figures = read_record(folder / FIGURES, Figures)
    found = _load_plan(folder, "", manifest, figures, trust_edited_cuda)
    rows = [
        _load_plan(folder, f"rows/{place}/", manifest, figures, trust_edited_cuda)
        for place in range(len(found.plan.rows))
    ]
    found = replace(found, rows=tuple(rows))
    check_rows(found.plan, [row.plan for row in rows], folder / PLAN)
    return found


def _needed(within: str = "") -> Iterator[str]:
    """Yield the files that accompany every plan. within: its folder in the artefact, with `/`."""
    yield from (within + name for name in (PLAN, CONSTANTS, *(f"ir/{stage}.ir" for stage in STAGES[:-1])))


def _load_plan(folder: Path, within: str, manifest: Manifest, figures: Figures, trust: bool) -> Artefact:
    """Read a plan with all files that it names. Raises DplcError."""
    from safetensors.torch import load_file

    for name in _needed(within):
        check_file(folder, name, manifest)
    place = folder / within
    plan = read_record(place / PLAN, PlanFile)
    units, kernels = kernels_of(place, plan, trust)
    program = plan.program(kernels, plan.hints)
    check_plan(plan, program, units, kernels, place / PLAN)
    names = [name for name in manifest.files if name.startswith(f"{within}cubin/")]
    cubins = {Path(name).stem: read_file(folder / name, LARGEST_CUBIN) for name in names}
    path = place / CONSTANTS
    try:
        constants = dict(load_file(path))
    except Exception as error:  # its own class, and those of torch
        raise DplcError(f"{DAMAGED}: cannot read {path}", notes=(str(error),)) from None
    for buffer in (buffer for buffer in plan.constants if buffer.name not in plan.weights):
        if buffer.name not in constants:
            raise DplcError(f"{DAMAGED}: {path} has no `{buffer.name}`")
        tensor = constants[buffer.name]
        if (tensor.dtype, tensor.numel()) != (getattr(torch, DTYPES[buffer.dtype]), elements(buffer)):
            raise DplcError(f"{DAMAGED}: {path}: `{buffer.name}` is not {buffer.dtype}{list(buffer.shape)}")
    return Artefact(place, plan, program, units, kernels, constants, cubins, figures)


def _save_constants(constants: Tensors, path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in constants.items()}, path)


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
        self._runner: DynamicModelRunner | None = None

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Return the logits, on the device of the kernels; of a model with several results, their tuple.

        inputs: tokens, images, spectra, in the order of the program. Raises DplcError for another shape or dtype.
        """
        names = [buffer.name for buffer in self.compiled.program.inputs]
        if len(inputs) != len(names):
            raise DplcError(f"the model takes {', '.join(names)}: {len(inputs)} tensors were given")
        results = self.run(dict(zip(names, inputs, strict=True)))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Tensors) -> list[Any]:
        """Return the results in order, on the device of the kernels. inputs: by name."""
        if self._runner is None:
            self.place(sources.make(self.compiled.weights))
        assert self._runner is not None
        return self._runner.run({name: x.to(memory_of(self.device)) for name, x in inputs.items()})

    def load_weights(self, folder: str | Path) -> Model:
        """Take the weights of a folder. Raises DplcError for what is missing or of another shape."""
        self.place(sources.load(Path(folder), self.compiled.weights))
        return self

    def save(self, folder: str | Path, cubins: bool = True) -> None:
        """Write the artefact, which `dplc run` and `dplc.load_model` take. Raises DplcError."""
        if not isinstance(self.compiled, CompiledModel):
            raise DplcError("this model was read from an artefact: copy its folder")
        save(self.compiled, Path(folder), cubins)

    @property
    def figures(self) -> Figures:
        return self.compiled.figures

    def ir(self, stage: str) -> str:
        """Return the program's text at a stage: torch, tensor, loop, tile, kernel, cuda."""
        return self.compiled.ir(stage)

    @property
    def cuda(self) -> str:
        return self.ir("cuda")

    def __repr__(self) -> str:
        found = self.figures
        return f"<dplc.Model for {self.device}: {found.launches} launches of {found.kernels} kernels>"

    def place(self, values: Tensors) -> None:
        """Take weights by name, and move them to the device."""
        images = self.compiled.images() if isinstance(self.compiled, Artefact) else None
        runner = emulator() if self.device == "emulator" else executor(self.device, images)
        placed = {name: tensor.to(memory_of(self.device)) for name, tensor in values.items()}
        self._runner = DynamicModelRunner(self.compiled, runner, placed, memory_of(self.device))


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
    rows: Any = True,
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
        exact: no rule that reorders floating point fires.
        rows: the parts of the range that are compiled separately when a call first needs them, as in `dplc.compile`; by
            default the usual ones of one size, False for none.

    Returns:
        The compiled model.

    Raises:
        DplcError: if the model cannot be compiled.
    """
    if dtype not in FLOAT_NAMES:
        raise DplcError(f"there is no dtype `{dtype}` here", hint=did_you_mean(dtype, FLOAT_NAMES))
    told, shape = list[str](), ModelShape(seq_len, batch, FLOAT_NAMES[dtype], layers)
    where, options = compile_options(
        _device(device), rules, target, settings, exact=exact, db=db, explore=explore, tell=told.append
    )
    made = compile_source(find(str(path_or_id)), shape, options, rows)
    return Model(made, where, logged(told, made.compilation))


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
