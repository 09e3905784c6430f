"""Kernels on numpy arrays, run by the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dplc.codegen.arrays import as_numpy
from dplc.codegen.emulator.runtime import DeviceBuffer, LaunchOptions, LineCost, load
from dplc.codegen.kernel import CudaKernel


class KernelRun(NamedTuple):
    """The "out" parameters of a kernel by name and, in checked mode, what its accesses cost."""

    outputs: dict[str, np.ndarray[Any, Any]]
    sites: tuple[LineCost, ...]


def run_with(kernel: CudaKernel, arrays: Mapping[str, Any], options: LaunchOptions) -> KernelRun:
    """Run one kernel on copies of the arrays. An "out" parameter that is not given starts as poison."""
    pointers = [param for param in kernel.params if param.role != "tensor_map"]
    buffers = {param.name: DeviceBuffer(param) for param in pointers}
    for param in pointers:
        if param.role == "in" or param.name in arrays:
            buffers[param.name].array[...] = as_numpy(param, arrays[param.name])
        buffers[param.name].protect(writable=param.role == "out")
    buffers |= {param.name: buffers[param.box.source] for param in kernel.params if param.box is not None}
    sites = load((kernel,), options.checked).launch(kernel, buffers, options)
    return KernelRun({p.name: buffers[p.name].array.copy() for p in kernel.params if p.role == "out"}, sites)


def run(kernel: CudaKernel, arrays: Mapping[str, Any], reverse: bool = False, **options: Any) -> dict[str, Any]:
    """Return the outputs of one kernel. reverse: the threads of a block start from the last."""
    return run_with(kernel, arrays, LaunchOptions(order=int(reverse), **options)).outputs


def check(
    kernel: CudaKernel,
    arrays: Mapping[str, Any],
    blocks: Sequence[int] | None = None,
    order: int = 0,
    counted: bool = True,
) -> KernelRun:
    """Run a kernel, or some of its blocks, in checked mode."""
    return run_with(kernel, arrays, LaunchOptions(None, blocks, order, True, counted))  # type: ignore[arg-type]
