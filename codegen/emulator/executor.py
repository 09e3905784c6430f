"""Programs on the emulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..arrays import Array, as_numpy, as_tensor, check_names, is_tensor, misalignment_note, place_of
from ..host_memory import check_room
from ..kernel import Buffer, CudaKernel, Launch, Program
from ..memory_plan import lifetimes
from .kernels import LoadedKernels, load
from .runtime import DeviceBuffer, DeviceMemory, DeviceSlice, LaunchOptions


class EmulatorExecutor:
    """Runs programs on the CPU, on copies of the arrays it is given.

    `notes` says, for the latest run, which arrays could not have been used in place on a GPU. `checked` looks at every
    access of every kernel (about ten times slower). `arena` puts temporaries where the program's arena says, as a
    GPU does; else each has memory of its own with guards around it, which finds more.
    """

    device = "emulator"

    def __init__(self, workers: int | None = None, checked: bool = False, arena: bool = False) -> None:
        self._options = LaunchOptions(workers=workers, checked=checked, counted=False)
        self._arena = arena
        self.notes: tuple[str, ...] = ()

    def run(self, program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The program's outputs by name, given its inputs and constants by name.

        Outputs are torch tensors where any array given is one, else numpy arrays. Raises LaunchError, BuildError and
        EmulatorError.
        """
        check_names(program, arrays)
        return self.prepare(program, arrays).run(arrays)

    def prepare(
        self, program: Program, constants: Mapping[str, Array], beside: EmulatorSession | None = None
    ) -> EmulatorSession:
        """The program with its constants copied, to be run again and again. Raises LaunchError, BuildError and, for a
        program that does not fit in memory, DplcError.

        beside: a session whose copies are used again where the arrays are the same.
        """
        check_names(program, constants, program.constants)
        return EmulatorSession(self, program, constants, beside)

    def warm_up(self, program: Program) -> None:
        """Build and load the program's kernels. Raises BuildError."""
        load(program.distinct_kernels(), self._options.checked)

    def _launch(self, kernels: LoadedKernels, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory]) -> None:
        kernels.launch(kernel, buffers, self._options)


class EmulatorSession:
    """A program whose constants are in place."""

    def __init__(
        self,
        executor: EmulatorExecutor,
        program: Program,
        constants: Mapping[str, Array],
        beside: EmulatorSession | None = None,
    ):
        self._executor, self._program = executor, program
        check_room(sum(buffer.nbytes for buffer in program.buffers()), "the program's buffers")
        self._kernels = load(program.distinct_kernels(), executor._options.checked)
        self._notes: list[str] = []
        self._given = {b.name: constants[b.name] for b in program.constants}
        there = {} if beside is None else {place_of(v): beside._constants[name] for name, v in beside._given.items()}
        self._constants: dict[str, DeviceBuffer] = {
            b.name: there[where]
            if (where := place_of(constants[b.name])) in there
            else _upload(b, constants[b.name], self._notes)
            for b in program.constants
        }
        self._tensors = any(map(is_tensor, self._given.values()))
        self._placed = _slices(program) if executor._arena else {}
        births: dict[int, list[DeviceSlice]] = {}
        for name, (first, _) in lifetimes(program).items() if self._placed else ():
            births.setdefault(first, []).append(self._placed[name])
        self._latest: dict[str, DeviceMemory] = {}
        self._births = births  # {launch: the temporaries that begin to live there}

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, given the inputs by name."""
        program, executor = self._program, self._executor
        check_names(program, arrays, program.inputs)
        notes = list(self._notes)
        inputs = {b.name: _upload(b, arrays[b.name], notes) for b in program.inputs}
        buffers: dict[str, DeviceMemory] = {**self._constants, **self._placed, **inputs}
        for output, source in program.aliases.items():
            inputs[source].protect(writable=True)
            buffers[output] = inputs[source]
        buffers |= {b.name: DeviceBuffer(b) for b in (*program.outputs, *program.temporaries) if b.name not in buffers}
        for place, launch in enumerate(program.launches()):
            for born in self._births.get(place, ()):
                born.spoil()
            self._launch(launch, buffers)
        self._latest = buffers
        executor.notes = tuple(notes)
        results = {buffer.name: buffers[buffer.name].array.copy() for buffer in program.outputs}
        if self._tensors or any(is_tensor(value) for value in arrays.values()):
            return {buffer.name: as_tensor(buffer, results[buffer.name]) for buffer in program.outputs}
        return dict(results)

    def launch(self, place: int) -> None:
        """One launch of the program again, on the buffers of the latest run."""
        self._launch(tuple(self._program.launches())[place], self._latest)

    def _launch(self, launch: Launch, buffers: Mapping[str, DeviceMemory]) -> None:
        params = launch.kernel.params
        bound = {param.name: buffers[name] for param, name in zip(params, launch.buffers, strict=True)}
        self._executor._launch(self._kernels, launch.kernel, bound)


def _slices(program: Program) -> dict[str, DeviceSlice]:
    """Temporaries where the arena has them."""
    arena = program.arena
    if arena is None or not arena.bytes:
        return {}
    whole = DeviceBuffer(Buffer("arena", "f32", (arena.bytes // 4,)))
    return {b.name: DeviceSlice(b, whole, arena.offsets[b.name]) for b in program.temporaries}


def _upload(buffer: Buffer, value: Array, notes: list[str]) -> DeviceBuffer:
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = as_numpy(buffer, value)
    note = misalignment_note(buffer, array.ctypes.data, array.flags.c_contiguous)
    if note:
        notes.append(note)
    device = DeviceBuffer(buffer)
    device.array[...] = array
    device.protect(writable=False)
    return device
