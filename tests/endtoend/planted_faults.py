"""Faults planted in the text of a kernel, each in a copy of its own; all copies are built for checked mode at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from altered_texts import altered

from dplc.codegen.emulator.runtime import DeviceBuffer, EmulatorError, LaunchOptions, LoadedKernels
from dplc.codegen.kernel import CudaKernel


class Fault(NamedTuple):
    """old becomes new, once or everywhere, and more of it. line: parts of lines, one of which the finding names; none
    where only numbers tell."""

    old: str
    new: str
    line: str = ""
    count: int = -1
    more: tuple[str, str] = ("", "")

    def planted(self, text: str) -> str:
        for old, new in ((self.old, self.new), self.more):
            text = altered(text, old, new, self.count) if old else text
        return text

    def names(self, told: str) -> bool:
        return any(part in told for part in self.line.split("|"))


NONE = Fault("", "")


@dataclass(frozen=True)
class FaultyKernels:
    """A kernel with each of its faults, by the fault's name."""

    kernels: dict[str, CudaKernel]
    loaded: LoadedKernels

    def launched(self, name: str, arrays: Mapping[str, Any]) -> Any:
        """The one output, an array. arrays: of the inputs by name, torch's or numpy's. Raises EmulatorError."""
        kernel = self.kernels[name]
        buffers = {param.name: DeviceBuffer(param) for param in kernel.params if param.role in ("in", "out")}
        for param in kernel.params:
            if param.role == "in":
                place, array = buffers[param.name].array, arrays[param.name]
                bits = array.view(torch.int16).numpy().view(place.dtype) if isinstance(array, torch.Tensor) else array
                place[...] = bits
            if param.name in buffers:
                buffers[param.name].protect(writable=param.role == "out")
            if param.box is not None:
                buffers[param.name] = buffers[param.box.source]
        self.loaded.launch(kernel, buffers, LaunchOptions(counted=False))
        (out,) = (param.name for param in kernel.params if param.role == "out")
        return buffers[out].array.copy()


def must_find(kernels: FaultyKernels, name: str, fault: Fault, arrays: Mapping[str, Any], want: np.ndarray) -> None:
    """A finding that names a line of the fault's own, or, where it has none, other numbers than are wanted."""
    if not fault.line:
        assert not np.allclose(kernels.launched(name, arrays), want, atol=1e-2)
        return
    with pytest.raises(EmulatorError) as found:
        kernels.launched(name, arrays)
    assert fault.names(str(found.value)), str(found.value)


def faulty_kernels(pairs: Mapping[str, tuple[CudaKernel, Fault]]) -> FaultyKernels:
    """The kernel of every pair with its fault."""
    made = {}
    for number, (name, (whole, fault)) in enumerate(pairs.items()):
        called = f"{whole.name}{number}"
        text = fault.planted(whole.text).replace(f"{whole.name}(", f"{called}(")
        made[name] = replace(whole, name=called, text=text)
    return FaultyKernels(made, LoadedKernels(tuple(made.values()), checked=True))


def halves(array: np.ndarray) -> torch.Tensor:
    """An output of bf16 as a tensor."""
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
