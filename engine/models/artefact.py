"""A compiled model as a folder: every stage as text, CUDA, cubins, constants, and the launch plan.

    NAME/
      dplc-artefact.json       what dplc wrote here, with sizes and digests: by it alone is a folder an artefact
      figures.json             what the compile gave: times, memory, counts (compiling.Figures)
      plan.json                launches, buffers, the arena, which weights go where (plan_file.py is the schema)
      constants.safetensors    what was computed ahead and no weight file holds
      ir/torch.ir ..           the program at every stage
      cuda/KERNEL.cu           the text of every distinct kernel
      cubin/KERNEL.cubin       the same assembled for the plan's target, where an assembler was there

It is written beside its place and exchanged with what was there (replacing.py). Loading executes nothing, and what is
compiled for the emulator later is text that dplc prints itself (kernel_texts.py). But for figures.json the same model
gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...codegen.build import build_device, device_text
from ...codegen.compiler import find_program
from ...codegen.kernel import CudaKernel, Program
from ...codegen.nvrtc import find_nvrtc
from ...ir.diagnostic import DplcError
from ...ir.schemas import DTYPES
from ...ir.text.read import read_program
from ...ir.torch import TorchGraph
from ...version import __version__
from ..compiler import STAGES
from .compiling import CompiledModel, Figures
from .kernel_texts import kernels_of, read_text
from .manifest import MANIFEST, check_file, read_file, read_manifest, seal
from .plan_check import check_plan
from .plan_file import BufferRecord, PlanFile, WeightRecord, buffer_record, launch_records, read_record
from .replacing import replacing
from .running import TorchOutput
from .weights import Tell, WeightRequest, silent

PLAN, FIGURES, CONSTANTS = "plan.json", "figures.json", "constants.safetensors"
LARGEST_CUBIN = 64 << 20
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
    def weights(self) -> dict[str, WeightRequest]:
        return self.plan.wanted()

    @property
    def outputs(self) -> tuple[TorchOutput, ...]:
        return self.plan.torch_outputs()

    def images(self) -> dict[tuple[str, str], bytes]:
        """{(text of a kernel, arch): its cubin}, for the executor."""
        texts = {kernel.name: kernel.text for kernel in self.program.distinct_kernels()}
        return {(texts[name], self.plan.arch): image for name, image in self.cubins.items() if name in texts}

    def ir(self, stage: str) -> str:
        """The program's text at a stage. Raises DplcError for a stage that is not there."""
        if stage == STAGES[-1]:
            return "\n".join(kernel.text for kernel in self.program.distinct_kernels())
        return read_text(self.folder / "ir" / f"{stage}.ir")

    def torch_graph(self) -> TorchGraph:
        """What the program computes: the reference runs this in float64. Raises DplcError for what is no such graph."""
        path = self.folder / "ir" / "torch.ir"
        try:
            _, units = read_program(read_text(path), str(path))
        except RecursionError:
            raise DplcError(f"the artefact is damaged: {path} nests too deep") from None
        if len(units) != 1 or not isinstance(units[0], TorchGraph):
            raise DplcError(f"the artefact is damaged: {path} does not hold one graph")
        return units[0]


def is_artefact(folder: Path) -> bool:
    """Whether dplc wrote a folder, by what it left there to tell."""
    return (folder / MANIFEST).is_file()


def save(
    compiled: CompiledModel, folder: Path, cubins: bool = True, weights: Path | None = None, tell: Tell = silent
) -> None:
    """Write the artefact of a compiled model. What was at its place is replaced if dplc wrote all of it.

    cubins: whether to assemble the kernels (if NVRTC or nvcc is there). weights: where they are, to be found at a run.
    Raises DplcError for a place that is taken.
    """
    with replacing(folder) as workshop:
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
        seal(workshop, __version__)


def plan_of(compiled: CompiledModel, weights: Path | None = None) -> PlanFile:
    """The plan of a compiled model."""
    compilation, program, shape = compiled.compilation, compiled.program, compiled.shape
    kernels, launches = launch_records(program)
    assert program.arena is not None
    length, batch = shape.numbers
    return PlanFile(
        dplc=__version__, rules=compiled.rules, model=compiled.source.name,
        config=compiled.source.config, length=length, batch=batch, layers=shape.layers,
        dtype=shape.dtype,  # type: ignore[arg-type]
        target=compilation.target.name, arch=compilation.target.arch,
        inputs=[buffer_record(b) for b in program.inputs],
        outputs=[buffer_record(b) for b in program.outputs],
        results=[BufferRecord(o.buffer, o.dtype, o.shape) for o in compiled.outputs],  # type: ignore[arg-type]
        constants=[buffer_record(b) for b in program.constants],
        temporaries=[buffer_record(b) for b in program.temporaries],
        weights=[WeightRecord(n, w.names, w.dtype, w.shape) for n, w in compiled.weights.items()],  # type: ignore[arg-type]
        weights_from="" if weights is None else str(weights.absolute()),
        kernels=kernels, launches=launches, arena_bytes=program.arena.bytes, offsets=dict(program.arena.offsets),
        aliases=dict(program.aliases),
    )  # fmt: skip


def load(folder: Path, trust_edited_cuda: bool = False) -> Artefact:
    """The artefact in a folder. trust_edited_cuda: take CUDA that dplc did not print, which the emulator runs.

    Raises DplcError for a folder that is none, or is damaged.
    """
    if not is_artefact(folder):
        what = f"is no artefact: it has no {MANIFEST}" if folder.is_dir() else "is not there"
        raise DplcError(f"{folder} {what}", hint="`dplc compile MODEL -o DIR` writes one")
    manifest = read_manifest(folder)
    for name in sorted({PLAN, FIGURES, CONSTANTS, *(f"ir/{stage}.ir" for stage in STAGES[:-1]), *manifest.files}):
        if not name.startswith("cuda/"):  # what an edited text is told is in kernel_texts.py
            check_file(folder, name, manifest)
    plan, figures = read_record(folder / PLAN, PlanFile), read_record(folder / FIGURES, Figures)
    program = plan.program(kernels_of(folder, plan, trust_edited_cuda))
    check_plan(plan, program, folder / PLAN)
    names = [name for name in manifest.files if name.startswith("cubin/")]
    cubins = {Path(name).stem: read_file(folder / name, LARGEST_CUBIN) for name in names}
    constants = _load_constants(folder / CONSTANTS, plan)
    return Artefact(folder, plan, program, constants, cubins, figures)


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
    import torch
    from safetensors.torch import load_file

    weights = {weight.buffer for weight in plan.weights}
    try:
        found = dict(load_file(path))
    except Exception as error:  # its own class, and those of torch
        raise DplcError(f"the artefact is damaged: cannot read {path}", notes=(str(error),)) from None
    for buffer in plan.constants:
        if buffer.name in weights:
            continue
        if buffer.name not in found:
            raise DplcError(f"the artefact is damaged: {path} has no `{buffer.name}`")
        tensor = found[buffer.name]
        if (tensor.dtype, tensor.numel()) != (getattr(torch, DTYPES[buffer.dtype]), math.prod(buffer.shape)):
            raise DplcError(
                f"the artefact is damaged: {path}: `{buffer.name}` is not {buffer.dtype}{list(buffer.shape)}"
            )
    return found
