"""Compiling kernels for the emulator and running them on numpy arrays."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..arrays import as_numpy
from ..build import build_host, host_text
from ..kernel import CudaKernel
from .runtime import DeviceBuffer, launch, runtime


def default_workers() -> int:
    """OS threads a launch may use: $DPLC_EMULATOR_THREADS, else one per core this process may run on."""
    override = os.environ.get("DPLC_EMULATOR_THREADS")
    return max(1, int(override)) if override else len(os.sched_getaffinity(0))


class LoadedKernels:
    """Some kernels, compiled together in one call of the compiler and loaded into this process."""

    def __init__(self, kernels: Sequence[CudaKernel]) -> None:
        runtime()  # first: the kernels' library takes its symbols from there
        self._library = ctypes.CDLL(str(build_host(host_text(kernels))))

    def launch(
        self,
        kernel: CudaKernel,
        buffers: Mapping[str, DeviceBuffer],
        *,
        workers: int | None = None,
        blocks: Sequence[int] | None = None,
        reverse: bool = False,
    ) -> None:
        """Runs one of the kernels on a buffer per parameter name.

        `blocks` restricts the run to some blocks, by linear index (x fastest); `reverse` starts the threads of a block
        from the last one. Blocks are shared out to `workers` OS threads; results do not depend on how many.
        Raises EmulatorError.
        """
        entry = ctypes.cast(getattr(self._library, f"dplc_enter_{kernel.name}"), ctypes.c_void_p).value
        assert entry is not None
        launch(kernel, entry, buffers, workers=workers or default_workers(), blocks=blocks, reverse=reverse)


@lru_cache(maxsize=256)
def load(kernels: tuple[CudaKernel, ...]) -> LoadedKernels:
    """The kernels, built if need be. Raises BuildError."""
    return LoadedKernels(kernels)


def run(
    kernel: CudaKernel,
    arrays: Mapping[str, npt.NDArray[np.generic]],
    *,
    workers: int | None = None,
    blocks: Sequence[int] | None = None,
    reverse: bool = False,
) -> dict[str, npt.NDArray[np.generic]]:
    """Runs one kernel on copies of the arrays and returns its "out" parameters by name.

    An "out" parameter need not be given; it then starts as poison (NaN), and so do elements no block writes. Raises
    BuildError, LaunchError (an array does not fit its parameter) and EmulatorError.
    """
    buffers = {param.name: DeviceBuffer(param) for param in kernel.params}
    for param in kernel.params:
        if param.role == "in" or param.name in arrays:
            buffers[param.name].array[...] = as_numpy(param, arrays[param.name])
        buffers[param.name].protect(writable=param.role == "out")
    load((kernel,)).launch(kernel, buffers, workers=workers, blocks=blocks, reverse=reverse)
    return {param.name: buffers[param.name].array.copy() for param in kernel.params if param.role == "out"}
