"""Execution of one search: candidates are proposed, checked against the limits and scored, until the budget ends."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError
from ..rewrite.statements.compiled import Program
from ..schedule.scheduling import refusal
from ..schedule.space import Decisions, ScheduleCandidate, Whole
from ..store.records import Attempt, Evaluator, Score, Tuned, key_of
from ..store.store import UNFINISHED, TuningStore
from .correctness import Verdict, verdict
from .search import Hill, Proposal, Random, Search, TreeSearch, Tried, reward

SEARCHES: dict[str, type[Search]] = {search.name: search for search in (Hill, TreeSearch, Random)}
DEFAULT_SEARCH = Hill.name  # the least regret of all (examples/suites/results/predicted/regret.md)
SCORES_KEPT = 50_000  # programs whose score is remembered
REPEATS = 20  # tries per program after which a space counts as used up
LEADERS = 8  # programs that are kept, should the best be wrong
REPORTED = 50  # attempts that are handed on at once


@dataclass(frozen=True)
class Budget:
    """Limits of a search: tries, distinct programs, seconds, and programs without an improvement. None: no limit."""

    tries: int | None = None
    programs: int | None = None
    seconds: float | None = None
    patience: int | None = None


@dataclass
class SearchProgress:
    """Results of a search so far.

    leaders: the fastest programs as (seconds, candidate), the best one first; fastest: the fastest schedules of each
    kernel by itself, independent of the other kernels. curve: (try, programs, seconds) of every improvement. pruned:
    rejected by the limits before anything was built; failed: rejected or wrong later; again: known programs.
    """

    search: Search
    default: Score
    limit: int | None = None  # of tries
    tries: int = 0
    programs: int = 0
    pruned: int = 0
    failed: int = 0
    again: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    leaders: list[tuple[float, Whole]] = field(default_factory=list)
    fastest: dict[Program, list[tuple[float, ScheduleCandidate]]] = field(default_factory=dict)
    curve: list[tuple[int, int, float]] = field(default_factory=list)
    since: int = 0  # programs since the last improvement

    @property
    def best(self) -> tuple[float, Whole] | None:
        return self.leaders[0] if self.leaders else None

    @property
    def yardstick(self) -> float | None:
        """Reference time of rewards: the default, or the first candidate that can be launched if the default cannot."""
        return self.default.seconds or (self.curve[0][2] if self.curve else None)

    @property
    def gain(self) -> float:
        """Time of the default divided by the best time, 1 if one of them is unknown."""
        return gain(self.default.seconds, self.best and self.best[0])


def gain(default: float | None, seconds: float | None) -> float:
    """Return the time of the default divided by another time, 1 if one of them is unknown."""
    return default / seconds if default is not None and seconds is not None else 1.0


Heard = Callable[[SearchProgress, Tried], None]
Scored = tuple[tuple[ScheduleCandidate, int, Score], ...]  # schedules of kernels, how often each is launched, its score
T = TypeVar("T")


@dataclass
class Runner:
    """Runner of one search. ahead: number of proposals that the pool evaluates at the same time.

    record: called with the attempts on a kernel. avoid: programs that are known to be wrong.
    """

    space: Decisions
    evaluator: Evaluator
    search: str
    seed: int
    budget: Budget
    heard: Heard = lambda run, tried: None
    record: Callable[[Program, list[Attempt]], None] = lambda start, attempts: None
    pool: Executor | None = None
    ahead: int = 1
    avoid: frozenset[str] = frozenset()
    keeper: Any = None  # keeping.Keeper, where there is a store

    def __post_init__(self) -> None:
        self._scores: OrderedDict[str, Score] = OrderedDict()  # of kernels
        self._known: OrderedDict[str, None] = OrderedDict()  # programs
        self._attempts: dict[Program, list[Attempt]] = {}
        self._began = time.monotonic()

    def run(self) -> SearchProgress:
        """Search until the budget ends. Ctrl-C ends the search too, and the results are kept."""
        search = SEARCHES[self.search](self.space, random.Random(self.seed))
        first = Proposal(self.space.default())
        score, parts = self._scored(first.candidate)
        run = SearchProgress(search, score, self.budget.tries)
        try:
            self._hear(run, first, score, parts)
            while not self._spent(run) >= 1.0 and self._round(run):
                pass
        except KeyboardInterrupt:
            run.interrupted = True
        run.seconds = time.monotonic() - self._began
        self._hand_on(0)
        return run

    def _round(self, run: SearchProgress) -> bool:
        """Evaluate some proposals together. Return False if the search has no more."""
        proposals = list(self._proposals(run))
        each = map if self.pool is None else self.pool.map
        scores = each(self._scored, [proposal.candidate for proposal in proposals])
        for proposal, (score, parts) in zip(proposals, scores, strict=True):
            self._hear(run, proposal, score, parts)
        return bool(proposals)

    def _proposals(self, run: SearchProgress) -> Iterator[Proposal]:
        left = self.ahead if self.budget.tries is None else self.budget.tries - run.tries
        for _ in range(min(self.ahead, left)):
            proposal = run.search.propose()
            if proposal is None:
                return
            yield proposal

    # ---- scores
    def score(self, candidate: ScheduleCandidate) -> Score:
        """Return the score of a schedule of one kernel, cached by its key."""
        known = self._scores.get(candidate.key)
        if known is not None:
            return known
        if candidate.key in self.avoid:
            return Score(None, self.evaluator.basis, "wrong", "known to be wrong")
        why = refusal(candidate.tile, candidate.target, candidate.space.granted)
        return Score(None, self.evaluator.basis, "refused", why) if why else self.evaluator(candidate)

    def _scored(self, whole: Whole) -> tuple[Score, Scored]:
        """Return the score of a program, its times summed over the launches, and the scores of its kernels."""
        if whole.problem:
            return Score(None, self.evaluator.basis, "refused", whole.problem), ()
        parts = tuple((candidate, count, self.score(candidate)) for candidate, count in whole.parts)
        return together([(score, count) for _, count, score in parts]), parts

    def _hear(self, run: SearchProgress, proposal: Proposal, score: Score, parts: Scored) -> None:
        run.tries += 1
        for candidate, _, own in parts:
            self._hear_kernel(run, candidate, own)
        key = proposal.candidate.key
        if key in self._known:
            run.again += 1
            self._known.move_to_end(key)
        else:
            run.programs += 1
            run.since += 1
            _keep(self._known, key, None)
            run.pruned += score.status == "refused"
            run.failed += score.status not in ("ok", "refused")
            if score.seconds is not None:
                self._lead(run, score.seconds, proposal.candidate)
        tried = Tried(proposal, score, reward(score, run.yardstick), parts)
        run.search.observe(tried)
        self._hand_on(REPORTED)
        self.heard(run, tried)

    def _hear_kernel(self, run: SearchProgress, candidate: ScheduleCandidate, score: Score) -> None:
        if candidate.key in self._scores:
            self._scores.move_to_end(candidate.key)
            return
        _keep(self._scores, candidate.key, score)
        made = Attempt(candidate.schedule, candidate.key, score, run.search.name, self.seed, run.tries)
        self._attempts.setdefault(candidate.loops, []).append(made)
        if score.seconds is not None:
            _insert(run.fastest.setdefault(candidate.loops, []), score.seconds, candidate)

    def _lead(self, run: SearchProgress, seconds: float, whole: Whole) -> None:
        """Insert a new program into the list of the fastest."""
        if run.best is None or seconds < run.best[0]:
            run.since = 0
            run.curve.append((run.tries, run.programs, seconds))
        _insert(run.leaders, seconds, whole)

    def _hand_on(self, least: int) -> None:
        if sum(map(len, self._attempts.values())) > least:
            for start, attempts in self._attempts.items():
                self.record(start, attempts)
            self._attempts = {}

    def _spent(self, run: SearchProgress) -> float:
        """Return the used share of the budget."""
        limits, elapsed = self.budget, time.monotonic() - self._began
        pairs = (run.tries, limits.tries), (run.programs, limits.programs), (elapsed, limits.seconds)
        shares = [used / limit if limit else 1.0 for used, limit in pairs if limit is not None]
        if limits.patience is not None and run.since >= limits.patience:
            return 1.0
        if limits.programs is not None and run.tries >= REPEATS * limits.programs:
            return 1.0
        return max(shares, default=0.0)


def together(scores: Sequence[tuple[Score, int]]) -> Score:
    """Return the score of a program from the scores of its kernels and their numbers of launches.

    A program of one launch has the score of its kernel.
    """
    if len(scores) == 1 and scores[0][1] == 1:
        return scores[0][0]
    bad = next((score for score, _ in scores if score.seconds is None), None)
    if bad is not None:
        return bad
    total = sum(count * score.seconds for score, count in scores if score.seconds is not None)
    return Score(total, scores[0][0].basis, "ok", "; ".join(score.detail for score, _ in scores))


def _insert(leaders: list[tuple[float, T]], seconds: float, what: T) -> None:
    leaders.append((seconds, what))
    leaders.sort(key=lambda pair: pair[0])
    del leaders[LEADERS:]


def _keep(known: OrderedDict[str, T], key: str, value: T) -> None:
    known[key] = value
    if len(known) > SCORES_KEPT:
        known.popitem(last=False)


# ---- Storing the best schedules during a search, so that an interrupted search keeps them.
#
# Only checked schedules are stored. Checks run at improvements and take at most a tenth of the search. The details of
# an entry say if its search has not ended.


SHARE = 0.1  # of the time of a search
FIRST = 0.3  # seconds that the first check is expected to take: a short search checks at its end only


@dataclass
class Keeper:
    """Listener of a search that stores the fastest right schedules.

    before: the entry of the store for each kernel before the search.
    """

    runner: Runner
    store: TuningStore
    heard: Heard
    before: dict[Program, Tuned | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began, self._spent, self._expected = time.monotonic(), 0.0, FIRST
        self._waiting: dict[Program, None] = {}
        self._best: dict[Program, float] = {}
        self._verdicts: dict[str, Verdict] = {}

    def __call__(self, run: SearchProgress, tried: Tried) -> None:
        """Record a try, and check and store improvements if the share of time for checks allows it."""
        for candidate, _, score in tried.parts:
            start = candidate.loops
            if score.seconds is not None and score.seconds < self._best.get(start, float("inf")):
                self._best[start] = score.seconds
                self._waiting[start] = None
        if self._waiting and self._spent + self._expected <= SHARE * (time.monotonic() - self._began):
            began = time.monotonic()
            for start in list(self._waiting):
                self._write(run, start)
            self._waiting = {}
            self._expected = time.monotonic() - began
            self._spent += self._expected
        self.heard(run, tried)

    def verdict(self, candidate: ScheduleCandidate) -> Verdict:
        """Return the result of the correctness check of a candidate. Each runs once."""
        if candidate.key not in self._verdicts:
            self._verdicts[candidate.key] = verdict(candidate)
        return self._verdicts[candidate.key]

    def _write(self, run: SearchProgress, start: Program) -> None:
        """Store the fastest right schedule of a kernel."""
        for seconds, candidate in run.fastest.get(start, []):
            try:
                found = self.verdict(candidate)
            except DplcError:  # the host cannot run it: the end of the search says so
                return
            if found.right:
                self._put(run, candidate, seconds, found.how)
                return

    def _put(self, run: SearchProgress, candidate: ScheduleCandidate, seconds: float, checked: str) -> None:
        start, default = candidate.loops, self.runner.score(candidate.space.default()).seconds
        key = key_of(start[0], candidate.target, candidate.tools.rules)
        if start not in self.before:
            self.before[start] = self.store.get(key)
        if default is None:
            return
        details: dict[str, Any] = {**self.runner.score(candidate).details, UNFINISHED: run.tries}
        tuned = Tuned(
            candidate.schedule, seconds, self.runner.evaluator.basis, default, run.search.name, self.runner.seed,
            run.tries, checked, details,
        )  # fmt: skip
        self.store.put(key, tuned)
