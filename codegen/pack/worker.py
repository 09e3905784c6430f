"""The process that measures the cases of a pack on a GPU: what a kernel breaks there ends this process only.

It receives the number of a case and sends its record, one after the other. A case is right first: launched,
captured and replayed, it is compared with float64 and with eager, both by torch on the same GPU. Only right cases are
timed: events around a CUDA graph of all launches, after a write that fills the L2 cache with other data; and
consecutive runs, which find in L2 what the one before left there.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from ...ir.diagnostic import DplcError
from ...ir.dtypes import DTYPES
from ..compiler import suited
from ..driver import L2_BYTES, MULTIPROCESSORS, Driver, DriverError, Graph, Loaded, arguments
from ..kernel import CudaKernel, Program
from .contents import OpenPack, PackedCase

# ---- timing by events of the driver


BATCH, MOST_RUNS, LEAST_RUNS = 20, 200, 10
WARM_UP = 0.015  # seconds of runs that do not count
SECONDS = 0.3  # of one timing, at most, once LEAST_RUNS are there
WITHIN = 0.01  # half of the 95% interval of the median, over the median
WARM_SECONDS = 2e-3  # of consecutive runs
TOGETHER, SHORT = 10, 1e-4  # so many runs shorter than this are enqueued by one call
Run = Callable[[], None]


class EventTimer:
    """Times on one stream of the driver."""

    def __init__(self, driver: Driver, stream: int):
        self.driver, self.stream = driver, stream
        self.bytes = max(2 * driver.attribute(L2_BYTES), 1 << 20)
        self._other = driver.alloc(self.bytes)
        self._events = [(driver.event(), driver.event()) for _ in range(BATCH)]
        self._turn = 0

    @property
    def l2(self) -> str:
        """The state of the cache before every run, in words."""
        return (
            f"cold: {self.bytes} bytes of other data are written before every run; warm_us: runs one behind the other"
        )

    def timing(self, run: Run, launched: str, several: Callable[[], Run] | None = None) -> dict[str, Any]:
        """Return the microseconds of a run: median and quartiles.

        It runs until the median is known to 2 %, or MOST_RUNS times.
        several: makes what enqueues TOGETHER runs by one call, without which short runs would wait for Python.
        """
        began = monotonic()
        until, each = began + SECONDS, max(self.cold(run, 3))
        while monotonic() < began + WARM_UP:  # an idle device clocks lower
            self.cold(run, 3)
        found: list[float] = []
        while len(found) < MOST_RUNS and (len(found) < LEAST_RUNS or monotonic() < until):
            found += self.cold(run, min(BATCH, max(2, int(0.1 / max(each, 1e-6)))))
            low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
            within = 1.57 * (high - low) / len(found) ** 0.5 / max(middle, 1e-12)
            if len(found) >= LEAST_RUNS and within <= WITHIN:
                break
        together = run
        if several is not None and middle < SHORT:
            with contextlib.suppress(RuntimeError, DriverError):  # as where memory is short
                together = several()
        runs = 1 if together is run else TOGETHER
        count = min(50, max(2, int(WARM_SECONDS / max(middle * runs, 1e-6))))
        warm = statistics.median(self.warm(together, count) / runs for _ in range(3))
        microseconds = {"median_us": middle, "low_us": low, "high_us": high, "warm_us": warm}
        rounded = {name: round(value * 1e6, 6) for name, value in microseconds.items()}
        return {**rounded, "runs": len(found), "within": round(within, 4), "launched": launched}

    def cold(self, run: Run, count: int) -> list[float]:
        """Return the seconds of some runs, BATCH at most, each after a write that fills the L2 cache with other data.

        They are enqueued together, so that the device never waits for Python.
        """
        events = self._events[:count]
        for start, end in events:
            self._turn += 1
            self.driver.fill(self._other, self._turn % 256, self.bytes, self.stream)
            self.driver.record(start, self.stream)
            run()
            self.driver.record(end, self.stream)
        self.driver.synchronize()
        return [self.driver.seconds(start, end) for start, end in events]

    def warm(self, run: Run, count: int) -> float:
        """Return the seconds of a run among some that are enqueued one after the other."""
        start, end = self._events[0]
        self.driver.record(start, self.stream)
        for _ in range(count):
            run()
        self.driver.record(end, self.stream)
        self.driver.synchronize()
        return self.driver.seconds(start, end) / count


POISON = 0xFF  # every byte of outputs and temporaries before a run: NaN for floats
LOST = 700  # errors from here on (an access that faulted, a launch that timed out) leave no usable context
MOST_HELD = 16 << 30  # bytes that torch may keep from case to case


class PackWorker:
    """The GPU and a pack. memory: the torch device whose tensors the driver can reach; "cpu" is for a mock driver."""

    def __init__(self, pack: OpenPack, memory: str = "cuda"):
        import torch

        self.torch, self.pack, self.memory = torch, pack, memory
        torch.set_default_device(memory)  # of the tensors that an expression makes, as a mask
        if memory == "cuda":
            if not torch.cuda.is_available():
                raise DplcError("torch finds no CUDA device here", hint="nvidia-smi shows what the driver sees")
            torch.cuda.init()
            self._own = torch.cuda.Stream()
            torch.cuda.set_stream(self._own)
        self.driver = Driver(torch.cuda.current_device() if memory == "cuda" else 0)
        if self.driver.arch != pack.arch:
            raise DplcError(
                f"the pack is for {pack.arch}; this GPU ({self.driver.name}) is {self.driver.arch}",
                hint=f"pack for it: dplc bench SUITE.. --pack FILE --target {self.driver.arch}",
            )
        self.stream = int(self._own.cuda_stream) if memory == "cuda" else self.driver.stream()
        self.timer = EventTimer(self.driver, self.stream)
        self._loaded: dict[CudaKernel, Loaded] = {}

    def about(self) -> dict[str, Any]:
        """Return the machine, as results say it."""
        torch = self.torch
        return {
            "name": self.driver.name, "arch": self.driver.arch, "driver": self.driver.version,
            "l2_bytes": self.driver.attribute(L2_BYTES), "multiprocessors": self.driver.attribute(MULTIPROCESSORS),
            "torch": torch.__version__, "cuda": str(torch.version.cuda), "python": sys.version.split()[0],
            "float32": torch.get_float32_matmul_precision(), "l2": self.timer.l2,
        }  # fmt: skip

    def usable(self) -> bool:
        """Return whether the context still works; memory that torch holds is given back if it does."""
        try:
            self.driver.synchronize()
        except DriverError:
            return False
        if self.memory == "cuda" and self.torch.cuda.memory_reserved() > MOST_HELD:
            self.torch.cuda.empty_cache()
        return True

    # ---- a case
    def answer(self, request: tuple[str, int]) -> tuple[dict[str, Any], bool]:
        """Return the record of a case, and whether this process cannot continue. request: what to do, and its number.

        What to do is "compile" or "measure".
        """
        do, number = request
        case, lost = self.pack.cases[number], False
        try:
            with self.torch.no_grad():
                record = self.compile(case) if do == "compile" else self.measure(case)
        except DplcError as error:
            lost = isinstance(error, DriverError) and error.number >= LOST
            record = {"status": "failed", "detail": " ".join((error.what, *error.notes))}
        except Exception as error:  # of torch: out of memory, or a context that a kernel of ours took down
            record = {"status": "failed", "detail": f"{type(error).__name__}: {error}".splitlines()[0]}
        return record, lost or not self.usable()

    def reference(self, function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
        """Return the outputs in float64."""
        torch = self.torch
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return self.tensors(function(*(tensor.double() for tensor in inputs)))
        finally:
            torch.set_default_dtype(before)

    def tensors(self, value: Any) -> list[Any]:
        return [leaf for leaf in self.torch.utils._pytree.tree_leaves(value) if isinstance(leaf, self.torch.Tensor)]

    def measure(self, case: PackedCase) -> dict[str, Any]:
        """Check a case; time it and, unless it is a candidate, eager."""
        from ..judge import judge

        torch, function, inputs = self.torch, case.function, case.inputs(self.memory)
        references, eager = self.reference(function, inputs), self.tensors(function(*inputs))
        given = dict(zip(case.about["parameters"], inputs, strict=True))
        for buffer in case.program.constants:
            bits = torch.from_numpy(self.pack.constant(case.about["constants"][buffer.name]))
            given[buffer.name] = bits.view(getattr(torch, DTYPES[buffer.dtype].torch)).to(self.memory)
        bound = BoundProgram(self.driver, self.stream, case.program, given, self.loaded, self.memory)
        results = [bound.result(*each) for each in case.about["results"]]
        record: dict[str, Any] = {
            "registers": [one.registers for one in bound.kernels],
            "local_bytes": [one.local_bytes for one in bound.kernels],
        }
        graph, first, how = bound.launch, list[Any](), ""
        for _ in range(3):  # another result from the same inputs is a race, though it may be near enough
            bound.poison()
            graph()
            self.driver.synchronize()
            found = judge(results, references, eager)
            if not first:
                first = [result.clone() for result in results]
                error = found.relative if math.isfinite(found.relative) else None  # JSON has no infinity
                record |= {"error": error, "repeatable": True, "detail": "; ".join(found.notes)}
            record["repeatable"] &= all(map(_same_bits, first, results))
            if not found.ok:
                return record | {"status": "wrong", "detail": f"{how}{found.verdict}, off by {found.relative:.1e}"}
            if not how:
                graph, how = bound.graph(), "replayed: "
        del references, eager, first
        record |= {"status": "ok", "dplc": self.timer.timing(graph, "CUDA graph", lambda: bound.graph(TOGETHER))}
        if case.candidate is None:
            try:
                record["eager"] = self.timed(lambda: function(*inputs))
            except RuntimeError as error:  # the time of dplc is kept
                record["eager_failed"] = str(error)[:300]
        return record

    def compile(self, case: PackedCase) -> dict[str, Any]:
        """Time torch.compile; a failure there is said and counts for nothing."""
        torch, inputs = self.torch, case.inputs(self.memory)
        torch._dynamo.reset()
        began = monotonic()
        try:
            backend = "inductor" if self.memory == "cuda" else "eager"  # a mock driver has nothing to compile for
            optimised = torch.compile(case.function, dynamic=False, backend=backend)
            optimised(*inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of Triton, of a C compiler that is not there
            return {"torch_compile_failed": f"{type(error).__name__}: {error}"[:300]}
        seconds = round(monotonic() - began, 2)
        return {"torch_compile": self.timed(lambda: optimised(*inputs)) | {"compile_seconds": seconds}}

    def timed(self, run: Callable[[], Any]) -> dict[str, Any]:
        """Return the launch of torch's program, as a CUDA graph if torch can capture it."""
        torch = self.torch
        if self.memory != "cuda":
            return self.timer.timing(run, "one by one")
        for _ in range(2):  # what loads modules and allocates for the first time cannot be captured
            run()
        torch.cuda.synchronize()

        def recorded(times: int) -> Run:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._own):
                for _ in range(times):
                    run()
            replay: Run = graph.replay
            return replay

        try:
            replay = recorded(1)
        except RuntimeError:
            torch.cuda.synchronize()
            return self.timer.timing(run, "one by one")
        return self.timer.timing(replay, "CUDA graph", lambda: recorded(TOGETHER))

    # ---- kernels
    def loaded(self, kernel: CudaKernel) -> Loaded:
        """Return a kernel on the device: its cubin, or where the driver does not take that, its text compiled here."""
        if kernel not in self._loaded:
            self._loaded[kernel] = load(self.driver, self.pack, kernel)
        return self._loaded[kernel]


class BoundProgram:
    """A program with its memory on the device, ready to be launched on a stream.

    given: {buffer: tensor} of inputs and constants; load: puts a kernel on the device. tensors: those of all buffers,
    outputs as bytes.
    """

    def __init__(
        self, driver: Driver, stream: int, program: Program, given: Mapping[str, Any],
        load: Callable[[CudaKernel], Loaded], memory: str,
    ):  # fmt: skip
        import torch

        self.driver, self.stream, self.tensors = driver, stream, dict(given)
        arena = program.arena
        sizes = {b.name: b.nbytes for b in (*program.outputs, *(() if arena.offsets else program.temporaries))}
        sizes[""] = arena.bytes
        self._written = {name: torch.empty(n, dtype=torch.uint8, device=memory) for name, n in sizes.items()}
        self.tensors |= self._written
        places = {name: int(tensor.data_ptr()) for name, tensor in self.tensors.items()}
        places |= {name: places[""] + offset for name, offset in arena.offsets.items()}
        loaded = {kernel.name: load(kernel) for kernel in program.distinct_kernels()}
        self.kernels = [loaded[kernel.name] for kernel in program.kernels]
        self._values = [arguments(step.kernel, step.addresses(places)) for step in program.launches()]

    def result(self, name: str, dtype: str, shape: Sequence[int]) -> Any:
        """Return an output with its dtype and shape."""
        import torch

        return self.tensors[name].view(getattr(torch, DTYPES[dtype].torch)).reshape(tuple(shape))

    def poison(self) -> None:
        """Fill what the launches write."""
        for tensor in self._written.values():
            tensor.fill_(POISON)

    def launch(self) -> None:
        """Enqueue all launches."""
        for loaded, values in zip(self.kernels, self._values, strict=True):
            self.driver.launch(loaded, values, self.stream)

    def graph(self, times: int = 1) -> Run:
        """Return all launches, so often, as a CUDA graph."""

        def enqueue() -> None:
            for _ in range(times):
                self.launch()

        recorded = Graph(self.stream, enqueue)
        return lambda: recorded.replay(self.stream)


def load(driver: Driver, pack: OpenPack, kernel: CudaKernel) -> Loaded:
    """Return a kernel on the device. Raises DriverError, with what each compiler that is here said."""
    try:
        return driver.load(kernel, pack.cubin(kernel))
    except DriverError as error:
        if error.number >= LOST:
            raise
        refused = error
    notes = [*refused.notes]
    options = [f"--gpu-architecture={pack.arch}", f"--include-path={pack.includes()}", "--std=c++17"]
    for compiler in suited(driver.version, pack.arch):
        try:
            text = '#include "prelude.cuh"\n' + pack.text(kernel)
            return driver.load(kernel, compiler.compile(text, f"{kernel.name}.cu", options)[0])
        except Exception as error:  # the next one may do
            notes.append(f"{compiler.identity}: {error}")
    raise DriverError(f"kernel `{kernel.name}` cannot be loaded: {refused.what}", refused.number, notes)


def launch_alone(pack: OpenPack, case: PackedCase) -> None:
    """Launch a case without torch, each buffer an allocation of its own: under a memory checker. Raises DriverError."""
    import numpy as np

    driver, program, places = Driver(0), case.program, {}
    dice = np.random.default_rng(0)
    for buffer in program.buffers():
        places[buffer.name] = driver.alloc(buffer.nbytes)
        if buffer in program.inputs:
            driver.upload(places[buffer.name], _bits(buffer.dtype, dice.standard_normal(buffer.size, np.float32)))
        if buffer.name in case.about["constants"]:
            driver.upload(places[buffer.name], pack.constant(case.about["constants"][buffer.name]).tobytes())
    stream = driver.stream()
    loaded = {kernel.name: load(driver, pack, kernel) for kernel in program.distinct_kernels()}
    for step in program.launches():
        values = arguments(step.kernel, step.addresses(places))
        driver.launch(loaded[step.kernel.name], values, stream)
    driver.synchronize()
    for address in places.values():
        driver.free(address)


def _bits(dtype: str, values: Any) -> bytes:
    """Return float32 values as the bytes of a buffer."""
    import numpy as np

    if dtype == "bf16":
        return bytes((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    return bytes(values.astype(DTYPES[dtype].numpy).tobytes())


def _same_bits(one: Any, other: Any) -> bool:
    import torch

    if one.dtype.is_floating_point:  # NaN equals NaN here
        return bool(torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num()))
    return bool(torch.equal(one, other))


class ServingWorker(Protocol):
    """What a process measures with."""

    def about(self) -> dict[str, Any]: ...
    def answer(self, request: Any) -> tuple[Any, bool]:
        """Return the answer to a request, and whether this process cannot continue."""


def serve(pipe: Connection, make: Callable[[], ServingWorker]) -> None:
    """Send a problem, or "", and the machine; then answer requests until the other end closes."""
    try:
        worker = make()
    except (DplcError, RuntimeError) as error:
        pipe.send((error.what if isinstance(error, DplcError) else str(error).splitlines()[0], {}))
        return
    pipe.send(("", worker.about()))
    while True:
        answer, lost = worker.answer(pipe.recv())
        pipe.send((answer, lost))
        if lost:
            os._exit(1)  # no destructor may touch the broken context


def serve_pack(path: Path, memory: str, pipe: Connection) -> None:
    """Measure cases of a pack. memory: as of a PackWorker."""
    serve(pipe, lambda: PackWorker(OpenPack(path), memory))


def main(path: str, number: str) -> None:
    """Launch a case of a pack alone."""
    pack = OpenPack(Path(path))
    try:
        launch_alone(pack, pack.cases[int(number)])
    except DplcError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
