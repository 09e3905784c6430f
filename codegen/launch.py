"""Running programs: the interface common to devices, and the GPU behind it.

The GPU path launches cubins with PyCUDA in torch's primary context, on the tensors' own memory and in the order of
torch's current stream. pycuda and torch are imported when a `CudaExecutor` is made, never before.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from .arrays import (
    Array,
    LaunchError,
    as_numpy,
    as_tensor,
    check_fits,
    check_names,
    is_tensor,
    misalignment_note,
    resolved,
    torch_dtype,
    torch_dtype_name,
)
from .build import build_device, device_text
from .emulator.executor import EmulatorExecutor
from .emulator.runtime import EmulatorError
from .gpu import DeviceError, LoadedKernel, debugging, gpu
from .graphs import is_capturing, order
from .kernel import Buffer, CudaKernel, Program
from .nvrtc import suited
from .session import CudaSession
from .tensor_maps import arguments

__all__ = [
    "CudaExecutor",
    "CudaSession",
    "DeviceError",
    "EmulatorError",
    "EmulatorExecutor",
    "Executor",
    "LaunchError",
    "Session",
    "executor",
]

USE_EMULATOR = "run with --device emulator"


class Executor(Protocol):
    """Something that runs programs.

    `notes` says what the latest run had to do besides launching, such as copying a misaligned array.
    """

    @property
    def device(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def run(self, program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The program's outputs by name, given its inputs and constants by name."""
        ...

    def warm_up(self, program: Program) -> None:
        """Build and load the program's kernels, so that its next run need not."""
        ...

    def prepare(self, program: Program, constants: Mapping[str, Array], beside: Any = None) -> Session:
        """The program with its constants in place, to be run again and again with other inputs.

        beside: a session of the same executor. Arrays that it was given too are placed once for both.
        """
        ...


class Session(Protocol):
    """A program on a device. Constants were placed, and memory for temporaries taken, when it was made."""

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, given the inputs by name."""
        ...

    def launch(self, place: int) -> None:
        """One launch of the program again, on the buffers of the latest run; for measuring it alone."""
        ...


def executor(device: str) -> Executor:
    """The executor of a device: "emulator", "cuda" (torch's current GPU) or "cuda:N". Raises DeviceError."""
    if device == "emulator":
        return EmulatorExecutor()
    if found := re.fullmatch(r"cuda(?::(\d{1,4}))?", device):
        return CudaExecutor(ordinal=int(found[1]) if found[1] else None)
    raise DeviceError(f"no device `{device}`: choose emulator, cuda or cuda:N")


class CudaExecutor:
    """Runs programs on one GPU: torch's current one, unless an ordinal says which.

    Tensors are used where they lie: no copies, unless one is misaligned or not contiguous, which `notes` then says.
    Numpy arrays are copied to the GPU and the results back. Runs that find their arrays where an earlier one found them
    replay a CUDA graph (`graphs`; by default unless $DPLC_CUDA_GRAPHS or $DPLC_DEBUG says otherwise). Threads may share
    an executor. `memory` names the torch device whose tensors the driver can reach; anything but "cuda" is for driver
    mocks that share memory with the host. images: cubins that need not be built, by (kernel text, target). Raises
    DeviceError.
    """

    device = "cuda"

    def __init__(
        self,
        memory: str = "cuda",
        images: Mapping[tuple[str, str], bytes] | None = None,
        graphs: bool | None = None,
        ordinal: int | None = None,
    ) -> None:
        self._images = images or {}
        self.notes: tuple[str, ...] = ()
        wanted = os.environ.get("DPLC_CUDA_GRAPHS", "1") != "0" if graphs is None else graphs
        self.graphs = wanted and not debugging()
        self._torch = _import("torch", "install PyTorch with CUDA")
        if memory == "cuda" and not self._torch.cuda.is_available():
            raise DeviceError("torch finds no CUDA device here", hint=USE_EMULATOR)
        self._driver = _import("pycuda.driver", "pip install pycuda; it needs the NVIDIA driver")
        self._driver.init()
        if ordinal is None:
            ordinal = self._torch.cuda.current_device() if memory == "cuda" else 0
        if not 0 <= ordinal < (count := self._driver.Device.count()):
            raise DeviceError(f"there is no GPU {ordinal}: the driver sees {count}", hint="they are counted from 0")
        self._memory = self._torch.device(memory, ordinal) if memory == "cuda" else self._torch.device(memory)
        self.gpu = gpu(self._driver, ordinal)
        self._running = threading.Lock()
        self._session: tuple[CudaSession, int] | None = None

    @property
    def target(self) -> str:
        """What to compile for: "sm_90a", "sm_80", ..."""
        return self.gpu.target

    @property
    def memory(self) -> Any:
        """The torch device whose tensors the kernels read."""
        return self._memory

    def run(self, program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The program's outputs by name, given its inputs and constants by name; launched, not waited for.

        Raises LaunchError, BuildError and DeviceError.
        """
        check_names(program, arrays)
        with self._running:
            session = self._session_of(program)
            try:
                return session.run(arrays)
            finally:
                session.release()

    def warm_up(self, program: Program) -> None:
        """Build and load the program's kernels and take its memory, so that its next run does neither.

        Raises BuildError and DeviceError.
        """
        with self._running:
            self._session_of(program)

    def _session_of(self, program: Program) -> CudaSession:
        """That of the latest run, if it was of this program on this stream: runs of one session must not overlap.

        Inside a capture of the user's, one that the captured work alone uses; it holds the kernels of the latest.
        """
        stream = self.current_stream()
        if self.captured_by_user(stream):
            return CudaSession(self, program, {})
        if self._session is None or self._session[0].program is not program or self._session[1] != stream:
            self._session = CudaSession(self, program, {}), stream
        return self._session[0]

    def prepare(
        self, program: Program, constants: Mapping[str, Array], beside: CudaSession | None = None
    ) -> CudaSession:
        """The program with its constants where the GPU can read them, its arena allocated and its kernels loaded.

        beside: a session whose constants are used again where the arrays are the same. Raises LaunchError, BuildError
        and DeviceError.
        """
        check_names(program, constants, program.constants)
        return CudaSession(self, program, constants, beside)

    def place(self, buffer: Buffer, value: Array, notes: list[str]) -> Any:
        """An array where the kernels can read it: as it is, or a copy, which `notes` then tells."""
        if not is_tensor(value):
            return as_tensor(buffer, as_numpy(buffer, value).copy()).to(self._memory)
        check_fits(buffer, torch_dtype_name(value), tuple(value.shape))
        self._check_device(buffer, self.device_of(value))
        given = value.detach()
        tensor = resolved(given)
        if tensor is not given:
            notes.append(f"`{buffer.name}` is not in memory as it is read: copied")
        note = misalignment_note(buffer, tensor.data_ptr(), tensor.is_contiguous())
        if note is None:
            return tensor
        notes.append(note)
        return tensor.clone(memory_format=self._torch.contiguous_format)

    def device_of(self, tensor: Any) -> Any:
        """The torch device that a tensor lies on."""
        return tensor.device

    def _check_device(self, buffer: Buffer, device: Any) -> None:
        """Raises LaunchError for a tensor that kernels on this GPU cannot reach."""
        if device.type != self._memory.type:
            raise LaunchError(f"`{buffer.name}` is on {device}", hint=f"move it: {buffer.name}.to('cuda')")
        if device.index not in (None, self.gpu.ordinal):
            raise LaunchError(
                f"`{buffer.name}` is on {device}, but the program runs on GPU {self.gpu.ordinal}",
                hint="all tensors of a call must be on one GPU",
            )

    def launch(self, program: Program, places: Mapping[str, int], stream: Any) -> None:
        """Enqueue the launches of a program, given the address of every buffer. To be called within `stream()`."""
        for launch in program.launches():
            values = arguments(launch.kernel, [places[name] for name in launch.buffers])
            self.loaded(launch.kernel).launch(values, stream)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A tensor of the GPU's memory that holds anything."""
        return self._torch.empty(shape, dtype=dtype, device=self._memory)

    def temporaries(self, program: Program) -> tuple[list[Any], dict[str, int]]:
        """What must be kept alive, and {temporary: its address}: in one piece if the program has an arena."""
        if program.arena is not None:
            whole = self.empty((max(program.arena.bytes, 1),), self._torch.uint8)
            return [whole], {name: whole.data_ptr() + offset for name, offset in program.arena.offsets.items()}
        alone = {b.name: self.empty(b.shape, torch_dtype(b.dtype)) for b in program.temporaries}
        return list(alone.values()), {name: tensor.data_ptr() for name, tensor in alone.items()}

    def current_stream(self) -> int:
        """Torch's current stream on this GPU, as the driver's handle; 0 is the default stream."""
        if self._memory.type != "cuda":
            return 0
        return int(self._torch.cuda.current_stream(self._memory).cuda_stream)

    def captured_by_user(self, stream: int) -> bool:
        """Whether the caller captures a stream, as `torch.cuda.graph` does."""
        if stream == 0:
            return False
        with self.gpu.context():
            return is_capturing(stream)

    @contextmanager
    def stream(self) -> Iterator[Any]:
        """The context entered, and a PyCUDA stream whose work runs in the order of torch's current stream.

        None stands for the default stream. PyCUDA cannot adopt another stream by its handle, so a stream of our own is
        ordered after what torch has enqueued so far, and what torch enqueues next is ordered after it. If torch's
        stream is being captured, so is the work.
        """
        current = self.current_stream()
        if current == 0:
            with self.gpu.context():
                yield None
            return
        with self.gpu.side_stream() as side:
            order(current, side.handle)
            try:
                yield side
            finally:
                order(side.handle, current)

    def loaded(self, kernel: CudaKernel) -> LoadedKernel:
        """A kernel in the GPU's memory; it stays there while the caller holds it. Raises BuildError and DeviceError."""
        return self.gpu.loaded(kernel, self._images_of)

    def load(self, program: Program) -> tuple[LoadedKernel, ...]:
        """The kernels of a program, built and loaded. Raises BuildError and DeviceError, and DeviceError inside a
        capture of the user's if one of them is not loaded yet: loading would break the capture."""
        kernels = program.distinct_kernels()
        if self.captured_by_user(self.current_stream()) and not all(map(self.gpu.has, kernels)):
            raise DeviceError(
                "kernels cannot be loaded while a stream is captured",
                hint="call `compiled.warm_up()`, or the function itself once, before the capture",
            )
        return tuple(map(self.loaded, kernels))

    def forget(self) -> None:
        """Let go of the latest run's program, and load every kernel anew: the same one may come with another image."""
        self._session = None
        self.gpu.forget()

    def _images_of(self, kernel: CudaKernel) -> Iterator[bytes]:
        """What the driver may load for a kernel, the best first: a cubin that was given, then one of each compiler."""
        if (given := self._images.get((kernel.text, self.target))) is not None:
            yield given
        text, version = device_text([kernel]), self._driver.get_driver_version()
        compilers = suited(version, self.target) or (None,)
        for compiler in compilers:
            yield build_device(text, self.target, compiler)


def _import(name: str, fix: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DeviceError(
            f"--device cuda needs {name}, which cannot be imported here", None, [str(error)], fix
        ) from error
