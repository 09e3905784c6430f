"""Scores of candidates: the check of correctness on the emulator, the cost model, and measurement on a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import math
import multiprocessing
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from ...codegen.arrays import as_numpy, as_tensor, is_written
from ...codegen.build import assemble, build_device, device_text
from ...codegen.cache import cache_directory
from ...codegen.compiler import BuildError
from ...codegen.driver import Driver, DriverError, Loaded
from ...codegen.emulator.executor import CheckingExecutor, chosen_blocks
from ...codegen.kernel import CudaKernel, Program
from ...codegen.launch import DeviceError
from ...codegen.pack.runner import gpu_speeds
from ...codegen.pack.worker import BoundProgram, EventTimer
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.interp.loop import run
from ...ir.loop import For
from ...ir.node import nodes
from ...ir.program import Kernel, Param, delivered, supplied
from ...ir.sizes import telling
from ...ir.verify.kernel import problems
from ..bench.cases import (
    BLOCKS,
    ENDS,
    WHOLE,
    Assembled,
    assembled,
    assembler,
    ratios,
    sampled,
    work_of,
)
from ..compiler import bound, buffer
from ..cost.instruction_counts import features, instruction_counts
from ..rewrite.statements.compiled import Program as Kernels
from ..ruleset import here, processes
from ..run.calls import in_float64, judge, random_tensor
from ..schedule.scheduling import predicted_registers, predictions
from ..schedule.space import Launched, ScheduleCandidate
from ..store.store import Basis, FrozenRecord, Score

# ---- Inputs and reference values of a program.
#
# The reference is the float64 meaning of Loop IR (`ir/interp/loop.py`). If that would run too long, it computes some
# iterations of the free loops, and schedules are compared at the elements that those iterations store.


WHOLE_ITERATIONS = 1 << 22  # innermost iterations that are computed in a few seconds at most
FEWEST = 8  # iterations of a free loop that are looked at, at least
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TuningSubject:
    """Program with inputs and reference values.

    tensors: inputs by name, on the CPU; expected: for each output (values, where), float64 and the mask of computed
    elements.
    """

    program: tuple[Kernel, ...]
    tensors: dict[str, Any]
    expected: dict[str, tuple[Array, Array]]

    @property
    def checked(self) -> str:
        """Compared part of the outputs as text: `whole`, or a number of elements."""
        compared = sum(int(where.sum()) for _, where in self.expected.values())
        every = sum(where.size for _, where in self.expected.values())
        return "whole" if compared == every else f"{compared} of {every} elements"


def draw(param: Param, seed: int = 0) -> Any:
    """Return reproducible random values for a buffer: normal floats; 0 or 1 for integers, which may be indices."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {param.name}".encode()))
    return random_tensor(param.dtype, param.shape, generator, 2)


@functools.lru_cache(maxsize=8)  # more than a kernel has bindings that are looked at
def subject_of(program: tuple[Kernel, ...], seed: int = 0) -> TuningSubject:
    """Return a program with inputs and reference values. Raises ScheduleError for one without a meaning."""
    tensors = {param.name: draw(param, seed) for param in supplied(program)}
    only = _sample(program[0], seed) if len(program) == 1 else {}
    stores: dict[str, Array] = {}
    memory = run(program, in_float64(tensors), stores, only)
    outputs = delivered(program)
    return TuningSubject(program, tensors, {p.name: (memory[p.name], stores[p.name] > 0) for p in outputs})


def launches(loops: tuple[Kernel, ...], kernels: tuple[Kernel, ...], texts: tuple[CudaKernel, ...]) -> Program:
    """Return a candidate without symbolic dimensions as a launch plan without the CUDA texts."""
    inputs, outputs = supplied(loops), delivered(loops)
    known = {param.name for param in (*inputs, *outputs)}
    between = {p.name: p for kernel in kernels for p in (*kernel.ins, *kernel.outs) if p.name not in known}
    bindings = tuple(bound(kernel, made) for kernel, made in zip(kernels, texts, strict=True))
    bare = tuple(dataclasses.replace(text, text="", comment="") for text in texts)
    given, made, temporaries = (tuple(map(buffer, params)) for params in (inputs, outputs, between.values()))
    return Program(bare, given, made, (), temporaries, bindings)


def _sample(kernel: Kernel, seed: int) -> dict[str, Array]:
    """Return the iterations of free loops to compute. The longest loops are sampled until the computation is fast."""
    extents = {loop.var: int(loop.stop) for loop in nodes(kernel.body, For) if loop.role == "free"}
    kept = dict(extents)
    dice = np.random.default_rng(seed)
    while _iterations(kernel.body, kept) > WHOLE_ITERATIONS and any(n > FEWEST for n in kept.values()):
        longest = max(kept, key=lambda var: kept[var])
        kept[longest] = max(kept[longest] // 4, FEWEST)
    chosen = {}
    for var, count in kept.items():
        if count < extents[var]:  # the first, the last, and some between
            between = dice.choice(extents[var], count, replace=False)
            chosen[var] = np.unique(np.array([0, extents[var] - 1, *between]))
    return chosen


def _iterations(block: Any, kept: dict[str, int]) -> float:
    """Return the number of innermost iterations of the deepest nest."""
    most = 1.0
    for statement in (statement for statement in block if hasattr(statement, "body")):
        iterations = 1.0
        if isinstance(statement, For):
            iterations = statement.stop - statement.start if isinstance(statement.stop, int) else math.inf
            if statement.role == "free":
                iterations = min(iterations, kept.get(statement.var, iterations))
        most = max(most, _iterations(statement.body, kept) * iterations)
    return most


ORDERS = (0, 2)  # of the threads in the blocks that are looked at closely
CLOSELY = ("first", "last", "ragged")


@dataclass(frozen=True)
class Verdict:
    """Result of a correctness check. how: the compared part; finding: the error, "" if there is none."""

    how: str
    finding: str = ""

    @property
    def right(self) -> bool:
        return not self.finding


def verdict(candidate: ScheduleCandidate) -> Verdict:
    """Run a candidate on the emulator and compare it with float64.

    One with symbolic dimensions runs at the ends of their ranges, at their examples and next to these. The verdict
    holds wrong results and races. Raises DplcError if the host cannot run it.
    """
    broken = next((problem for kernel in candidate.kernels for problem in problems(kernel)), "")
    if broken:
        return Verdict("verifier of Kernel IR", f"its schedule is not well formed: {broken}")
    found = dict[str, Verdict]()
    for binding in telling(candidate.sizes):
        where = ", ".join(f"{name}={number}" for name, number in binding.items())
        found[where] = _verdict(candidate.at(binding))
        if not found[where].right:
            told = f" where {where}" if where else ""
            return Verdict(found[where].how, found[where].finding + told)
    hows = dict.fromkeys(one.how for one in found.values())
    return Verdict("; ".join(_at([where for where in found if found[where].how == how], how) for how in hows))


def _at(places: list[str], how: str) -> str:
    """Return a text like `emulator, whole, at s=1 and s=8`."""
    return f"{how}, at {' and '.join(places)}" if any(places) else how


def _verdict(made: Launched) -> Verdict:
    """Run a candidate without symbolic dimensions.

    Only some blocks of a single kernel run if all would need minutes.
    """
    texts, subject = made.cuda, subject_of(made.loops)
    program = dataclasses.replace(launches(made.loops, made.kernels, texts), kernels=texts)
    how, some = f"emulator, {subject.checked}", None
    if sum(map(work_of, made.kernels)) > WHOLE and len(texts) == 1:
        count = texts[0].blocks
        some = tuple(sorted({*sampled(count), *chosen_blocks(texts[0], CLOSELY)}))
        how = f"emulator, {min(BLOCKS, count)} of {count} blocks"
    executor = CheckingExecutor(CLOSELY, orders=ORDERS, some=some)
    try:
        results = executor.run(program, {b.name: subject.tensors[b.name] for b in program.inputs})
    except DplcError as problem:
        return Verdict(how, problem.what)
    if executor.findings:
        return Verdict(how, executor.findings[0].message)
    for name, (values, where) in subject.expected.items():  # elements that both computed
        got = torch.as_tensor(results[name]).reshape(values.shape)
        here = torch.from_numpy(where) & is_written(got) if "blocks" in how else torch.from_numpy(where)
        found = judge([got[here]], [torch.from_numpy(values)[here]])
        if not found.ok:
            return Verdict(how, f"`{name}` differs by {found.relative:.2g} of its largest value from float64")
    return Verdict(how)


# ---- Scores of candidates by the analytic model: predicted seconds of all kernels.
#
# Registers are predicted too, and the score reports that. Symbolic dimensions have their example values
# (`scheduling.predictions`).


@dataclass(frozen=True)
class PredictingEvaluator:
    """Evaluator that needs no GPU. registers: of a thread, by kernel, if an assembler reported them."""

    registers: tuple[int, ...] | None = None
    basis: Basis = "predicted"

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        try:
            kernels = candidate.kernels
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        numbers = range(len(kernels))
        known = self.registers or [predicted_registers(candidate.tile, n, candidate.target) for n in numbers]
        found = predictions(kernels, candidate.target, known)
        about = f"registers {'assembled' if self.registers else 'predicted'}"
        bounds = ", ".join(prediction.binding for prediction in found)
        return Score(sum(prediction.seconds for prediction in found), self.basis, "ok", f"{bounds}; {about}")


# ---- The cost model with the assembler's registers, for candidates that may win.


AHEAD = 4  # candidates at once, on two cores: not all of a round need the assembler
MARGIN = 1.1  # a candidate may win if the model gives it at most so many times the best


@dataclass
class AssemblingEvaluator:
    """Evaluator that several threads may call: NVRTC runs in parallel with Python.

    It rejects a candidate that spills registers, because the model does not know the cost. best: of each program so
    far.
    """

    basis: Basis = "predicted"
    best: dict[Kernels, float] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        with self._turn:
            first = PredictingEvaluator()(candidate)
            if first.seconds is None or first.seconds > MARGIN * self.best.get(candidate.loops, math.inf):
                return first
            texts = candidate.cuda
        try:
            found = assemble(device_text(list(texts)), candidate.target.arch).kernels
        except BuildError as error:
            return Score(None, self.basis, "failed", error.what)
        used = [found[text.name] for text in texts]
        spilled = sum(one.spill_stores + one.spill_loads for one in used)
        if spilled:
            return Score(None, self.basis, "refused", f"{spilled} bytes of registers spilled")
        with self._turn:
            score = PredictingEvaluator(tuple(one.registers for one in used))(candidate)
            if score.seconds is not None:
                self.best[candidate.loops] = min(score.seconds, self.best.get(candidate.loops, math.inf))
        return score


# ---- Figures of the assembler, the disassembler and the emulator, stored with a schedule that no GPU measured.


Details = dict[str, Any]


def evidence(candidate: ScheduleCandidate, emulate: bool = True) -> Details:
    """Return figures of a candidate in addition to its score.

    emulate: count accesses, which builds and runs two blocks of each kernel. Raises DplcError if a tool rejects a
    kernel.
    """
    details: Details = {}
    if assembler():
        details |= of_assembler([assembled(text, candidate.target.arch) for text in candidate.cuda])
    if emulate:
        details |= of_emulator(candidate)
    return details


def of_assembler(found: list[Assembled]) -> Details:
    """Return registers and spills; with a disassembler also instructions and the share of FFMA in the hot loops."""
    details: Details = {
        "registers": [one.registers for one in found], "spills": [one.spill_bytes for one in found],
        "registers_by": assembler(),
    }  # fmt: skip
    if all(one.instructions is not None for one in found):
        details["ffma_share"] = [one.ffma_share for one in found]
        details["instructions"] = [one.instructions for one in found]
    return details


def of_emulator(candidate: ScheduleCandidate) -> Details:
    """Return two ratios for each kernel, counted in its first and last block.

    They are the least sectors of global memory divided by the sectors, and the wavefronts of shared memory divided by
    the least wavefronts.
    """
    loops, kernels, cuda = candidate.as_a_rule
    program = dataclasses.replace(launches(loops, kernels, cuda), kernels=cuda)
    checker = CheckingExecutor(ENDS, orders=(0,), some=())
    checker.run(program, {param.name: draw(param) for param in supplied(loops)})
    outside, inside = map(list, zip(*ratios(checker), strict=True))
    said = "emulator, first and last block of each kernel"
    return {"sector_efficiency": outside, "wavefront_ratio": inside, "counters_by": said}


# ---- Measure candidates on a GPU, in a separate process.
#
# A candidate that hangs is killed with that process after a time limit. A candidate that crashes costs a restart.
# Either is one line in its score, and the search continues. `details` of a measured score hold: gpu, runs, the
# quartiles, the state of the L2 cache, clocks and temperature, the error against float64 and how much was compared, the
# assembler, registers and spills, and `launches`, instruction counts from which the cost model predicts the time.


WARM_UP, RUNS, SECONDS = 3, 30, 0.5
LIMIT = 10.0  # seconds for one candidate
START_LIMIT = 120.0  # seconds until the process is ready: it imports torch
STARTS = 3  # failures in a row before giving up
WARM_RUNS = 5
CLOCK_SECONDS = 5.0  # clocks are read again after this time
Build = Callable[[CudaKernel, str], bytes]
Expected = Mapping[str, tuple[Any, Any]]  # {output: (values, mask of the elements that were computed)}


class Measure(FrozenRecord, frozen=True):
    """Request to load, check and time a program.

    images: for the driver, by kernel; folder: of the arrays (`save_arrays`).

    The program runs warm_up times, then up to `runs` times or for `seconds`, with the L2 cache filled with other data
    before each run; then a few times with the cache as the preceding run left it.
    """

    program: Program
    images: dict[str, bytes]
    folder: str
    warm_up: int = WARM_UP
    runs: int = RUNS
    seconds: float = SECONDS


class Measured(FrozenRecord, frozen=True, kw_only=True):
    """Answer to a request.

    failed: the driver rejected it or an access faulted; wrong: a wrong result, which is not timed.

    seconds: of every run; details: of the score (see above), as far as this process knows them. over: this process
    cannot continue.
    """

    status: Literal["ok", "wrong", "failed"]
    detail: str = ""
    seconds: list[float] = []
    details: dict[str, Any] = {}
    over: bool = False


def measuring(target: Target) -> Measuring | None:
    """Return an evaluator for the GPU of this machine, or None if there is none or it differs from the target."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return Measuring(target) if major == target.sm // 10 and (major == 9 or minor == target.sm % 10) else None


def cubin(kernel: CudaKernel, arch: str) -> bytes:
    """Return the image of a kernel. Raises BuildError. Compilers run in parallel in threads."""
    return build_device(device_text([kernel]), arch)


def save_arrays(folder: Path, program: Program, tensors: Mapping[str, Any], expected: Expected) -> None:
    """Write the inputs and reference values of a program into a new folder, for the process that measures."""
    folder.mkdir()
    given = {f"={b.name}": as_numpy(b, tensors[b.name]) for b in program.inputs}
    np.savez(folder / "inputs.npz", **given)  # type: ignore[arg-type]
    values = {f"={name}": found for name, (found, _) in expected.items()}
    np.savez(folder / "expected.npz", **values, **{f"@{name}": where for name, (_, where) in expected.items()})


class Measuring:
    """Evaluator that measures on a GPU (`records.Evaluator`). `close` ends its process.

    Several threads may call it: they compile in parallel and measure one after the other. serve, build: the work of the
    process and the images; others than the default are for mock drivers.
    """

    basis: Basis = "measured"

    def __init__(
        self, target: Target, *, limit: float = LIMIT, runs: int = RUNS,
        serve: Callable[[Connection], None] | None = None, build: Build = cubin,
    ):  # fmt: skip
        self.target, self.limit, self.runs, self.build = target, limit, runs, build
        self.process = WorkerProcess(serve or serve_gpu)
        self._turn = threading.Lock()
        self._subjects: dict[tuple[Kernel, ...], tuple[TuningSubject, Path]] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="dplc-measure-"))

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        """Compile a candidate, check it against float64 and time it, with symbolic dimensions at their examples.

        Raises DeviceError if no process can be started.
        """
        try:
            loops, kernels, texts = candidate.as_a_rule
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        try:
            images = {text.name: self.build(text, self.target.arch) for text in texts}
        except DplcError as error:
            return Score(None, self.basis, "failed", error.what)
        with self._turn:
            program = launches(loops, kernels, texts)
            if loops not in self._subjects:
                folder = self._folder / str(len(self._subjects))
                self._subjects[loops] = subject_of(loops), folder
                save_arrays(folder, program, self._subjects[loops][0].tensors, self._subjects[loops][0].expected)
            subject, folder = self._subjects[loops]
            request = Measure(program, images, str(folder), runs=self.runs)
            answer = self.process.ask(request, self.limit)
        if not isinstance(answer, Measured):
            return answer
        details = {**answer.details, "compared": subject.checked, "assembler": assembler()}
        if answer.status != "ok":
            return Score(None, self.basis, answer.status, answer.detail, details)
        low, middle, high = statistics.quantiles(answer.seconds, n=4, method="inclusive")
        counted = [features(instruction_counts(k, n)) for k, n in zip(kernels, details["registers"], strict=True)]
        details |= {"runs": len(answer.seconds), "low_us": low * 1e6, "high_us": high * 1e6, "launches": counted}
        told = f"median of {len(answer.seconds)}, quartiles {low * 1e6:.4g} to {high * 1e6:.4g} us"
        return Score(middle, self.basis, "ok", told, details)

    def close(self) -> None:
        """End the process and remove its files."""
        self.process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Measuring:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerProcess:
    """Process that measures: started at the first request, and again after it was killed or died."""

    def __init__(self, serve: Callable[[Connection], None]):
        self.serve = serve
        self._process: ForkServerProcess | None = None
        self._pipe: Connection
        self._printed = tempfile.NamedTemporaryFile(prefix="dplc-worker-")  # noqa: SIM115 - it lives as long as this

    def ask(self, request: Measure, limit: float) -> Measured | Score:
        """Return the answer, or the score of a candidate without one. Raises DeviceError if no process can start."""
        self.start()
        try:
            self._pipe.send(request)
            if not self._pipe.poll(limit):
                self.kill()
                return Score(None, "measured", "timeout", f"no result after {limit:g} seconds: killed")
            answer: Measured = self._pipe.recv()
        except (OSError, EOFError):
            return Score(None, "measured", "failed", f"the process that ran it {self._end()}")
        if answer.over:
            self._end()
        return answer

    def start(self) -> None:
        """Start the process unless it runs. Raises DeviceError with its reason if it cannot measure."""
        problem = ""
        for _ in range(STARTS):
            if self._process is not None and self._process.is_alive():
                return
            self.kill()
            self._printed.truncate(0)
            self._pipe, other = multiprocessing.Pipe()
            arguments = self.serve, other, self._printed.name
            self._process = processes().Process(target=here(_run), args=arguments, daemon=True)
            self._process.start()
            other.close()
            try:
                ready = self._pipe.poll(START_LIMIT)
                problem = self._pipe.recv() if ready else f"the process for it {self._end()}"
            except (OSError, EOFError):
                problem = f"the process for it {self._end()}"
            else:
                if problem:
                    self.kill()
                    break
        if problem:
            raise DeviceError(f"nothing can be measured here: {problem}")

    def _end(self) -> str:
        """Make sure that the process has ended. Return how, with the last line that it printed."""
        assert self._process is not None
        self._process.join(10.0)
        code = self._process.exitcode
        self.kill()
        lines = Path(self._printed.name).read_text(errors="replace").split("\n")
        line = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        how = "hung" if code is None else f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"{how}: {line}" if line else how

    def kill(self) -> None:
        """End the process immediately, with the processes that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid or 0, signal.SIGKILL)
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


# ---- in the process


class Worker:
    """State of the process that measures: the GPU, and the arrays of the present folder on it."""

    def __init__(self, memory: str = "cuda"):
        if memory == "cuda" and not torch.cuda.is_available():
            raise DeviceError("torch finds no CUDA device here")
        self.memory, self.driver = memory, Driver()
        self.gpu = self.driver.name
        self.timer = EventTimer(self.driver, self.driver.stream())
        self.folder = ""
        self.inputs: dict[str, Any] = {}
        self.expected: dict[str, tuple[Any, Any]] = {}
        self.clocks: tuple[float, dict[str, float]] = (-CLOCK_SECONDS, {})  # when they were read; MHz and degrees

    def measure(self, request: Measure) -> Measured:
        """Return the answer to a request. Raises only for defects of dplc."""
        loaded, about = list[Loaded](), {"gpu": self.gpu}

        def load(kernel: CudaKernel) -> Loaded:
            loaded.append(self.driver.load(kernel, request.images[kernel.name]))
            return loaded[-1]

        try:
            if self.folder != request.folder:  # the arrays stay on the device for the next candidates
                folder = Path(request.folder)
                given, expected = (
                    np.load(folder / f"{name}.npz", allow_pickle=False) for name in ("inputs", "expected")
                )
                buffers, outputs = request.program.inputs, request.program.outputs
                self.inputs = {b.name: as_tensor(b, given[f"={b.name}"]).to(self.memory) for b in buffers}
                self.expected = {b.name: (expected[f"={b.name}"], expected[f"@{b.name}"]) for b in outputs}
                self.folder = request.folder
            program, stream = request.program, self.timer.stream
            answer = self._measured(request, BoundProgram(self.driver, stream, program, self.inputs, load, self.memory))
            for one in loaded:
                self.driver.unload(one)
        except DriverError as error:  # an access that faulted takes the whole context with it
            return Measured(status="failed", detail=f"the driver says: {error.what}", details=about, over=True)
        except DplcError as error:
            return Measured(status="failed", detail=error.what, details=about)
        return answer

    def _measured(self, request: Measure, bound: BoundProgram) -> Measured:
        bound.poison()
        with gpu_alone():
            self.driver.synchronize()
            bound.launch()
            self.driver.synchronize()
        error, wrong = 0.0, ""  # the largest relative error; another value, or an element that was not written
        for output in request.program.outputs:
            got = bound.result(output.name, output.dtype, output.shape).cpu()
            values, written = self.expected[output.name]
            where = torch.from_numpy(written)
            found = judge([got[where]], [torch.from_numpy(values)[where]])
            missing = int((~is_written(got)).sum()) if got.dtype.is_floating_point else 0
            error = max(error, found.relative)
            if missing:
                wrong = wrong or f"{missing} elements of `{output.name}` were never written"
            elif not found.ok:
                wrong = wrong or f"`{output.name}` is off by {found.relative:.1e} of the largest value"
        known: dict[str, Any] = {
            "error": error, "gpu": self.gpu, "registers": [one.registers or None for one in bound.kernels],
            "spills": [one.local_bytes for one in bound.kernels],
        }  # fmt: skip
        if wrong:
            return Measured(status="wrong", detail=wrong, details=known)
        try:
            run, launched = bound.graph(), "CUDA graph"
        except DriverError:
            run, launched = bound.launch, "one by one"
        with gpu_alone():
            self.timer.cold(run, request.warm_up)
            until, seconds = time.monotonic() + request.seconds, self.timer.cold(run, min(3, request.runs))
            while len(seconds) < request.runs and time.monotonic() < until:
                seconds += self.timer.cold(run, 1)
            warm = self.timer.warm(run, WARM_RUNS)
        if time.monotonic() - self.clocks[0] >= CLOCK_SECONDS:
            self.clocks = time.monotonic(), gpu_speeds() if self.memory == "cuda" else {}
        known |= {
            "warm_us": warm * 1e6, "launched": launched, "clocks": self.clocks[1],
            "l2": f"cold: {self.timer.bytes} bytes of other data written before every run",
        }  # fmt: skip
        return Measured(status="ok", seconds=seconds, details=known)


@contextlib.contextmanager
def gpu_alone() -> Iterator[None]:
    """Wait until no other dplc process uses the GPU: parallel tuners must not disturb each other's times."""
    path = cache_directory() / "gpu.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def serve(pipe: Connection, memory: str) -> None:
    """Send a problem, or "" if there is a GPU; then answer requests until the other end closes."""
    try:
        worker = Worker(memory)
    except (DplcError, RuntimeError) as error:
        pipe.send(error.what if isinstance(error, DplcError) else str(error))
        return
    pipe.send("")
    while True:
        answer = worker.measure(pipe.recv())
        pipe.send(answer)
        if answer.over:
            os._exit(1)  # no destructor may touch the broken context


def serve_gpu(pipe: Connection) -> None:
    """Measure on the GPU of this machine."""
    serve(pipe, "cuda")


def _run(work: Callable[[Connection], None], pipe: Connection, printed: str) -> None:
    """Run in the process: a group of its own, so that Ctrl-C does not reach it; its prints go to a file."""
    os.setsid()
    file = os.open(printed, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        work(pipe)
