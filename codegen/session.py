"""A program made ready on the GPU: constants placed once, launches replayed as a CUDA graph where that is possible."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .arrays import Array, as_numpy, check_names, is_tensor, place_of, torch_dtype
from .driver import DriverError
from .gpu import DeviceError, Gpu, LoadedKernel
from .graphs import Replays
from .kernel import Buffer, CudaKernel, Program
from .tensor_maps import arguments


class Launcher(Protocol):
    """What a session asks of the executor that made it (`launch.CudaExecutor`)."""

    graphs: bool
    gpu: Gpu
    notes: tuple[str, ...]

    def place(self, buffer: Buffer, value: Array, notes: list[str]) -> Any: ...

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any: ...

    def temporaries(self, program: Program) -> tuple[list[Any], dict[str, int]]: ...

    def load(self, program: Program) -> tuple[LoadedKernel, ...]: ...

    def loaded(self, kernel: CudaKernel) -> LoadedKernel: ...

    def launch(self, program: Program, places: Mapping[str, int], stream: Any) -> None: ...

    def stream(self) -> AbstractContextManager[Any]: ...

    def current_stream(self) -> int: ...

    def captured_by_user(self, stream: int) -> bool: ...


class CudaSession:
    """A program whose constants are on the GPU; those not given here are given at every run.

    Runs of one session share its arena, so threads take turns to enqueue them. Runs that meet the same addresses again
    replay a CUDA graph, unless there is but one launch, the user captures the stream, or the driver refuses, which a
    note says once.
    """

    def __init__(
        self,
        executor: Launcher,
        program: Program,
        constants: Mapping[str, Array],
        beside: CudaSession | None = None,
    ):
        self.program, self._executor = program, executor
        self._notes: list[str] = []
        self._given = {b.name: constants[b.name] for b in program.constants if b.name in constants}
        self._wanted = (*program.inputs, *(b for b in program.constants if b.name not in constants))
        there = {} if beside is None else {place_of(v): beside._constants[name] for name, v in beside._given.items()}
        self._constants: dict[str, Any] = {
            b.name: there[where]
            if (where := place_of(constants[b.name])) in there
            else executor.place(b, constants[b.name], self._notes)
            for b in program.constants
            if b.name in constants
        }
        self._tensors = any(map(is_tensor, self._given.values()))
        self._kept, self._temporaries = executor.temporaries(program)
        self._kernels = executor.load(program)  # held, so that no graph outlives them
        self._replays = Replays() if executor.graphs and len(program.kernels) > 1 else None
        self._latest: tuple[dict[str, Any], dict[str, int]] = {}, {}  # tensors kept alive, every address
        self._turn = threading.Lock()
        executor.gpu.close_before_exit(self)

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name, given the inputs by name; launched, not waited for.

        Raises LaunchError, BuildError and DeviceError.
        """
        check_names(self.program, arrays, self._wanted)
        with self._turn:
            return self._run(arrays)

    def _run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
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
        fixed = {name: tensor.data_ptr() for name, tensor in self._constants.items()}
        places = self._temporaries | fixed | moving
        if not self._replayed(tuple(moving.values()), places, notes):
            with executor.stream() as stream:
                executor.launch(program, places, stream)
        self._latest = given | made, places
        executor.notes = tuple(notes)
        if self._tensors or any(is_tensor(value) for value in arrays.values()):
            return made
        return {buffer.name: as_numpy(buffer, made[buffer.name]) for buffer in program.outputs}

    def launch(self, place: int) -> None:
        """One launch of the program again, on the buffers of the latest run."""
        (launch,) = itertools.islice(self.program.launches(), place, place + 1)
        values = arguments(launch.kernel, [self._latest[1][name] for name in launch.buffers])
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
        """Whether a graph was enqueued that does the whole run. moving: the addresses that tell runs apart."""
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
                    moving, stream.handle, lambda: executor.launch(self.program, places, stream)
                )
                if graph is not None:
                    graph.replay(current)
        except (DriverError, DeviceError) as error:
            self.close()
            notes.append(f"no CUDA graph, launched one by one: {error.what}")
            return False
        return graph is not None
