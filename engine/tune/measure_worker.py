"""The process that runs candidates on a GPU: whatever they do there, only this process goes down with them.

    python -m dplc.engine.tune.measure_worker

It answers messages of `measure_protocol.py` on standard output; anything printed goes to standard error. A result
that is wrong is not timed. Times are those of CUDA events around a CUDA graph of all launches of a candidate, as a
suite's are, behind a write that empties the L2 cache; and a few without that write.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import torch

from ...codegen.arrays import as_tensor, is_written, torch_dtype
from ...codegen.cache import cache_directory
from ...codegen.compiler import find_program
from ...codegen.driver import DriverError, Graph
from ...codegen.kernel import Buffer, CudaKernel, Program
from ...codegen.launch import CudaExecutor, DeviceError
from ...ir.diagnostic import DplcError
from ..run.gpu_clock import DriverClock, times
from ..run.judge import judge
from .measure_protocol import Measure, Measured, Ready, receive, send

POISON = 0xFF  # every byte of an output before a run: NaN for floats
WARM_RUNS = 5
CLOCK_SECONDS = 5.0  # how long clocks that were read stay known

Run = Callable[[Any], None]  # enqueues a program on a stream


class Images(CudaExecutor):
    """Loads what it was sent."""

    def __init__(self, memory: str):
        super().__init__(memory)
        self.images: dict[str, bytes] = {}

    def _images_of(self, kernel: CudaKernel) -> Iterator[bytes]:
        yield self.images[kernel.name]


class Worker:
    """The GPU, the subject that lies on it, and a buffer to empty its L2 cache with."""

    def __init__(self, memory: str = "cuda"):
        self.memory = memory
        self.executor = Images(memory)
        self.driver = self.executor._driver
        self.gpu = self.executor.gpu.name
        with self.executor.stream():
            self.clock = DriverClock(self.driver, self.executor.gpu.attribute("L2_CACHE_SIZE"))
        self.folder = ""
        self.inputs: dict[str, Any] = {}
        self.expected: dict[str, tuple[Any, Any]] = {}
        self.clocks: tuple[float, dict[str, float]] = (-CLOCK_SECONDS, {})

    def measure(self, wanted: Measure) -> Measured:
        """The answer to a request. Never raises but for defects of ours."""
        self.executor.forget()
        self.executor.images = wanted.images
        try:
            self._place(wanted)
            return self._measured(wanted)
        except (DplcError, self.driver.Error) as error:
            said = error.__cause__ if isinstance(error, DplcError) else error
            if isinstance(said, self.driver.Error):  # an access that faulted takes the whole context with it
                return Measured(status="failed", detail=f"the driver says: {said}", gpu=self.gpu, over=True)
            assert isinstance(error, DplcError)
            return Measured(status="failed", detail=error.what, gpu=self.gpu)

    def _place(self, wanted: Measure) -> None:
        """The subject's arrays on the device. They stay there from candidate to candidate."""
        if self.folder == wanted.folder:
            return
        given = np.load(Path(wanted.folder) / "inputs.npz", allow_pickle=False)
        expected = np.load(Path(wanted.folder) / "expected.npz", allow_pickle=False)
        self.inputs = {b.name: as_tensor(b, given[f"={b.name}"]).to(self.memory) for b in wanted.program.inputs}
        self.expected = {b.name: (expected[f"={b.name}"], expected[f"@{b.name}"]) for b in wanted.program.outputs}
        self.folder = wanted.folder

    def _measured(self, wanted: Measure) -> Measured:
        program = wanted.program
        tensors = dict(self.inputs)
        for buffer in (*program.outputs, *program.temporaries):
            tensors[buffer.name] = poisoned(buffer, self.memory)
        places = {name: int(tensor.data_ptr()) for name, tensor in tensors.items()}
        with self.executor.stream() as stream:
            loaded = [self.executor.loaded(kernel) for kernel in program.kernels]
            registers = [_told(kernel.function, "num_regs") for kernel in loaded]
            spills = [_told(kernel.function, "local_size_bytes") for kernel in loaded]
            with gpu_alone():
                self.executor.launch(program, places, stream)
                self.driver.Context.synchronize()
            error, wrong = self._compare(program.outputs, tensors)
            known: dict[str, Any] = {"error": error, "registers": registers, "spills": spills, "gpu": self.gpu}
            if wrong:
                return Measured(status="wrong", detail=wrong, **known)
            replay = self._recorded(program, places)
            launched = "CUDA graph" if replay else "one by one"
            run = replay or (lambda at: self.executor.launch(program, places, at))
            self.clock.stream = stream
            with gpu_alone():
                seconds = times(partial(run, stream), self.clock, wanted.warm_up, wanted.runs, wanted.seconds)
                warm = [self.clock.seconds(partial(run, stream)) for _ in range(WARM_RUNS)]
        cold = f"cold: {self.clock.bytes} bytes of other data written before every run"
        clocks = self._clocks()
        return Measured(status="ok", seconds=seconds, warm=warm, launched=launched, l2=cold, clocks=clocks, **known)

    def _recorded(self, program: Program, places: dict[str, int]) -> Run | None:
        """All launches as one CUDA graph, so that no Python runs between them; None where the driver makes none."""
        try:
            with self.executor.gpu.side_stream() as side:
                graph = Graph(side.handle, lambda: self.executor.launch(program, places, side))
        except (DriverError, DeviceError):
            return None
        return lambda stream: graph.replay(0 if stream is None else stream.handle)

    def _compare(self, outputs: tuple[Buffer, ...], tensors: dict[str, Any]) -> tuple[float, str]:
        """The largest relative error, and what is wrong: off the reference, or an element that was not written."""
        worst, wrong = 0.0, ""
        for buffer in outputs:
            got = tensors[buffer.name].cpu()
            values, where = self.expected[buffer.name]
            where = torch.from_numpy(where)
            found = judge([got[where]], [torch.from_numpy(values)[where]])
            missing = int((~is_written(got)).sum()) if got.dtype.is_floating_point else 0
            worst = max(worst, found.relative)
            if missing:
                wrong = wrong or f"{missing} elements of `{buffer.name}` were never written"
            elif not found.ok:
                wrong = wrong or f"`{buffer.name}` is off by {found.relative:.1e} of the largest value"
        return worst, wrong

    def _clocks(self) -> dict[str, float]:
        """Megahertz and degrees as the driver's tool tells them, read every few seconds; empty without the tool."""
        when, known = self.clocks
        if time.monotonic() - when >= CLOCK_SECONDS:
            known = read_clocks() if self.memory == "cuda" else {}
            self.clocks = time.monotonic(), known
        return known


@contextlib.contextmanager
def gpu_alone() -> Iterator[None]:
    """Only one of our processes on a machine has its GPU at work: tuners side by side must not time one another."""
    path = cache_directory() / "gpu.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def poisoned(buffer: Buffer, memory: str) -> Any:
    """An output before a run."""
    made = torch.empty(buffer.shape, dtype=torch_dtype(buffer.dtype), device=memory)
    made.view(torch.uint8 if made.dim() else made.dtype).fill_(POISON)
    return made


def read_clocks() -> dict[str, float]:
    """What nvidia-smi says of the first GPU now."""
    program = find_program("nvidia-smi")
    if program is None:
        return {}
    asked = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "degrees": "temperature.gpu", "watts": "power.draw"}
    command = [program, f"--query-gpu={','.join(asked.values())}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        values = done.stdout.splitlines()[0].split(",")
        return {name: float(value) for name, value in zip(asked, values, strict=True)}
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        return {}


def _told(function: Any, name: str) -> int | None:
    """An attribute of a loaded function; None where the driver says nothing."""
    value = int(getattr(function, name))
    return value if value or name != "num_regs" else None


def serve(memory: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more, or this process cannot go on."""
    try:
        worker = Worker(memory)
    except (DplcError, RuntimeError) as error:
        send(answers, Ready(wrong=error.what if isinstance(error, DplcError) else str(error)))
        return
    send(answers, Ready(worker.gpu))
    while (wanted := receive(requests, Measure)) is not None:
        answer = worker.measure(wanted)
        send(answers, answer)
        if answer.over:
            os._exit(1)  # no destructor may touch the broken context


def main(memory: str = "cuda") -> None:
    """The process."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt, msgspec.MsgspecError):  # the parent has ended
        serve(memory, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
