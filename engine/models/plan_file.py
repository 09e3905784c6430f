"""The launch plan of an artefact as data: the schema of its `plan.json`, with bounds. Reading it executes nothing.

What the schema lets through is still to be doubted: `plan_check.py` compares it with itself, `kernel_texts.py` with the
Kernel IR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ...codegen.kernel import Arena, Buffer, CudaKernel, Program, with_arena
from ...ir.diagnostic import DplcError
from ...ir.expr import Size
from ..capture.sizes import Dim
from .extents import ExtentText, extent_at, extent_record
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
SizedExtents = Annotated[tuple[Extent | ExtentText, ...], Meta(max_length=64)]
Number = Annotated[int, Meta(ge=1, le=2**31 - 1)]
MOST_SIZES, MOST_ROWS = 8, 256  # of a plan that anybody would write
DtypeText = Literal["f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i64", "i32", "i16", "i8", "u8", "b8"]
FURTHEST = 2**31 - 1  # from 0, of numbers that are drawn for an input
LARGEST_SMEM = 1 << 20  # bytes that no device has


class BufferRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A buffer as kernels know it: without dimensions of one element. Extents may be made of sizes."""

    name: Identifier
    dtype: DtypeText
    shape: SizedExtents


class ExampleRecord(BufferRecord, frozen=True, forbid_unknown_fields=True):
    """An input of a text, with torch's shape, and the least and the greatest of its elements when it was compiled:
    a run draws others between these."""

    low: float
    high: float


class ParameterRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A parameter of a kernel, at the hints of its sizes.

    role: in, out or tensor_map; of a tensor map the parameter it describes, the sides of a box, the swizzle.
    """

    name: Identifier
    dtype: DtypeText
    shape: Extents
    role: Literal["in", "out", "tensor_map"] = "in"
    source: Line = ""
    sides: Annotated[tuple[Annotated[int, Meta(ge=1, le=256)], ...], Meta(max_length=5)] = ()
    swizzle: Literal[0, 32, 64, 128] = 0


class KernelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel; its text is `cuda/NAME.cu`, and its grid the one at the hints of its sizes."""

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
    """A constant that weight files hold. names: what a file may call it; shape as torch has it; pieces: as of
    `weights.WeightRequest`."""

    buffer: Identifier
    names: Annotated[tuple[Line, ...], Meta(min_length=1)]
    dtype: DtypeText
    shape: Extents
    pieces: tuple[tuple[Annotated[tuple[Line, ...], Meta(min_length=1)], ...], ...] = ()


class ConditionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a row asks of a size: low..high, both included, a multiple of `multiple`."""

    name: Identifier
    low: Number
    high: Number
    multiple: Number = 1


class SizeRecord(ConditionRecord, frozen=True, kw_only=True):
    """A number that is known at a call, and what it is as a rule."""

    hint: Number

    def size(self) -> Size:
        """Raises DplcError for a range that holds nothing."""
        return Dim(self.name, self.low, self.high, self.multiple, self.hint).size()


class RowRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls for which all of `when` holds are served by the plan in the folder `rows/N`, N its place in the table."""

    when: Annotated[tuple[ConditionRecord, ...], Meta(min_length=1, max_length=MOST_SIZES)]


class PlanFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A compiled model. Constants that are not weights are in `constants.safetensors`, under their buffers' names.

    weights_from: the weights that the compile was checked against, "" for none. aliases: {output: the input whose
    memory it takes}. length, batch: numbers, or names of sizes. sizes: what is known at a call; with any, offsets are
    planned at each binding and none stands here. rows: the table of which the first row that holds serves a call.
    examples: the inputs of a `-c` text, which has no `config`, and 0 for length and batch.
    """

    dplc: Line
    rules: Line
    model: Line
    config: dict[str, Any]
    length: Count | Identifier
    batch: Count | Identifier
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
    sizes: Annotated[tuple[SizeRecord, ...], Meta(max_length=MOST_SIZES)] = ()
    rows: Annotated[tuple[RowRecord, ...], Meta(max_length=MOST_ROWS)] = ()
    examples: tuple[ExampleRecord, ...] = ()

    @property
    def hints(self) -> dict[str, int]:
        """What the sizes are as a rule."""
        return {size.name: size.hint for size in self.sizes}

    def tokens_at(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """(sequences, tokens of each) where the sizes are these numbers."""
        return extent_at(self.batch, sizes), extent_at(self.length, sizes)

    def wanted(self) -> dict[str, WeightRequest]:
        """{buffer: the weight it takes}"""
        return {w.buffer: WeightRequest(w.names, w.dtype, w.shape, w.pieces) for w in self.weights}

    def program(
        self, kernels: Mapping[str, CudaKernel], sizes: Mapping[str, int] = MappingProxyType({})
    ) -> Program:  # fmt: skip
        """The program, given its kernels by name, as they are at these sizes. Raises DplcError where the plan
        contradicts itself."""
        try:
            made = [kernels[record.name] for record in self.kernels]
            program = Program(
                tuple(made[launch.kernel] for launch in self.launches),
                _buffers(self.inputs, sizes),
                _buffers(self.outputs, sizes),
                _buffers(self.constants, sizes),
                _buffers(self.temporaries, sizes),
                tuple(launch.buffers for launch in self.launches),
                Arena(self.arena_bytes, self.offsets),
                self.aliases,
            )
            return with_arena(program) if self.sizes else program
        except (ValueError, IndexError, KeyError) as error:
            raise DplcError("the launch plan contradicts itself", notes=(str(error),)) from None

    def torch_outputs(self, sizes: Mapping[str, int] = MappingProxyType({})) -> tuple[TorchOutput, ...]:
        return tuple(
            TorchOutput(buffer.name, result.dtype, tuple(extent_at(n, sizes) for n in result.shape))
            for buffer, result in zip(self.outputs, self.results, strict=True)
        )


def buffer_record(buffer: Any) -> BufferRecord:
    """The record of a buffer, or of a parameter or result that has a name, a dtype and a shape."""
    return result_record(buffer.name, buffer)


def result_record(name: str, kind: Any) -> BufferRecord:
    """The record of what is of some dtype and shape, under a name."""
    return BufferRecord(name, kind.dtype, tuple(map(extent_record, kind.shape)))


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


def _buffers(records: Sequence[BufferRecord], sizes: Mapping[str, int]) -> tuple[Buffer, ...]:
    return tuple(Buffer(r.name, r.dtype, tuple(extent_at(n, sizes) for n in r.shape)) for r in records)
