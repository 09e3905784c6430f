"""A GPU as this process uses it: torch's primary context, the kernels loaded there, streams of our own.

There is one `Gpu` for each device, shared by every executor: a kernel that two programs launch is loaded once. A loaded
kernel stays for as long as it is referenced, as everything that may replay a graph of it must do.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..ir.diagnostic import DplcError
from .driver import DEFAULT_DYNAMIC_SMEM, NON_BLOCKING
from .graphs import is_capturing
from .kernel import CudaKernel
from .tensor_maps import parameter_format


class DeviceError(DplcError):
    """The device asked for cannot be used, or not for this kernel; the message says what is missing."""


class LoadedKernel:
    """A kernel in a GPU's memory, ready to be launched."""

    def __init__(self, gpu: Gpu, kernel: CudaKernel, function: Any) -> None:
        self.gpu, self.kernel, self.function = gpu, kernel, function
        self.unload = weakref.finalize(self, gpu.discard, function)

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

    def __init__(self, driver: Any, ordinal: int) -> None:
        self.driver, self.ordinal = driver, ordinal
        self.device = driver.Device(ordinal)
        self._context = self.device.retain_primary_context()
        self._lock, self._home = threading.RLock(), threading.get_ident()
        self._discarded: list[Any] = []
        self._kernels: weakref.WeakValueDictionary[CudaKernel, LoadedKernel] = weakref.WeakValueDictionary()
        self._alive: weakref.WeakSet[LoadedKernel] = weakref.WeakSet()
        self._kept: set[LoadedKernel] = set()
        self._idle: list[Any] = []  # streams that are free
        self._closed_first: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def name(self) -> str:
        return str(self.device.name())

    @property
    def target(self) -> str:
        """What to compile for: "sm_90a", "sm_80", ... Hopper's own instructions need the suffix."""
        major, minor = self.device.compute_capability()
        return f"sm_{major}{minor}a" if major == 9 else f"sm_{major}{minor}"

    def attribute(self, name: str) -> int:
        """An attribute of the device, as the driver names it: MULTIPROCESSOR_COUNT, L2_CACHE_SIZE, ..."""
        return int(self.device.get_attribute(getattr(self.driver.device_attribute, name)))

    @contextmanager
    def context(self) -> Iterator[None]:
        """Torch's context entered."""
        self._context.push()
        try:
            yield
        finally:
            self.driver.Context.pop()

    @contextmanager
    def side_stream(self) -> Iterator[Any]:
        """The context entered, and a PyCUDA stream that no other thread uses meanwhile: it may capture."""
        with self.context():
            with self._lock:
                stream = self._idle.pop() if self._idle else self.driver.Stream(NON_BLOCKING)
            try:
                yield stream
            finally:
                with self._lock:
                    self._idle.append(stream)

    def loaded(self, kernel: CudaKernel, images: Callable[[CudaKernel], Iterable[bytes]]) -> LoadedKernel:
        """A kernel, loaded if it is not. images: what the driver may be given, until it takes one.

        Raises BuildError and DeviceError.
        """
        with self._lock:
            self.discard()
            found = self._kernels.get(kernel)
            if found is None:
                with self.context():
                    function = self._bound_otherwise(kernel) or self._load(kernel, images(kernel))
                found = self._kernels[kernel] = LoadedKernel(self, kernel, function)
                self._alive.add(found)
            return found

    def _bound_otherwise(self, kernel: CudaKernel) -> Any:
        """The function of a kernel that is loaded at another binding of its sizes; None if there is none."""
        if not kernel.values:
            return None
        key = kernel.text, kernel.smem
        return next((k.function for k in self._alive if (k.kernel.text, k.kernel.smem) == key), None)

    def has(self, kernel: CudaKernel) -> bool:
        """Whether a kernel is loaded."""
        return kernel in self._kernels

    def forget(self) -> None:
        """Load every kernel anew from now on, also one that is still referenced."""
        with self._lock:
            self._kernels.clear()

    def discard(self, *functions: Any) -> None:
        """Unload what is no longer referenced. PyCUDA can only do so in the thread that made its context:
        others leave it for later."""
        self._discarded.extend(functions)
        if self._discarded and threading.get_ident() == self._home:
            with self.context():
                self._discarded.clear()

    def keep(self, kernels: Iterable[LoadedKernel]) -> None:
        """Keep kernels until the process ends: a graph of the user's may replay them at any time."""
        self._kept.update(kernels)

    def close_before_exit(self, holder: Any) -> None:
        """Have `holder.close()` called before the process ends: later there is no context to give back to."""
        self._closed_first.add(holder)

    def close(self) -> None:
        """Let go of everything on the device."""
        for holder in list(self._closed_first):
            holder.close()
        self._kept.clear()
        for kernel in list(self._alive):
            kernel.function = None
            kernel.unload()
        with self.context():
            self._discarded.clear()
            self._idle.clear()
        self._context = None

    def _module(self, kernel: CudaKernel, images: Iterable[bytes]) -> Any:
        """The first image that the driver takes."""
        problem = None
        for image in images:
            try:
                return self.driver.module_from_buffer(image)
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
        function = self._module(kernel, images).get_function(kernel.name)  # it keeps its module
        if kernel.smem > DEFAULT_DYNAMIC_SMEM:
            limit = self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
            if kernel.smem > limit:
                raise DeviceError(
                    f"kernel `{kernel.name}` needs {kernel.smem} bytes of shared memory per block; "
                    f"{self.name} has {limit}"
                )
            function.set_attribute(self.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.smem)
        function.prepare(parameter_format(kernel.params) + "i" * len(kernel.values))
        return function


def debugging() -> bool:
    """Whether every launch is waited for, so that a fault names its kernel: $DPLC_DEBUG, unless it is 0."""
    return os.environ.get("DPLC_DEBUG", "0") != "0"


_GPUS: dict[int, Gpu] = {}
_MAKING = threading.Lock()


def gpu(driver: Any, ordinal: int) -> Gpu:
    """The GPU with this number, made when first asked for. driver: the module pycuda.driver, initialised."""
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
