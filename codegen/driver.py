"""The CUDA driver through ctypes: for graphs, and for a process that has neither PyCUDA nor a compiler.

Handles and addresses are plain numbers. Every call is checked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..ir.diagnostic import DplcError
from .kernel import CudaKernel

# A kernel must ask before it gets more dynamic shared memory than this.
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
    """The driver's text for an error."""
    text = ctypes.c_char_p()
    if status("cuGetErrorString", ctypes.c_int(number), ctypes.byref(text)) != 0 or text.value is None:
        return "unknown error"
    return text.value.decode(errors="replace")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError("there is no CUDA driver here", notes=(str(error),)) from error


class Loaded(NamedTuple):
    """A kernel on the device. registers: of a thread; local_bytes: of a thread's local memory, spills included."""

    function: ctypes.c_void_p
    kernel: CudaKernel
    registers: int
    local_bytes: int


class Driver:
    """One device: its primary context, which torch uses too, entered in this thread. Raises DriverError throughout."""

    def __init__(self, ordinal: int = 0) -> None:
        call("cuInit", ctypes.c_uint(0))
        self._device, context = ctypes.c_int(), ctypes.c_void_p()
        call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(ordinal))
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        call("cuCtxPushCurrent_v2", context)

    @property
    def name(self) -> str:
        room = ctypes.create_string_buffer(256)
        call("cuDeviceGetName", room, ctypes.c_int(len(room)), self._device)
        return room.value.decode(errors="replace")

    @property
    def version(self) -> int:
        """The newest CUDA that the driver is for: 13000 is 13.0."""
        found = ctypes.c_int()
        call("cuDriverGetVersion", ctypes.byref(found))
        return found.value

    @property
    def arch(self) -> str:
        """Return the architecture that kernels are assembled for: `sm_90a`, `sm_80`."""
        major, minor = self.attribute(MAJOR), self.attribute(MINOR)
        return f"sm_{major}{minor}a" if major == 9 else f"sm_{major}{minor}"

    def attribute(self, number: int) -> int:
        """A number of CUdevice_attribute."""
        found = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(found), ctypes.c_int(number), self._device)
        return found.value

    def load(self, kernel: CudaKernel, image: bytes) -> Loaded:
        """A kernel out of its cubin, for as long as the process lives."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        data = ctypes.create_string_buffer(image, len(image))
        call("cuModuleLoadDataEx", ctypes.byref(module), data, ctypes.c_uint(0), None, None)
        call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(kernel.name.encode()))
        if kernel.smem > DEFAULT_DYNAMIC_SMEM:
            call("cuFuncSetAttribute", function, ctypes.c_int(DYNAMIC_SMEM), ctypes.c_int(kernel.smem))
        registers, local = ctypes.c_int(), ctypes.c_int()
        call("cuFuncGetAttribute", ctypes.byref(registers), ctypes.c_int(REGISTERS), function)
        call("cuFuncGetAttribute", ctypes.byref(local), ctypes.c_int(LOCAL_BYTES), function)
        return Loaded(function, kernel, registers.value, local.value)

    def launch(self, loaded: Loaded, values: Sequence[int | bytes], stream: int) -> None:
        """Enqueue a kernel. values: as `tensor_maps.arguments` gives them: addresses, tensor maps, then sizes."""
        kernel = loaded.kernel
        cells = [_cell(value, place < len(kernel.params)) for place, value in enumerate(values)]
        pointers = (ctypes.c_void_p * len(cells))(*(address for _, address in cells))
        numbers = (*kernel.grid, kernel.block, 1, 1, kernel.smem)
        sizes = map(ctypes.c_uint, numbers)
        call("cuLaunchKernel", loaded.function, *sizes, ctypes.c_void_p(stream), pointers, None)

    def synchronize(self) -> None:
        """Wait for everything; an access that faulted is an error here."""
        call("cuCtxSynchronize")

    def stream(self) -> int:
        """A new stream."""
        made = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(made), ctypes.c_uint(NON_BLOCKING))
        return made.value or 0

    def event(self) -> ctypes.c_void_p:
        """A new event that keeps its time."""
        made = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(made), ctypes.c_uint(0))
        return made

    def record(self, event: ctypes.c_void_p, stream: int) -> None:
        """Have an event happen once everything before it on a stream is done."""
        call("cuEventRecord", event, ctypes.c_void_p(stream))

    def seconds(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """From one event that has happened to another."""
        found = ctypes.c_float()
        name = "cuEventElapsedTime_v2" if hasattr(_library(), "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        call(name, ctypes.byref(found), start, end)
        return found.value * 1e-3

    def alloc(self, nbytes: int) -> int:
        """The address of new memory, its own allocation, so that a memory checker sees where it ends."""
        found = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(max(nbytes, 1)))
        return found.value

    def free(self, address: int) -> None:
        call("cuMemFree_v2", ctypes.c_uint64(address))

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        """Enqueue a write of one byte all over a piece of memory."""
        where = ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(nbytes)
        call("cuMemsetD8Async", *where, ctypes.c_void_p(stream))

    def upload(self, address: int, data: bytes) -> None:
        """Copy bytes to the device."""
        room = ctypes.create_string_buffer(data, len(data))
        call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), room, ctypes.c_size_t(len(data)))


def _cell(value: int | bytes, parameter: bool) -> tuple[Any, int]:
    """A value of a launch in memory, and its address. parameter: not a size. Maps lie at multiples of 64."""
    if isinstance(value, bytes):
        room = ctypes.create_string_buffer(len(value) + MAP_ALIGNMENT)
        start = ctypes.addressof(room) + -ctypes.addressof(room) % MAP_ALIGNMENT
        ctypes.memmove(start, value, len(value))
        return room, start
    cell = ctypes.c_uint64(value) if parameter else ctypes.c_int(value)
    return cell, ctypes.addressof(cell)
