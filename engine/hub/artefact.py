"""A compiled model as a folder: every stage as text, CUDA, cubins, constants, and the launch plan.

    NAME/
      figures.json             what the compile gave: times, memory, counts (compiling.Figures)
      plan.json                launches, buffers, the arena, which weights go where (plan_file.py is the schema)
      constants.safetensors    what was computed ahead and no weight file holds
      ir/torch.ir ..           the program at every stage
      cuda/KERNEL.cu           the text of every distinct kernel
      cubin/KERNEL.cubin       the same assembled for the plan's target, where an assembler was there

It is written beside its place and renamed: whoever interrupts a compile finds no half of one. Loading executes nothing.
But for figures.json the same model gives the same bytes.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ... import __version__
from ...codegen.build import build_device, device_text
from ...codegen.compiler import find_program
from ...codegen.kernel import CudaKernel, Program
from ...codegen.nvrtc import find_nvrtc
from ...ir.diagnostic import DplcError
from ...ir.text.read import read_program
from ...ir.torch import TorchGraph
from ..compiler import STAGES
from .compiling import CompiledModel, Figures
from .plan_file import (
    FORMAT,
    BufferRecord,
    PlanFile,
    WeightRecord,
    buffer_record,
    launch_records,
    read_plan,
    read_record,
)
from .running import Output
from .weights import Tell, Wanted, silent

PLAN, FIGURES, CONSTANTS = "plan.json", "figures.json", "constants.safetensors"
WORKERS = 2


@dataclass(frozen=True)
class Artefact:
    """A compiled model that was read back. constants: {name: tensor} of those that no weight file holds.

    cubins: {kernel: what the driver loads, for the plan's arch}.
    """

    folder: Path
    plan: PlanFile
    program: Program
    constants: Mapping[str, Any]
    cubins: Mapping[str, bytes]
    figures: Figures

    @property
    def weights(self) -> dict[str, Wanted]:
        return self.plan.wanted()

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.plan.torch_outputs()

    def images(self) -> dict[tuple[str, str], bytes]:
        """{(text of a kernel, arch): its cubin}, for the executor."""
        texts = {kernel.name: kernel.text for kernel in self.program.distinct_kernels()}
        return {(texts[name], self.plan.arch): image for name, image in self.cubins.items() if name in texts}

    def ir(self, stage: str) -> str:
        """The program's text at a stage. Raises DplcError for a stage that is not there."""
        if stage == STAGES[-1]:
            return "\n".join(kernel.text for kernel in self.program.distinct_kernels())
        return _text(self.folder / "ir" / f"{stage}.ir")

    def torch_graph(self) -> TorchGraph:
        """What the program computes: the reference runs this in float64."""
        path = self.folder / "ir" / "torch.ir"
        _, (graph,) = read_program(_text(path), str(path))
        assert isinstance(graph, TorchGraph)
        return graph


def is_artefact(folder: Path) -> bool:
    return (folder / PLAN).is_file()


def save(
    compiled: CompiledModel, folder: Path, cubins: bool = True, weights: Path | None = None, tell: Tell = silent
) -> None:
    """Write the artefact of a compiled model. What was at its place is replaced if it was an artefact.

    cubins: whether to assemble the kernels (if NVRTC or nvcc is there). weights: where they are, to be found at a run.
    Raises DplcError for a place that is taken.
    """
    with _workshop(folder) as workshop:
        (workshop / "ir").mkdir()
        for stage in STAGES[:-1]:
            (workshop / "ir" / f"{stage}.ir").write_text(compiled.compilation.ir(stage))
        (workshop / "cuda").mkdir()
        for kernel in compiled.compilation.cuda_kernels:
            (workshop / "cuda" / f"{kernel.name}.cu").write_text(kernel.text)
        if cubins and (find_nvrtc() is not None or find_program("nvcc") is not None):
            _assemble(compiled, workshop / "cubin", tell)
        _save_constants(compiled.constants(), workshop / CONSTANTS)
        for name, record in ((FIGURES, compiled.figures), (PLAN, plan_of(compiled, weights))):
            (workshop / name).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))


def plan_of(compiled: CompiledModel, weights: Path | None = None) -> PlanFile:
    """The plan of a compiled model."""
    compilation, program, shape = compiled.compilation, compiled.program, compiled.shape
    kernels, launches = launch_records(program)
    assert program.arena is not None
    return PlanFile(
        format=FORMAT, dplc=__version__, rules=compiled.rules, model=compiled.source.name,
        config=compiled.source.config, length=shape.length, batch=shape.batch, layers=shape.layers, dtype=shape.dtype,
        target=compilation.target.name, arch=compilation.target.arch,
        inputs=[buffer_record(b) for b in program.inputs],
        outputs=[buffer_record(b) for b in program.outputs],
        results=[BufferRecord(output.buffer, output.dtype, output.shape) for output in compiled.outputs],
        constants=[buffer_record(b) for b in program.constants],
        temporaries=[buffer_record(b) for b in program.temporaries],
        weights=[WeightRecord(name, w.names, w.dtype, w.shape) for name, w in compiled.weights.items()],
        weights_from="" if weights is None else str(weights.absolute()),
        kernels=kernels, launches=launches, arena_bytes=program.arena.bytes, offsets=dict(program.arena.offsets),
        aliases=dict(program.aliases),
    )  # fmt: skip


def load(folder: Path) -> Artefact:
    """The artefact in a folder. Raises DplcError for a folder that is none, or is damaged."""
    if not is_artefact(folder):
        what = "is no artefact: it has no plan.json" if folder.is_dir() else "is not there"
        raise DplcError(f"{folder} {what}", hint="`dplc compile MODEL -o DIR` writes one")
    plan = read_plan(folder / PLAN)
    for kernel in plan.kernels:
        if not re.fullmatch(r"[A-Za-z_]\w*", kernel.name):
            raise DplcError(f"{folder / PLAN}: a kernel cannot be called `{kernel.name}`")
    texts = {kernel.name: _text(folder / "cuda" / f"{kernel.name}.cu") for kernel in plan.kernels}
    cubins = {path.stem: path.read_bytes() for path in sorted((folder / "cubin").glob("*.cubin"))}
    constants, figures = _load_constants(folder / CONSTANTS, plan), read_record(folder / FIGURES, Figures)
    return Artefact(folder, plan, plan.program(texts), constants, cubins, figures)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise DplcError(f"the artefact is damaged: cannot read {path}: {error.strerror}") from None


def _assemble(compiled: CompiledModel, folder: Path, tell: Tell) -> None:
    kernels, arch, done = compiled.compilation.cuda_kernels, compiled.compilation.target.arch, 0

    def cubin(kernel: CudaKernel) -> bytes:
        return build_device(device_text([kernel]), arch)

    folder.mkdir()
    tell("assembling", 0, len(kernels))
    pool = ThreadPoolExecutor(WORKERS)
    try:
        for kernel, image in zip(kernels, pool.map(cubin, kernels), strict=True):
            (folder / f"{kernel.name}.cubin").write_bytes(image)
            done += 1
            tell("assembling", done, len(kernels))
    finally:
        pool.shutdown(cancel_futures=True)


def _save_constants(constants: Mapping[str, Any], path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in constants.items()}, path)


def _load_constants(path: Path, plan: PlanFile) -> dict[str, Any]:
    from safetensors.torch import load_file

    needed = {b.name for b in plan.constants} - {weight.buffer for weight in plan.weights}
    try:
        found = load_file(path)
    except Exception as error:
        raise DplcError(f"the artefact is damaged: cannot read {path}", notes=(str(error),)) from None
    missing = sorted(needed - found.keys())
    if missing:
        raise DplcError(f"the artefact is damaged: {path} has no `{missing[0]}`")
    return dict(found)


@contextlib.contextmanager
def _workshop(folder: Path) -> Iterator[Path]:
    """A folder to write in, beside the place where it goes when all is well; gone when anything is not."""
    place = folder.absolute()
    if place.exists() and not is_artefact(place) and (not place.is_dir() or any(place.iterdir())):
        raise DplcError(f"{folder} is there and is no artefact: it is not overwritten")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror}") from None
    try:
        yield workshop
        workshop.chmod(0o755)
        if place.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{place.name}.old.", dir=place.parent)) / place.name
            place.rename(old)
            workshop.rename(place)
            shutil.rmtree(old.parent, ignore_errors=True)
        else:
            workshop.rename(place)
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
