"""Searches over schedules (hill climbing, random), and their execution within a budget."""

from __future__ import annotations

import functools
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from time import monotonic

from ...ir.diagnostic import DplcError
from ...ir.node import immutable
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import RuleSite
from ..schedule.scheduling import microseconds, refusal
from ..schedule.space import (
    DEFAULT,
    SKIP,
    Domains,
    Fire,
    Genome,
    ProgramCandidate,
    ProgramSpace,
    ScheduleCandidate,
    Space,
    State,
    Token,
)
from ..store.store import UNFINISHED, Evaluator, Schedule, Score, SqliteStore, Tuned, TuningKey, key_of
from .evaluators import AHEAD, Verdict, verdict

WORST, BEST = -2.0, 2.0  # logarithms of default over candidate between which rewards lie
ELSEWHERE = 1 / 4  # how often a search leaves the fusion variant of its best schedule
NEAR = 0.2  # largest difference in reward of a fusion variant that may still win: 2.2 times as slow


@immutable
class Tried:
    """Evaluated candidate. parts: the schedules of the kernels, the number of launches and the score of each."""

    candidate: ProgramCandidate
    score: Score
    parts: tuple[tuple[ScheduleCandidate, int, Score], ...] = ()


def reward(score: Score, default: float | None) -> float:
    """Return ln(default / candidate), clipped and scaled to 0..1. A candidate as fast as the default gets 0.5.

    One that cannot be launched gets 0.
    """
    if score.seconds is None:
        return 0.0
    faster = math.log(gain(default, score.seconds))
    return (min(max(faster, WORST), BEST) - WORST) / (BEST - WORST)


class Search(ABC):
    """Base of all searches. The first candidate, observed before anything is proposed, is the default schedule.

    best_of: the best reward of each fusion variant, and its candidate. best: the best of them. incumbent: its
    decisions.
    """

    def __init__(self, space: ProgramSpace, dice: random.Random):
        self.space, self.dice = space, dice
        self.best_of: dict[int, tuple[float, ProgramCandidate]] = {}
        self.best_reward, self.best_way = -1.0, 0
        self.incumbent: Genome = {}

    @abstractmethod
    def propose(self) -> ProgramCandidate | None:
        """Return the next candidate, or None if none is left. Candidates are observed in this order."""

    def observe(self, candidate: ProgramCandidate, found: float) -> None:
        """Record a reward. A candidate of equal reward replaces the best one, so that the search crosses plateaus."""
        if found >= self.best_reward:
            self.best_reward, self.best_way, self.incumbent = found, candidate.way, dict(candidate.genome)
        if found >= self.best_of.get(candidate.way, (0.0,))[0]:
            self.best_of[candidate.way] = found, candidate


ONE_PARAMETER = 0.8  # how often a neighbour differs in the value of one parameter
TWO_PARAMETERS = 0.4  # of these, how often of two
SECOND = 0.25  # how often a mutation changes a second decision


def options(space: Space, state: State) -> list[Token | RuleSite]:
    """Return the options at a state: SKIP, DEFAULT if it may fire several times, and sites. The default is first."""
    reference = space.reference(state)
    found: list[Token | RuleSite] = [SKIP, *space.spots(state)]
    if reference == DEFAULT:
        return [DEFAULT, *found]
    return sorted(found, key=lambda option: _name(option) != _name(reference))


def _name(option: Token | RuleSite) -> Token:
    """Return an option without values of parameters."""
    return option if isinstance(option, str) else Fire(option.rule, option.where)


def random_fill(space: Space, spot: RuleSite, dice: random.Random) -> Token:
    """Fill the open parameters with random values. DEFAULT if a guard refuses all of them."""

    def shuffled(found: RuleSite) -> list[object]:
        assert found.open is not None
        values = list(found.open.values)
        dice.shuffle(values)
        return values

    return space.filled(spot, shuffled)


def random_token(space: Space, state: State, dice: random.Random) -> Token:
    """Return a random option with random values."""
    option = dice.choice(options(space, state))
    return random_fill(space, option, dice) if isinstance(option, RuleSite) else option


def neighbour(space: Space, state: State, token: Token, dice: random.Random) -> Token:
    """Return a different decision at a state: mostly another value of one parameter, else another option."""
    fire = token
    if token == DEFAULT and (own := space.by_default(state)[1]):
        fire = space.fire_of(own[0])  # the first firing of the default
    if isinstance(fire, Fire) and dice.random() < ONE_PARAMETER:
        domains = {name: values for name, values in space.domains(state, fire).items() if len(values) > 1}
        if domains:
            return _changed(space, fire, domains, dice)
    others = [option for option in options(space, state) if _name(option) not in (token, _name(fire))]
    option = dice.choice(others) if others else token
    if not isinstance(option, RuleSite):
        return option
    return space.filled(option, space.ordered) if dice.random() < 0.5 else random_fill(space, option, dice)


def _changed(space: Space, fire: Fire, domains: Domains, dice: random.Random) -> Fire:
    """Change the value of one parameter, or of two, so that a tile may keep its area."""
    count = 2 if len(domains) > 1 and dice.random() < TWO_PARAMETERS else 1
    values = dict(fire.values)
    for name in dice.sample(list(domains), count):
        far = {other: space.distance(other, values.get(name)) for other in domains[name] if other != values.get(name)}
        others = sorted(far, key=far.__getitem__)
        values[name] = others[min(int(dice.expovariate(0.7)), len(others) - 1)]
    return fire._replace(values=tuple(values.items()))


def mutated(whole: ProgramCandidate, dice: random.Random) -> Genome:
    """Change one or two decisions of a schedule, more often in passes with more options."""
    made = dict(whole.genome)
    places = [(part.space, state, token) for part, _ in whole.parts for state, token in part.space.states(part.genome)]
    weights = [
        math.log2(1 + sum(len(spot.open.values) if spot.open else 1 for spot in space.spots(state)))
        for space, state, _ in places
    ]
    for _ in range(2 if dice.random() < SECOND else 1):
        if any(weights):
            space, state, token = dice.choices(places, weights)[0]
            made[space.slot(state)] = neighbour(space, state, token, dice)
    return made


def decided(space: ProgramSpace, genome: Genome, way: int) -> ProgramCandidate:
    """Apply decisions to a space. The default decides the rest."""
    return space.walk(lambda _, state, slot: genome.get(slot, DEFAULT), way)


class Random(Search):
    """Search that makes every decision at random."""

    def propose(self) -> ProgramCandidate | None:
        way = self.dice.randrange(len(self.space.ways))
        return self.space.walk(lambda space, state, slot: random_token(space, state, self.dice), way)


class Hill(Search):
    """First-improvement hill climbing: change one or two decisions of the best schedule, and accept equal rewards.

    It tries each fusion variant once under the decisions of the best schedule. Then it stays in the variant of the best
    schedule, or sometimes takes one of similar reward.
    """

    def propose(self) -> ProgramCandidate | None:
        for way in range(len(self.space.ways)):
            if way not in self.best_of:
                return decided(self.space, self.incumbent, way)
        way = self.best_way
        near = [other for other, (found, _) in self.best_of.items() if 0 < found >= self.best_reward - NEAR]
        if near and len(self.best_of) > 1 and self.dice.random() < ELSEWHERE:
            way = self.dice.choice(near)
        return decided(self.space, mutated(self.best_of[way][1], self.dice), way)


# ---- Execution of one search: candidates are proposed, checked against the limits and scored, until the budget ends.


SEARCHES: dict[str, type[Search]] = {"hill": Hill, "random": Random}
DEFAULT_SEARCH = "hill"  # the least regret of all (examples/suites/results/predicted/regret.md)
REPEATS = 20  # tries per program after which a space counts as used up
LEADERS = 8  # schedules of a kernel that are kept, in case the best is wrong
SHARE = 0.1  # of the time of a search, for checks before its end
FIRST = 0.3  # seconds that the first check is expected to take: a short search checks at its end only


@immutable
class Budget:
    """Limits of a search: tries, distinct programs, seconds, and programs without an improvement. None: no limit."""

    tries: int | None = None
    programs: int | None = None
    seconds: float | None = None
    patience: int | None = None


@immutable
class SearchOptions:
    """Options of a search. free: the passes that the search decides, None for all; check: run the winner and check it.

    predict: use the cost model even if there is a GPU; assemble: use the registers that the assembler reports.
    """

    search: str = DEFAULT_SEARCH
    seed: int = 0
    budget: Budget = Budget(tries=200)
    free: frozenset[str] | None = None
    check: bool = True
    predict: bool = False
    assemble: bool = False


def total(times: Iterable[tuple[float | None, int]]) -> float | None:
    """Return the time of launches from the seconds and number of each kernel; None if one of them has no time."""
    found = 0.0
    for seconds, count in times:
        if seconds is None:
            return None
        found += count * seconds
    return found


def gain(default: float | None, seconds: float | None) -> float:
    """Return the time of the default divided by another time, 1 if one of them is unknown."""
    return default / seconds if default is not None and seconds is not None else 1.0


Observer = Callable[["SearchRun", Tried], None]
Leader = tuple[float, ScheduleCandidate]  # seconds, and a schedule of a kernel
Winner = tuple[float, ScheduleCandidate, str]  # and how it was compared with float64
Wrong = list[tuple[ScheduleCandidate, str]]  # schedules with wrong results, and the errors


def unheard(run: SearchRun, tried: Tried) -> None:
    """Listen to no try."""


@dataclass
class SearchRun:
    """One search and its results so far.

    store: receives the fastest right schedules of each kernel, so that an interrupted search keeps them. Checks run at
    improvements and take at most a tenth of the search; the details of an entry say if its search has not ended.

    fastest: the fastest schedules of each kernel by itself, independent of the other kernels. curve: (try, programs,
    seconds) of every improvement. refused: rejected by the limits before anything was built; failed: rejected or wrong
    later; repeated: known programs.
    """

    space: ProgramSpace
    evaluator: Evaluator
    options: SearchOptions
    store: SqliteStore | None = None
    observe: Observer = unheard
    default: Score = field(init=False)
    tries: int = 0
    programs: int = 0
    refused: int = 0
    failed: int = 0
    repeated: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    fastest: dict[Program, list[Leader]] = field(default_factory=dict)
    curve: list[tuple[int, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.search = SEARCHES[self.options.search](self.space, random.Random(self.options.seed))
        self._scores: dict[str, Score] = {}  # of kernels
        self._known: set[str] = set()  # programs
        self._began = monotonic()
        self._checking, self._expected = 0.0, FIRST  # seconds of all checks, and of the next one
        self._kept: dict[Program, Leader] = {}  # leaders that are checked and stored
        self._verdict = functools.cache(verdict)
        # the entries of the store before the search
        self.before = functools.cache(lambda start: self.store.get(self.key(start)) if self.store else None)

    @property
    def limit(self) -> int | None:
        return self.options.budget.tries

    @property
    def best(self) -> float | None:
        """Seconds of the fastest program so far."""
        return self.curve[-1][2] if self.curve else None

    @property
    def since(self) -> int:
        """Programs since the last improvement."""
        return self.programs - (self.curve[-1][1] if self.curve else 0)

    def record(self) -> dict[str, object]:
        """Return the search as data. The times of the curve are in microseconds."""
        names = "tries", "programs", "refused", "failed", "repeated", "seconds", "interrupted"
        curve = [[tries, programs, seconds * 1e6] for tries, programs, seconds in self.curve]
        return {"search": self.options.search, **{name: getattr(self, name) for name in names}, "curve": curve}

    def tuned(
        self, schedule: Schedule, seconds: float, default: float, checked: str, details: dict[str, object]
    ) -> Tuned:
        """Return a result for the store."""
        return Tuned(
            schedule,
            seconds,
            self.default.basis,
            default,
            self.options.search,
            self.options.seed,
            self.tries,
            checked,
            details,
        )

    def key(self, start: Program) -> TuningKey:
        """Return the key of a kernel in the store."""
        return key_of(start[0], self.space.target, self.space.tools.rules)

    def run(self) -> SearchRun:
        """Search until the budget ends. Ctrl-C ends the search too, and the results are kept."""
        first, ahead = self._scored(self.space.default()), AHEAD if self.options.assemble else 1
        self.default = first.score
        try:
            with ThreadPoolExecutor(ahead) as pool:
                self._hear(first)
                while not self._spent() and self._round(ahead, pool.map if ahead > 1 else map):
                    pass
        except KeyboardInterrupt:
            self.interrupted = True
        self.seconds = monotonic() - self._began
        return self

    def _round(self, ahead: int, each: Callable[..., Iterable[Tried]]) -> bool:
        """Evaluate some proposals together. Return False if the search has no more."""
        left = ahead if self.limit is None else min(ahead, self.limit - self.tries)
        proposals = list(islice(iter(self.search.propose, None), left))
        for tried in each(self._scored, proposals):
            self._hear(tried)
        return bool(proposals)

    def _spent(self) -> bool:
        """Return whether the budget is used up."""
        limits = self.options.budget
        used = (
            (self.tries, limits.tries),
            (self.programs, limits.programs),
            (monotonic() - self._began, limits.seconds),
            (self.since, limits.patience),
            (self.tries, limits.programs and REPEATS * limits.programs),
        )
        return any(limit is not None and count >= limit for count, limit in used)

    # ---- scores
    def score(self, candidate: ScheduleCandidate) -> Score:
        """Return the score of a schedule of one kernel, cached by its key."""
        known = self._scores.get(candidate.key)
        if known is not None:
            return known
        why = refusal(candidate.tile, candidate.target, candidate.space.granted)
        return Score(None, self.evaluator.basis, "refused", why) if why else self.evaluator(candidate)

    def _scored(self, whole: ProgramCandidate) -> Tried:
        """Return a program with its time, summed over the launches, and the scores of its kernels."""
        if whole.problem:
            return Tried(whole, Score(None, self.evaluator.basis, "refused", whole.problem))
        parts = tuple((candidate, count, self.score(candidate)) for candidate, count in whole.parts)
        for _, _, score in parts:
            if score.seconds is None:
                return Tried(whole, score, parts)
        seconds = total((score.seconds, count) for _, count, score in parts)
        details = "; ".join(score.detail for _, _, score in parts)
        return Tried(whole, Score(seconds, self.evaluator.basis, "ok", details), parts)

    def _hear(self, tried: Tried) -> None:
        self.tries, self.seconds = self.tries + 1, monotonic() - self._began
        score = tried.score
        for part, _, own in tried.parts:
            if part.key in self._scores:
                continue
            self._scores[part.key] = own
            if own.seconds is not None:
                leaders = *self.fastest.get(part.loops, ()), (own.seconds, part)
                self.fastest[part.loops] = sorted(leaders, key=itemgetter(0))[:LEADERS]
        if (key := tried.candidate.key) in self._known:
            self.repeated += 1
        else:
            self._known.add(key)
            self.programs += 1
            self.refused += score.status == "refused"
            self.failed += score.status not in ("ok", "refused")
            if score.seconds is not None and (self.best is None or score.seconds < self.best):
                self.curve.append((self.tries, self.programs, score.seconds))
        # rewards refer to the default, or to the first candidate that can be launched if the default cannot
        reference = self.default.seconds or (self.curve[0][2] if self.curve else None)
        self.search.observe(tried.candidate, reward(score, reference))
        if self.store is not None and self.options.check:
            self._keep_improvements(self.store)
        self.observe(self, tried)

    def seconds_of(self, way: int) -> float | None:
        """Return the summed time of the best schedules for the kernels of a fusion variant.

        None if one of the kernels has no schedule that can be launched.
        """
        best = {start: leaders[0][0] for start, leaders in self.fastest.items()}
        return total((best.get(inner.loops), count) for inner, count in self.space.spaces(way)) or None

    # ---- the store
    def checked(self, start: Program) -> tuple[Winner | None, Wrong]:
        """Return the fastest right schedule of a kernel, and the faster ones that are wrong. None is, without checks.

        Raises DplcError if the host cannot run one.
        """
        wrong: Wrong = []
        for seconds, candidate in self.fastest.get(start, ()):
            found = self._verdict(candidate) if self.options.check else Verdict("")
            if found.right:
                return (seconds, candidate, found.how), wrong
            wrong.append((candidate, found.finding))
        return None, wrong

    def _keep_improvements(self, store: SqliteStore) -> None:
        """Check and store the fastest schedules that are new, if the share of time for checks allows it."""
        began = monotonic()
        new = {start: found[0] for start, found in self.fastest.items() if found[0] is not self._kept.get(start)}
        if not new or self._checking + self._expected > SHARE * (began - self._began):
            return
        self._kept |= new
        for start, (_, leader) in new.items():
            try:
                best, _ = self.checked(start)
            except DplcError:  # the host cannot run it: the end of the search says so
                continue
            default = self.score(leader.space.default()).seconds
            self.before(start)
            if best is not None and default is not None:
                seconds, candidate, how = best
                details = {**self.score(candidate).details, UNFINISHED: self.tries}
                store.put(self.key(start), self.tuned(candidate.schedule, seconds, default, how, details))
        self._expected = monotonic() - began
        self._checking += self._expected


# ---- texts


def micro(seconds: float | None) -> str:
    """Write seconds as microseconds."""
    found = microseconds(seconds)
    return "-" if found is None else f"{found:.2f}"


def firing_text(rule: str, values: Iterable[tuple[str, object]]) -> str:
    """Return a rule with the values of its parameters as text."""
    shown = ", ".join(f"{name}={plain_text(value)}" for name, value in values)
    return f"{rule}({shown})" if shown else rule


def plain_text(value: object) -> str:
    return "(" + ", ".join(map(plain_text, value)) + ")" if isinstance(value, (tuple, list)) else str(value)
