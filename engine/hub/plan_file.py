"""The launch plan of an artefact as data: the schema of its `plan.json`. Reading it never executes anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...codegen.kernel import Arena, Box, Buffer, CudaKernel, KernelParam, Program
from ...ir.diagnostic import DplcError
from .running import Output
from .weights import Wanted

FORMAT = 1
Record = TypeVar("Record")


class BufferRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A buffer, or a parameter of a kernel, as kernels know it: without dimensions of one element."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class ParameterRecord(BufferRecord, frozen=True, omit_defaults=True):
    """role: in, out or tensor_map; of a tensor map the parameter it describes, the sides of a box, the swizzle."""

    role: str = "in"
    source: str = ""
    sides: tuple[int, ...] = ()
    swizzle: int = 0


class KernelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel; its text is `cuda/NAME.cu`."""

    name: str
    grid: tuple[int, int, int]
    block: int
    smem: int
    params: list[ParameterRecord]
    comment: str = ""


class LaunchRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """kernel: its index; buffers: one for every parameter."""

    kernel: int
    buffers: tuple[str, ...]


class WeightRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A constant that weight files hold. names: what a file may call it; shape as torch has it."""

    buffer: str
    names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]


class PlanFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A compiled model. Constants that are no weights are in `constants.safetensors`, under their buffers' names.

    weights_from: the weights that the compile was checked against, "" for none. aliases: {output: the input whose
    memory it takes}.
    """

    format: int
    dplc: str
    rules: str
    model: str
    config: dict[str, Any]
    length: int
    batch: int
    layers: int | None
    dtype: str
    target: str
    arch: str
    inputs: list[BufferRecord]
    outputs: list[BufferRecord]
    results: list[BufferRecord]
    constants: list[BufferRecord]
    temporaries: list[BufferRecord]
    weights: list[WeightRecord]
    weights_from: str
    kernels: list[KernelFile]
    launches: list[LaunchRecord]
    arena_bytes: int
    offsets: dict[str, int]
    aliases: dict[str, str] = {}

    def wanted(self) -> dict[str, Wanted]:
        """{buffer: the weight it takes}"""
        return {weight.buffer: Wanted(weight.names, weight.dtype, weight.shape) for weight in self.weights}

    def program(self, texts: dict[str, str]) -> Program:
        """The program, given the texts of its kernels by name. Raises DplcError where the plan contradicts itself."""
        try:
            kernels = [_kernel(record, texts[record.name]) for record in self.kernels]
            return Program(
                tuple(kernels[launch.kernel] for launch in self.launches),
                _buffers(self.inputs), _buffers(self.outputs), _buffers(self.constants), _buffers(self.temporaries),
                tuple(launch.buffers for launch in self.launches),
                Arena(self.arena_bytes, self.offsets), self.aliases,
            )  # fmt: skip
        except (ValueError, IndexError, KeyError) as error:
            raise DplcError("the launch plan contradicts itself", notes=(str(error),)) from None

    def torch_outputs(self) -> tuple[Output, ...]:
        return tuple(
            Output(buffer.name, result.dtype, result.shape)
            for buffer, result in zip(self.outputs, self.results, strict=True)
        )


def buffer_record(buffer: Any) -> BufferRecord:
    """The record of a buffer, or of a parameter or result that has a name, a dtype and a shape."""
    return BufferRecord(buffer.name, buffer.dtype, tuple(map(int, buffer.shape)))


def kernel_record(kernel: CudaKernel) -> KernelFile:
    """The record of a kernel, without its text."""
    params = []
    for p in kernel.params:
        box = {"source": p.box.source, "sides": p.box.sides, "swizzle": p.box.swizzle} if p.box else {}
        params.append(ParameterRecord(p.name, p.dtype, p.shape, p.role, **box))  # type: ignore[arg-type]
    return KernelFile(kernel.name, kernel.grid, kernel.block, kernel.smem, params, kernel.comment)


def launch_records(program: Program) -> tuple[list[KernelFile], list[LaunchRecord]]:
    """The distinct kernels of a program, and its launches."""
    kernels = program.distinct_kernels()
    place = {kernel.name: index for index, kernel in enumerate(kernels)}
    launches = [LaunchRecord(place[launch.kernel.name], launch.buffers) for launch in program.launches()]
    return [kernel_record(kernel) for kernel in kernels], launches


def read_plan(path: Path) -> PlanFile:
    """The plan in a file. Raises DplcError for a file that is none, or of another format."""
    number = read_record(path, _Format).format
    if number != FORMAT:
        raise DplcError(f"{path} is of format {number}; this dplc reads {FORMAT}", hint="compile the model again")
    return read_record(path, PlanFile)


def read_record(path: Path, kind: type[Record]) -> Record:
    """A record in a JSON file. Raises DplcError for a file that is not there, or holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise DplcError(f"the artefact is damaged: cannot read {path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise DplcError(f"the artefact is damaged: {path} does not fit its schema", notes=(str(error),)) from None


class _Format(msgspec.Struct):
    format: int


def _buffers(records: list[BufferRecord]) -> tuple[Buffer, ...]:
    return tuple(Buffer(r.name, r.dtype, r.shape) for r in records)  # type: ignore[arg-type]


def _kernel(record: KernelFile, text: str) -> CudaKernel:
    params = tuple(
        KernelParam(p.name, p.dtype, p.shape, p.role, Box(p.source, p.sides, p.swizzle) if p.source else None)  # type: ignore[arg-type]
        for p in record.params
    )
    return CudaKernel(record.name, text, record.grid, record.block, record.smem, params, record.comment)
