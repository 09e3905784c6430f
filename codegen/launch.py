"""Running programs: the interface common to devices, and the GPU behind it.

The GPU path launches cubins with PyCUDA in torch's primary context, on the tensors' own memory and in the order of
torch's current stream. pycuda and torch are imported when a `CudaExecutor` is made, never before.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from ..ir.diagnostic import DplcError
from .arrays import (
    Array,
    LaunchError,
    as_numpy,
    as_tensor,
    check_fits,
    check_names,
    is_tensor,
    misalignment_note,
    place_of,
    torch_dtype,
    torch_dtype_name,
)
from .build import build_device, device_text
from .emulator.executor import EmulatorExecutor
from .emulator.runtime import EmulatorError
from .kernel import Buffer, CudaKernel, Program
from .tensor_maps import encode, parameter_format

__all__ = [
    "CudaExecutor",
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

USE_EMULATOR = "run with --device emulator"


class DeviceError(DplcError):
    """The device asked for cannot be used, or not for this kernel; the message says what is missing."""


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
    Numpy arrays are copied to the GPU and the results back. `memory` names the torch device whose tensors the driver
    can reach; anything but "cuda" is for driver mocks that share memory with the host. images: cubins that need not be
    built, by (kernel text, target). Raises DeviceError.
    """

    device = "cuda"

    def __init__(self, memory: str = "cuda", images: Mapping[tuple[str, str], bytes] | None = None) -> None:
        self._images = images or {}
        self.notes: tuple[str, ...] = ()
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
        self._side_stream: Any = None

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
        return self.prepare(program, arrays).run(arrays)

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
    def stream(self) -> Iterator[Any]:
        """The context entered, and a PyCUDA stream whose work runs in the order of torch's current stream.

        None stands for the default stream. PyCUDA cannot adopt another stream by its handle, so a stream of its own is
        ordered after what torch has enqueued so far, and what torch enqueues next is ordered after it.
        """
        self._context.push()
        try:
            current = self._torch.cuda.current_stream() if self._memory.type == "cuda" else None
            if current is None or current.cuda_stream == 0:
                yield None
                return
            if self._side_stream is None:
                self._side_stream = self._driver.Stream()
            side = self._torch.cuda.ExternalStream(self._side_stream.handle)
            side.wait_stream(current)
            yield self._side_stream
            current.wait_stream(side)
        finally:
            self._driver.Context.pop()

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
        """Unload every kernel."""
        self._functions.clear()

    def _launch(self, kernel: CudaKernel, values: list[int | bytes], stream: Any) -> None:
        function = self.function(kernel)
        function.prepared_async_call(kernel.grid, (kernel.block, 1, 1), stream, *values, shared_size=kernel.smem)

    def _load(self, kernel: CudaKernel) -> Any:
        module = self._driver.module_from_buffer(self._build(kernel))
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


class CudaSession:
    """A program whose constants are on the GPU. Runs of one session must not overlap: they share its arena."""

    def __init__(
        self, executor: CudaExecutor, program: Program, constants: Mapping[str, Array], beside: CudaSession | None
    ):
        self._executor, self._program = executor, program
        self._notes: list[str] = []
        self._given = {b.name: constants[b.name] for b in program.constants}
        there = {} if beside is None else {place_of(v): beside._constants[name] for name, v in beside._given.items()}
        self._constants: dict[str, Any] = {
            b.name: there[where]
            if (where := place_of(constants[b.name])) in there
            else executor._place(b, constants[b.name], self._notes)
            for b in program.constants
        }
        self._tensors = any(map(is_tensor, self._given.values()))
        self._kept, self._temporaries = executor._temporaries(program)
        executor.load(program)
        self._latest: tuple[dict[str, Any], list[tuple[CudaKernel, list[int | bytes]]]] = {}, []  # kept alive

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, given the inputs by name; launched, not waited for.

        Raises LaunchError, BuildError and DeviceError.
        """
        program, executor = self._program, self._executor
        check_names(program, arrays, program.inputs)
        notes = list(self._notes)
        given = {buffer.name: executor._place(buffer, arrays[buffer.name], notes) for buffer in program.inputs}
        made = {output: given[source] for output, source in program.aliases.items()}
        made = {
            b.name: made[b.name] if b.name in made else executor._empty(b.shape, torch_dtype(b.dtype))
            for b in program.outputs
        }
        tensors = {**self._constants, **given, **made}
        addresses = self._temporaries | {name: tensor.data_ptr() for name, tensor in tensors.items()}
        steps = [
            (launch.kernel, arguments(launch.kernel, [addresses[name] for name in launch.buffers]))
            for launch in program.launches()
        ]
        with executor.stream() as stream:
            for kernel, values in steps:
                executor._launch(kernel, values, stream)
        self._latest = tensors, steps
        executor.notes = tuple(notes)
        if self._tensors or any(is_tensor(value) for value in arrays.values()):
            return made
        return {buffer.name: as_numpy(buffer, made[buffer.name]) for buffer in program.outputs}

    def launch(self, place: int) -> None:
        """One launch of the program again, on the buffers of the latest run."""
        with self._executor.stream() as stream:
            self._executor._launch(*self._latest[1][place], stream)


def arguments(kernel: CudaKernel, pointers: list[int]) -> list[int | bytes]:
    """What a launch passes for each parameter, given the address of its buffer. Raises TensorMapError."""
    return [
        encode(param, pointer) if param.role == "tensor_map" else pointer
        for param, pointer in zip(kernel.params, pointers, strict=True)
    ]


def _import(name: str, fix: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DeviceError(
            f"--device cuda needs {name}, which cannot be imported here", None, [str(error)], fix
        ) from error
