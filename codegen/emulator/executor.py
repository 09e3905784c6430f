"""Programs on the emulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..arrays import Array, as_numpy, as_tensor, check_names, is_tensor, misalignment_note
from ..kernel import Buffer, CudaKernel, Program
from .kernels import LoadedKernels, load
from .runtime import DeviceBuffer, LaunchOptions


class EmulatorExecutor:
    """Runs programs on the CPU, on copies of the arrays it is given.

    `notes` says, for the latest run, which arrays could not have been used in place on a GPU. `checked` looks at every
    access of every kernel (about a hundred times slower).
    """

    device = "emulator"

    def __init__(self, workers: int | None = None, checked: bool = False) -> None:
        self._options = LaunchOptions(workers=workers, checked=checked)
        self.notes: tuple[str, ...] = ()

    def run(self, program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The program's outputs by name, given its inputs and constants by name.

        Outputs are torch tensors where any array given is one, else numpy arrays. Raises LaunchError, BuildError and
        EmulatorError.
        """
        check_names(program, arrays)
        kernels = load(program.distinct_kernels(), self._options.checked)
        notes: list[str] = []
        buffers = {buffer.name: DeviceBuffer(buffer) for buffer in (*program.outputs, *program.temporaries)}
        for buffer in (*program.inputs, *program.constants):
            buffers[buffer.name] = _upload(buffer, arrays[buffer.name], notes)
        for launch in program.launches():
            params = launch.kernel.params
            bound = {param.name: buffers[name] for param, name in zip(params, launch.buffers, strict=True)}
            self._launch(kernels, launch.kernel, bound)
        self.notes = tuple(notes)
        results = {buffer.name: buffers[buffer.name].array.copy() for buffer in program.outputs}
        if any(is_tensor(value) for value in arrays.values()):
            return {buffer.name: as_tensor(buffer, results[buffer.name]) for buffer in program.outputs}
        return dict(results)

    def _launch(self, kernels: LoadedKernels, kernel: CudaKernel, buffers: Mapping[str, DeviceBuffer]) -> None:
        kernels.launch(kernel, buffers, self._options)


def _upload(buffer: Buffer, value: Array, notes: list[str]) -> DeviceBuffer:
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = as_numpy(buffer, value)
    note = misalignment_note(buffer, array.ctypes.data, array.flags.c_contiguous)
    if note:
        notes.append(note)
    device = DeviceBuffer(buffer)
    device.array[...] = array
    device.protect(writable=False)
    return device
