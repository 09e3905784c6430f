"""Tuning of one kernel or of a program: search, check the winner, store it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ...ir.substitute import with_hints
from ..api import Compiled
from ..bench.running import WHOLE, work_of
from ..compiler import Compilation, Compiler
from ..explore.candidates import Fusing, key_of_program
from ..explore.stored_solutions import NotProved
from ..kernels.sharing import key
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import Shaped
from ..ruleset import Toolchain
from ..run.judge import judge, run_eager, run_reference
from ..schedule.scheduling import Origin, Scheduler
from ..schedule.space import Decisions, ProgramSpace, ScheduleCandidate, Space
from ..schedule.stored import replay
from ..store.records import Attempt, Evaluator, Schedule, Score, Tuned, TuningKey, key_of
from ..store.store import TuningStore
from .correctness import verdict
from .evaluators import AHEAD, evidence
from .runner import DEFAULT_SEARCH, Budget, Keeper, Runner, SearchProgress, gain, together
from .search import Tried


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search. free: the passes that the search decides, None for all; check: run the winner and check it.

    predict: use the cost model even if there is a GPU; assemble: use the registers that the assembler reports.
    """

    search: str = DEFAULT_SEARCH
    seed: int = 0
    budget: Budget = field(default_factory=lambda: Budget(tries=200))
    free: frozenset[str] | None = None
    check: bool = True
    predict: bool = False
    assemble: bool = False

    @property
    def ahead(self) -> int:
        """Number of candidates that are built at once."""
        return AHEAD if self.assemble else 1


@dataclass
class TuningOutcome:
    """Result of tuning a kernel. winner: the fastest right schedule; wrong: schedules with wrong results.

    kernel: its name; count: number of equal kernels in the program; before: the stored entry before the search. run:
    the progress of the search, which may include other kernels of a program; default_score: of the default order.
    """

    kernel: str
    run: SearchProgress
    default: ScheduleCandidate
    default_score: Score
    winner: ScheduleCandidate
    seconds: float | None
    checked: str = ""
    wrong: list[tuple[ScheduleCandidate, str]] = field(default_factory=list)
    before: Tuned | None = None
    kept: bool = False
    count: int = 1
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def default_seconds(self) -> float | None:
        return self.default_score.seconds

    @property
    def gain(self) -> float:
        """Time of the default divided by that of the winner."""
        return gain(self.default_seconds, self.seconds)

    def record(self) -> dict[str, Any]:
        """Return the result for `--json`."""
        return {
            "kernel": self.kernel, "count": self.count, "basis": self.default_score.basis,
            "default_us": microseconds(self.default_seconds), "tuned_us": microseconds(self.seconds),
            "gain": self.gain, "checked": self.checked, "kept": self.kept,
            "wrong": [{"finding": why, "schedule": plain(c)} for c, why in self.wrong],
            "schedule": plain(self.winner),
        }  # fmt: skip


def record_of(run: SearchProgress) -> dict[str, Any]:
    """Return a search for `--json`."""
    return {
        "search": run.search.name, "tries": run.tries, "programs": run.programs, "refused": run.pruned,
        "failed": run.failed, "repeated": run.again, "seconds": run.seconds, "interrupted": run.interrupted,
        "curve": [[tries, programs, microseconds(seconds)] for tries, programs, seconds in run.curve],
    }  # fmt: skip


def microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def plain(candidate: ScheduleCandidate) -> list[dict[str, Any]]:
    """Return a schedule as plain data."""
    return [{"pass": d.step, "rule": d.rule, "site": d.site, "parameters": d.parameters} for d in candidate.schedule]


def tune_kernel(
    kernel: Kernel, tools: Toolchain, target: Target, evaluator: Evaluator, options: SearchOptions,
    store: TuningStore | None = None, heard: Callable[[SearchProgress, Tried], None] = lambda run, tried: None,
) -> TuningOutcome:  # fmt: skip
    """Search the schedules of a kernel of Loop IR. The winner runs on the emulator before it is stored."""
    space = Space(tools, (kernel,), target, options.free)
    runner, run = searched(space, evaluator, options, store, heard)
    return choose_schedule(space, runner, run, options, store)


def searched(
    space: Decisions, evaluator: Evaluator, options: SearchOptions, store: TuningStore | None,
    heard: Callable[[SearchProgress, Tried], None],
) -> tuple[Runner, SearchProgress]:  # fmt: skip
    """Run a search to its end. Attempts on each kernel are recorded during the search."""
    runner = Runner(space, evaluator, options.search, options.seed, options.budget, heard, ahead=options.ahead)
    if store is not None:
        runner.record = lambda start, attempts: store.record(_key(start, space), attempts)
    if store is not None and options.check:
        runner.heard = runner.keeper = Keeper(runner, store, heard)
    with ThreadPoolExecutor(options.ahead) if options.ahead > 1 else nullcontext() as runner.pool:
        return runner, runner.run()


def _key(start: Program, space: Decisions) -> TuningKey:
    return key_of(start[0], space.target, space.tools.rules)


def choose_schedule(
    space: Space, runner: Runner, run: SearchProgress, options: SearchOptions, store: TuningStore | None
) -> TuningOutcome:
    """Check the best schedules of one kernel, and store the winner if it is right."""
    default = space.default()
    score = runner.score(default)
    outcome = TuningOutcome(space.loops[0].name, run, default, score, default, score.seconds)
    _decide(outcome, run.fastest.get(space.loops, []), options, runner.keeper)
    outcome.details = dict(runner.score(outcome.winner).details)
    if store is not None:
        wanted = _key(space.loops, space)
        earlier = runner.keeper.before if runner.keeper is not None else {}
        outcome.before = earlier[space.loops] if space.loops in earlier else store.get(wanted)
        _remember(outcome, store, wanted, options)
    return outcome


def _decide(
    outcome: TuningOutcome,
    leaders: Sequence[tuple[float, ScheduleCandidate]],
    options: SearchOptions,
    keeper: Keeper | None,
) -> None:
    """Set the winner: the fastest right leader. Wrong ones are kept for the report."""
    for seconds, candidate in leaders:
        if candidate.key == outcome.default.key and not options.check:
            return
        judge = verdict if keeper is None else keeper.verdict
        found = judge(candidate) if options.check else None
        if found is not None and not found.right:
            outcome.wrong.append((candidate, found.finding))
            continue
        outcome.winner, outcome.seconds = candidate, seconds
        outcome.checked = "" if found is None else found.how
        return


def _remember(outcome: TuningOutcome, store: TuningStore, wanted: TuningKey, options: SearchOptions) -> None:
    run, basis = outcome.run, outcome.default_score.basis
    scored = [(candidate, Score(None, basis, "wrong", why)) for candidate, why in outcome.wrong]
    if scored:
        name, seed = run.search.name, options.seed
        store.record(wanted, [Attempt(c.schedule, c.key, score, name, seed, run.tries) for c, score in scored])
    if outcome.seconds is None or not outcome.checked or outcome.default_seconds is None:
        return
    found = Tuned(
        outcome.winner.schedule, outcome.seconds, basis, outcome.default_seconds, run.search.name, options.seed,
        run.tries, outcome.checked, {**outcome.details, **_evidence(outcome.winner, options)},
    )  # fmt: skip
    outcome.kept = store.put(wanted, found)


def _evidence(candidate: ScheduleCandidate, options: SearchOptions) -> dict[str, Any]:
    """Return the figures that the available tools report about the winner."""
    try:
        return evidence(candidate, options.check)
    except DplcError:
        return {}


# ---- Tuning a program: its fusion variant and the schedules of its kernels, in one search.
#
# The winner runs as a whole against float64 before it is stored: schedules under the keys of their kernels, the fusion
# variant under the key of the program.


CANDIDATE = "candidate"  # the first decision's name, beside those of the passes
Heard = Callable[[SearchProgress, Tried], None]


@dataclass
class Programmed:
    """Result of tuning a program. way: the fastest right fusion variant; kernels: its kernels.

    space: the variants, with those that were tried; wrong: variants with wrong results, and the errors.
    """

    run: SearchProgress
    fusing: Fusing
    space: ProgramSpace
    way: int
    kernels: list[TuningOutcome]
    default: Score
    score: Score
    checked: str = ""
    kept: bool = False
    before: Tuned | None = None
    wrong: dict[int, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Fusion variant, with the rules that it needs."""
        rules = self.fusing.rules(self.way)
        return self.space.ways[self.way] + (f" ({', '.join(rules)})" if rules else "")

    @property
    def gain(self) -> float:
        """Time of the rules' defaults divided by the time of the result."""
        return gain(self.default.seconds, self.score.seconds)

    def candidates(self) -> list[dict[str, Any]]:
        """Return the fusion variants, with the results of tried ones.

        best_us: time with the fastest schedules of its kernels.
        """
        return [
            {
                "candidate": label, "tried": way in self.space.built, "chosen": way == self.way,
                "best_us": microseconds(fastest(self.space, way, self.run)) if way in self.space.built else None,
                "problem": self.wrong.get(way) or self.space.problems.get(way),
            }
            for way, label in enumerate(self.space.ways)
        ]  # fmt: skip

    def record(self) -> dict[str, Any]:
        """Return the result for `--json`."""
        return {
            **record_of(self.run), "basis": self.default.basis, "candidate": self.space.ways[self.way],
            "candidate_rules": list(self.fusing.rules(self.way)), "candidates": self.candidates(),
            "default_us": microseconds(self.default.seconds), "tuned_us": microseconds(self.score.seconds),
            "gain": self.gain, "checked": self.checked, "kept": self.kept,
            "kernels": [outcome.record() for outcome in self.kernels],
        }  # fmt: skip


def tune_program(
    fusing: Fusing, evaluator: Evaluator, options: SearchOptions, store: TuningStore | None = None,
    heard: Heard = lambda run, tried: None,
) -> Programmed:  # fmt: skip
    """Search fusion variants and schedules.

    The tries of the budget are per kernel of the program that the rules produce.
    """
    space = space_of(fusing, options)
    each, asked = len(space.spaces(0)), options.budget
    tries, programs = (None if n is None else n * each for n in (asked.tries, asked.programs))
    budget = Budget(tries, programs, asked.seconds, asked.patience)
    runner, run = searched(space, evaluator, replace(options, budget=budget), store, heard)
    known: dict[str, TuningOutcome] = {}

    def outcomes(way: int) -> list[TuningOutcome]:
        """Return the results for the kernels of a fusion variant. Equal kernels are decided once."""
        for inner, count in space.spaces(way):
            if inner.name not in known:
                known[inner.name] = choose_schedule(inner, runner, run, options, store)
            known[inner.name].count = count
        return [known[inner.name] for inner, _ in space.spaces(way)]

    kernels = outcomes(0)
    default = together([(outcome.default_score, outcome.count) for outcome in kernels])
    found = Programmed(run, fusing, space, 0, kernels, default, _score(kernels, default))
    for way in sorted(run.search.best_of, key=lambda way: (fastest(space, way, run) or float("inf"), way)):
        if way and not _better(found, way, run):
            break
        _consider(found, way, outcomes(way), options)
    if store is not None and len(space.ways) > 1:
        _remember_program(found, store, options)
    return found


def space_of(fusing: Fusing, options: SearchOptions) -> ProgramSpace:
    """Return the decisions of a program. They exclude fusion if the caller names the free passes without it."""
    free = options.free
    ways = fusing.ways() if free is None or CANDIDATE in free else fusing.ways()[:1]
    return ProgramSpace(fusing.tools, ways, fusing.target, None if free is None else free - {CANDIDATE})


def fastest(space: ProgramSpace, way: int, run: SearchProgress) -> float | None:
    """Return the summed time of the best schedules for the kernels of a fusion variant.

    None if one of the kernels has no schedule that can be launched.
    """
    total = 0.0
    for inner, count in space.spaces(way):
        leaders = run.fastest.get(inner.loops)
        if not leaders:
            return None
        total += count * leaders[0][0]
    return total or None


def _better(found: Programmed, way: int, run: SearchProgress) -> bool:
    """Return whether a fusion variant may be faster than the present result."""
    seconds = fastest(found.space, way, run)
    return seconds is not None and (found.score.seconds is None or seconds < found.score.seconds)


def _score(kernels: list[TuningOutcome], default: Score) -> Score:
    return together([(Score(o.seconds, default.basis, "ok" if o.seconds else "failed"), o.count) for o in kernels])


def _consider(found: Programmed, way: int, kernels: list[TuningOutcome], options: SearchOptions) -> None:
    """Choose a fusion variant if its right schedules are faster, and if the whole program gives the right result."""
    score = _score(kernels, found.default)
    slower = found.score.seconds is not None and (score.seconds is None or score.seconds >= found.score.seconds)
    if way != found.way and slower:
        return
    checked, why = checked_whole(found.fusing, way, winning(kernels)) if options.check else ("", "")
    if why:
        found.wrong[way] = why
        return
    found.way, found.kernels, found.score, found.checked = way, kernels, score, checked


class Winners:
    """Best schedules of a search (`scheduling.ScheduleStore`)."""

    def __init__(self, schedules: Mapping[str, Schedule]):
        self.schedules = schedules

    def schedule(self, kernel: Kernel, scheduler: Scheduler, shaped: Shaped) -> tuple[Program | None, Origin]:
        """Return a kernel under the schedule that won."""
        return replay(scheduler, kernel, self.schedules[key(kernel)], shaped), Origin(kernel.name, "store", "")


def winning(kernels: Iterable[TuningOutcome]) -> dict[str, Schedule]:
    """Return {key of a kernel: its best schedule}."""
    return {key(one.winner.loops[0]): one.winner.schedule for one in kernels}


def composed(fusing: Fusing, way: int, schedules: Mapping[str, Schedule]) -> Compilation:
    """Compile a fusion variant with the best schedules."""
    chosen = fusing.candidate(way) if way else None
    options = Compiler(fusing.tools, fusing.target, None, Winners(schedules), lambda _: chosen)
    return options.compile(fusing.values.captured)


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
    own = run_eager(captured, tensors) if given else captured.reference
    found = judge(results, run_reference(captured, tensors), own)
    if not found.ok:
        return "", f"an output differs by {found.relative:.2g} of its largest value from float64"
    return "emulator, the program whole", ""


def _remember_program(found: Programmed, store: TuningStore, options: SearchOptions) -> None:
    """Store the chosen fusion variant under the key of the program."""
    fusing, seconds, default, run = found.fusing, found.score.seconds, found.default.seconds, found.run
    found.before = store.get(key_of_program(fusing.values, fusing.tools, fusing.target))
    if seconds is None or default is None or not found.checked:
        return
    rules = {decision.rule for outcome in found.kernels for decision in outcome.winner.schedule}
    details = {"candidate": found.label, "kernels": sum(outcome.count for outcome in found.kernels)}
    basis, name, seed = found.default.basis, run.search.name, options.seed
    tuned = Tuned((), seconds, basis, default, name, seed, run.tries, found.checked, details)
    found.kept = store_variant(fusing, found.way, rules, tuned, store)


def store_variant(fusing: Fusing, way: int, rules: set[str], tuned: Tuned, store: TuningStore) -> bool:
    """Store a fusion variant under the key of its program. Return whether it is better than the stored one.

    rules: those that the schedules of its kernels use; tuned: all but the schedule.
    """
    try:
        schedule = fusing.written(way, rules)
    except NotProved:  # its saturation ran out of time
        return False
    key = key_of_program(fusing.values, fusing.tools, fusing.target)
    return store.put(key, msgspec.structs.replace(tuned, schedule=schedule))
