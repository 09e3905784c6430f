"""Scores of candidates: the check of correctness on the emulator, the cost model, and measurement on a GPU."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import math
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from ...codegen.arrays import is_written
from ...codegen.build import assemble, build_device, device_text
from ...codegen.cache import cache_directory
from ...codegen.compiler import BuildError
from ...codegen.driver import Driver, DriverError
from ...codegen.emulator.executor import CheckingExecutor, chosen_blocks
from ...codegen.judge import Judgement, judge
from ...codegen.kernel import CudaKernel, Program
from ...codegen.pack.runner import WorkerGone, WorkerProcess, gpu_speeds
from ...codegen.pack.worker import BoundProgram, EventTimer, serve as serve_worker
from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.interp.loop import run
from ...ir.interp.torch import in_tf32
from ...ir.loop import For
from ...ir.node import immutable, nodes
from ...ir.program import Block, Kernel, Param, delivered, supplied
from ...ir.sizes import sizes_in, telling
from ...ir.verify.kernel import problems
from ..bench.bench import BLOCKS, ENDS, WHOLE, Assembled, assembled, assembler, ratios, sampled, work_of
from ..compiler import bound, buffer
from ..rewrite.statements.compiled import Program as Kernels
from ..ruleset import here, processes
from ..run.calls import in_float64, random_tensor
from ..schedule.scheduling import predicted_registers, predictions
from ..schedule.space import Launched, ScheduleCandidate
from ..store.store import Basis, FrozenRecord, Score

# ---- Inputs and reference values of a program.
#
# The reference is the float64 meaning of Loop IR (`ir/interp/loop.py`). If that would run too long, it computes some
# iterations of the free loops, and schedules are compared at the elements that those iterations store.


WHOLE_ITERATIONS = 1 << 22  # innermost iterations that are computed in a few seconds at most
FEWEST = 8  # iterations of a free loop that are looked at, at least
Tensors = dict[str, Tensor]
# {output: (values in float64, the same of inputs in TF32 if tensor cores round them, mask of the computed elements)}
Expected = dict[str, tuple[Tensor, Tensor | None, Tensor]]


@immutable
class TuningSubject:
    """Program with inputs and reference values. tensors: inputs by name, on the CPU."""

    tensors: Tensors
    expected: Expected

    def save(self, path: str) -> None:
        """Write the inputs and reference values into a file, for the process that measures."""
        torch.save((self.tensors, self.expected), path)

    @property
    def checked(self) -> str:
        """Compared part of the outputs as text: `whole`, or a number of elements."""
        masks = [where for _, _, where in self.expected.values()]
        compared, every = sum(int(where.sum()) for where in masks), sum(where.numel() for where in masks)
        return "whole" if compared == every else f"{compared} of {every} elements"


def draw(param: Param) -> Tensor:
    """Return reproducible random values for a buffer: normal floats; 0 or 1 for integers, which may be indices."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"0 {param.name}".encode()))
    return random_tensor(param.dtype, param.shape, generator, 2)


@functools.lru_cache(maxsize=8)  # more than a kernel has bindings that are looked at
def subject_of(program: Kernels) -> TuningSubject:
    """Return the inputs and reference values of a program. Raises ScheduleError for one without a meaning."""
    tensors = {param.name: draw(param) for param in supplied(program)}
    stores: dict[str, np.ndarray] = {}
    sample = _sample(program[0]) if len(program) == 1 else {}
    memory, rounded = run(program, in_float64(tensors), stores, sample), dict[str, np.ndarray]()
    if any(kernel.precision == "tf32" for kernel in program):
        rounded = run(program, in_float64({name: in_tf32(x) for name, x in tensors.items()}), {}, sample)
    expected = {
        p.name: (
            torch.from_numpy(memory[p.name]),
            torch.from_numpy(rounded[p.name]) if rounded else None,
            torch.from_numpy(stores[p.name] > 0),
        )
        for p in delivered(program)
    }
    return TuningSubject(tensors, expected)


def launches(made: Launched) -> Program:
    """Return a candidate as a launch plan."""
    inputs, outputs = supplied(made.loops), delivered(made.loops)
    known = {param.name for param in (*inputs, *outputs)}
    between = {p.name: p for kernel in made.kernels for p in kernel.params if p.name not in known}
    given, results, temporaries = (tuple(map(buffer, params)) for params in (inputs, outputs, between.values()))
    return Program(made.cuda, given, results, (), temporaries, tuple(map(bound, made.kernels, made.cuda)))


def compared(got: Tensor, values: Tensor, rounded: Tensor | None, where: Tensor) -> Judgement:
    """Return the judgement of a result at some of its elements. rounded: values from inputs in TF32."""
    eager = None if rounded is None else [rounded[where].to(got.dtype)]
    return judge([got[where]], [values[where]], eager)


def _sample(kernel: Kernel) -> dict[str, np.ndarray]:
    """Return the iterations of free loops to compute. The longest loops are sampled until the computation is fast."""
    extents = {loop.var: int(loop.stop) for loop in nodes(kernel.body, For) if loop.role == "free"}
    kept, dice = dict(extents), np.random.default_rng(0)
    while _iterations(kernel.body, kept) > WHOLE_ITERATIONS and any(n > FEWEST for n in kept.values()):
        longest = max(kept, key=kept.__getitem__)
        kept[longest] = max(kept[longest] // 4, FEWEST)
    return {  # the first, the last, and some between
        var: np.unique([0, extents[var] - 1, *dice.choice(extents[var], count, replace=False)])
        for var, count in kept.items()
        if count < extents[var]
    }


def _iterations(block: Block, kept: dict[str, int]) -> float:
    """Return the number of innermost iterations of the deepest nest."""
    most = 1.0
    for statement in block:
        below = _iterations(getattr(statement, "body", ()), kept)
        if isinstance(statement, For):
            if statement.role == "free":
                below *= kept[statement.var]
            else:
                below *= statement.stop - statement.start if isinstance(statement.stop, int) else math.inf
        most = max(most, below)
    return most


ORDERS = (0, 2)  # of the threads in the blocks that are looked at closely
CLOSELY = ("first", "last", "ragged")


@immutable
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
    for kernel in candidate.kernels:
        for broken in problems(kernel):
            return Verdict("verifier of Kernel IR", f"its schedule is not well formed: {broken}")
    places: dict[str, list[str]] = {}  # {compared part: the sizes at which it was compared}
    for binding in telling(sizes_in(candidate.loops)):
        where = ", ".join(f"{name}={number}" for name, number in binding.items())
        found = _verdict(candidate.at(binding))
        if not found.right:
            return Verdict(found.how, found.finding + (f" where {where}" if where else ""))
        places.setdefault(found.how, []).append(where)
    return Verdict(
        "; ".join(f"{how}, at {' and '.join(sizes)}" if any(sizes) else how for how, sizes in places.items())
    )


def _verdict(made: Launched) -> Verdict:
    """Run a candidate without symbolic dimensions.

    Only some blocks of a single kernel run if all would need minutes.
    """
    subject, first = subject_of(made.loops), made.cuda[0]
    how, some = f"emulator, {subject.checked}", None
    if sum(map(work_of, made.kernels)) > WHOLE and len(made.cuda) == 1:
        some = tuple(sorted({*sampled(first.blocks), *chosen_blocks(first, CLOSELY)}))
        how = f"emulator, {min(BLOCKS, first.blocks)} of {first.blocks} blocks"
    executor = CheckingExecutor(CLOSELY, orders=ORDERS, some=some)
    try:
        results = executor.run(launches(made), subject.tensors)
    except DplcError as problem:
        return Verdict(how, problem.what)
    if executor.findings:
        return Verdict(how, executor.findings[0].message)
    for name, (values, rounded, where) in subject.expected.items():
        got = torch.as_tensor(results[name]).reshape(values.shape)
        both = where if some is None else where & is_written(got)  # elements that both computed
        found = compared(got, values, rounded, both)
        if not found.ok:
            return Verdict(how, f"`{name}` differs by {found.relative:.2g} of its largest value from float64")
    return Verdict(how)


# ---- Scores of candidates by the analytic model: predicted seconds of all kernels.
#
# Registers are predicted too, and the score reports that. Symbolic dimensions have their example values
# (`scheduling.predictions`).


@immutable
class PredictingEvaluator:
    """Evaluator that needs no GPU. registers: of a thread, by kernel, if an assembler reported them."""

    registers: tuple[int, ...] | None = None
    basis: Basis = "predicted"

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        try:
            kernels = candidate.kernels
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        known = self.registers or [predicted_registers(kernel, candidate.target) for kernel in candidate.tile]
        found = predictions(kernels, candidate.target, known)
        bounds = ", ".join(prediction.binding for prediction in found)
        detail = f"{bounds}; registers {'assembled' if self.registers else 'predicted'}"
        return Score(sum(prediction.seconds for prediction in found), self.basis, "ok", detail)


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
        if spilled := sum(one.spill_stores + one.spill_loads for one in used):
            return Score(None, self.basis, "refused", f"{spilled} bytes of registers spilled")
        with self._turn:
            score = PredictingEvaluator(tuple(one.registers for one in used))(candidate)
            if score.seconds is not None:
                self.best[candidate.loops] = min(score.seconds, self.best.get(candidate.loops, math.inf))
        return score


# ---- Figures of the assembler, the disassembler and the emulator, stored with a schedule that no GPU measured.


Details = dict[str, object]


def evidence(candidate: ScheduleCandidate) -> Details:
    """Return figures of a candidate in addition to its score. Raises DplcError if a tool rejects a kernel."""
    found = [assembled(text, candidate.target.arch) for text in candidate.cuda] if assembler() else []
    return {**(of_assembler(found) if found else {}), **of_emulator(candidate)}


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
    made, checker = candidate.as_a_rule, CheckingExecutor(ENDS, orders=(0,), some=())
    checker.run(launches(made), {param.name: draw(param) for param in supplied(made.loops)})
    outside, inside = map(list, zip(*ratios(checker), strict=True))
    said = "emulator, first and last block of each kernel"
    return {"sector_efficiency": outside, "wavefront_ratio": inside, "counters_by": said}


# ---- Measure candidates on a GPU, in a separate process.
#
# A candidate that hangs is killed with that process after a time limit. A candidate that crashes costs a restart.
# Either is one line in its score, and the search continues. `details` of a measured score hold: gpu, runs, median and
# quartiles, the state of the L2 cache, clocks and temperature, the error against float64 and how much was compared, the
# assembler, registers and spills.


LIMIT = 10.0  # seconds for one candidate
Build = Callable[[CudaKernel, str], bytes]


class Measure(FrozenRecord):
    """Request to load, check and time a program.

    images: for the driver, by kernel; arrays: a file of the inputs and reference values.
    """

    program: Program
    images: dict[str, bytes]
    arrays: str


def measuring(target: Target) -> Measuring | None:
    """Return an evaluator for the GPU of this machine, or None if there is none or it differs from the target."""
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return Measuring(target) if major == target.sm // 10 and (major == 9 or minor == target.sm % 10) else None


def cubin(kernel: CudaKernel, arch: str) -> bytes:
    """Return the image of a kernel. Raises BuildError. Compilers run in parallel in threads."""
    return build_device(device_text([kernel]), arch)


# ---- in the process


class Worker:
    """State of the process that measures: the GPU, and the present arrays on it."""

    def __init__(self, memory: str):
        if memory == "cuda" and not torch.cuda.is_available():
            raise DplcError("torch finds no CUDA device here")
        self.memory, self.driver = memory, Driver()
        self.timer = EventTimer(self.driver, self.driver.stream())
        self.arrays = ""
        self.inputs: Tensors = {}
        self.expected: Expected = {}

    def about(self) -> dict[str, Any]:
        """Return nothing: the details of a score name the machine."""
        return {}

    def answer(self, request: Measure) -> tuple[Score, bool]:
        """Return the score of a request, and whether this process cannot continue. Raises only for defects of dplc.

        The details of the score (see above) are those that this process knows. The status is `failed` if the driver
        rejected the program or an access faulted, and `wrong` for a wrong result, which is not timed.
        """
        try:
            if self.arrays != request.arrays:  # they stay on the device for the next candidates
                tensors, self.expected = torch.load(request.arrays, weights_only=True)
                self.inputs = {name: tensor.to(self.memory) for name, tensor in tensors.items()}
                self.arrays = request.arrays
            bound = BoundProgram(
                self.driver, self.timer.stream, request.program, self.inputs,
                lambda kernel: self.driver.load(kernel, request.images[kernel.name]), self.memory,
            )  # fmt: skip
            score = self._measured(request.program, bound)
            for one in {one.kernel.name: one for one in bound.kernels}.values():
                self.driver.unload(one)
        except DplcError as error:
            over = isinstance(error, DriverError)  # an access that faulted takes the whole context with it
            what = f"the driver says: {error.what}" if over else error.what
            return Score(None, "measured", "failed", what, {"gpu": self.driver.name}), over
        return score, False

    def _measured(self, program: Program, bound: BoundProgram) -> Score:
        bound.poison()
        with gpu_alone():
            self.driver.synchronize()
            bound.launch()
            self.driver.synchronize()
        error, wrong = 0.0, list[str]()  # the largest relative error; other values, or elements that were not written
        for output in program.outputs:
            got = bound.result(output.name, output.dtype, output.shape).cpu()
            found = compared(got, *self.expected[output.name])
            error = max(error, found.relative)
            if got.dtype.is_floating_point and (missing := int((~is_written(got)).sum())):
                wrong.append(f"{missing} elements of `{output.name}` were never written")
            elif not found.ok:
                wrong.append(f"`{output.name}` is off by {found.relative:.1e} of the largest value")
        known = {
            "error": error, "gpu": self.driver.name, "registers": [one.registers or None for one in bound.kernels],
            "spills": [one.local_bytes for one in bound.kernels],
        }  # fmt: skip
        if wrong:
            return Score(None, "measured", "wrong", wrong[0], known)
        try:
            run, launched = bound.graph(), "CUDA graph"
        except DriverError:
            run, launched = bound.launch, "one by one"
        with gpu_alone():
            timing = self.timer.timing(run, launched)
        known |= {**timing, "clocks": gpu_speeds() if self.memory == "cuda" else {}, "l2": self.timer.l2}
        detail = f"median of {timing['runs']}, quartiles {timing['low_us']:.4g} to {timing['high_us']:.4g} us"
        return Score(timing["median_us"] * 1e-6, "measured", "ok", detail, known)


@contextlib.contextmanager
def gpu_alone() -> Iterator[None]:
    """Wait until no other dplc process uses the GPU: parallel tuners must not disturb each other's times."""
    path = cache_directory() / "gpu.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def serve(pipe: Connection, memory: str = "cuda") -> None:
    """Measure programs in a process."""
    serve_worker(pipe, lambda: Worker(memory))


# ---- in the process that searches


class Measuring(contextlib.ExitStack):
    """Evaluator that measures on a GPU (`records.Evaluator`). `close` ends its process and removes its files.

    Several threads may call it: they compile in parallel and measure one after the other. serve, build: the work of the
    process and the images; others than the default are for mock drivers.
    """

    basis: Basis = "measured"

    def __init__(
        self, target: Target, *, serve: Callable[[Connection], None] = serve, build: Build = cubin
    ):  # fmt: skip
        super().__init__()
        self.target, self.limit, self.build = target, LIMIT, build
        folder = tempfile.TemporaryDirectory(prefix="dplc-measure-", ignore_cleanup_errors=True)
        self._folder = Path(self.enter_context(folder))
        self.process = WorkerProcess(here(serve), processes())
        self.callback(self.process.kill)
        self._turn = threading.Lock()
        self._saved: dict[Kernels, tuple[str, str]] = {}  # the compared part, and the file of the arrays

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        """Compile a candidate, check it against float64 and time it, with symbolic dimensions at their examples.

        Raises DplcError if no process can be started.
        """
        try:
            made = candidate.as_a_rule
        except DplcError as error:
            return Score(None, self.basis, "refused", error.what)
        try:
            images = {text.name: self.build(text, self.target.arch) for text in made.cuda}
        except DplcError as error:
            return Score(None, self.basis, "failed", error.what)
        with self._turn:
            if made.loops not in self._saved:
                subject, path = subject_of(made.loops), str(self._folder / str(len(self._saved)))
                subject.save(path)
                self._saved[made.loops] = subject.checked, path
            checked, arrays = self._saved[made.loops]
            bare = tuple(replace(text, text="", comment="") for text in made.cuda)
            request = Measure(launches(made._replace(cuda=bare)), images, arrays)
            try:
                score: Score = self.process.ask(request, self.limit)
            except WorkerGone as gone:
                return Score(None, self.basis, "timeout" if gone.killed else "failed", str(gone))
        details = {**score.details, "compared": checked, "assembler": assembler()}
        return msgspec.structs.replace(score, details=details)
