"""Running programs: the interface common to devices, and its implementation for GPUs.

The GPU path launches cubins with PyCUDA in torch's primary context, on the tensors' own memory and in the order of
torch's current stream. pycuda and torch are imported when a `CudaExecutor` is made, never before.
"""

from __future__ import annotations

import atexit
import importlib
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet, WeakValueDictionary, finalize

from ..ir.diagnostic import DplcError
from ..ir.interp.torch import called
from .arrays import (
    Array,
    Arrays,
    LaunchError,
    PlacedProgram,
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
from .compiler import suited
from .driver import (
    DEFAULT_DYNAMIC_SMEM,
    NON_BLOCKING,
    DriverError,
    Replays,
    arguments,
    is_capturing,
    order,
    parameter_format,
)
from .emulator.executor import EmulatorExecutor, EmulatorSession
from .kernel import Buffer, CudaKernel, Launch, Program, TorchCall

# ---- one GPU: torch's primary context, loaded kernels, own streams
#
# All executors share one `Gpu` for each device, so a kernel of two programs is loaded once. It stays loaded while it is
# referenced, and a holder of a graph of it must reference it.


class DeviceError(DplcError):
    """The requested device cannot be used, or not for this kernel; the message says what is missing."""


class LoadedKernel:
    """A kernel in a GPU's memory, ready to be launched."""

    def __init__(self, gpu: Gpu, kernel: CudaKernel, function: Any):
        self.gpu, self.kernel, self.function = gpu, kernel, function
        self.unload = finalize(self, gpu.discard, function)

    def launch(self, values: Sequence[int | bytes], stream: Any) -> None:
        """Enqueue it, given a value for each parameter. With $DPLC_DEBUG, wait for it. Raises DeviceError."""
        kernel, error = self.kernel, self.gpu.driver.Error
        try:
            self.function.prepared_async_call(
                kernel.grid, (kernel.block, 1, 1), stream, *values, shared_size=kernel.smem
            )
        except error as problem:
            raise DeviceError(f"kernel `{kernel.name}` cannot be launched: {problem}") from problem
        if not debugging() or (stream is not None and is_capturing(stream.handle)):
            return
        try:
            self.gpu.driver.Context.synchronize()
        except error as problem:
            raise DeviceError(
                f"kernel `{kernel.name}` failed: {problem}",
                hint="dplc run --check on the emulator looks at every access",
            ) from problem


class Gpu:
    """One device: its number among those that torch sees. `gpu` makes it, once."""

    def __init__(self, driver: Any, ordinal: int):
        self.driver, self.ordinal = driver, ordinal
        self.device = driver.Device(ordinal)
        self._context = self.device.retain_primary_context()
        self._lock, self._home = threading.RLock(), threading.get_ident()
        self._discarded: list[Any] = []
        self._kernels: WeakValueDictionary[CudaKernel, LoadedKernel] = WeakValueDictionary()
        self._alive: WeakSet[LoadedKernel] = WeakSet()
        self._kept: set[LoadedKernel] = set()
        self._idle: list[Any] = []  # streams that are free
        self.closed_first: WeakSet[Any] = WeakSet()  # `close` of each: later there is no context

    @property
    def name(self) -> str:
        return str(self.device.name())

    @property
    def target(self) -> str:
        """The architecture to compile for: "sm_90a", "sm_80", ... Hopper's own instructions need the suffix."""
        major, minor = self.device.compute_capability()
        return f"sm_{major}{minor}a" if major == 9 else f"sm_{major}{minor}"

    def attribute(self, name: str) -> int:
        """Return an attribute of the device, as the driver names it: MULTIPROCESSOR_COUNT, L2_CACHE_SIZE, ..."""
        return int(self.device.get_attribute(getattr(self.driver.device_attribute, name)))

    @contextmanager
    def context(self) -> Iterator[None]:
        """Enter torch's context."""
        self._context.push()
        try:
            yield
        finally:
            self.driver.Context.pop()

    @contextmanager
    def side_stream(self) -> Iterator[Any]:
        """Enter the context, and yield a PyCUDA stream that no other thread uses meanwhile: it may capture."""
        with self.context():
            with self._lock:
                stream = self._idle.pop() if self._idle else self.driver.Stream(NON_BLOCKING)
            try:
                yield stream
            finally:
                with self._lock:
                    self._idle.append(stream)

    def loaded(self, kernel: CudaKernel, images: Callable[[CudaKernel], Iterable[bytes]]) -> LoadedKernel:
        """Return a kernel, loaded if it is not. images: what the driver may be given, until it takes one.

        Raises BuildError and DeviceError.
        """
        with self._lock:
            self.discard()
            found = self._kernels.get(kernel)
            if found is None:
                with self.context():
                    # a kernel that is loaded at another binding of its sizes has the same function
                    key = kernel.text, kernel.smem
                    same = (k.function for k in self._alive if (k.kernel.text, k.kernel.smem) == key)
                    function = (next(same, None) if kernel.values else None) or self._load(kernel, images(kernel))
                found = self._kernels[kernel] = LoadedKernel(self, kernel, function)
                self._alive.add(found)
            return found

    def has(self, kernel: CudaKernel) -> bool:
        """Return whether a kernel is loaded."""
        return kernel in self._kernels

    def forget(self) -> None:
        """Load every kernel again from now on, also one that is still referenced."""
        with self._lock:
            self._kernels.clear()

    def discard(self, *functions: Any) -> None:
        """Unload the functions that are not referenced any more.

        PyCUDA can only do so in the thread that made its context: others leave it for later.
        """
        self._discarded.extend(functions)
        if self._discarded and threading.get_ident() == self._home:
            with self.context():
                self._discarded.clear()

    def keep(self, kernels: Iterable[LoadedKernel]) -> None:
        """Keep kernels until the process ends: a graph of the user's may replay them at any time."""
        self._kept.update(kernels)

    def close(self) -> None:
        """Let go of everything on the device."""
        for holder in list(self.closed_first):
            holder.close()
        self._kept.clear()
        for kernel in list(self._alive):
            kernel.function = None
            kernel.unload()
        with self.context():
            self._discarded.clear()
            self._idle.clear()
        self._context = None

    def _module(self, kernel: CudaKernel, images: Iterable[bytes]) -> tuple[Any, bytes]:
        """Return the first image that the driver takes, as a module."""
        problem = None
        for image in images:
            try:
                return self.driver.module_from_buffer(image), image
            except self.driver.Error as error:
                problem = error
        cuda = self.driver.get_driver_version()
        version = f"{cuda // 1000}.{cuda % 1000 // 10}"
        raise DeviceError(
            f"kernel `{kernel.name}` cannot be loaded: {problem or 'nothing compiles it'}",
            notes=(f"this driver is for CUDA {version}, this GPU {self.target}",),
            hint=f"pip install nvidia-cuda-nvrtc-cu{cuda // 1000} (a compiler for this driver), or update the driver",
        ) from problem

    def _load(self, kernel: CudaKernel, images: Iterable[bytes]) -> Any:
        module, image = self._module(kernel, images)
        function = module.get_function(kernel.name)  # it keeps its module
        if kernel.smem > DEFAULT_DYNAMIC_SMEM:
            limit = self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
            if kernel.smem > limit:
                raise DeviceError(
                    f"kernel `{kernel.name}` needs {kernel.smem} bytes of shared memory per block; "
                    f"{self.name} has {limit}"
                )
            function.set_attribute(self.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.smem)
        function.prepare(parameter_format(kernel, image))
        return function


def debugging() -> bool:
    """Return whether every launch is waited for, so that a fault names its kernel: $DPLC_DEBUG, unless it is 0."""
    return os.environ.get("DPLC_DEBUG", "0") != "0"


_GPUS: dict[int, Gpu] = {}
_MAKING = threading.Lock()


def gpu(driver: Any, ordinal: int) -> Gpu:
    """Return the GPU with this number, created at the first call. driver: the module pycuda.driver, initialised."""
    with _MAKING:
        if not _GPUS:
            atexit.register(close_all)
        if ordinal not in _GPUS:
            _GPUS[ordinal] = Gpu(driver, ordinal)
        return _GPUS[ordinal]


def close_all() -> None:
    """Let go of every GPU: at exit, before torch's contexts end."""
    while _GPUS:
        _GPUS.popitem()[1].close()


# ---- sessions: constants are placed once, launches replay as a CUDA graph where that is possible


class CudaSession(PlacedProgram):
    """Program whose constants are on the GPU; constants that are not given here are given at every run.

    Runs of one session share its arena, so only one thread at a time enqueues them. Runs that meet the same addresses
    again replay a CUDA graph, unless there is but one launch, the user captures the stream, or the driver refuses,
    which a note says once.
    """

    def __init__(
        self,
        executor: CudaExecutor,
        program: Program,
        constants: Arrays,
        beside: Any = None,
    ):
        super().__init__(program, constants, executor.place, beside)
        self._executor = executor
        self._wanted = (*program.inputs, *(b for b in program.constants if b.name not in constants))
        self._temporaries = executor.temporaries(program)
        self._kernels = executor.load(program)  # held, so that no graph outlives them
        replays = executor.graphs and (len(program.kernels) > 1 or program.loops) and not program.calls
        self._replays = Replays() if replays else None
        self._latest: tuple[dict[str, Any], dict[str, int]] = {}, {}  # tensors kept alive, every address
        self._turn = threading.Lock()
        executor.gpu.closed_first.add(self)

    def run(self, arrays: Arrays) -> dict[str, Array]:
        """Return the outputs by name, given the inputs by name; launched, not waited for.

        Raises LaunchError, BuildError and DeviceError.
        """
        check_names(self.program, arrays, self._wanted)
        with self._turn:
            return self._run(arrays)

    def _run(self, arrays: Arrays) -> dict[str, Array]:
        program, executor = self.program, self._executor
        self.release()  # so that results the caller has dropped are likely to lie where they lay before
        notes = list(self._notes)
        given = {buffer.name: executor.place(buffer, arrays[buffer.name], notes) for buffer in self._wanted}
        made = {output: given[source] for output, source in program.aliases.items()}
        made = {
            b.name: made[b.name] if b.name in made else executor.empty(b.shape, torch_dtype(b.dtype))
            for b in program.outputs
        }
        moving = {name: tensor.data_ptr() for name, tensor in (given | made).items()}
        fixed = {name: tensor.data_ptr() for name, tensor in (self._temporaries | self._constants).items()}
        places = fixed | moving
        if not self._replayed(tuple(moving.values()), places, notes):
            self._enqueue(places, self._temporaries | self._constants | given | made)
        self._latest = given | made, places
        executor.notes = tuple(notes)
        if self.returns_tensors(arrays):
            return made
        return {buffer.name: as_numpy(buffer, made[buffer.name]).copy() for buffer in program.outputs}

    def _enqueue(self, places: Mapping[str, int], tensors: Mapping[str, Any]) -> None:
        """Enqueue the launches and the calls of torch in order, given every buffer by address and as a tensor.

        Torch allocates what its operators give; it is copied into the buffers, in the order of torch's stream.
        """
        for _, steps in itertools.groupby(self.program.steps(), type):
            found = [*steps]
            launches = [step for step in found if isinstance(step, Launch)]
            if launches:
                with self._executor.stream() as stream:
                    self._executor.launch(launches, places, stream)
            for step in found:
                for name, made in called(step.call, tensors).items() if isinstance(step, TorchCall) else ():
                    if name in tensors:
                        tensors[name].copy_(made.reshape(tensors[name].shape))

    def launch(self, place: int) -> None:
        """Run one launch of the program again, on the buffers of the latest run."""
        (launch,) = itertools.islice(self.program.launches(), place, place + 1)
        values = arguments(launch.kernel, launch.addresses(self._latest[1]))
        with self._executor.stream() as stream:
            self._executor.loaded(launch.kernel).launch(values, stream)

    def release(self) -> None:
        """Let go of the arrays of the latest run."""
        self._latest = {}, {}

    def close(self) -> None:
        """Destroy the graphs; runs from now on launch one by one."""
        if self._replays is not None:
            self._replays.close()
            self._replays = None

    def _replayed(self, moving: tuple[int, ...], places: Mapping[str, int], notes: list[str]) -> bool:
        """Return whether a graph was enqueued that does the whole run. moving: the addresses that tell runs apart."""
        executor = self._executor
        current = executor.current_stream()
        if executor.captured_by_user(current):
            executor.gpu.keep(self._kernels)
            return False
        if self._replays is None:
            return False
        try:
            with executor.gpu.side_stream() as stream:
                graph = self._replays.graph(
                    moving, stream.handle, lambda: executor.launch(self.program.steps(), places, stream)
                )
                if graph is not None:
                    graph.replay(current)
        except (DriverError, DeviceError) as error:
            self.close()
            notes.append(f"no CUDA graph, launched one by one: {error.what}")
            return False
        return graph is not None


USE_EMULATOR = "run with --device emulator"
Images = Mapping[tuple[str, str], bytes]


def executor(device: str, images: Images | None = None) -> Executor:
    """Return the executor of a device: "emulator", "cuda" (torch's current GPU) or "cuda:N". Raises DeviceError.

    images: cubins for a GPU that need not be built, by (kernel text, target).
    """
    if device == "emulator":
        return EmulatorExecutor()
    if found := re.fullmatch(r"cuda(?::(\d{1,4}))?", device):
        return CudaExecutor(images=images, ordinal=int(found[1]) if found[1] else None)
    raise DeviceError(f"no device `{device}`: choose emulator, cuda or cuda:N")


def memory_of(device: str) -> str:
    """Return the torch device whose tensors the kernels of a device read: "cuda:1"; "cpu" for the emulator."""
    return device if device.startswith("cuda") else "cpu"


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
        images: Images | None = None,
        graphs: bool | None = None,
        ordinal: int | None = None,
    ):
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
        self.memory = self._torch.device(memory, ordinal) if memory == "cuda" else self._torch.device(memory)
        self.gpu = gpu(self._driver, ordinal)
        self._running = threading.Lock()
        self._session: tuple[CudaSession, int] | None = None

    @property
    def target(self) -> str:
        """The architecture to compile for: "sm_90a", "sm_80", ..."""
        return self.gpu.target

    def run(self, program: Program, arrays: Arrays) -> dict[str, Array]:
        """Return the program's outputs by name, given its inputs and constants by name; launched, not waited for.

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
        """Return the session of the latest run if it ran this program on this stream: runs must not overlap.

        Inside a capture of the user's, one that the captured work alone uses; it holds the kernels of the latest.
        """
        stream = self.current_stream()
        if self.captured_by_user(stream):
            return CudaSession(self, program, {})
        if self._session is None or self._session[0].program is not program or self._session[1] != stream:
            self._session = CudaSession(self, program, {}), stream
        return self._session[0]

    def prepare(self, program: Program, constants: Arrays, beside: Any = None) -> CudaSession:
        """Return the program with its constants readable by the GPU, its arena allocated and its kernels loaded.

        The last argument is a session whose constants are used again if the arrays are the same. Raises LaunchError,
        BuildError and DeviceError.
        """
        check_names(program, constants, program.constants)
        return CudaSession(self, program, constants, beside)

    def place(self, buffer: Buffer, value: Array, notes: list[str]) -> Any:
        """Return an array that the kernels can read: the array itself, or a copy, which `notes` then records.

        Raises LaunchError for a tensor that kernels on this GPU cannot reach.
        """
        if not is_tensor(value):
            return as_tensor(buffer, as_numpy(buffer, value).copy()).to(self.memory)
        check_fits(buffer, torch_dtype_name(value), tuple(value.shape))
        device = self.device_of(value)
        if device.type != self.memory.type:
            raise LaunchError(f"`{buffer.name}` is on {device}", hint=f"move it: {buffer.name}.to('cuda')")
        if device.index not in (None, self.gpu.ordinal):
            raise LaunchError(
                f"`{buffer.name}` is on {device}, but the program runs on GPU {self.gpu.ordinal}",
                hint="all tensors of a call must be on one GPU",
            )
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
        """Return the torch device that a tensor lies on."""
        return tensor.device

    def launch(self, launches: Iterable[Any], places: Mapping[str, int], stream: Any) -> None:
        """Enqueue launches, given the address of every buffer. To be called within `stream()`."""
        for launch in launches:
            values = arguments(launch.kernel, launch.addresses(places))
            self.loaded(launch.kernel).launch(values, stream)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a tensor of the GPU's memory that holds anything."""
        return self._torch.empty(shape, dtype=dtype, device=self.memory)

    def temporaries(self, program: Program) -> dict[str, Any]:
        """Return {temporary: its tensor}: parts of one if the program has an arena."""
        if not program.arena.offsets:
            return {b.name: self.empty(b.shape, torch_dtype(b.dtype)) for b in program.temporaries}
        whole, starts = self.empty((program.arena.bytes,), self._torch.uint8), program.arena.offsets
        bytes_of = {b.name: whole[starts[b.name] : starts[b.name] + b.nbytes] for b in program.temporaries}
        return {b.name: bytes_of[b.name].view(torch_dtype(b.dtype)).view(b.shape) for b in program.temporaries}

    def current_stream(self) -> int:
        """Return torch's current stream on this GPU, as the driver's handle; 0 is the default stream."""
        if self.memory.type != "cuda":
            return 0
        return int(self._torch.cuda.current_stream(self.memory).cuda_stream)

    def captured_by_user(self, stream: int) -> bool:
        """Return whether the caller captures a stream, as `torch.cuda.graph` does."""
        if stream == 0:
            return False
        with self.gpu.context():
            return is_capturing(stream)

    @contextmanager
    def stream(self) -> Iterator[Any]:
        """Enter the context, and yield a PyCUDA stream whose work runs in the order of torch's current stream.

        None is the default stream. PyCUDA cannot adopt another stream by its handle, so a stream of our own is
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
        """Return a kernel in the GPU's memory, which stays there while the caller holds it.

        Raises BuildError and DeviceError.
        """
        return self.gpu.loaded(kernel, self._images_of)

    def load(self, program: Program) -> tuple[LoadedKernel, ...]:
        """Build and load the kernels of a program.

        Raises BuildError and DeviceError. Inside a capture of the user's, it raises DeviceError if a kernel is not
        loaded yet: loading would break the capture.
        """
        kernels = program.distinct_kernels()
        if self.captured_by_user(self.current_stream()) and not all(map(self.gpu.has, kernels)):
            raise DeviceError(
                "kernels cannot be loaded while a stream is captured",
                hint="call `compiled.warm_up()`, or the function itself once, before the capture",
            )
        return tuple(map(self.loaded, kernels))

    def forget(self) -> None:
        """Release the latest run's program, and load every kernel again: the same one may come with another image."""
        self._session = None
        self.gpu.forget()

    def _images_of(self, kernel: CudaKernel) -> Iterator[bytes]:
        """Yield the images of a kernel, the best first: a cubin that was given, then one of each compiler."""
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
            f"--device cuda needs {name}, which cannot be imported here", hint=fix, notes=[str(error)]
        ) from error


Executor = EmulatorExecutor | CudaExecutor
Session = EmulatorSession | CudaSession
