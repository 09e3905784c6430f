"""Compiling kernels for the emulator and running them on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..arrays import Array, as_numpy
from ..build import build_host, host_text
from ..kernel import CudaKernel
from .redzones import spaced
from .registers import poisoned
from .runtime import DeviceBuffer, DeviceMemory, LaunchOptions, LineCost, launch, runtime


class LoadedKernels:
    """Some kernels, compiled together in one call of the compiler and loaded into this process."""

    def __init__(self, kernels: Sequence[CudaKernel], checked: bool) -> None:
        runtime()  # first: the kernels' library takes its symbols from there
        self._checked = checked
        texts = [poisoned(spaced(kernel).kernel) for kernel in kernels] if checked else kernels
        self._library = ctypes.CDLL(str(build_host(host_text(texts), checked)))

    def launch(
        self, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory], options: LaunchOptions
    ) -> tuple[LineCost, ...]:
        """Runs one of the kernels on a buffer per parameter name. Raises EmulatorError."""
        entry = ctypes.cast(getattr(self._library, f"dplc_enter_{kernel.name}"), ctypes.c_void_p).value
        assert entry is not None
        return launch(kernel, entry, buffers, replace(options, checked=self._checked))


@lru_cache(maxsize=256)
def load(kernels: tuple[CudaKernel, ...], checked: bool = False) -> LoadedKernels:
    """The kernels, built if need be. Raises BuildError."""
    return LoadedKernels(kernels, checked)


@dataclass(frozen=True)
class KernelRun:
    """What came of a kernel: its "out" parameters by name and, in checked mode, what its accesses cost."""

    outputs: dict[str, npt.NDArray[np.generic]]
    sites: tuple[LineCost, ...]


def run(
    kernel: CudaKernel,
    arrays: Mapping[str, Array],
    *,
    workers: int | None = None,
    blocks: Sequence[int] | None = None,
    reverse: bool = False,
) -> dict[str, npt.NDArray[np.generic]]:
    """Runs one kernel on copies of the arrays and returns its "out" parameters by name.

    An "out" parameter need not be given; it then starts as poison (NaN), and so do elements no block writes. `blocks`
    restricts the run to some blocks by linear index, `reverse` starts the threads of a block from the last. Raises
    BuildError, LaunchError (an array does not fit its parameter) and EmulatorError.
    """
    chosen = None if blocks is None else tuple(blocks)
    options = LaunchOptions(workers=workers, blocks=chosen, order=int(reverse))
    return run_with(kernel, arrays, options).outputs


def run_with(kernel: CudaKernel, arrays: Mapping[str, Array], options: LaunchOptions) -> KernelRun:
    """As `run`, with every option, and the costs of accesses that checked mode counts."""
    pointers = [param for param in kernel.params if param.role != "tensor_map"]
    buffers = {param.name: DeviceBuffer(param) for param in pointers}
    for param in pointers:
        if param.role == "in" or param.name in arrays:
            buffers[param.name].array[...] = as_numpy(param, arrays[param.name])
        buffers[param.name].protect(writable=param.role == "out")
    buffers |= {param.name: buffers[param.box.source] for param in kernel.params if param.box is not None}
    loaded = load((kernel,), options.checked)
    sites = loaded.launch(kernel, buffers, options)
    return KernelRun({p.name: buffers[p.name].array.copy() for p in kernel.params if p.role == "out"}, sites)


def check(
    kernel: CudaKernel,
    arrays: Mapping[str, Array],
    blocks: Sequence[int] | None = None,
    order: int = 0,
    counted: bool = True,
) -> KernelRun:
    """Runs a kernel, or some of its blocks, in checked mode: ten times slower, a hundred if costs are counted.

    Raises EmulatorError for what no lucky order of threads excuses: a race, a read of shared memory that nothing wrote
    or whose asynchronous copy was not waited for, an access out of bounds; and as `run`.
    """
    chosen = None if blocks is None else tuple(blocks)
    return run_with(kernel, arrays, LaunchOptions(blocks=chosen, order=order, checked=True, counted=counted))
