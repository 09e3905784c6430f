"""Tune many kernels: the cases of a suite, a model, or a text at a grid of sizes. Each distinct kernel is tuned once.

Jobs run in this process, in processes of this machine (`--jobs N`), or on a Ray cluster (`--executor ray`). A job that
fails, or whose process dies, is one line in its outcome, and the others continue.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import multiprocessing
import queue
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...codegen.target import Target
from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.program import Kernel
from ...ir.text.programs import print_program, read_program
from ..bench.cases import assembler
from ..bench.suites import BenchCase, Suite, subject_of
from ..capture.capture import Capture
from ..capture.text import capture_text
from ..compiler import Compiler
from ..explore.candidates import Fusing
from ..kernels.sharing import key, key_of_range
from ..ruleset import Toolchain, exactly, read_settings, toolchain
from ..store.records import Attempt, Evaluator, Tuned, TuningKey, key_of
from ..store.store import CollectingStore, TuningStore, open_store
from .evaluators import AssemblingEvaluator, PredictingEvaluator
from .measure import measuring
from .runner import Heard
from .tuning import SearchOptions, checked_whole, store_variant, tune_kernel

LARGEST_GRID = 10_000
Where = Literal["processes", "ray"]


class Job(msgspec.Struct, frozen=True):
    """One kernel to tune. kernel: its Loop IR as text; names: of the cases that need it, `case:kernel`.

    target, rules, settings, exact: as on the command line. db: the store that the job writes to, or None if it runs on
    another machine and its outcome brings everything back. wishes: the `SearchOptions`, as plain JSON.
    """

    kernel: str
    names: tuple[str, ...]
    target: str
    rules: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    db: str | None = None
    wishes: dict[str, Any] = {}
    exact: bool = False


class JobOutcome(msgspec.Struct, frozen=True):
    """The outcome of a job. tuned: None if it failed (`failed` says why) or found no schedule that can be stored.

    interrupted: the user interrupted its search and waits for the end.
    """

    key: TuningKey | None = None
    tuned: Tuned | None = None
    attempts: tuple[Attempt, ...] = ()
    line: str = ""
    failed: str = ""
    interrupted: bool = False


TuneOne = Callable[..., JobOutcome]  # takes a job, and a listener to its tries


def guarded(tune_one: TuneOne, job: Job) -> JobOutcome:
    """Return the outcome of a job. An exception is one line of it."""
    try:
        return tune_one(job)
    except DplcError as error:
        return JobOutcome(failed=error.what)
    except Exception as error:  # a defect of dplc must not end the other jobs
        return JobOutcome(failed=f"internal error: {type(error).__name__}: {error}")


# ---- what there is to tune


@dataclass(frozen=True)
class TuningProgram:
    """Case: its name, and the kernels of each of its fusion variants. The rules decide variant 0."""

    name: str
    fusing: Fusing
    ways: Mapping[int, tuple[Kernel, ...]]


def program_of(
    name: str, captured: Capture, tools: Toolchain, target: Target, top: int = 1,
    tensors: Callable[[], Mapping[str, Any]] = dict,
) -> TuningProgram:  # fmt: skip
    """Return a program with at most `top` fusion variants. tensors: makes the tensors that the capture does not hold.

    Raises DplcError for a program that the rules cannot compile.
    """
    fusing = Fusing(Compiler(tools, target).values(captured), tools, target, top, tensors)
    built: dict[int, tuple[Kernel, ...]] = {}
    for way, named in enumerate(fusing.ways()):
        try:
            built[way] = tuple(named.kernels())
        except DplcError:  # it cannot be lowered, or is an earlier one again
            if way == 0:
                raise
    return TuningProgram(name, fusing, built)


def of_suite(
    suite: Suite, cases: Iterable[BenchCase], tools: Toolchain, target: Target, top: int = 1
) -> Iterator[TuningProgram]:
    """Yield the cases of a suite. Raises DplcError for one that dplc cannot compile."""
    for case in cases:
        subject = subject_of(suite, case)
        yield program_of(case.name, subject.capture(), tools, target, top, subject.inputs)


def of_grid(
    text: str, grid: Sequence[str], tools: Toolchain, target: Target, top: int = 1,
    capture: Callable[[str], Capture] = capture_text,
) -> Iterator[TuningProgram]:  # fmt: skip
    """Yield a `-c` text at every point of a grid: `M=1,8,64` binds M in it. Raises UsageError for a bad grid."""
    for point in points(grid):
        bound = "".join(f"{name} = {value}\n" for name, value in point.items())
        name = ",".join(f"{name}={value}" for name, value in point.items())
        yield program_of(name or "it", capture(bound + text), tools, target, top)


def points(grid: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield the points of `["M=1,8", "N=64"]`, the last name fastest. Raises UsageError."""
    axes: dict[str, list[int]] = {}
    for written in grid:
        found = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+(?:\s*,\s*\d+)*)\s*", written)
        if found is None:
            raise UsageError(f"--grid {written}: write NAME=1,8,64")
        if found[1] in axes:
            raise UsageError(f"--grid {written}: `{found[1]}` has its values already")
        axes[found[1]] = list(dict.fromkeys(int(value) for value in found[2].split(",")))
    if math.prod(map(len, axes.values())) > LARGEST_GRID:
        raise UsageError(f"--grid has more than {LARGEST_GRID} points")
    yield from (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


def distinct(programs: Iterable[TuningProgram], base: Job) -> list[Job]:
    """Return a job for each distinct kernel, in order. base: the fields that all jobs share."""
    first: dict[str, Kernel] = {}
    names: dict[str, list[str]] = {}
    for program in programs:
        for kernel in (kernel for kernels in program.ways.values() for kernel in kernels):
            first.setdefault(key(kernel), kernel)
            name = f"{program.name}:{kernel.name}"
            if name not in names.setdefault(key(kernel), []):  # several ways may launch it
                names[key(kernel)].append(name)
    return [
        msgspec.structs.replace(base, kernel=print_program((kernel,), "loop"), names=tuple(names[k]))
        for k, kernel in first.items()
    ]


# ---- carrying them out


def carry_out(
    jobs: Sequence[Job], tune_one: TuneOne, count: int = 1, where: Where = "processes", heard: Heard | None = None
) -> Iterator[tuple[Job, JobOutcome]]:
    """Yield outcomes in the order of completion. Raises UsageError without Ray.

    Args:
        tune_one: a function of a module, which other processes can import.
        count: jobs at a time.

    The last argument is called after every try of a job in this process.
    """
    if count <= 1 and where == "processes":
        one = tune_one if heard is None else functools.partial(tune_one, heard=heard)
        yield from ((job, guarded(one, job)) for job in jobs)
        return
    with _ray() if where == "ray" else _processes(count) as remote:
        threads = ThreadPoolExecutor(count)
        try:
            waiting = {threads.submit(remote, tune_one, job): job for job in jobs}
            yield from ((waiting[done], done.result()) for done in as_completed(waiting))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


Remote = Callable[[TuneOne, Job], JobOutcome]


@contextmanager
def _processes(count: int) -> Iterator[Remote]:
    """Run jobs in processes of this machine: each has one job at a time, so that a process that dies takes one job."""
    spawn = multiprocessing.get_context("spawn")
    idle: queue.SimpleQueue[ProcessPoolExecutor] = queue.SimpleQueue()
    for _ in range(count):
        idle.put(ProcessPoolExecutor(1, spawn))

    def remote(tune_one: TuneOne, job: Job) -> JobOutcome:
        process = idle.get()
        try:
            return process.submit(guarded, tune_one, job).result()
        except BrokenProcessPool:
            process = ProcessPoolExecutor(1, spawn)
            return JobOutcome(failed="its process died")
        finally:
            idle.put(process)

    try:
        yield remote
    finally:
        while not idle.empty():
            idle.get().shutdown(wait=False)


@contextmanager
def _ray() -> Iterator[Remote]:
    """Run jobs on a Ray cluster: that of $RAY_ADDRESS, or one that starts here and ends with this process.

    Every machine needs the rule files at the same paths. Outcomes come back and are stored here.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        hint = "pip install 'dplc[ray]'"
        raise UsageError("--executor ray needs Ray, which is not installed here", hint=hint) from None
    mine = not ray.is_initialized()
    if mine:
        ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    task = ray.remote(max_retries=0)(guarded)

    def remote(tune_one: TuneOne, job: Job) -> JobOutcome:
        try:
            return ray.get(task.remote(tune_one, msgspec.structs.replace(job, db=None)))  # type: ignore[no-any-return]
        except ray.exceptions.RayError as error:
            return JobOutcome(failed=f"Ray: {type(error).__name__}")

    try:
        yield remote
    finally:
        if mine:
            ray.shutdown()


def summary(outcomes: Mapping[str, JobOutcome]) -> str:
    """Return one line about all jobs: how many, and how much faster than the default order, by basis."""
    tuned = [one.tuned for one in outcomes.values() if one.tuned is not None]
    failed = sum(bool(one.failed) for one in outcomes.values())
    parts = [f"{len(outcomes)} kernels" + (f", {failed} failed" if failed else "")]
    for basis in ("measured", "predicted"):
        gains = [math.log(one.default_seconds / one.seconds) for one in tuned if one.basis == basis]
        if gains:
            parts.append(f"{len(gains)} {basis}: {math.exp(sum(gains) / len(gains)):.2f}x of the default order")
    return "; ".join(parts)


# ---- one job


def tune_job(job: Job, heard: Heard = lambda run, tried: None) -> JobOutcome:
    """Tune the kernel of a job. The callback gets every try. Raises DplcError."""
    tools = toolchain([Path(path) for path in job.rules])
    rules = exactly(tools.rules) if job.exact else tools.rules
    tools, machine = toolchain(rules, read_settings(job.settings, rules)), find_target(job.target)
    tools, machine = tools.at(machine), tools.on(machine)
    _, (kernel,) = read_program(job.kernel, "the kernel of a job", None)
    if not isinstance(kernel, Kernel):
        raise UsageError("a job is a kernel of Loop IR")
    kept = CollectingStore()
    store: TuningStore = kept if job.db is None else open_store(Path(job.db), tools.rules)
    try:
        options = msgspec.convert(job.wishes, SearchOptions)
        with evaluator_for(machine, options) as evaluator:
            outcome = tune_kernel(kernel, tools, machine, evaluator, options, store, heard)
        key = key_of(kernel, machine, tools.rules)
        tuned = store.get(key)
    finally:
        store.close()
    basis, default = outcome.run.default.basis, outcome.run.default.seconds
    times = "nothing can be launched"
    if outcome.seconds is not None and default is not None:
        times = f"{default * 1e6:.4g} us by default, {outcome.seconds * 1e6:.4g} us tuned, {outcome.gain:.2f}x, {basis}"
    wrong = f"; {len(outcome.wrong)} schedules gave wrong results" if outcome.wrong else ""
    line = f"{times}; {outcome.run.tries} tries, checked: {outcome.checked or 'no'}{wrong}"
    return JobOutcome(key, tuned, tuple(kept.attempts), line, interrupted=outcome.run.interrupted)


@contextmanager
def evaluator_for(machine: Target, options: SearchOptions) -> Iterator[Evaluator]:
    """Yield a GPU of this kind if there is one and `options` allow it, else the cost model."""
    found = None if options.predict or options.assemble else measuring(machine)
    if found is None:
        if options.assemble and not assembler():
            raise DplcError("--assemble needs an assembler", hint="pip install nvidia-cuda-nvrtc, or nvcc on the PATH")
        yield AssemblingEvaluator() if options.assemble else PredictingEvaluator()
        return
    with found as evaluator:
        yield evaluator


# ---- choosing the fusion variant of a program


@dataclass(frozen=True)
class ChosenWay:
    """Chosen fusion variant.

    rules: seconds of the variant of the rules, tuned; wrong: faster variants and their problems, with the chosen one if
    no variant is right.
    """

    name: str
    way: int
    label: str
    rules: float
    seconds: float
    basis: str
    checked: str
    wrong: Mapping[int, str]
    kept: bool = False

    @property
    def right(self) -> bool:
        return self.way not in self.wrong

    @property
    def line(self) -> str:
        """Times and check of the variant, as one line of text."""
        told = f"{self.rules * 1e6:.4g} us as the rules fuse it, {self.seconds * 1e6:.4g} us as {self.label} does"
        return f"{told}, {self.basis}; checked: {self.checked or 'no'}"


def choose(program: TuningProgram, tuned: Mapping[str, Tuned], store: TuningStore | None = None) -> ChosenWay | None:
    """Return the fastest right fusion variant, or the variant of the rules if none is right.

    The time of a variant is the sum over its kernels. The winner runs as a whole against float64 and is stored under
    the key of the program. Returns None without a choice, or if a kernel of the rules is missing. tuned: by the keys of
    kernels.
    """
    known = {way: [tuned.get(key_of_range(kernel)) for kernel in kernels] for way, kernels in program.ways.items()}
    ways: dict[int, list[Tuned]] = {way: [o for o in found if o] for way, found in known.items() if all(found)}
    if 0 not in ways or len({one.basis for found in ways.values() for one in found}) > 1:
        return None
    seconds = {way: sum(one.seconds for one in found) for way, found in ways.items()}
    wrong: dict[int, str] = {}
    for way in sorted(ways, key=lambda way: (seconds[way], way)):
        kernels = program.ways[way]
        schedules = {key(kernel): one.schedule for kernel, one in zip(kernels, ways[way], strict=True)}
        checked, why = checked_whole(program.fusing, way, schedules)
        if why:
            wrong[way] = why
            continue
        if len(program.ways) < 2:
            return None
        label = f"candidate {way}" if way else "the rules"
        rules = {decision.rule for one in ways[way] for decision in one.schedule}
        tuned_whole = msgspec.structs.replace(
            ways[way][0], seconds=seconds[way], default_seconds=sum(one.default_seconds for one in ways[0]),
            checked=checked, details={"candidate": label, "kernels": len(kernels)},
        )  # fmt: skip
        kept = store is not None and store_variant(program.fusing, way, rules, tuned_whole, store)
        return ChosenWay(
            program.name, way, label, seconds[0], seconds[way], ways[way][0].basis, checked, wrong, kept
        )  # fmt: skip
    return ChosenWay(program.name, 0, "the rules", seconds[0], seconds[0], ways[0][0].basis, "", wrong)
