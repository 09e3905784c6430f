"""The runtime library of the emulator through ctypes, and kernels that run on it."""

from __future__ import annotations

import os
import re
import weakref
from _ctypes import dlclose
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from ctypes import (
    CDLL,
    POINTER,
    RTLD_GLOBAL,
    Structure,
    addressof,
    byref,
    c_char_p,
    c_int,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    create_string_buffer,
    pointer,
)
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ...ir.diagnostic import INTERNAL, DplcError
from ...ir.dtypes import DTYPES
from ...ir.node import immutable
from ..build import build_host, build_runtime, host_text
from ..kernel import Buffer, CudaKernel, KernelParam, TensorView

# ---- layout of shared memory in checked mode: gaps after shared tiles, so that no access outside of one hits another
#
# A kernel computes the addresses in its shared memory by adding offsets to one base, in lines of a known form:
#
# const uint32_t smem = smem_addr(smem_buf);
# const uint32_t x_smem = smem;
# const uint32_t y_smem = smem + 16384;
#
# The checked build enlarges the offsets in these lines. Nothing else of the text changes, and its line numbers stay.


GAP = 64 << 10  # bytes between shared tiles. A multiple of every unit that addresses are flipped or swizzled in
SPAN = 2 << 20  # bytes that shared memory may take with its gaps: mirrors dplc::shared_region

BASE = re.compile(r"^ *const uint32_t (\w+) = smem_addr\(smem_buf\);$", re.MULTILINE)
DERIVED = r"^( *const uint32_t (\w+) = ({roots}))(?: \+ (\d+))?;$"


@immutable
class SharedTilePlace:
    """A shared tile: its name in the text, where it starts in the kernel's layout and in the checked one, its bytes."""

    name: str
    start: int
    begin: int
    bytes: int


@immutable
class Spaced:
    """A kernel with gaps between its shared tiles. span: bytes with gaps. no shared_tiles: the kernel is unchanged."""

    kernel: CudaKernel
    shared_tiles: tuple[SharedTilePlace, ...]
    span: int


@lru_cache(maxsize=256)
def spaced(kernel: CudaKernel) -> Spaced:
    """Return the checked build's text of a kernel, and the position of each shared tile in its memory."""
    as_it_is = Spaced(kernel, (), kernel.smem)
    base = BASE.search(kernel.text)
    if base is None or len(BASE.findall(kernel.text)) > 1:
        return as_it_is
    root = base[1]
    lines = {m[2]: int(m[4] or 0) for m in re.finditer(DERIVED.format(roots=root), kernel.text, re.MULTILINE)}
    if not lines or len(lines) + 1 != len(re.findall(rf"\b{root}\b", kernel.text)):
        return as_it_is  # the base is used in another way, or a name has two meanings
    first = {start: name for name, start in lines.items()}
    if len(first) < len(lines):
        return as_it_is
    starts = sorted(first)
    if starts[0] != 0 or starts[-1] >= kernel.smem or (kernel.smem + GAP * len(starts)) * kernel.cluster > SPAN:
        return as_it_is
    ends = [*starts[1:], kernel.smem]
    shared_tiles = tuple(
        SharedTilePlace(first[start], start, start + n * GAP, end - start)
        for n, (start, end) in enumerate(zip(starts, ends, strict=True))
    )
    text = _moved(kernel.text, root, lines, starts)
    return Spaced(replace(kernel, text=text), shared_tiles, kernel.smem + GAP * (len(shared_tiles) - 1))


def _moved(text: str, root: str, lines: dict[str, int], starts: Sequence[int]) -> str:
    """Return the text with every line of a shared tile's address in the new layout.

    Lines that compute an address from that of one shared tile change too: an address within its tile stays there.

    lines: the first byte of each shared tile, by its name. starts: these bytes in order.
    """

    def gaps(byte: int) -> int:
        """Return the bytes of all gaps before a byte of the kernel's layout."""
        return GAP * (bisect_right(starts, byte) - 1)

    def line(match: re.Match[str]) -> str:
        base, offset = lines.get(match[3], 0), int(match[4] or 0)
        offset += gaps(base + offset) - gaps(base)
        return f"{match[1]} + {offset};" if offset else f"{match[1]};"

    return re.sub(DERIVED.format(roots="|".join((root, *lines))), line, text, flags=re.MULTILINE)


MESSAGE_BYTES = 1024
SWIZZLE_REPEAT = 1024  # bytes: the shared memories of a cluster start at its multiples
MAX_SITES = 4096
# Starting an OS thread takes about as long as running this many CUDA threads.
THREADS_WORTH_A_WORKER = 1024
BY_DATA = 2  # what dplc_launch says of a failure that the data is to blame for
DATA_HINT = "the inputs hold what this program has no value for; PyTorch raises an error for it on the CPU"

AccessName = Literal["global load", "global store", "shared load", "shared store", "async store", "box copy"]
ACCESSES: tuple[AccessName, ...] = get_args(AccessName)


class EmulatorError(DplcError):
    """A kernel did what it must not do on a GPU; the message says which kernel, block and thread, and what."""

    exit_code = INTERNAL


class DataError(DplcError):
    """Error in the inputs of a right kernel: an index in `table[ids]` out of range, an integer divided by 0."""


def layout(**fields: Any) -> list[tuple[str, Any]]:
    """Return the fields of a C structure, from their types by name."""
    return list(fields.items())


class BufferInfo(Structure):
    """Mirrors dplc::BufferInfo."""

    _fields_ = layout(
        name=c_char_p,
        base=c_void_p,
        bytes=c_uint64,
        item_bytes=c_uint64,
    )


class TensorMap(Structure):
    """Mirrors dplc::TensorMap: how boxes of a tensor are found, innermost dimension first."""

    _fields_ = layout(
        base=c_void_p,
        extents=c_uint64 * 5,
        strides=c_uint64 * 5,
        box=c_uint16 * 5,
        rank=c_uint8,
        item_bytes=c_uint8,
        swizzle=c_uint16,
        reserved=c_uint8 * 26,
    )

    @classmethod
    def of(cls, param: KernelParam, address: int) -> TensorMap:
        """Return the map of a parameter whose buffer is at an address."""
        view = TensorView.of(param)
        return cls(
            base=address,
            extents=view.extents,
            strides=(view.item_bytes, *view.strides),
            box=view.box,
            rank=len(view.box),
            item_bytes=view.item_bytes,
            swizzle=view.swizzle,
        )


class SiteReport(Structure):
    """Mirrors dplc::SiteReport."""

    _fields_ = layout(
        line=c_uint32,
        kind=c_uint32,
        bytes=c_uint32,
        reserved=c_uint32,
        requests=c_uint64,
        cost=c_uint64,
        ideal=c_uint64,
    )


class SharedTileInfo(Structure):
    """Mirrors dplc::SharedTileInfo."""

    _fields_ = layout(
        name=c_char_p,
        start=c_uint32,
        begin=c_uint32,
        bytes=c_uint32,
        reserved=c_uint32,
    )


class LaunchRequest(Structure):
    """Mirrors dplc::LaunchRequest."""

    _fields_ = layout(
        entry=c_void_p,
        arguments=POINTER(c_void_p),
        buffers=POINTER(BufferInfo),
        buffer_count=c_uint64,
        blocks=POINTER(c_uint64),
        block_count=c_uint64,
        grid=c_uint32 * 3,
        threads=c_uint32,
        shared_bytes=c_uint32,
        workers=c_uint32,
        order=c_uint32,
        checked=c_uint32,
        sites=POINTER(SiteReport),
        site_capacity=c_uint64,
        site_count=POINTER(c_uint64),
        shared_tiles=POINTER(SharedTileInfo),
        shared_tile_count=c_uint32,
        shared_span=c_uint32,
        cluster=c_uint32,
    )


@immutable
class LineCost:
    """The cost of the accesses of one line of kernel text, summed over requests (one instruction of one warp each).

    Of global memory, `cost` counts sectors of 32 bytes; of shared memory, wavefronts (an access without bank conflicts
    takes one per 128 bytes). `ideal` is the least that as many bytes can cost. `width` is bytes per lane.
    """

    line: int
    access: AccessName
    width: int
    requests: int
    cost: int
    ideal: int

    @property
    def unit(self) -> str:
        """The unit of `cost` and `ideal`."""
        return "wavefronts" if self.access in ("shared load", "shared store", "async store") else "sectors"

    @classmethod
    def of(cls, report: SiteReport) -> LineCost:
        """Return the readable form of a report."""
        return cls(report.line, ACCESSES[report.kind], report.bytes, report.requests, report.cost, report.ideal)


@lru_cache(maxsize=1)
def runtime() -> CDLL:
    """Return the runtime, built if need be and loaded so that kernels find its symbols. Raises BuildError."""
    library = CDLL(str(build_runtime()), mode=RTLD_GLOBAL)
    for name, result, *arguments in (
        ("buffer_create", c_void_p, c_uint64),
        ("buffer_protect", None, c_void_p, c_uint64, c_int),
        ("buffer_spoiled", c_uint64, c_void_p, c_uint64),
        ("buffer_free", None, c_void_p, c_uint64),
        ("launch", c_int, POINTER(LaunchRequest), c_char_p, c_uint64),
    ):
        function = getattr(library, f"dplc_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class DeviceMemory:
    """A buffer in global memory of the emulator: its address, and its elements as a numpy array."""

    buffer: Buffer
    address: int
    array: npt.NDArray[np.generic]

    def info(self, name: str) -> BufferInfo:
        """Return the description for the runtime, under a name for messages."""
        return BufferInfo(name.encode(), self.address, self.buffer.nbytes, DTYPES[self.buffer.dtype].item_bytes)

    def elements(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.generic]:
        """Return the elements in some bytes, as an array of the shape of the buffer."""
        return raw.view(np.dtype(DTYPES[self.buffer.dtype].numpy)).reshape(self.buffer.shape)

    def spoiled_bytes(self) -> int:
        """Return the bytes just outside the elements that something wrote to: too near for a guard page to catch."""
        return 0


class DeviceBuffer(DeviceMemory):
    """Memory of its own: 16-byte aligned, guards on both sides, filled with poison (every float a NaN).

    An access past its end faults and names it. The memory lives as long as this object; `array` is a view of it.
    """

    def __init__(self, buffer: Buffer):
        self.buffer = buffer
        self.address = int(runtime().dplc_buffer_create(buffer.nbytes) or 0)
        if not self.address:
            raise MemoryError(f"no memory for buffer `{buffer.name}` of {buffer.nbytes} bytes")
        self._free = runtime().dplc_buffer_free  # kept, for at exit modules go before objects
        raw = (c_uint8 * buffer.nbytes).from_address(self.address)
        self.array = self.elements(np.ctypeslib.as_array(raw))

    def protect(self, writable: bool) -> None:
        """Make the memory read-only, or writable again."""
        runtime().dplc_buffer_protect(self.address, self.buffer.nbytes, int(writable))

    def spoiled_bytes(self) -> int:
        return int(runtime().dplc_buffer_spoiled(self.address, self.buffer.nbytes))

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self._free(self.address, self.buffer.nbytes)


class DeviceSlice(DeviceMemory):
    """Part of a larger buffer. It has no guards of its own: the memory next to it may be in use."""

    def __init__(self, buffer: Buffer, whole: DeviceMemory, offset: int):
        self.buffer, self._whole, self.address = buffer, whole, whole.address + offset
        self.array = self.elements(whole.array.reshape(-1).view(np.uint8)[offset : offset + buffer.nbytes])

    def spoil(self) -> None:
        """Fill it with poison, as what was never written."""
        self.array.reshape(-1).view(np.uint8).fill(0xFF)


@immutable
class LaunchOptions:
    """Options of the run of a grid; none of them changes the results of a right kernel.

    workers: OS threads that share the blocks out, None: as many as pay.
    blocks: linear indices (x fastest) of the blocks to run, None: all; of a cluster all or none.
    order: of the threads of a block: 0 from the first, 1 from the last, any other number a seed to shuffle them by.
    checked: look at every access (the kernels must be built for it); runs on one worker.
    counted: in checked mode, count the costs of accesses, which takes several times as long.
    """

    workers: int | None = None
    blocks: tuple[int, ...] | None = None
    order: int = 0
    checked: bool = False
    counted: bool = True


def _workers(kernel: CudaKernel, options: LaunchOptions) -> int:
    if options.checked:
        return 1
    if options.workers is not None:
        return options.workers
    return min(available_workers(), 1 + kernel.blocks * kernel.block // THREADS_WORTH_A_WORKER)


def available_workers() -> int:
    """Return the number of OS threads a launch may use.

    It is $DPLC_EMULATOR_THREADS, else one per core this process may run on.
    """
    override = os.environ.get("DPLC_EMULATOR_THREADS")
    if override and override.isdigit():
        return max(1, int(override))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _failure(kernel: CudaKernel, message: str, by_data: bool) -> DplcError:
    """Return the error, with every line of kernel text it mentions."""
    text = kernel.text.splitlines()
    numbers = [int(number) for number in re.findall(r"\bline (\d+)", message)]
    notes = [f"line {number}: {text[number - 1].strip()}" for number in dict.fromkeys(numbers) if number <= len(text)]
    what = f"kernel `{kernel.name}`, {message}"
    return DataError(what, notes=notes, hint=DATA_HINT) if by_data else EmulatorError(what, notes=notes)


# ---- registers in checked mode: a register that is declared without a value starts as poison
#
# A stack that is mostly zeros would hide a sum without a start value. Poison is a NaN, another one than that of
# uninitialised memory, or a conspicuous integer.


WORDS = "uint32_t"  # of fragments
TYPES = "|".join(re.escape(name) for name in (*(dtype.c_type for dtype in DTYPES.values()), WORDS))
DECLARED = re.compile(rf"^( *(?:{TYPES}) (\w+)(?:\[\d+\])*;)$", re.MULTILINE)


def poisoned(kernel: CudaKernel) -> CudaKernel:
    """Return the checked build's text of a kernel; its lines keep their numbers."""
    text = DECLARED.sub(r"\1 dplc_poison(\2);", kernel.text)
    return kernel if text == kernel.text else replace(kernel, text=text)


# ---- kernels on numpy arrays


class LoadedKernels:
    """Some kernels, compiled together in one call of the compiler and loaded into this process."""

    def __init__(self, kernels: Sequence[CudaKernel], checked: bool):
        runtime()  # first: the kernels' library takes its symbols from there
        self._checked = checked
        texts = [poisoned(spaced(kernel).kernel) for kernel in kernels] if checked else kernels
        self._library = CDLL(str(build_host(host_text(texts), checked)))
        weakref.finalize(self, dlclose, self._library._handle).atexit = False  # ctypes unloads nothing

    def launch(
        self, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory], options: LaunchOptions
    ) -> tuple[LineCost, ...]:
        """Run the grid of one of the kernels on a buffer per parameter name. Raises EmulatorError.

        Returns:
            what its accesses cost, in checked mode.
        """
        options = replace(options, checked=self._checked)
        entry = cast(getattr(self._library, f"dplc_enter_{kernel.name}"), c_void_p)
        pointers = [param for param in kernel.params if param.role != "tensor_map"]
        maps = {p.name: TensorMap.of(p, buffers[p.name].address) for p in kernel.params if p.role == "tensor_map"}
        addresses = [addressof(maps[p.name]) if p.name in maps else buffers[p.name].address for p in kernel.params]
        values = (c_int * len(kernel.values))(*kernel.values)
        addresses += [addressof(values) + 4 * place for place in range(len(kernel.values))]
        blocks = None if options.blocks is None else sorted({block // kernel.cluster for block in options.blocks})
        reports = (SiteReport * MAX_SITES)() if options.checked and options.counted else None
        report_count = c_uint64(0)
        apart = spaced(kernel) if options.checked else Spaced(kernel, (), kernel.smem)
        span = apart.span if kernel.cluster == 1 else -(-apart.span // SWIZZLE_REPEAT) * SWIZZLE_REPEAT
        starts = range(0, span * kernel.cluster, max(span, 1))  # of the shared memories of a cluster
        shared_tiles = [
            SharedTileInfo(s.name.encode(), s.start, at + s.begin, s.bytes) for at in starts for s in apart.shared_tiles
        ]
        request = LaunchRequest(
            entry=entry.value,
            arguments=(c_void_p * len(addresses))(*addresses),
            buffers=(BufferInfo * len(pointers))(*[buffers[param.name].info(param.name) for param in pointers]),
            buffer_count=len(pointers),
            blocks=None if blocks is None else (c_uint64 * len(blocks))(*blocks),
            block_count=0 if blocks is None else len(blocks),
            grid=(kernel.grid[0] // kernel.cluster, *kernel.grid[1:]),
            threads=kernel.block * kernel.cluster,
            shared_bytes=kernel.smem,
            workers=_workers(kernel, options),
            order=options.order,
            checked=int(options.checked),
            sites=reports,
            site_capacity=MAX_SITES,
            site_count=pointer(report_count),
            shared_tiles=(SharedTileInfo * len(shared_tiles))(*shared_tiles),
            shared_tile_count=len(shared_tiles),
            shared_span=span * kernel.cluster,
            cluster=kernel.cluster,
        )
        message = create_string_buffer(MESSAGE_BYTES)
        how = runtime().dplc_launch(byref(request), message, MESSAGE_BYTES)
        if how != 0:
            raise _failure(kernel, message.value.decode(errors="replace"), how == BY_DATA)
        for param in kernel.params:
            spoiled = buffers[param.name].spoiled_bytes() if param.role == "out" else 0
            if spoiled:
                raise EmulatorError(f"kernel `{kernel.name}` wrote {spoiled} bytes beside buffer `{param.name}`")
        return tuple(LineCost.of(report) for report in reports[: report_count.value]) if reports is not None else ()


@lru_cache(maxsize=256)
def load(kernels: tuple[CudaKernel, ...], checked: bool = False) -> LoadedKernels:
    """Return the kernels, built if need be. Raises BuildError."""
    return LoadedKernels(kernels, checked)
