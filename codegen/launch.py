"""Running programs: the interface common to devices, and the GPU behind it.

The GPU path launches cubins with PyCUDA in torch's primary context, on the tensors' own memory and in the order of
torch's current stream. pycuda and torch are imported when a `CudaExecutor` is made, never before.
"""

from __future__ import annotations

import importlib
import os
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
    torch_dtype,
    torch_dtype_name,
)
from .build import build_device, device_text
from .emulator.executor import EmulatorExecutor
from .emulator.runtime import EmulatorError
from .graphs import is_capturing, order
from .kernel import Buffer, CudaKernel, Program
from .session import CudaSession, DeviceError, arguments
from .tensor_maps import parameter_format

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

# A kernel must ask before it gets more dynamic shared memory than this.
DEFAULT_DYNAMIC_SMEM = 48 << 10
# A stream that the default stream does not wait for: only what we order is ordered. CU_STREAM_NON_BLOCKING.
NON_BLOCKING = 1

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
    """The executor of a device: "emulator" or "cuda". Raises DeviceError."""
    if device == "emulator":
        return EmulatorExecutor()
    if device == "cuda":
        return CudaExecutor()
    raise DeviceError(f"no device `{device}`: choose emulator or cuda")


class CudaExecutor:
    """Runs programs on torch's current GPU.

    Tensors are used where they lie: no copies, unless one is misaligned or not contiguous, which `notes` then says.
    Numpy arrays are copied to the GPU and the results back. Runs that find their arrays where an earlier one found them
    replay a CUDA graph (`graphs`; by default unless $DPLC_CUDA_GRAPHS is 0). `memory` names the torch device whose
    tensors the driver can reach; anything but "cuda" is for driver mocks that share memory with the host. images:
    cubins that need not be built, by (kernel text, target). Raises DeviceError.
    """

    device = "cuda"

    def __init__(
        self,
        memory: str = "cuda",
        images: Mapping[tuple[str, str], bytes] | None = None,
        graphs: bool | None = None,
    ) -> None:
        self._images = images or {}
        self.notes: tuple[str, ...] = ()
        self.graphs = os.environ.get("DPLC_CUDA_GRAPHS", "1") != "0" if graphs is None else graphs
        self._torch = _import("torch", "install PyTorch with CUDA")
        self._memory = self._torch.device(memory)
        if memory == "cuda" and not self._torch.cuda.is_available():
            raise DeviceError("torch finds no CUDA device here", hint=USE_EMULATOR)
        self._driver = _import("pycuda.driver", "pip install pycuda; it needs the NVIDIA driver")
        self._driver.init()
        ordinal = self._torch.cuda.current_device() if memory == "cuda" else 0
        self._gpu = self._driver.Device(ordinal)
        self._context = self._gpu.retain_primary_context()
        self._functions: dict[CudaKernel, Any] = {}
        with self.context():
            self._side_stream = self._driver.Stream(NON_BLOCKING)
        self._session: tuple[CudaSession, int] | None = None

    @property
    def target(self) -> str:
        """What to compile for: "sm_90a", "sm_80", ... Hopper's own instructions need the suffix."""
        major, minor = self._gpu.compute_capability()
        return f"sm_{major}{minor}a" if major == 9 else f"sm_{major}{minor}"

    def run(self, program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The program's outputs by name, given its inputs and constants by name; launched, not waited for.

        Raises LaunchError, BuildError and DeviceError.
        """
        check_names(program, arrays)
        session = self._session_of(program)
        try:
            return session.run(arrays)
        finally:
            session.release()

    def _session_of(self, program: Program) -> CudaSession:
        """That of the latest run, if it was of this program on this stream: runs of one session must not overlap.

        Inside a capture of the user's, one that the captured work alone uses.
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

    def _place(self, buffer: Buffer, value: Array, notes: list[str]) -> Any:
        if not is_tensor(value):
            return as_tensor(buffer, as_numpy(buffer, value).copy()).to(self._memory)
        check_fits(buffer, torch_dtype_name(value), tuple(value.shape))
        if value.device.type != self._memory.type:
            raise LaunchError(f"`{buffer.name}` is on {value.device}", hint=f"move it: {buffer.name}.to('cuda')")
        note = misalignment_note(buffer, value.data_ptr(), value.is_contiguous())
        if note is None:
            return value.detach()
        notes.append(note)
        return value.detach().clone(memory_format=self._torch.contiguous_format)

    def launch(self, program: Program, places: Mapping[str, int], stream: Any) -> None:
        """Enqueue the launches of a program, given the address of every buffer. To be called within `stream()`."""
        for launch in program.launches():
            self._launch(launch.kernel, arguments(launch.kernel, [places[name] for name in launch.buffers]), stream)

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._torch.empty(shape, dtype=dtype, device=self._memory)

    def _temporaries(self, program: Program) -> tuple[list[Any], dict[str, int]]:
        """What must be kept alive, and {temporary: its address}: in one piece if the program has an arena."""
        if program.arena is not None:
            whole = self._empty((max(program.arena.bytes, 1),), self._torch.uint8)
            return [whole], {name: whole.data_ptr() + offset for name, offset in program.arena.offsets.items()}
        alone = {b.name: self._empty(b.shape, torch_dtype(b.dtype)) for b in program.temporaries}
        return list(alone.values()), {name: tensor.data_ptr() for name, tensor in alone.items()}

    @contextmanager
    def context(self) -> Iterator[None]:
        """Torch's context entered."""
        self._context.push()
        try:
            yield
        finally:
            self._driver.Context.pop()

    def current_stream(self) -> int:
        """Torch's current stream, as the driver's handle; 0 is the default stream."""
        return int(self._torch.cuda.current_stream().cuda_stream) if self._memory.type == "cuda" else 0

    def captured_by_user(self, stream: int) -> bool:
        """Whether somebody else captures a stream, as `torch.cuda.graph` does."""
        if stream == 0:
            return False
        with self.context():
            return is_capturing(stream)

    @contextmanager
    def stream(self) -> Iterator[Any]:
        """The context entered, and a PyCUDA stream whose work runs in the order of torch's current stream.

        None stands for the default stream. PyCUDA cannot adopt another stream by its handle, so a stream of its own is
        ordered after what torch has enqueued so far, and what torch enqueues next is ordered after it. If torch's
        stream is being captured, so is the work.
        """
        with self.context():
            current = self.current_stream()
            if current == 0:
                yield None
                return
            order(current, self._side_stream.handle)
            try:
                yield self._side_stream
            finally:
                order(self._side_stream.handle, current)

    def capture_stream(self) -> Any:
        """A PyCUDA stream on which launches may be captured."""
        return self._side_stream

    def function(self, kernel: CudaKernel) -> Any:
        """The loaded function of a kernel: PyCUDA's, prepared. Raises BuildError and DeviceError."""
        function = self._functions.get(kernel)
        if function is None:
            function = self._functions[kernel] = self._load(kernel)
        return function

    def load(self, program: Program) -> None:
        """Build and load the kernels of a program that are not loaded yet. Raises BuildError and DeviceError."""
        missing = [kernel for kernel in program.distinct_kernels() if kernel not in self._functions]
        if missing:
            with self.stream():
                for kernel in missing:
                    self.function(kernel)

    def forget(self) -> None:
        """Unload every kernel. Sessions made before must not be run again."""
        self._session = None
        self._functions.clear()

    def _launch(self, kernel: CudaKernel, values: list[int | bytes], stream: Any) -> None:
        function, block = self.function(kernel), (kernel.block, 1, 1)
        try:
            function.prepared_async_call(kernel.grid, block, stream, *values, shared_size=kernel.smem)
        except self._driver.Error as error:
            raise DeviceError(f"kernel `{kernel.name}` cannot be launched: {error}") from error

    def _load(self, kernel: CudaKernel) -> Any:
        try:
            module = self._driver.module_from_buffer(self._build(kernel))
        except self._driver.Error as error:
            raise DeviceError(f"kernel `{kernel.name}` cannot be loaded: {error}") from error
        function = module.get_function(kernel.name)
        if kernel.smem > DEFAULT_DYNAMIC_SMEM:
            limit = self._gpu.get_attribute(self._driver.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            if kernel.smem > limit:
                raise DeviceError(
                    f"kernel `{kernel.name}` needs {kernel.smem} bytes of shared memory per block; "
                    f"{self._gpu.name()} has {limit}"
                )
            function.set_attribute(self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.smem)
        function.prepare(parameter_format(kernel.params))
        return function

    def _build(self, kernel: CudaKernel) -> bytes:
        """The image the driver loads."""
        return self._images.get((kernel.text, self.target)) or build_device(device_text([kernel]), self.target)


def _import(name: str, fix: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DeviceError(
            f"--device cuda needs {name}, which cannot be imported here", None, [str(error)], fix
        ) from error
