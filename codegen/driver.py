"""The CUDA driver through ctypes: graphs, tensor maps, and processes that have neither PyCUDA nor a compiler.

Handles and addresses are plain numbers. Every call is checked.
"""

from __future__ import annotations

import struct
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import (
    CDLL,
    addressof,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_ulonglong,
    c_void_p,
    create_string_buffer,
    memmove,
)
from functools import lru_cache
from typing import Any, NamedTuple

from ..ir.diagnostic import DplcError
from ..ir.dtypes import DtypeName
from .kernel import CudaKernel, KernelParam, TensorView

# A kernel must request more dynamic shared memory than this.
DEFAULT_DYNAMIC_SMEM = 48 << 10
# A stream that the default stream does not wait for: only what we order is ordered. CU_STREAM_NON_BLOCKING.
NON_BLOCKING = 1

# CUdevice_attribute
MULTIPROCESSORS, L2_BYTES, MAJOR, MINOR, MOST_SMEM = 16, 38, 75, 76, 97
# CUfunction_attribute
LOCAL_BYTES, REGISTERS, DYNAMIC_SMEM = 3, 4, 8
MAP_ALIGNMENT = 64  # of a tensor map in memory


class DriverError(DplcError):
    """A call of the driver failed; the message names the call and the driver's number of the error.

    number: that number; 0 where the call was not made.
    """

    def __init__(self, what: str, number: int = 0, notes: Sequence[str] = ()):
        super().__init__(what, notes=notes)
        self.number = number


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises DriverError."""
    number = status(name, *arguments)
    if number != 0:
        raise DriverError(f"{name}: error {number} of the driver", number, (meaning_of(number),))


def status(name: str, *arguments: Any) -> int:
    """Call a function of the driver: the number of its error. Raises DriverError for a function that it lacks."""
    try:
        return int(getattr(_library(), name)(*arguments))
    except AttributeError as error:
        raise DriverError(f"this driver has no {name}") from error


def meaning_of(number: int) -> str:
    """Return the driver's text for an error."""
    text = c_char_p()
    if status("cuGetErrorString", number, byref(text)) != 0 or text.value is None:
        return "unknown error"
    return text.value.decode(errors="replace")


def answer(name: str, kind: Any, *arguments: Any) -> Any:
    """Return the object of a C type that a function of the driver stores at its first argument. Raises DriverError."""
    found = kind()
    call(name, byref(found), *arguments)
    return found


@lru_cache(maxsize=1)
def _library() -> CDLL:
    try:
        return CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError("there is no CUDA driver here", notes=(str(error),)) from error


class Loaded(NamedTuple):
    """A kernel on the device. registers: of a thread; local_bytes: of a thread's local memory, spills included."""

    function: c_void_p
    kernel: CudaKernel
    registers: int
    local_bytes: int
    module: c_void_p | None = None


class Driver:
    """One device: its primary context, which torch uses too, entered in this thread. Raises DriverError throughout."""

    def __init__(self, ordinal: int = 0):
        call("cuInit", 0)
        self._device = answer("cuDeviceGet", c_int, ordinal)
        call("cuCtxPushCurrent_v2", answer("cuDevicePrimaryCtxRetain", c_void_p, self._device))

    @property
    def name(self) -> str:
        room = create_string_buffer(256)
        call("cuDeviceGetName", room, len(room), self._device)
        return room.value.decode(errors="replace")

    @property
    def version(self) -> int:
        """The newest CUDA that the driver is for: 13000 is 13.0."""
        return int(answer("cuDriverGetVersion", c_int).value)

    @property
    def arch(self) -> str:
        """Return the architecture that kernels are assembled for: `sm_90a`, `sm_80`."""
        major, minor = self.attribute(MAJOR), self.attribute(MINOR)
        return f"sm_{major}{minor}a" if major == 9 else f"sm_{major}{minor}"

    def attribute(self, number: int) -> int:
        """Return a number of CUdevice_attribute."""
        return int(answer("cuDeviceGetAttribute", c_int, number, self._device).value)

    def load(self, kernel: CudaKernel, image: bytes) -> Loaded:
        """Return a kernel out of its cubin, until it is unloaded."""
        data = create_string_buffer(image, len(image))
        module = answer("cuModuleLoadDataEx", c_void_p, data, 0, None, None)
        function = answer("cuModuleGetFunction", c_void_p, module, kernel.name.encode())
        if kernel.smem > DEFAULT_DYNAMIC_SMEM:
            call("cuFuncSetAttribute", function, DYNAMIC_SMEM, kernel.smem)
        registers, local = (answer("cuFuncGetAttribute", c_int, n, function) for n in (REGISTERS, LOCAL_BYTES))
        return Loaded(function, kernel, registers.value, local.value, module)

    def unload(self, loaded: Loaded) -> None:
        """Remove a kernel that no launch needs any more."""
        call("cuModuleUnload", loaded.module)

    def launch(self, loaded: Loaded, values: Sequence[int | bytes], stream: int) -> None:
        """Enqueue a kernel. values: as `arguments` returns them: addresses, tensor maps, then sizes."""
        kernel = loaded.kernel
        cells = [_cell(value, place < len(kernel.params)) for place, value in enumerate(values)]
        pointers = (c_void_p * len(cells))(*(address for _, address in cells))
        numbers = (*kernel.grid, kernel.block, 1, 1, kernel.smem)
        call("cuLaunchKernel", loaded.function, *numbers, c_void_p(stream), pointers, None)

    def synchronize(self) -> None:
        """Wait for everything; an access that faulted is an error here."""
        call("cuCtxSynchronize")

    def stream(self) -> int:
        """Return a new stream."""
        return answer("cuStreamCreate", c_void_p, NON_BLOCKING).value or 0

    def event(self) -> Any:
        """Return a new event that keeps its time."""
        return answer("cuEventCreate", c_void_p, 0)

    def record(self, event: c_void_p, stream: int) -> None:
        """Have an event happen once everything before it on a stream is done."""
        call("cuEventRecord", event, c_void_p(stream))

    def seconds(self, start: c_void_p, end: c_void_p) -> float:
        """Return the seconds from one event that has happened to another."""
        name = "cuEventElapsedTime_v2" if hasattr(_library(), "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        return float(answer(name, c_float, start, end).value * 1e-3)

    def alloc(self, nbytes: int) -> int:
        """Return the address of new memory, its own allocation, so that a memory checker sees where it ends."""
        return int(answer("cuMemAlloc_v2", c_uint64, c_size_t(max(nbytes, 1))).value)

    def free(self, address: int) -> None:
        call("cuMemFree_v2", c_uint64(address))

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Enqueue a write of one byte all over a piece of memory."""
        call("cuMemsetD8Async", c_uint64(address), byte, c_size_t(nbytes), c_void_p(stream))

    def upload(self, address: int, data: bytes) -> None:
        """Copy bytes to the device."""
        room = create_string_buffer(data, len(data))
        call("cuMemcpyHtoD_v2", c_uint64(address), room, c_size_t(len(data)))


def _cell(value: int | bytes, parameter: bool) -> tuple[Any, int]:
    """Return a value of a launch in memory, and its address. parameter: not a size. Maps lie at multiples of 64."""
    if isinstance(value, bytes):
        room = create_string_buffer(len(value) + MAP_ALIGNMENT)
        start = addressof(room) + -addressof(room) % MAP_ALIGNMENT
        memmove(start, value, len(value))
        return room, start
    cell = c_uint64(value) if parameter else c_int(value)
    return cell, addressof(cell)


# ---- CUDA graphs: launches captured once on a stream, then enqueued by one call of the driver
#
# PyCUDA has no graphs, so these calls go to libcuda. Handles are plain numbers. A graph holds the addresses of its
# capture, so the caller of `replay` keeps that memory alive.


Enqueue = Callable[[], None]
Addresses = tuple[int, ...]

# Nothing but launches happens between begin and end, so other threads may allocate meanwhile: CU_STREAM_CAPTURE_MODE_*.
RELAXED = 2
WITHOUT_TIMES = 2  # CU_EVENT_DISABLE_TIMING
MOST_GRAPHS, MOST_MET = 4, 16


class Graph:
    """Launches ready to be enqueued again. `close` destroys them, or the end of the last reference."""

    def __init__(self, stream: int, enqueue: Enqueue):
        """Capture what `enqueue` launches on a stream of ours. Raises DriverError, and what `enqueue` raises."""
        with _captured(stream, enqueue) as graph:
            self._executable = answer("cuGraphInstantiateWithFlags", c_void_p, graph, c_ulonglong(0))
        # a run of it that is on its way is finished first
        self.close = weakref.finalize(self, status, "cuGraphExecDestroy", self._executable)

    def update(self, stream: int, enqueue: Enqueue) -> bool:
        """Update the graph to what `enqueue` launches now; return False if the driver needs a new one for that.

        Raises DriverError, and what `enqueue` raises.
        """
        result = (c_uint64 * 3)()  # CUgraphExecUpdateResultInfo: an enum and two nodes
        with _captured(stream, enqueue) as graph:
            try:
                call("cuGraphExecUpdate_v2", self._executable, graph, byref(result))
            except DriverError:
                return False
        return True

    def replay(self, stream: int) -> None:
        """Enqueue the launches on any stream; 0 is the default one. Raises DriverError."""
        call("cuGraphLaunch", self._executable, c_void_p(stream))


class Replays:
    """Graphs of one program whose arrays come back at the same few addresses, by the addresses of their capture.

    Capturing costs more than launching, so addresses are captured when they are met again, not before: a program
    whose arrays never come back is never captured. A fifth graph replaces the one that has waited longest.
    """

    def __init__(self) -> None:
        self._graphs: OrderedDict[Addresses, Graph] = OrderedDict()
        self._met: OrderedDict[Addresses, None] = OrderedDict()

    def graph(self, addresses: Addresses, stream: int, enqueue: Enqueue) -> Graph | None:
        """Return the graph for these addresses, captured if they were met before; None if this is the first time.

        Raises DriverError, and what `enqueue` raises.
        """
        if addresses in self._graphs:
            self._graphs.move_to_end(addresses)
            return self._graphs[addresses]
        if addresses not in self._met:
            self._met[addresses] = None
            if len(self._met) > MOST_MET:
                self._met.popitem(last=False)
            return None
        del self._met[addresses]
        made = self._graphs[addresses] = self._capture(stream, enqueue)
        return made

    def _capture(self, stream: int, enqueue: Enqueue) -> Graph:
        if len(self._graphs) == MOST_GRAPHS:
            oldest = self._graphs.popitem(last=False)[1]
            if oldest.update(stream, enqueue):
                return oldest
            oldest.close()
        return Graph(stream, enqueue)

    def close(self) -> None:
        """Destroy every graph."""
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()
        self._met.clear()


def is_capturing(stream: int) -> bool:
    """Return whether what is enqueued on a stream is being captured. The default one cannot be captured."""
    capturing = c_int()
    if stream:
        call("cuStreamIsCapturing", c_void_p(stream), byref(capturing))
    return capturing.value != 0


def order(before: int, after: int) -> None:
    """Make later work on stream `after` wait for the work on `before`; in a capture the wait becomes part of it.

    Raises DriverError.
    """
    event = answer("cuEventCreate", c_void_p, WITHOUT_TIMES)
    try:
        call("cuEventRecord", event, c_void_p(before))
        call("cuStreamWaitEvent", c_void_p(after), event, 0)
    finally:
        call("cuEventDestroy_v2", event)  # at once for us; the driver keeps it until it has happened


@contextmanager
def _captured(stream: int, enqueue: Enqueue) -> Iterator[c_void_p]:
    """Yield a graph of what `enqueue` launches. The stream is given back, and the graph destroyed, whatever happens."""
    handle, graph = c_void_p(stream), c_void_p()
    try:
        call("cuStreamBeginCapture_v2", handle, RELAXED)
        try:
            enqueue()
        except BaseException:
            status("cuStreamEndCapture", handle, byref(graph))
            raise
        call("cuStreamEndCapture", handle, byref(graph))
        yield graph
    finally:
        if graph:
            status("cuGraphDestroy", graph)


# ---- tensor maps: 128 opaque bytes that the driver encodes (cuTensorMapEncodeTiled)


MAP_BYTES = 128
POINTER_BYTES = 8

# CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion
DATA_TYPES: dict[DtypeName, int] = {
    "b8": 0, "u8": 0, "i8": 0, "e4m3": 0, "e5m2": 0,
    "i16": 1, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9
}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
NO_INTERLEAVE, L2_128_BYTES, FILL_WITH_ZEROS = 0, 2, 0


class TensorMapError(DplcError):
    """The driver does not take a tensor map."""


def encode(param: KernelParam, address: int) -> bytes:
    """Return the map of a parameter of role "tensor_map" whose buffer lies at a device address.

    Raises TensorMapError.
    """
    view = TensorView.of(param)
    rank = len(view.box)
    room = create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    start = -addressof(room) % MAP_ALIGNMENT
    four_bytes = c_uint32 * rank
    try:
        refusal = status(
            "cuTensorMapEncodeTiled",
            byref(room, start),
            DATA_TYPES[param.dtype],
            rank,
            c_void_p(address),
            (c_uint64 * rank)(*view.extents),
            (c_uint64 * rank)(*view.strides),
            four_bytes(*view.box),
            four_bytes(*[1] * rank),
            NO_INTERLEAVE,
            SWIZZLES[view.swizzle],
            L2_128_BYTES,
            FILL_WITH_ZEROS,
        )
    except DriverError as error:
        what = "this driver cannot encode tensor maps"
        raise TensorMapError(what, notes=(error.what,), hint="use via=ASYNC") from error
    if refusal != 0:
        shape, box = list(param.shape), list(view.box[::-1])
        raise TensorMapError(f"the driver refuses the tensor map `{param.name}` ({shape}, boxes of {box}): {refusal}")
    return room.raw[start : start + MAP_BYTES]


def arguments(kernel: CudaKernel, pointers: list[int]) -> list[int | bytes]:
    """Return the arguments of a launch: one per parameter, given the addresses of buffers, then sizes.

    Raises TensorMapError.
    """
    passed = (
        encode(param, pointer) if param.role == "tensor_map" else pointer
        for param, pointer in zip(kernel.params, pointers, strict=True)
    )
    return [*passed, *kernel.values]


def parameter_format(kernel: CudaKernel, image: bytes) -> str:
    """Return the layout of a launch's arguments in one buffer, as a `struct` format: pointers, tensor maps, then sizes.

    image: the cubin, whose assembler placed the parameters. In another image a map is at a multiple of 64 bytes.
    """
    placed, text, at = parameter_offsets(image, kernel.name), "", 0
    for number, param in enumerate(kernel.params):
        is_map = param.role == "tensor_map"
        start = placed.get(number, at + (-at % MAP_ALIGNMENT if is_map else 0))
        text += (f"{start - at}x" if start > at else "") + (f"{MAP_BYTES}s" if is_map else "P")
        at = start + (MAP_BYTES if is_map else POINTER_BYTES)
    return text + "i" * len(kernel.values)


SECTION_HEADERS, SECTION_SIZE = 0x28, 0x3A  # where an ELF file says where its sections are, and how many of what size
VALUES_FOLLOW, PARAMETER = 4, 0x17  # in `.nv.info`: how a record is stored, and that it is about a parameter


def parameter_offsets(image: bytes, name: str) -> dict[int, int]:
    """Return {number of a parameter of kernel `name`: its offset in bytes}, from a cubin; {} for another image.

    A tensor map is at a multiple of 64 of the constant bank, which begins at 0x210 on sm_90.
    """
    if not image.startswith(b"\x7fELF"):
        return {}
    (headers,) = struct.unpack_from("<Q", image, SECTION_HEADERS)
    size, count, names = struct.unpack_from("<3H", image, SECTION_SIZE)
    sections = [struct.unpack_from("<2I4Q", image, headers + size * number) for number in range(count)]
    offsets = {}
    for word, _, _, _, start, length in sections:
        if not image.startswith(f".nv.info.{name}\0".encode(), sections[names][4] + word):
            continue
        at, end = start, start + length
        while at < end:
            stored, about, nbytes = struct.unpack_from("<2BH", image, at)
            if stored == VALUES_FOLLOW and about == PARAMETER:
                number, offset = struct.unpack_from("<2H", image, at + 8)
                offsets[number] = offset
            at += 4 + (nbytes if stored == VALUES_FOLLOW else 0)
    return offsets
