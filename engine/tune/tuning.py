"""Tuning of a kernel, of a program, and of many programs: search, check the winner, store it."""

from __future__ import annotations

import functools
import itertools
import math
import multiprocessing
import queue
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError
from ...ir.node import immutable
from ...ir.program import Kernel, Module
from ...ir.substitute import with_hints
from ..api import Compiled
from ..bench.bench import WHOLE, assembler, work_of
from ..bench.cases import BenchCase, Suite, subject_of, with_rules
from ..bench.records import geomean
from ..capture.signature import Capture, Tensors
from ..compiler import Compilation, Compiler
from ..explore.explore import Fusing, key_of_program
from ..explore.saturate import NotProved
from ..kernels.sharing import key, key_of_range
from ..ruleset import Toolchain
from ..run.calls import judge_program, run_eager
from ..schedule.scheduling import Origin, Schedules, microseconds, replay
from ..schedule.space import FusionVariant, ProgramSpace, ScheduleCandidate, Space
from ..store.store import (
    Evaluator,
    FrozenRecord,
    Schedule,
    SqliteStore,
    Tuned,
    TuningKey,
)
from .evaluators import AssemblingEvaluator, PredictingEvaluator, evidence, measuring
from .search import Observer, SearchOptions, SearchRun, Wrong, gain, micro, total, unheard


@dataclass(kw_only=True)
class TunedTimes:
    """Times of what was tuned: a kernel or a program. default_seconds: by the default order.

    run: the progress of the search, which may include other kernels of a program; checked: how the result was compared
    with float64, "" if it was not; before: the stored entry before the search.
    """

    run: SearchRun
    default_seconds: float | None
    seconds: float | None
    checked: str = ""
    kept: bool = False
    before: Tuned | None = None

    @property
    def gain(self) -> float:
        """Time of the default divided by the time of the result."""
        return gain(self.default_seconds, self.seconds)

    @property
    def times(self) -> str:
        """The times and the gain, as text."""
        if self.seconds is None:
            return "nothing can be launched"
        return f"{micro(self.default_seconds)} us by default, {micro(self.seconds)} us tuned, {self.gain:.2f}x"

    def figures(self) -> dict[str, object]:
        """Return the part for `--json` that kernels and programs have in common."""
        return {
            "default_us": microseconds(self.default_seconds), "tuned_us": microseconds(self.seconds),
            "gain": self.gain, "checked": self.checked, "kept": self.kept,
        }  # fmt: skip


@dataclass(kw_only=True)
class TuningOutcome(TunedTimes):
    """Result of tuning a kernel. winner: the fastest right schedule; wrong: schedules with wrong results.

    kernel: its name; count: number of equal kernels in the program.
    """

    kernel: str
    default: ScheduleCandidate
    winner: ScheduleCandidate
    wrong: Wrong
    count: int = 1

    def record(self) -> dict[str, object]:
        """Return the result for `--json`."""
        return {
            "kernel": self.kernel, "count": self.count, "basis": self.run.default.basis, **self.figures(),
            "wrong": [{"finding": why, "schedule": plain(c)} for c, why in self.wrong],
            "schedule": plain(self.winner),
        }  # fmt: skip


def plain(candidate: ScheduleCandidate) -> list[dict[str, object]]:
    """Return a schedule as plain data."""
    return [{"pass": d.step, "rule": d.rule, "site": d.site, "parameters": d.parameters} for d in candidate.schedule]


def tune_kernel(
    kernel: Kernel, tools: Toolchain, target: Target, evaluator: Evaluator, options: SearchOptions,
    store: SqliteStore | None = None, observe: Observer = unheard,
) -> TuningOutcome:  # fmt: skip
    """Search the schedules of a kernel of Loop IR. The winner runs on the emulator before it is stored."""
    space = ProgramSpace(tools, [FusionVariant("", lambda: (kernel,))], target, options.free)
    return choose_schedule(space.kernel(kernel), SearchRun(space, evaluator, options, store, observe).run())


def choose_schedule(space: Space, run: SearchRun) -> TuningOutcome:
    """Check the best schedules of one kernel, and store the winner if it is right."""
    default, store = space.default(), run.store
    usual, (best, wrong) = run.score(default).seconds, run.checked(space.loops)
    seconds, winner, checked = best or (usual, default, "")
    if not run.options.check and winner.key == default.key:
        winner = default
    outcome = TuningOutcome(
        run=run, default_seconds=usual, seconds=seconds, checked=checked,
        kernel=space.loops[0].name, default=default, winner=winner, wrong=wrong,
    )  # fmt: skip
    if store is not None:
        wanted, outcome.before = run.key(space.loops), run.before(space.loops)
        if checked and seconds is not None and usual is not None:
            details = dict(run.score(winner).details)
            with suppress(DplcError):  # the figures that the available tools report about the winner
                details |= evidence(winner)
            outcome.kept = store.put(wanted, run.tuned(winner.schedule, seconds, usual, checked, details))
    return outcome


# ---- Tuning a program: its fusion variant and the schedules of its kernels, in one search.
#
# The winner runs as a whole against float64 before it is stored: schedules under the keys of their kernels, the fusion
# variant under the key of the program.


CANDIDATE = "candidate"  # the first decision's name, next to those of the passes


@dataclass(kw_only=True)
class Programmed(TunedTimes):
    """Result of tuning a program. way: the fastest right fusion variant; kernels: its kernels.

    space: the variants, with those that were tried; wrong: variants with wrong results, and the errors.
    """

    fusing: Fusing
    space: ProgramSpace
    way: int = 0
    kernels: list[TuningOutcome]
    wrong: dict[int, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Fusion variant, with the rules that it needs."""
        rules = self.fusing.rules(self.way)
        return self.space.ways[self.way] + (f" ({', '.join(rules)})" if rules else "")

    def candidates(self) -> list[dict[str, object]]:
        """Return the fusion variants, with the results of tried ones.

        best_us: time with the fastest schedules of its kernels.
        """
        return [
            {
                "candidate": label, "tried": way in self.space.built, "chosen": way == self.way,
                "best_us": microseconds(self.run.seconds_of(way)) if way in self.space.built else None,
                "problem": self.wrong.get(way) or self.space.problems.get(way),
            }
            for way, label in enumerate(self.space.ways)
        ]  # fmt: skip

    def record(self) -> dict[str, object]:
        """Return the result for `--json`."""
        return {
            **self.run.record(), "basis": self.run.default.basis, "candidate": self.space.ways[self.way],
            "candidate_rules": list(self.fusing.rules(self.way)), "candidates": self.candidates(), **self.figures(),
            "kernels": [outcome.record() for outcome in self.kernels],
        }  # fmt: skip


def tune_program(
    fusing: Fusing, evaluator: Evaluator, options: SearchOptions, store: SqliteStore | None = None,
    observe: Observer = unheard,
) -> Programmed:  # fmt: skip
    """Search fusion variants and schedules.

    The tries of the budget are per kernel of the program that the rules produce.
    """
    space = space_of(fusing, options)
    each, asked = len(space.spaces(0)), options.budget
    tries, programs = (None if n is None else n * each for n in (asked.tries, asked.programs))
    budget = replace(asked, tries=tries, programs=programs)
    run = SearchRun(space, evaluator, replace(options, budget=budget), store, observe).run()
    chosen = functools.cache(lambda inner: choose_schedule(inner, run))  # equal kernels are decided once

    def outcomes(way: int) -> list[TuningOutcome]:
        """Return the results for the kernels of a fusion variant."""
        return [replace(chosen(inner), count=count) for inner, count in space.spaces(way)]

    kernels, default = outcomes(0), run.default.seconds
    found = Programmed(
        run=run, fusing=fusing, space=space, kernels=kernels, default_seconds=default, seconds=_seconds(kernels)
    )
    for fastest, way in sorted((run.seconds_of(way) or math.inf, way) for way in run.search.best_of):
        least = found.seconds or math.inf
        if way != found.way and (fastest >= least or (_seconds(outcomes(way)) or math.inf) >= least):
            continue
        kernels = outcomes(way)
        checked, why = checked_whole(fusing, way, winning(kernels)) if options.check else ("", "")
        if why:
            found.wrong[way] = why
        else:
            found.way, found.kernels, found.seconds, found.checked = way, kernels, _seconds(kernels), checked
    if store is not None and len(space.ways) > 1:
        found.before, best = store.get(key_of_program(fusing.values)), found.seconds
        if best is not None and default is not None and found.checked:
            details = {"candidate": found.label, "kernels": sum(outcome.count for outcome in found.kernels)}
            tuned = run.tuned((), best, default, found.checked, details)
            found.kept = store_variant(fusing, found.way, winning(found.kernels), tuned, store)
    return found


def space_of(fusing: Fusing, options: SearchOptions) -> ProgramSpace:
    """Return the decisions of a program. They exclude fusion if the caller names the free passes without it."""
    free, ways = options.free, fusing.ways()
    if free is not None:
        ways, free = ways if CANDIDATE in free else ways[:1], free - {CANDIDATE}
    return ProgramSpace(fusing.compiler.tools, ways, fusing.compiler.target, free)


def _seconds(kernels: Iterable[TuningOutcome]) -> float | None:
    return total((outcome.seconds, outcome.count) for outcome in kernels)


def winners(schedules: Mapping[str, Schedule]) -> Schedules:
    """Return the best schedules of a search, as a compiler looks them up. schedules: by the keys of kernels."""
    return lambda kernel, scheduler, shaped: (
        replay(scheduler, kernel, schedules[key(kernel)], shaped)[0], Origin(kernel.name, "store", "")
    )  # fmt: skip


def winning(kernels: Iterable[TuningOutcome]) -> dict[str, Schedule]:
    """Return {key of a kernel: its best schedule}."""
    return {key(one.winner.loops[0]): one.winner.schedule for one in kernels}


def composed(fusing: Fusing, way: int, schedules: Mapping[str, Schedule]) -> Compilation:
    """Compile a fusion variant with the best schedules."""
    chosen = fusing.candidate(way) if way else None
    compiler = replace(fusing.compiler.untraced, schedules=winners(schedules), explore=lambda _: chosen)
    return compiler.compile_values(fusing.values)


def checked_whole(fusing: Fusing, way: int, schedules: Mapping[str, Schedule]) -> tuple[str, str]:
    """Compare a whole program with float64. Return the compared part, and the error, "" for none."""
    try:
        made = composed(fusing, way, schedules)
        if sum(map(work_of, with_hints(made.kernels))) > WHOLE:
            return "each kernel; as a whole it would take too long", ""
        given = fusing.tensors()
        results = Compiled(made, "emulator").run(given)
    except DplcError as problem:
        return "", problem.what
    captured = made.captured
    tensors = {**captured.tensors, **given}
    own = run_eager(captured, tensors, made.compiler.target) if given else captured.reference
    found = judge_program(captured, tensors, results, own, made.compiler.target)
    if not found.ok:
        return "", f"an output differs by {found.relative:.2g} of its largest value from float64"
    return "emulator, the program whole", ""


def store_variant(
    fusing: Fusing, way: int, schedules: Mapping[str, Schedule], tuned: Tuned, store: SqliteStore
) -> bool:
    """Store a fusion variant under the key of its program. Return whether it is better than the stored one.

    schedules: of its kernels; tuned: all but the schedule of the program.
    """
    try:
        schedule = fusing.written(way, {decision.rule for one in schedules.values() for decision in one})
    except NotProved:  # its saturation ran out of time
        return False
    return store.put(key_of_program(fusing.values), msgspec.structs.replace(tuned, schedule=schedule))


# ---- Tune many kernels: the cases of a suite, a model, or a text at a grid of sizes. Each distinct kernel is tuned
# once.
#
# Jobs run in this process, or in several processes (`--jobs N`). A job that fails, or whose process dies, is one line
# in its outcome, and the others continue.


@immutable
class Job:
    """One kernel of Loop IR to tune. names: of the cases that need it, `case:kernel`.

    db: the store that the job writes to; without one, only its outcome has the result.
    """

    kernel: Kernel
    names: tuple[str, ...]
    compiler: Compiler
    options: SearchOptions
    db: Path | None


class JobOutcome(FrozenRecord):
    """The outcome of a job. tuned: None if it failed (`failed` says why) or found no schedule that can be stored.

    interrupted: the user interrupted its search and waits for the end.
    """

    key: TuningKey | None = None
    tuned: Tuned | None = None
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


@immutable
class TuningProgram:
    """Case: its name, and the kernels of each of its fusion variants. The rules decide variant 0."""

    name: str
    fusing: Fusing
    ways: Mapping[int, Module]


def program_of(
    name: str, captured: Capture, compiler: Compiler, top: int, tensors: Callable[[], Tensors] = dict
) -> TuningProgram:
    """Return a program with at most `top` fusion variants. tensors: makes the tensors that the capture does not hold.

    Raises DplcError for a program that the rules cannot compile.
    """
    fusing = Fusing(compiler.values(captured), top, tensors)
    built: dict[int, Module] = {}
    for way, named in enumerate(fusing.ways()):
        try:
            built[way] = tuple(named.kernels())
        except DplcError:  # it cannot be lowered, or is an earlier one again
            if way == 0:
                raise
    return TuningProgram(name, fusing, built)


def of_suite(suite: Suite, cases: Iterable[BenchCase], compiler: Compiler, top: int) -> Iterator[TuningProgram]:
    """Yield the cases of a suite, each under its own rules. Raises DplcError for one that dplc cannot compile."""
    for case in cases:
        subject = subject_of(suite, case)
        yield program_of(case.name, subject.capture(), with_rules(compiler, case.rules), top, subject.inputs)


def of_grid(
    text: str, grid: Iterable[Mapping[str, int]], compiler: Compiler, top: int, capture: Callable[[str], Capture]
) -> Iterator[TuningProgram]:
    """Yield a `-c` text at every point of a grid, whose names it binds. Raises UsageError for another name."""
    for point in grid:
        for name in point.keys() - set(re.findall(r"\w+", text)):
            raise UsageError(f"--grid {name}: the text does not name it")
        bound = "".join(f"{name} = {value}\n" for name, value in point.items())
        name = ",".join(f"{name}={value}" for name, value in point.items())
        yield program_of(name or "it", capture(bound + text), compiler, top)


def distinct(programs: Iterable[TuningProgram], options: SearchOptions, db: Path | None = None) -> list[Job]:
    """Return a job for each distinct kernel under the rules of its program, in order. options, db: of every job."""
    found: dict[tuple[str, str], tuple[Kernel, Compiler, dict[str, None]]] = {}
    for program in programs:
        compiler = program.fusing.compiler
        for kernel in itertools.chain(*program.ways.values()):
            place = key(kernel), compiler.tools.rules.digest
            _, _, names = found.setdefault(place, (kernel, compiler, {}))
            names[f"{program.name}:{kernel.name}"] = None  # in order; several ways of a program may launch a kernel
    return [Job(kernel, tuple(names), compiler, options, db) for kernel, compiler, names in found.values()]


# ---- carrying them out


def carry_out(
    jobs: Sequence[Job], tune_one: TuneOne, count: int, observe: Observer = unheard
) -> Iterator[tuple[Job, JobOutcome]]:
    """Yield outcomes in the order of completion.

    Args:
        tune_one: a function of a module, which other processes can import.
        count: jobs at a time. Several run in processes, each with one job at a time: a process that dies takes one job.
        observe: called after every try of a job in this process.
    """
    if count <= 1:
        one = functools.partial(tune_one, observe=observe)
        yield from ((job, guarded(one, job)) for job in jobs)
        return
    start = functools.partial(ProcessPoolExecutor, 1, multiprocessing.get_context("spawn"))
    idle: queue.SimpleQueue[ProcessPoolExecutor] = queue.SimpleQueue()

    def remote(job: Job) -> JobOutcome:
        process = idle.get()
        try:
            return process.submit(guarded, tune_one, job).result()
        except BrokenProcessPool:
            process = start()
            return JobOutcome(failed="its process died")
        finally:
            idle.put(process)

    for _ in range(count):
        idle.put(start())
    threads = ThreadPoolExecutor(count)
    try:
        waiting = {threads.submit(remote, job): job for job in jobs}
        yield from ((waiting[done], done.result()) for done in as_completed(waiting))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        while not idle.empty():
            idle.get().shutdown(wait=False)


def summary(outcomes: Sequence[JobOutcome]) -> str:
    """Return one line about all jobs: how many, and how much faster than the default order, by basis."""
    tuned = [one.tuned for one in outcomes if one.tuned is not None]
    failed = sum(bool(one.failed) for one in outcomes)
    parts = [f"{len(outcomes)} kernels" + (f", {failed} failed" if failed else "")]
    for basis in ("measured", "predicted"):
        gains = [one.default_seconds / one.seconds for one in tuned if one.basis == basis]
        if gains:
            parts.append(f"{len(gains)} {basis}: {geomean(gains):.2f}x of the default order")
    return "; ".join(parts)


# ---- one job


def tune_job(job: Job, observe: Observer = unheard) -> JobOutcome:
    """Tune the kernel of a job. The callback gets every try. Raises DplcError."""
    tools, machine, options = job.compiler.tools, job.compiler.target, job.options
    with (
        TemporaryDirectory() as folder,
        SqliteStore(job.db or Path(folder) / "tuning.sqlite", tools.rules) as store,
        evaluator_for(machine, options) as evaluator,
    ):
        outcome = tune_kernel(job.kernel, tools, machine, evaluator, options, store, observe)
        key = outcome.run.key((job.kernel,))
        tuned = store.get(key)
    wrong = f"; {len(outcome.wrong)} schedules gave wrong results" if outcome.wrong else ""
    run, times = outcome.run, f"{outcome.times}, {outcome.run.default.basis}"
    line = f"{times}; {run.tries} tries, checked: {outcome.checked or 'no'}{wrong}"
    return JobOutcome(key, tuned, line, interrupted=run.interrupted)


def evaluator_for(machine: Target, options: SearchOptions) -> AbstractContextManager[Evaluator]:
    """Return a GPU of this kind if there is one and `options` allow it, else the cost model."""
    if options.assemble:
        if not assembler():
            raise DplcError("--assemble needs an assembler", hint="pip install nvidia-cuda-nvrtc, or nvcc on the PATH")
        return nullcontext(AssemblingEvaluator())
    return (not options.predict and measuring(machine)) or nullcontext(PredictingEvaluator())


# ---- choosing the fusion variant of a program


@immutable
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
    kept: bool

    @property
    def right(self) -> bool:
        return self.way not in self.wrong

    @property
    def line(self) -> str:
        """Times and check of the variant, as one line of text."""
        times = f"{micro(self.rules)} us as the rules fuse it, {micro(self.seconds)} us as {self.label} does"
        return f"{times}, {self.basis}; checked: {self.checked or 'no'}"


def choose(
    program: TuningProgram, tuned: Mapping[tuple[str, str], Tuned], db: Path | None = None
) -> ChosenWay | None:  # fmt: skip
    """Return the fastest right fusion variant, or the variant of the rules if none is right.

    The time of a variant is the sum over its kernels. The winner runs as a whole against float64 and is stored under
    the key of the program. Returns None without a choice, or if a kernel of the rules is missing. tuned: by the keys of
    kernels and of the rules.
    """
    rules = program.fusing.compiler.tools.rules
    keys = {way: [(key_of_range(one), rules.digest) for one in kernels] for way, kernels in program.ways.items()}
    ways = {way: [tuned[one] for one in found] for way, found in keys.items() if tuned.keys() >= set(found)}
    if 0 not in ways or len({one.basis for found in ways.values() for one in found}) > 1:
        return None
    seconds = {way: sum(one.seconds for one in found) for way, found in ways.items()}
    wrong, kept = dict[int, str](), False
    for way in sorted(ways, key=lambda way: (seconds[way], way)):
        schedules = {key(kernel): one.schedule for kernel, one in zip(program.ways[way], ways[way], strict=True)}
        checked, why = checked_whole(program.fusing, way, schedules)
        if not why:
            break
        wrong[way] = why
    else:
        way = 0
    if len(program.ways) < 2 and not wrong:
        return None
    label = f"candidate {way}" if way else "the rules"
    if db is not None and way not in wrong:
        tuned_whole = msgspec.structs.replace(
            ways[way][0], seconds=seconds[way], default_seconds=sum(one.default_seconds for one in ways[0]),
            checked=checked, details={"candidate": label, "kernels": len(program.ways[way])},
        )  # fmt: skip
        with SqliteStore(db, rules) as store:
            kept = store_variant(program.fusing, way, schedules, tuned_whole, store)
    return ChosenWay(program.name, way, label, seconds[0], seconds[way], ways[way][0].basis, checked, wrong, kept)
