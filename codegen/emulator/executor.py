"""Run programs on the emulator, fast or checked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir.diagnostic import UsageError
from ...ir.dtypes import FLOATS
from ...ir.interp.torch import called
from ...ir.node import immutable
from ...ir.program import Kernel
from ..arrays import (
    Array,
    Arrays,
    PlacedProgram,
    as_numpy,
    as_tensor,
    as_typed,
    check_names,
    check_room,
    misalignment_note,
)
from ..cuda import print_cuda
from ..kernel import Buffer, CudaKernel, Launch, Program, TorchCall, lifetimes
from .runtime import (
    DeviceBuffer,
    DeviceMemory,
    DeviceSlice,
    EmulatorError,
    LaunchOptions,
    LineCost,
    LoadedKernels,
    load,
)


class EmulatorExecutor:
    """Executor that runs programs on the CPU, on copies of its arrays.

    `notes` lists, for the latest run, the arrays that a GPU would have had to copy. `checked` checks every access of
    every kernel (about ten times slower). `arena` puts temporaries at the offsets of the program's arena, as a GPU
    does; otherwise each has memory of its own with guards around it, which finds more.
    """

    device = "emulator"

    def __init__(self, workers: int | None = None, checked: bool = False, arena: bool = False):
        self._options = LaunchOptions(workers=workers, checked=checked, counted=False)
        self._arena = arena
        self.notes: tuple[str, ...] = ()

    def run(self, program: Program, arrays: Arrays) -> dict[str, Array]:
        """Return the program's outputs by name, given its inputs and constants by name.

        Outputs are torch tensors where any array given is one, else numpy arrays. Raises LaunchError, BuildError and
        EmulatorError.
        """
        check_names(program, arrays)
        return self.prepare(program, arrays).run(arrays)

    def prepare(self, program: Program, constants: Arrays, beside: Any = None) -> EmulatorSession:
        """Return the program with its constants copied, to be run again and again.

        The last argument is a session whose copies are used again if the arrays are the same. Raises LaunchError,
        BuildError and, for a program that does not fit in memory, DplcError.
        """
        check_names(program, constants, program.constants)
        return EmulatorSession(self, program, constants, beside)

    def warm_up(self, program: Program) -> None:
        """Build and load the program's kernels. Raises BuildError."""
        load(program.distinct_kernels(), self._options.checked)

    def _launch(self, kernels: LoadedKernels, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory]) -> None:
        kernels.launch(kernel, buffers, self._options)


class EmulatorSession(PlacedProgram):
    """Program with its constants loaded."""

    def __init__(
        self,
        executor: EmulatorExecutor,
        program: Program,
        constants: Arrays,
        beside: Any = None,
    ):
        self._executor = executor
        check_room(sum(buffer.nbytes for buffer in program.buffers()), "the program's buffers")
        self._kernels = load(program.distinct_kernels(), executor._options.checked)
        super().__init__(program, constants, _upload, beside)
        self._placed = _slices(program) if executor._arena else {}
        births: dict[int, list[DeviceSlice]] = {}
        for name, (first, _) in lifetimes(program).items() if self._placed else ():
            births.setdefault(first, []).append(self._placed[name])
        self._latest: dict[str, DeviceMemory] = {}
        self._births = births  # {launch: the temporaries that begin to live there}

    def run(self, arrays: Arrays) -> dict[str, Array]:
        """Return the outputs by name, given the inputs by name."""
        program, executor = self.program, self._executor
        check_names(program, arrays, program.inputs)
        notes = list(self._notes)
        inputs = {b.name: _upload(b, arrays[b.name], notes) for b in program.inputs}
        buffers: dict[str, DeviceMemory] = {**self._constants, **self._placed, **inputs}
        for output, source in program.aliases.items():
            inputs[source].protect(writable=True)
            buffers[output] = inputs[source]
        buffers |= {b.name: DeviceBuffer(b) for b in (*program.outputs, *program.temporaries) if b.name not in buffers}
        for step in program.steps():
            if isinstance(step, TorchCall):
                _call(step, buffers)
                continue
            for born in self._births.get(step.place, ()) if step.iteration == 0 else ():
                born.spoil()
            self._launch(step, buffers)
        self._latest = buffers
        executor.notes = tuple(notes)
        results = ((buffer, buffers[buffer.name].array) for buffer in program.outputs)
        if self.returns_tensors(arrays):
            return {buffer.name: as_tensor(buffer, array) for buffer, array in results}
        return {buffer.name: array.copy() for buffer, array in results}

    def launch(self, place: int) -> None:
        """Run one launch of the program again, on the buffers of the latest run."""
        self._launch(tuple(self.program.launches())[place], self._latest)

    def _launch(self, launch: Launch, buffers: Mapping[str, DeviceMemory]) -> None:
        bound: dict[str, DeviceMemory] = {}
        for param, name, offset in zip(launch.kernel.params, launch.buffers, launch.offsets, strict=True):
            memory = buffers[name]
            whole = memory.buffer.nbytes == param.nbytes
            bound[param.name] = memory if whole else DeviceSlice(param, memory, offset)
        self._executor._launch(self._kernels, launch.kernel, bound)


def _call(step: TorchCall, buffers: Mapping[str, DeviceMemory]) -> None:
    """Let torch compute a step, on copies of what it reads."""
    read = {p.name: as_tensor(buffers[p.name].buffer, buffers[p.name].array) for p in step.call.given}
    for name, made in called(step.call, read).items():
        if name in buffers:
            buffer = buffers[name].buffer
            buffers[name].array[...] = as_numpy(buffer, made.reshape(buffer.shape))


def _slices(program: Program) -> dict[str, DeviceSlice]:
    """Return temporaries where the arena has them."""
    arena = program.arena
    if not arena.bytes:
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


# ---- checked mode
#
# Checked mode is about a hundred times slower than fast mode. Of a large grid it runs only the blocks where kernels
# differ: the first, the last, and the boundary blocks at the far end of one or more axes.


DEFAULT_BLOCKS = ("first", "last", "ragged")
SMALL = 4096  # CUDA threads of a grid that is checked whole unless blocks are requested
ORDERS = (0, 1, 2)  # of the threads of a block: forwards, backwards, shuffled


@immutable
class Violation:
    """Something a kernel must not do. lines: the lines of kernel text it concerns, `line N: text`."""

    kernel: str
    order: int
    message: str
    lines: tuple[str, ...] = ()


@immutable
class CheckedLaunch:
    """The result of one checked launch: the checked blocks, costs and findings."""

    kernel: CudaKernel
    blocks: tuple[int, ...]
    sites: tuple[LineCost, ...]
    findings: tuple[Violation, ...]

    @property
    def whole(self) -> bool:
        return len(self.blocks) == self.kernel.blocks

    def line(self, site: LineCost) -> str:
        """Return the kernel text of a site."""
        lines = self.kernel.text.splitlines()
        return lines[site.line - 1].strip() if site.line <= len(lines) else ""


def chosen_blocks(kernel: CudaKernel, wanted: Iterable[str] | None) -> tuple[int, ...]:
    """Return linear indices of blocks: `first`, `last`, `ragged`, `all` or numbers; None is the default.

    Raises UsageError.
    """
    words = tuple(wanted) if wanted is not None else DEFAULT_BLOCKS
    if wanted is None and kernel.blocks * kernel.block <= SMALL:
        words = ("all",)
    last = kernel.blocks - 1
    named = {"all": range(kernel.blocks), "ragged": _far_ends(kernel.grid), "first": (0,), "last": (last,)}
    found: set[int] = set()
    for word in words:
        if word in named:
            found.update(named[word])
        elif word.isdigit() and int(word) < kernel.blocks:
            found.add(int(word))
        elif word.isdigit():
            raise UsageError(f"there is no block {word}: kernel `{kernel.name}` has {kernel.blocks}")
        else:
            raise UsageError(f"no blocks are called `{word}`", hint="first, last, ragged, all, or numbers from 0")
    return tuple(sorted(found))


def _far_ends(grid: tuple[int, int, int]) -> Iterable[int]:
    """Yield the blocks that are first or last along every axis."""
    x, y, _ = grid
    for places in itertools.product(*(sorted({0, extent - 1}) for extent in grid)):
        yield places[0] + x * (places[1] + y * places[2])


@dataclass
class CheckingExecutor(EmulatorExecutor):
    """Runs programs on the emulator, every launch in checked mode first, then whole in fast mode for what follows.

    What is wrong does not end the run: it is among the findings of `launches`. blocks: see `chosen_blocks`; some: the
    blocks of the one kernel that run in fast mode; None for all, () to run no kernel further.
    """

    blocks: tuple[str, ...] | None = None
    orders: tuple[int, ...] = ORDERS
    launches: list[CheckedLaunch] = field(default_factory=list)
    some: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self._options = replace(self._options, blocks=self.some)

    @property
    def findings(self) -> tuple[Violation, ...]:
        """All that was found, in the order of launches."""
        return tuple(finding for launch in self.launches for finding in launch.findings)

    def _launch(self, kernels: LoadedKernels, kernel: CudaKernel, buffers: Mapping[str, DeviceMemory]) -> None:
        chosen = chosen_blocks(kernel, self.blocks)
        sites: tuple[LineCost, ...] = ()
        findings: list[Violation] = []
        written: dict[int, dict[str, npt.NDArray[np.generic]]] = {}
        checked = load((kernel,), True)
        for order in self.orders:
            fresh = {  # outputs of their own, full of poison
                param.name: DeviceBuffer(buffers[param.name].buffer) if param.role == "out" else buffers[param.name]
                for param in kernel.params
            }
            try:
                options = replace(self._options, checked=True, counted=not sites, blocks=chosen, order=order)
                costs = checked.launch(kernel, fresh, options)
                sites = sites or costs
                written[order] = {p.name: fresh[p.name].array.copy() for p in kernel.params if p.role == "out"}
            except EmulatorError as error:
                findings.append(Violation(kernel.name, order, error.what, error.notes))
        try:
            super()._launch(kernels, kernel, buffers)
        except EmulatorError as error:
            findings.append(Violation(kernel.name, 0, error.what, error.notes))
            raise
        finally:
            for order, arrays in written.items():
                findings += _differences(kernel, order, arrays, buffers)
            self.launches.append(CheckedLaunch(kernel, chosen, sites, _distinct(findings)))


def _differences(
    kernel: CudaKernel, order: int, arrays: Mapping[str, npt.NDArray[np.generic]], buffers: Mapping[str, DeviceMemory]
) -> Iterable[Violation]:
    """Return the elements that the checked blocks and the other run wrote, and wrote otherwise."""
    for name, array in arrays.items():
        got, whole = bytes_of(array), bytes_of(buffers[name].array)
        written = (got != POISON).any(axis=1) & (whole != POISON).any(axis=1)
        wrong = int((written & (got != whole).any(axis=1)).sum())
        if wrong:
            message = f"kernel `{kernel.name}` gives other values for {wrong} elements of `{name}`: order {order}"
            yield Violation(kernel.name, order, message)


POISON = 0xFF  # mirrors dplc::poison


def bytes_of(array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8).reshape(math.prod(array.shape), -1)


def _distinct(findings: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return one finding for what several orders of threads met at the same lines."""
    found: dict[tuple[str, ...], Violation] = {}
    for finding in findings:
        found.setdefault(finding.lines or (finding.message,), finding)
    return tuple(found.values())


# ---- the meaning of Kernel IR is its CUDA text


def run_kernels(
    kernels: Sequence[Kernel], inputs: Arrays, order: int = 0, blocks: Iterable[int] | None = None
) -> dict[str, np.ndarray]:
    """Return all buffers after kernels of Kernel IR that run in order, every access checked. Floats become f64.

    order, blocks: see LaunchOptions; an element that no block stores keeps its poison. Raises BuildError and
    EmulatorError.
    """
    printed = tuple(map(print_cuda, kernels))
    loaded, memory = load(printed, True), dict[str, DeviceBuffer]()
    options = LaunchOptions(None, None if blocks is None else tuple(blocks), order, True, False)
    for kernel, cuda in zip(kernels, printed, strict=True):
        bound: dict[str, DeviceMemory] = {}
        for param, place in zip(kernel.params, cuda.params):
            if place.role == "out":
                memory[param.name] = DeviceBuffer(place)
            elif param.name not in memory:
                memory[param.name] = DeviceBuffer(place)
                memory[param.name].array[...] = as_numpy(place, as_typed(place, inputs[param.name]))
            memory[param.name].protect(writable=place.role == "out")
            bound[place.name] = memory[param.name]
        bound |= {param.name: bound[param.box.source] for param in cuda.params if param.box is not None}
        loaded.launch(cuda, bound, options)
    values = {name: as_tensor(held.buffer, held.array) for name, held in memory.items()}
    return {n: (v.double() if memory[n].buffer.dtype in FLOATS else v).numpy() for n, v in values.items()}
