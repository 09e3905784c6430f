"""The emulator's runtime library, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...ir.diagnostic import INTERNAL, DplcError
from ..build import build_runtime
from ..kernel import DTYPES, Buffer, CudaKernel

MESSAGE_BYTES = 1024


class EmulatorError(DplcError):
    """A kernel did what it must not do on a GPU; the message says which kernel, block and thread, and what."""

    exit_code = INTERNAL


class BufferInfo(ctypes.Structure):
    """Mirrors dplc::BufferInfo."""

    _fields_ = [("name", ctypes.c_char_p), ("base", ctypes.c_void_p), ("bytes", ctypes.c_uint64)]


class LaunchRequest(ctypes.Structure):
    """Mirrors dplc::LaunchRequest."""

    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("buffers", ctypes.POINTER(BufferInfo)),
        ("buffer_count", ctypes.c_uint64),
        ("blocks", ctypes.POINTER(ctypes.c_uint64)),
        ("block_count", ctypes.c_uint64),
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
    ]


@lru_cache(maxsize=1)
def runtime() -> ctypes.CDLL:
    """The runtime, built if need be and loaded so that kernels find its symbols. Raises BuildError."""
    library = ctypes.CDLL(str(build_runtime()), mode=ctypes.RTLD_GLOBAL)
    library.dplc_buffer_create.restype = ctypes.c_void_p
    library.dplc_buffer_create.argtypes = [ctypes.c_uint64]
    library.dplc_buffer_protect.restype = None
    library.dplc_buffer_protect.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]
    library.dplc_buffer_spoiled.restype = ctypes.c_uint64
    library.dplc_buffer_spoiled.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.dplc_buffer_free.restype = None
    library.dplc_buffer_free.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.dplc_launch.restype = ctypes.c_int
    library.dplc_launch.argtypes = [ctypes.POINTER(LaunchRequest), ctypes.c_char_p, ctypes.c_uint64]
    return library


class DeviceBuffer:
    """Global memory of the emulator: 16-byte aligned, guards on both sides, filled with poison (every float a NaN).

    An access past its end faults and names it. The memory lives as long as this object; `array` is a view of it.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.address = int(runtime().dplc_buffer_create(buffer.nbytes) or 0)
        if not self.address:
            raise MemoryError(f"no memory for buffer `{buffer.name}` of {buffer.nbytes} bytes")
        raw = (ctypes.c_uint8 * buffer.nbytes).from_address(self.address)
        carrier = np.dtype(DTYPES[buffer.dtype].numpy)
        self.array: npt.NDArray[np.generic] = np.ctypeslib.as_array(raw).view(carrier).reshape(buffer.shape)

    def protect(self, writable: bool) -> None:
        """Makes the memory read-only, or writable again."""
        runtime().dplc_buffer_protect(self.address, self.buffer.nbytes, int(writable))

    def spoiled_bytes(self) -> int:
        """Bytes just outside the elements that something wrote to: too near for a guard page to catch."""
        return int(runtime().dplc_buffer_spoiled(self.address, self.buffer.nbytes))

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            runtime().dplc_buffer_free(self.address, self.buffer.nbytes)


def launch(
    kernel: CudaKernel,
    entry: int,
    buffers: Mapping[str, DeviceBuffer],
    *,
    workers: int,
    blocks: Sequence[int] | None,
    reverse: bool,
) -> None:
    """Runs a kernel's grid, or some of its blocks by linear index, on `workers` OS threads.

    `entry` is the address of the kernel's entry point; `buffers` holds one buffer per parameter, by its name.
    Raises EmulatorError.
    """
    names = [param.name for param in kernel.params]
    request = LaunchRequest(
        entry=entry,
        arguments=(ctypes.c_void_p * len(names))(*[buffers[name].address for name in names]),
        buffers=(BufferInfo * len(names))(
            *[BufferInfo(name.encode(), buffers[name].address, buffers[name].buffer.nbytes) for name in names]
        ),
        buffer_count=len(names),
        blocks=None if blocks is None else (ctypes.c_uint64 * len(blocks))(*blocks),
        block_count=0 if blocks is None else len(blocks),
        grid=kernel.grid,
        threads=kernel.block,
        shared_bytes=kernel.smem,
        workers=workers,
        order=int(reverse),
    )
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    if runtime().dplc_launch(ctypes.byref(request), message, MESSAGE_BYTES) != 0:
        raise EmulatorError(f"kernel `{kernel.name}`, {message.value.decode(errors='replace')}")
    for param in kernel.params:
        spoiled = buffers[param.name].spoiled_bytes() if param.role == "out" else 0
        if spoiled:
            raise EmulatorError(
                f"kernel `{kernel.name}` wrote {spoiled} bytes beside buffer `{param.name}`, out of its bounds"
            )
