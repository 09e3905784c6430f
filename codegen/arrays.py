"""Arrays of the user (numpy, or torch where torch is loaded) as the buffers of a program."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..ir.diagnostic import DplcError
from ..ir.dtypes import DTYPES
from .kernel import POINTER_ALIGNMENT, Buffer, Program

if TYPE_CHECKING:
    import torch


Array = Any  # numpy.ndarray or torch.Tensor; torch is not always installed
Arrays = Mapping[str, Array]


class LaunchError(DplcError):
    """The arrays passed do not fit the program; the message names the buffer and both sides of the disagreement."""


def is_tensor(value: Array) -> bool:
    """Return whether `value` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_names(program: Program, arrays: Arrays, wanted: Iterable[Buffer] | None = None) -> None:
    """Raise LaunchError unless `arrays` names every input and constant of the program, or those that are wanted."""
    needed = (*program.inputs, *program.constants) if wanted is None else wanted
    missing = [buffer.name for buffer in needed if buffer.name not in arrays]
    if missing:
        raise LaunchError(f"no array given for {listed(missing)}")


def listed(names: list[str], most: int = 5) -> str:
    """Return names for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{name}`" for name in names[:most]) + more


def check_fits(buffer: Buffer, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise LaunchError unless an array of this dtype (by dplc's name) and shape matches the buffer."""
    if dtype != buffer.dtype or shape != buffer.shape:
        raise LaunchError(
            f"`{buffer.name}` is {buffer.dtype}{list(buffer.shape)}, but the array given is {dtype}{list(shape)}"
        )


def as_numpy(buffer: Buffer, value: Array) -> npt.NDArray[np.generic]:
    """Return the value's elements as a numpy array of the dtype that carries the buffer's bits.

    Raises LaunchError if the value does not fit the buffer.
    """
    if is_tensor(value):
        check_fits(buffer, torch_dtype_name(value), tuple(value.shape))
        tensor = resolved(value.detach()).cpu()
        if DTYPES[buffer.dtype].numpy != DTYPES[buffer.dtype].torch:
            tensor = tensor.view(getattr(_torch(), DTYPES[buffer.dtype].numpy))
        return np.from_dlpack(tensor)  # `.numpy()` would keep PyTorch from resizing the tensor ever after
    array = np.asarray(value)
    carrier = np.dtype(DTYPES[buffer.dtype].numpy)
    check_fits(buffer, buffer.dtype if array.dtype == carrier else str(array.dtype), array.shape)
    return array


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with its elements in its memory: a copy of a negated view and of zeros without memory."""
    return tensor.clone() if tensor._is_zerotensor() else tensor.resolve_neg()


def as_tensor(buffer: Buffer, array: npt.NDArray[np.generic]) -> torch.Tensor:
    """Return a copy of the array as a torch tensor of the buffer's dtype, whose memory PyTorch may resize."""
    tensor, wanted = _torch().from_numpy(array), torch_dtype(buffer.dtype)
    return (tensor if tensor.dtype == wanted else tensor.view(wanted)).clone()


def as_typed(buffer: Buffer, value: Array) -> torch.Tensor:
    """Return the numbers of an array as a tensor of the buffer's dtype and shape."""
    tensor = _torch().as_tensor(value)
    return tensor.to(torch_dtype(buffer.dtype)).reshape(buffer.shape)


def torch_dtype_name(tensor: torch.Tensor) -> str:
    """Return dplc's name of a tensor's dtype, or torch's name if dplc has none."""
    return _names().get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")


@functools.cache
def _names() -> dict[torch.dtype, str]:
    return {torch_dtype(name): name for name in DTYPES}


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of one of dplc's dtype names."""
    return getattr(_torch(), DTYPES[name].torch)


def is_written(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that no longer hold the poison that outputs start with: every bit set."""
    torch = _torch()
    carriers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(carriers[tensor.element_size()]) != torch.tensor(-1).to(carriers[tensor.element_size()])


def place_of(value: Array) -> tuple[Any, ...]:
    """Return the address and layout of an array: as long as the array lives, nothing else has the same ones."""
    if is_tensor(value):
        return value.device, value.data_ptr(), tuple(value.shape), value.stride(), value.dtype, value.is_neg()
    array = np.asarray(value)
    return "host", array.ctypes.data, array.shape, array.strides, array.dtype.str


def misalignment_note(buffer: Buffer, address: int, contiguous: bool) -> str | None:
    """Return why an array cannot be used where it lies, or None if it can.

    Kernels assume dense, 16-byte aligned pointers.
    """
    if not contiguous:
        return f"`{buffer.name}` is not contiguous: copied"
    if address % POINTER_ALIGNMENT:
        return f"`{buffer.name}` is {address % POINTER_ALIGNMENT} bytes off 16-byte alignment: copied"
    return None


class PlacedProgram:
    """A program whose given constants are in the memory of a device. A session of either device is one."""

    def __init__(
        self,
        program: Program,
        constants: Arrays,
        place: Callable[[Buffer, Array, list[str]], Any],
        beside: PlacedProgram | None,
    ):
        """Copy constants to the device.

        Args:
            program: the program; constants that are not given here are given at every run.
            constants: arrays by name.
        The next argument copies an array to the device, and appends a note on the cost. The last one is a session of
        the same executor, whose constants at the same addresses are shared.
        """
        self.program = program
        self._notes: list[str] = []
        self._given = {b.name: constants[b.name] for b in program.constants if b.name in constants}
        there = {} if beside is None else {place_of(v): beside._constants[name] for name, v in beside._given.items()}
        self._constants: dict[str, Any] = {
            b.name: there[where]
            if (where := place_of(constants[b.name])) in there
            else place(b, constants[b.name], self._notes)
            for b in program.constants
            if b.name in constants
        }

    def returns_tensors(self, arrays: Arrays) -> bool:
        """Return whether results are torch tensors: if a constant or an input of this run is one."""
        return any(map(is_tensor, (*self._given.values(), *arrays.values())))


def _torch() -> Any:
    import torch

    return torch


# ---- memory of this machine: a process that takes too much is killed, so callers check first


def memory_bytes() -> int:
    """Return the memory of this machine; a lot where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 40


def check_room(wanted: int, what: str) -> None:
    """Raise DplcError for more bytes than this machine has. what: "the weights"."""
    there = memory_bytes()
    if wanted > there:
        raise DplcError(f"{what} take {wanted / 1e9:.1f} GB; this machine has {there / 1e9:.1f} GB")
