"""The launch plan of an artefact as data: the schema of its `plan.json`, with bounds. Reading it executes nothing.

What the schema lets through is still to be doubted: `plan_check.py` compares it with itself, `kernel_texts.py` with the
Kernel IR.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ...codegen.kernel import Arena, Buffer, CudaKernel, Program
from ...ir.diagnostic import DplcError
from .manifest import read_file
from .running import TorchOutput
from .weights import WeightRequest

Record = TypeVar("Record")

Identifier = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}\Z")]
Line = Annotated[str, Meta(max_length=4096, pattern=r"^[^\x00-\x1f]*\Z")]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, Meta(ge=0, le=2**48)]
Extent = Annotated[int, Meta(ge=0, le=2**48)]
Extents = Annotated[tuple[Extent, ...], Meta(max_length=64)]
DtypeText = Literal["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "b8"]
LARGEST_SMEM = 1 << 20  # bytes that no device has


class BufferRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A buffer, or a parameter of a kernel, as kernels know it: without dimensions of one element."""

    name: Identifier
    dtype: DtypeText
    shape: Extents


class ParameterRecord(BufferRecord, frozen=True, omit_defaults=True):
    """role: in, out or tensor_map; of a tensor map the parameter it describes, the sides of a box, the swizzle."""

    role: Literal["in", "out", "tensor_map"] = "in"
    source: Line = ""
    sides: Annotated[tuple[Annotated[int, Meta(ge=1, le=256)], ...], Meta(max_length=5)] = ()
    swizzle: Literal[0, 32, 64, 128] = 0


class KernelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel; its text is `cuda/NAME.cu`."""

    name: Identifier
    grid: tuple[Count, Count, Count]
    block: Count
    smem: Annotated[int, Meta(ge=0, le=LARGEST_SMEM)]
    params: list[ParameterRecord]
    comment: Annotated[str, Meta(max_length=1 << 16)] = ""


class LaunchRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """kernel: its index; buffers: one for every parameter."""

    kernel: Count
    buffers: tuple[Identifier, ...]


class WeightRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A constant that weight files hold. names: what a file may call it; shape as torch has it."""

    buffer: Identifier
    names: Annotated[tuple[Line, ...], Meta(min_length=1)]
    dtype: DtypeText
    shape: Extents


class PlanFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A compiled model. Constants that are not weights are in `constants.safetensors`, under their buffers' names.

    weights_from: the weights that the compile was checked against, "" for none. aliases: {output: the input whose
    memory it takes}.
    """

    dplc: Line
    rules: Line
    model: Line
    config: dict[str, Any]
    length: Count
    batch: Count
    layers: Count | None
    dtype: Literal["f64", "f32", "f16", "bf16"]
    target: Line
    arch: Line
    inputs: list[BufferRecord]
    outputs: list[BufferRecord]
    results: list[BufferRecord]
    constants: list[BufferRecord]
    temporaries: list[BufferRecord]
    weights: list[WeightRecord]
    weights_from: Line
    kernels: list[KernelFile]
    launches: list[LaunchRecord]
    arena_bytes: Bytes
    offsets: dict[Identifier, Bytes]
    aliases: dict[Identifier, Identifier] = {}

    def wanted(self) -> dict[str, WeightRequest]:
        """{buffer: the weight it takes}"""
        return {weight.buffer: WeightRequest(weight.names, weight.dtype, weight.shape) for weight in self.weights}

    def program(self, kernels: dict[str, CudaKernel]) -> Program:
        """The program, given its kernels by name. Raises DplcError where the plan contradicts itself."""
        try:
            made = [kernels[record.name] for record in self.kernels]
            return Program(
                tuple(made[launch.kernel] for launch in self.launches),
                _buffers(self.inputs), _buffers(self.outputs), _buffers(self.constants), _buffers(self.temporaries),
                tuple(launch.buffers for launch in self.launches),
                Arena(self.arena_bytes, self.offsets), self.aliases,
            )  # fmt: skip
        except (ValueError, IndexError, KeyError) as error:
            raise DplcError("the launch plan contradicts itself", notes=(str(error),)) from None

    def torch_outputs(self) -> tuple[TorchOutput, ...]:
        return tuple(
            TorchOutput(buffer.name, result.dtype, result.shape)
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


def read_record(path: Path, kind: type[Record]) -> Record:
    """A record in a JSON file. Raises DplcError for a file that is not there, or holds none."""
    try:
        return msgspec.json.decode(read_file(path), type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DplcError(f"the artefact is damaged: {path} does not fit its schema: {error}") from None


def _buffers(records: list[BufferRecord]) -> tuple[Buffer, ...]:
    return tuple(Buffer(r.name, r.dtype, r.shape) for r in records)  # type: ignore[arg-type]
