"""Tuning one kernel: search, check the winner, remember it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.program import Kernel
from ..ruleset import Toolchain
from ..schedule.space import Decisions, ScheduleCandidate, Space, Start
from ..store.protocol import Attempt, Evaluator, Score, Tuned, TuningKey, TuningStore, key_of
from .assembling import AHEAD
from .correctness import verdict
from .evidence import evidence
from .keeping import Keeper
from .running import DEFAULT_SEARCH, Budget, Runner, SearchProgress
from .search import Tried


@dataclass(frozen=True)
class SearchOptions:
    """How to search. free: the passes that are decided, None for all; check: the winner is run and judged.

    predict: the model judges, even where there is a GPU; assemble: with the registers that the assembler gives.
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
        """Candidates that are built at once."""
        return AHEAD if self.assemble else 1


@dataclass
class TuningOutcome:
    """What came of tuning a kernel. winner: the fastest schedule that is right; wrong: schedules with wrong results.

    kernel: its name; count: how many kernels of the program are the same; before: what was remembered already. run: of
    the search, which may have been about a program of several kernels; default_score: of this kernel's default order.
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
        """Default over winner, in time."""
        known = self.seconds is not None and self.default_seconds is not None
        return self.default_seconds / self.seconds if known else 1.0  # type: ignore[operator]

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "kernel": self.kernel, "count": self.count, "basis": self.default_score.basis,
            "default_us": microseconds(self.default_seconds), "tuned_us": microseconds(self.seconds),
            "gain": self.gain, "checked": self.checked, "kept": self.kept,
            "wrong": [{"finding": why, "schedule": plain(c)} for c, why in self.wrong],
            "schedule": plain(self.winner),
        }  # fmt: skip


def record_of(run: SearchProgress) -> dict[str, Any]:
    """A search for `--json`."""
    return {
        "search": run.search.name, "tries": run.tries, "programs": run.programs, "refused": run.pruned,
        "failed": run.failed, "repeated": run.again, "seconds": run.seconds, "interrupted": run.interrupted,
        "curve": [[tries, programs, microseconds(seconds)] for tries, programs, seconds in run.curve],
    }  # fmt: skip


def microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def plain(candidate: ScheduleCandidate) -> list[dict[str, Any]]:
    """A schedule as plain data."""
    return [{"pass": d.step, "rule": d.rule, "site": d.site, "parameters": d.parameters} for d in candidate.schedule]


def tune_kernel(
    kernel: Kernel, tools: Toolchain, target: Target, evaluator: Evaluator, options: SearchOptions,
    store: TuningStore | None = None, heard: Callable[[SearchProgress, Tried], None] = lambda run, tried: None,
) -> TuningOutcome:  # fmt: skip
    """Search the schedules of a kernel of Loop IR; what wins is run on the emulator before it is remembered."""
    space = Space(tools, Start((kernel,)), target, options.free)
    runner, run = searched(space, evaluator, options, store, heard)
    return choose_schedule(space, runner, run, options, store)


def searched(
    space: Decisions, evaluator: Evaluator, options: SearchOptions, store: TuningStore | None,
    heard: Callable[[SearchProgress, Tried], None],
) -> tuple[Runner, SearchProgress]:  # fmt: skip
    """A search of the wished kind to its end. What it tries of each kernel is recorded on the way."""
    runner = Runner(space, evaluator, options.search, options.seed, options.budget, heard, ahead=options.ahead)
    if store is not None:
        runner.record = lambda start, attempts: store.record(_key(start, space), attempts)
    if store is not None and options.check:
        runner.heard = runner.keeper = Keeper(runner, store, heard)
    with ThreadPoolExecutor(options.ahead) if options.ahead > 1 else nullcontext() as runner.pool:
        return runner, runner.run()


def _key(start: Start, space: Decisions) -> TuningKey:
    return key_of(start.kernels[0], space.target, space.tools.rules)


def choose_schedule(
    space: Space, runner: Runner, run: SearchProgress, options: SearchOptions, store: TuningStore | None
) -> TuningOutcome:
    """What a search found for one kernel: checked, and remembered if it may be."""
    default = space.default()
    score = runner.score(default)
    outcome = TuningOutcome(space.start.kernels[0].name, run, default, score, default, score.seconds)
    _decide(outcome, run.fastest.get(space.start, []), options, runner.keeper)
    outcome.details = dict(runner.score(outcome.winner).details)
    if store is not None:
        wanted = _key(space.start, space)
        earlier = runner.keeper.before if runner.keeper is not None else {}
        outcome.before = earlier[space.start] if space.start in earlier else store.get(wanted)
        _remember(outcome, store, wanted, options)
    return outcome


def _decide(
    outcome: TuningOutcome,
    leaders: Sequence[tuple[float, ScheduleCandidate]],
    options: SearchOptions,
    keeper: Keeper | None,
) -> None:
    """The fastest of the leaders that is right; wrong ones are kept for the report."""
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
    """What tools say of the winner, where they are here and work."""
    try:
        return evidence(candidate, options.check)
    except DplcError:
        return {}
