"""Tensor maps for a GPU: 128 opaque bytes that the driver encodes (cuTensorMapEncodeTiled)."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from ..ir.diagnostic import DplcError
from ..ir.dtypes import DtypeName
from .driver import MAP_ALIGNMENT
from .kernel import CudaKernel, KernelParam, TensorView

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
    """The map of a parameter of role "tensor_map" whose buffer lies at a device address. Raises TensorMapError."""
    view = TensorView.of(param)
    rank = len(view.box)
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    start = -ctypes.addressof(room) % MAP_ALIGNMENT
    status = _encoder()(
        ctypes.byref(room, start),
        DATA_TYPES[param.dtype],
        rank,
        address,
        (ctypes.c_uint64 * rank)(*view.extents),
        (ctypes.c_uint64 * rank)(*view.strides),
        (ctypes.c_uint32 * rank)(*view.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        NO_INTERLEAVE,
        SWIZZLES[view.swizzle],
        L2_128_BYTES,
        FILL_WITH_ZEROS,
    )
    if status != 0:
        shape, box = list(param.shape), list(view.box[::-1])
        raise TensorMapError(f"the driver refuses the tensor map `{param.name}` ({shape}, boxes of {box}): {status}")
    return room.raw[start : start + MAP_BYTES]


def arguments(kernel: CudaKernel, pointers: list[int]) -> list[int | bytes]:
    """What a launch passes: for each parameter, given the address of its buffer, then sizes. Raises TensorMapError."""
    passed = (
        encode(param, pointer) if param.role == "tensor_map" else pointer
        for param, pointer in zip(kernel.params, pointers, strict=True)
    )
    return [*passed, *kernel.values]


@lru_cache(maxsize=1)
def _encoder() -> ctypes._NamedFuncPointer:
    try:
        function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise TensorMapError(
            "this driver cannot encode tensor maps", notes=(str(error),), hint="use via=ASYNC"
        ) from error
    integer, pointer = ctypes.c_uint32, ctypes.c_void_p
    function.argtypes = [
        pointer, ctypes.c_int, integer, pointer, pointer, pointer, pointer, pointer, *[ctypes.c_int] * 4,
    ]  # fmt: skip
    function.restype = ctypes.c_int
    return function


def parameter_format(params: tuple[KernelParam, ...]) -> str:
    """How the parameters lie in memory, as `struct` writes it: pointers, then maps each at a multiple of 64 bytes."""
    text, at = "", 0
    for param in params:
        if param.role == "tensor_map":
            gap = -at % MAP_ALIGNMENT
            text += (f"{gap}x" if gap else "") + f"{MAP_BYTES}s"
            at += gap + MAP_BYTES
        else:
            text += "P"
            at += POINTER_BYTES
    return text
