"""Interface between code generator and runtime: kernels as text with launch geometry, and the order to launch them.

Data only. Nothing here compiles, launches or imports numpy, so that any floor may describe a program.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..ir.diagnostic import DplcError
from ..ir.dtypes import DTYPES, DtypeName

if TYPE_CHECKING:  # a machine that measures a pack has no IRs
    from ..ir.program import BufferPart
    from ..ir.tensor import OperatorCall

Role = Literal["in", "out", "tensor_map"]


# What every supported device accepts. A grid may be wide in x only.
MAX_THREADS_PER_BLOCK = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)
POINTER_ALIGNMENT = 16


@dataclass(frozen=True)
class Buffer:
    """A named array in global memory. `shape` is in elements; a scalar has shape `()`."""

    name: str
    dtype: DtypeName
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"buffer `{self.name}` has dtype `{self.dtype}`; known dtypes are {', '.join(DTYPES)}")
        if any(extent < 0 for extent in self.shape):
            raise ValueError(f"buffer `{self.name}` has a negative extent in its shape {self.shape}")

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without padding."""
        return self.size * DTYPES[self.dtype].item_bytes


@dataclass(frozen=True)
class Box:
    """Additions of a tensor map to the buffer it describes: the parameter with that buffer, sides of a box, swizzle.

    sides are elements, outermost dimension first, as a shape is; swizzle is 0 or the bytes that a row spans.
    """

    source: str
    sides: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True)
class KernelParam(Buffer):
    """A parameter of a kernel: a pointer, or a tensor map.

    Role "in": a buffer that is read only for the whole launch. "out": written, and perhaps read. "tensor_map": how TMA
    finds boxes of an "in" buffer; dtype and shape are that buffer's, and so is the buffer a launch binds it to.
    """

    role: Role = "in"
    box: Box | None = None

    @property
    def declaration(self) -> str:
        """The parameter as kernel text: `const float* __restrict__ x`."""
        if self.role == "tensor_map":
            return f"const __grid_constant__ TensorMap {self.name}"
        const = "const " if self.role == "in" else ""
        return f"{const}{DTYPES[self.dtype].c_type}* __restrict__ {self.name}"


class TensorView(NamedTuple):
    """Contents of a tensor map, innermost dimension first.

    extents: elements; strides: bytes from one element to the next; box: elements. The innermost dimension has no
    stride: its elements are neighbours.
    """

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    item_bytes: int
    swizzle: int

    @classmethod
    def of(cls, param: KernelParam) -> TensorView:
        """Return the view of a parameter of role "tensor_map"."""
        if param.box is None:
            raise ValueError(f"`{param.name}` is not a tensor map")
        size = DTYPES[param.dtype].item_bytes
        strides = tuple(size * math.prod(param.shape[dim + 1 :]) for dim in range(len(param.shape)))
        return cls(param.shape[::-1], strides[:-1][::-1], param.box.sides[::-1], size, param.box.swizzle)


@dataclass(frozen=True)
class CudaKernel:
    """One kernel: text, launch geometry, and its pointers in order, followed by an int for each size.

    `text` holds one `extern "C" __global__ void name(...) { ... }` and no #include; it calls the functions of
    `prelude.cuh`. `grid` counts blocks in x, y, z; `block` counts threads in x; `smem` is dynamic shared memory in
    bytes, which the kernel reaches through `DPLC_DYN_SMEM(float, smem_buf)`. `cluster` neighbours in x run together,
    as the text declares. Kernels that differ in `values` alone are one text at several bindings of its sizes.
    """

    name: str
    text: str
    grid: tuple[int, int, int]
    block: int
    smem: int
    params: tuple[KernelParam, ...]
    comment: str = ""
    values: tuple[int, ...] = ()
    cluster: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.block <= MAX_THREADS_PER_BLOCK:
            raise DplcError(
                f"kernel `{self.name}` has {self.block} threads per block; 1 to {MAX_THREADS_PER_BLOCK} are possible"
            )
        for axis, extent, limit in zip("xyz", self.grid, MAX_GRID, strict=True):
            if not 1 <= extent <= limit:
                raise DplcError(f"kernel `{self.name}` has {extent} blocks in {axis}; 1 to {limit} are possible")
        if self.cluster < 1 or self.grid[0] % self.cluster:
            raise DplcError(f"kernel `{self.name}` has {self.grid[0]} blocks in x, no whole clusters of {self.cluster}")
        if self.smem < 0:
            raise DplcError(f"kernel `{self.name}` asks for {self.smem} bytes of shared memory")

    @property
    def blocks(self) -> int:
        """Blocks in the whole grid."""
        return math.prod(self.grid)


@dataclass(frozen=True)
class LaunchLoop:
    """Launches `first` to `end` (exclusive) of a program, which run `times` times."""

    first: int
    end: int
    times: int


@dataclass(frozen=True)
class Launch:
    """One step of a program: a kernel, and the buffer and the byte in it that each of its parameters points to.

    place: of the launch in the program; iteration: of the loop that it is in.
    """

    kernel: CudaKernel
    buffers: tuple[str, ...]
    offsets: tuple[int, ...]
    place: int
    iteration: int = 0

    def addresses(self, places: Mapping[str, int]) -> list[int]:
        """Return the address of each parameter, given those of the buffers."""
        return [places[name] + offset for name, offset in zip(self.buffers, self.offsets, strict=True)]


@dataclass(frozen=True)
class TorchCall:
    """One step of a program that torch computes. after: the launches before it."""

    call: OperatorCall
    after: int


@dataclass(frozen=True)
class Arena:
    """One allocation that temporaries share. bytes: its size; offsets: {temporary: where it starts}, aligned."""

    bytes: int
    offsets: Mapping[str, int]


@dataclass(frozen=True)
class Program:
    """A launch plan: kernels in order, and every buffer they touch.

    A kernel's parameter names are buffer names, unless `bindings` says otherwise: entry i lists the buffers of launch
    i, one per parameter, so that a kernel compiled once serves many layers. Inputs and constants are supplied by the
    caller (constants are the ones that stay the same from run to run: weights, folded tables); outputs and temporaries
    are allocated by the executor: temporaries in one piece where an arena says how (`with_arena`).

    calls: of torch, in their order. They read and write buffers as launches do. loops: runs of launches that are done
    again and again, in their order; slots: the parts of buffers by the names that launches have for them.

    aliases: {output: the input whose memory it takes}. Such an input is used up: after a run its array holds either
    what it held or the output. Whether kernels may do that is for those to know who see their index maps
    (engine/run/calls.py); an executor relies on it.
    """

    kernels: tuple[CudaKernel, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: tuple[Buffer, ...] = ()
    temporaries: tuple[Buffer, ...] = ()
    bindings: tuple[tuple[str, ...], ...] = ()
    arena: Arena = Arena(0, {})
    aliases: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[TorchCall, ...] = ()
    loops: tuple[LaunchLoop, ...] = ()
    slots: Mapping[str, BufferPart] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = Counter(buffer.name for buffer in self._places())
        repeated = sorted(name for name, count in names.items() if count > 1)
        if repeated:
            raise ValueError(f"buffers declared twice in one program: {', '.join(repeated)}")
        if self.bindings and len(self.bindings) != len(self.kernels):
            raise ValueError(f"{len(self.bindings)} bindings for {len(self.kernels)} kernels")
        for slot in self.slots.values():
            if slot.step and (part := self._bytes[slot.whole] // slot.parts) % POINTER_ALIGNMENT:
                what = f"a step of a loop reads or writes {part} bytes of `{slot.whole}`"
                raise DplcError(what, hint=f"let it take a multiple of {POINTER_ALIGNMENT} bytes: pad the rows")
        self._check_launches()
        self._check_aliases()

    def buffers(self) -> tuple[Buffer, ...]:
        """Return every buffer of the program, inputs first."""
        return (*self.inputs, *self.constants, *self.outputs, *self.temporaries)

    @cached_property
    def _bytes(self) -> dict[str, int]:
        return {buffer.name: buffer.nbytes for buffer in self._places()}

    def _places(self) -> Iterator[Buffer]:
        """Yield what the names of launches may mean: buffers and slots."""
        yield from self.buffers()
        params: Any = (slot.param for slot in self.slots.values())
        yield from (Buffer(x.name, x.dtype, x.shape) for x in params)

    def launches(self) -> Iterator[Launch]:
        """Yield the launches in order, those of a loop once."""
        return map(self._launch, range(len(self.kernels)))

    def _launch(self, place: int, iteration: int = 0) -> Launch:
        found = []
        for name in self._names(place):
            offset = 0
            while (slot := self.slots.get(name)) is not None:
                if slot.first and not iteration:
                    name = slot.first
                else:
                    name = slot.whole
                    part = self._bytes[name] // slot.parts
                    offset += (slot.start + iteration * slot.step) % slot.parts * part
            found.append((name, offset))
        names, offsets = zip(*found, strict=True) if found else ((), ())
        return Launch(self.kernels[place], names, offsets, place, iteration)

    def _names(self, place: int) -> tuple[str, ...]:
        """Return the buffers or slots of the parameters of a launch."""
        return self.bindings[place] if self.bindings else tuple(param.name for param in self.kernels[place].params)

    def steps(self) -> Iterator[Launch | TorchCall]:
        """Yield the launches and the calls of torch in order, each launch of a loop as often as it runs."""
        calls, place = list(self.calls), 0
        loops = {loop.first: loop for loop in self.loops}
        while place < len(self.kernels):
            while calls and calls[0].after <= place:
                yield calls.pop(0)
            loop = loops.get(place, LaunchLoop(place, place + 1, 1))
            for iteration in range(loop.times):
                yield from (self._launch(each, iteration) for each in range(loop.first, loop.end))
            place = loop.end
        yield from calls

    def distinct_kernels(self) -> tuple[CudaKernel, ...]:
        """Return each kernel once, in order of first launch."""
        return tuple({kernel.name: kernel for kernel in self.kernels}.values())

    def _check_launches(self) -> None:
        known = {buffer.name: buffer for buffer in self._places()}
        read_only = {buffer.name for buffer in (*self.inputs, *self.constants)}
        texts: dict[str, str] = {}
        for launch in self.launches():
            where = f"kernel `{launch.kernel.name}`"
            if texts.setdefault(launch.kernel.name, launch.kernel.text) != launch.kernel.text:
                raise ValueError(f"two different kernels of one program are named `{launch.kernel.name}`")
            for param, name in zip(launch.kernel.params, self._names(launch.place), strict=True):
                if name not in known:
                    raise ValueError(f"{where} takes `{name}`, which is not a buffer of the program")
                if (known[name].dtype, known[name].nbytes) != (param.dtype, param.nbytes):
                    raise ValueError(
                        f"{where} takes `{name}` as {param.dtype}{list(param.shape)}, "
                        f"but the buffer is {known[name].dtype}{list(known[name].shape)}"
                    )
                if param.role == "out" and name in read_only:
                    raise ValueError(f"{where} writes `{name}`, which is an input or a constant of the program")

    def _check_aliases(self) -> None:
        inputs, outputs = ({b.name: b for b in buffers} for buffers in (self.inputs, self.outputs))
        if len(set(self.aliases.values())) != len(self.aliases):
            raise ValueError("two outputs take the memory of one input")
        for output, source in self.aliases.items():
            if output not in outputs or source not in inputs:
                raise ValueError(f"`{output}` takes the memory of `{source}`: an output and an input are needed")
            if (outputs[output].dtype, outputs[output].shape) != (inputs[source].dtype, inputs[source].shape):
                raise ValueError(f"`{output}` takes the memory of `{source}`, which is of another dtype or shape")


# ---- memory plan: one allocation for all temporaries; buffers that are never live at once share bytes
#
# A temporary lives from the first launch that uses it to the last. Placing them in the least space is dynamic storage
# allocation (NP-hard). Largest first, each at the lowest offset that is free for its whole life, is within a few per
# cent of the lower bound (the most bytes alive at one launch) on programs of layers.


ALIGNMENT = 256  # of every buffer: what cudaMalloc gives, so that no kernel sees a difference


def with_arena(program: Program) -> Program:
    """Return the program with its temporaries placed."""
    return replace(program, arena=plan(program))


def plan(program: Program) -> Arena:
    """Return the arena: the offset of every temporary of a program."""
    lives = lifetimes(program)
    order = sorted(program.temporaries, key=lambda buffer: (-aligned(buffer), lives[buffer.name]))
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first launch, last; sorted
    offsets: dict[str, int] = {}
    for buffer in order:
        first, last = lives[buffer.name]
        offset = 0
        for start, end, begin, until in placed:
            if begin <= last and first <= until:  # both live at some launch
                if offset + aligned(buffer) <= start:
                    break
                offset = max(offset, end)
        offsets[buffer.name] = offset
        insort(placed, (offset, offset + aligned(buffer), first, last))
    return Arena(max((end for _, end, _, _ in placed), default=0), offsets)


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """Return {temporary: (the first launch that uses it, the last)}. What an iteration finds lives through its loop."""
    names = {buffer.name for buffer in program.temporaries}
    lives: dict[str, tuple[int, int]] = {}
    for launch in program.launches():
        around = [loop for loop in program.loops if loop.first <= launch.place < loop.end]
        for given, name in zip(program._names(launch.place), launch.buffers, strict=True):
            first, last = launch.place, launch.place
            if around and given in program.slots:
                first, last = around[0].first, around[0].end - 1
            if name in names:
                lives[name] = min(first, lives.get(name, (first, last))[0]), max(last, lives.get(name, (0, 0))[1])
    for step in program.calls:  # as if the launches before and after it used the buffers
        for param in (*step.call.given, *step.call.results):
            if param.name in names:
                first, last = lives.get(param.name, (step.after, step.after))
                lives[param.name] = min(first, step.after - 1), max(last, step.after)
    return lives


def aligned(buffer: Buffer) -> int:
    """Return the bytes of a buffer with the padding to the next one."""
    return -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
