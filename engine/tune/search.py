"""Searches over schedules (hill climbing, SP-MCTS, random), their execution within a budget, and their log."""

from __future__ import annotations

import bisect
import math
import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...ir.diagnostic import DplcError
from ..rewrite.statements.compiled import Program
from ..rewrite.statements.driver import RuleSite
from ..schedule.scheduling import refusal
from ..schedule.space import (
    DEFAULT,
    SKIP,
    DecisionPoint,
    Fire,
    Genome,
    ProgramCandidate,
    ProgramSpace,
    ScheduleCandidate,
    Space,
    State,
    Token,
)
from ..store.store import UNFINISHED, Attempt, Evaluator, Schedule, Score, Tuned, TuningKey, TuningStore, key_of
from .evaluators import AHEAD, Verdict, verdict

WORST, BEST = -2.0, 2.0  # logarithms of default over candidate between which rewards lie
ELSEWHERE = 1 / 4  # how often a search leaves the fusion variant of its best schedule
NEAR = 0.2  # largest difference in reward of a fusion variant that may still win: 2.2 times as slow


@dataclass(frozen=True)
class Tried:
    """Evaluated candidate. reward: 0 (cannot be launched, or much slower than the default) to 1.

    parts: the schedules of the kernels, the number of launches and the score of each.
    """

    candidate: ProgramCandidate
    score: Score
    reward: float
    parts: tuple[tuple[ScheduleCandidate, int, Score], ...] = ()


def reward(score: Score, default: float | None) -> float:
    """Return ln(default / candidate), clipped and scaled to 0..1. A candidate as fast as the default gets 0.5."""
    if score.seconds is None:
        return 0.0
    gain = 0.0 if default is None else math.log(default / score.seconds)
    return (min(max(gain, WORST), BEST) - WORST) / (BEST - WORST)


class Search(ABC):
    """Base of all searches. The first candidate, observed before anything is proposed, is the default schedule."""

    def __init__(self, space: ProgramSpace, dice: random.Random):
        self.space, self.dice = space, dice
        self.best: ProgramCandidate | None = None
        self.best_reward = -1.0
        self.best_of: dict[int, tuple[float, ProgramCandidate]] = {}  # by fusion variant

    @abstractmethod
    def propose(self) -> ProgramCandidate | None:
        """Return the next candidate, or None if none is left. Candidates are observed in this order."""

    def observe(self, tried: Tried) -> None:
        """Record a score. A candidate of equal reward replaces the best one, so that the search crosses plateaus."""
        way = tried.candidate.way
        if tried.reward >= self.best_reward:
            self.best, self.best_reward = tried.candidate, tried.reward
        if way not in self.best_of or tried.reward >= self.best_of[way][0]:
            self.best_of[way] = tried.reward, tried.candidate

    @property
    def incumbent(self) -> Genome:
        """Return the decisions of the best schedule so far."""
        return {} if self.best is None else dict(self.best.genome)

    def way(self) -> int:
        """Choose a fusion variant: each once, then mostly that of the best schedule, else one of similar reward."""
        if len(self.space.ways) == 1 or self.best is None:
            return 0
        unseen = next((way for way in range(len(self.space.ways)) if way not in self.best_of), None)
        if unseen is not None:
            return unseen
        others = [way for way, (found, _) in self.best_of.items() if 0 < found >= self.best_reward - NEAR]
        return self.dice.choice(others) if others and self.dice.random() < ELSEWHERE else self.best.way


ONE_PARAMETER = 0.8  # how often a neighbour differs in the value of one parameter
TWO_PARAMETERS = 0.4  # of these, how often of two
SECOND = 0.25  # how often a mutation changes a second decision


def options(space: Space, state: State) -> tuple[Token | RuleSite, ...]:
    """Return the options at a state: SKIP, DEFAULT if it may fire several times, and sites. The default is first."""
    reference = space.reference(state)
    found: list[Token | RuleSite] = [SKIP, *space.spots(state)]
    if isinstance(reference, Fire):
        return tuple(sorted(found, key=lambda o: not _is(o, reference)))
    return (DEFAULT, *found) if reference == DEFAULT else tuple(found)


def _is(option: Token | RuleSite, fire: Fire) -> bool:
    return isinstance(option, RuleSite) and (option.rule, option.where) == (fire.rule, fire.where)


def random_fill(space: Space, spot: RuleSite, dice: random.Random) -> Fire | None:
    """Fill the open parameters with random values."""

    def shuffled(found: RuleSite) -> list[Any]:
        assert found.open is not None
        values = list(found.open.values)
        dice.shuffle(values)
        return values

    filled = spot.filled(shuffled)
    return None if filled is None else space.token(filled)


def default_fill(space: Space, spot: RuleSite) -> Fire | None:
    """Fill the open parameters with the rule's defaults, or the nearest legal values."""
    found = spot.filled(space.ordered)
    return None if found is None else space.token(found)


def random_token(space: Space, state: State, dice: random.Random) -> Token:
    """Return a random option with random values."""
    option = dice.choice(options(space, state))
    token = random_fill(space, option, dice) if isinstance(option, RuleSite) else option
    return DEFAULT if token is None else token


def neighbour(space: Space, state: State, token: Token, dice: random.Random) -> Token:
    """Return a different decision at a state: mostly another value of one parameter, else another option."""
    fire = token if isinstance(token, Fire) else None
    if fire is None and token != SKIP and (own := space.by_default(state)[1]):
        fire = space.fire_of(own[0])  # the first firing of the default
    if fire is not None and dice.random() < ONE_PARAMETER:
        changed = _changed(space, state, fire, dice)
        if changed is not None:
            return changed
    others = [o for o in options(space, state) if o != token and not (fire is not None and _is(o, fire))]
    if not others:
        return token
    option = dice.choice(others)
    if isinstance(option, RuleSite):
        fill = default_fill(space, option) if dice.random() < 0.5 else random_fill(space, option, dice)
        return DEFAULT if fill is None else fill
    return option


def _changed(space: Space, state: State, fire: Fire, dice: random.Random) -> Fire | None:
    """Change the value of one parameter, or of two, so that a tile may keep its area."""
    domains = space.domains(state, fire)
    open_ = [name for name, values in domains.items() if len(values) > 1]
    if not open_:
        return None
    count = 2 if len(open_) > 1 and dice.random() < TWO_PARAMETERS else 1
    values = dict(fire.values)
    for name in dice.sample(open_, count):
        far = {other: space.distance(other, values.get(name)) for other in domains[name] if other != values.get(name)}
        others = sorted(far, key=far.__getitem__)
        values[name] = others[min(int(dice.expovariate(0.7)), len(others) - 1)]
    return Fire(fire.rule, fire.where, tuple(values.items()))


def mutated(whole: ProgramCandidate, dice: random.Random) -> Genome:
    """Change one or two decisions of a schedule, more often in passes with more options."""
    made: Genome = dict(whole.genome)
    for _ in range(2 if dice.random() < SECOND else 1):
        places = list(_places(whole))
        if not places:
            break
        space, state, token = dice.choices([p[:3] for p in places], [p[3] for p in places])[0]
        made[space.slot(state)] = neighbour(space, state, token, dice)
    return made


def _places(whole: ProgramCandidate) -> Iterator[tuple[Space, State, Token, float]]:
    """Yield the states of a schedule with more than one option, and a weight for each."""
    for candidate, _ in whole.parts:
        space = candidate.space
        for state, token in space.states(candidate.genome):
            count = sum(len(spot.open.values) if spot.open else 1 for spot in space.spots(state))
            if count:
                yield space, state, token, math.log2(1 + count)


class Random(Search):
    """Search that makes every decision at random."""

    def propose(self) -> ProgramCandidate | None:
        way = self.dice.randrange(len(self.space.ways))
        return self.space.walk(lambda space, state, slot: random_token(space, state, self.dice), way)


class Hill(Search):
    """First-improvement hill climbing: change one or two decisions of the best schedule, and accept equal rewards."""

    def propose(self) -> ProgramCandidate | None:
        way = self.way()
        if way not in self.best_of:
            return decided(self.space, self.incumbent, way)
        return decided(self.space, mutated(self.best_of[way][1], self.dice), way)


def decided(space: ProgramSpace, genome: Genome, way: int) -> ProgramCandidate:
    """Apply decisions to a space. The default decides the rest."""
    return space.walk(lambda _, state, slot: genome.get(slot, DEFAULT), way)  # type: ignore[no-any-return]


Key = Any  # a Token without values, or a value


class TreeNode:
    """Node of the tree. options: possible decisions in order of preference, None before the first visit."""

    __slots__ = ("best", "children", "closed", "options", "squares", "total", "visits")

    def __init__(self) -> None:
        self.children: dict[Key, TreeNode] = {}
        self.options: list[Key] | None = None
        self.visits, self.total, self.squares, self.best = 0, 0.0, 0.0, 0.0
        self.closed = False


class TreeSearch(Search):
    """Single-player Monte-Carlo tree search (SP-MCTS) over factored decisions.

    The search is UCT (Kocsis and Szepesvari 2006) in its single-player form with a term for the spread of rewards
    (Schadd et al. 2008). It widens progressively (Coulom 2007), passes the best reward upwards instead of the mean (as
    Cazenave's nested search, 2009), and its rollouts follow the best schedule known. A level of the tree is
    skip-or-rule-at-a-site, or one parameter. A decision with one option has no level.
    """

    exploration: ClassVar[float] = 0.3
    spread: ClassVar[float] = 0.02
    chance: ClassVar[float] = 0.15  # probability that a rollout leaves the best schedule

    def __init__(self, space: ProgramSpace, dice: random.Random):
        super().__init__(space, dice)
        self.root = TreeNode()
        self._path: list[TreeNode] = []
        self.paths: deque[Sequence[TreeNode]] = deque()  # of candidates that are not observed yet
        self._guide: Genome = {}
        self._inside = True

    # ---- propose
    def propose(self) -> ProgramCandidate | None:
        if self.root.closed:
            return None
        self._path, self._guide, self._inside = [self.root], self.incumbent, True
        way = self._level(range(len(self.space.ways)), lambda n: n)
        candidate = self.space.walk(self._decide, way)
        if self._inside:
            self._path[-1].closed = True
            self._close()
        for node in self._path:  # counted before the score is known, so that parallel proposals differ
            node.visits += 1
        self.paths.append(self._path)
        return candidate

    def _decide(self, space: Space, state: State, slot: DecisionPoint) -> Token:
        if not self._inside:
            leaves = self.dice.random() < self.chance
            return random_token(space, state, self.dice) if leaves else self._guide.get(slot, DEFAULT)
        found = self._level(options(space, state), self._name)
        if isinstance(found, RuleSite):
            return self._values(space, slot, found)
        return found  # type: ignore[no-any-return]

    def _values(self, space: Space, slot: DecisionPoint, spot: RuleSite) -> Token:
        """Choose one value after the other, first in the tree, then by rollout."""
        token = self._guide.get(slot)  # of the best schedule
        same = isinstance(token, Fire) and (token.rule, token.where) == (spot.rule, spot.where)
        wanted = dict(token.values) if same else {}  # type: ignore[union-attr]
        found: RuleSite | None = spot
        while found is not None and found.open is not None:
            values = space.ordered(found, wanted)
            if self._inside:
                value = self._level(values, space.plain)
                found = found.choose(value)
                if found is None:  # a condition rejects the value: the search does not visit it again
                    self._path[-1].closed = True
                    self._close()
                    self._inside = False
            elif self.dice.random() < self.chance:
                return random_fill(space, found, self.dice) or DEFAULT
            else:
                found = found.first(values)
        return DEFAULT if found is None else space.token(found)

    # ---- the tree
    @staticmethod
    def _name(option: Token | RuleSite) -> Key:
        return (option.rule, option.where) if isinstance(option, RuleSite) else option

    def _level(self, found: Sequence[Any], name: Callable[[Any], Key]) -> Any:
        """Choose an option: a new child while there are few, else the most promising child."""
        if len(found) == 1:
            return found[0]
        node = self._path[-1]
        named = {name(option): option for option in found}
        if node.options is None:
            node.options = list(named)
        key = self._new(node)
        if key is None:
            key = self._promising(node)
        if key not in named:  # a default from another path allowed an option that is forbidden here
            key = next(iter(named))
        if key not in node.children:
            node.children[key] = TreeNode()
            self._inside = False
        self._path.append(node.children[key])
        return named[key]

    def _new(self, node: TreeNode) -> Key | None:
        assert node.options is not None
        allowed = math.ceil(2 * math.sqrt(node.visits + 1))
        enough = len(node.children) >= min(allowed, len(node.options))
        if enough and any(not child.closed for child in node.children.values()):
            return None
        return next((key for key in node.options if key not in node.children), None)

    def _promising(self, node: TreeNode) -> Key:
        open_ = [(key, child) for key, child in node.children.items() if not child.closed]
        return max(open_ or node.children.items(), key=lambda pair: self.worth(node, pair[1]))[0]

    def worth(self, node: TreeNode, child: TreeNode) -> float:
        """Return the upper confidence bound: best reward, exploration term and spread of rewards."""
        visits = max(child.visits, 1)
        explore = self.exploration * math.sqrt(math.log(max(node.visits, 2)) / visits)
        variance = max(child.squares / visits - (child.total / visits) ** 2, 0.0)
        return child.best + explore + math.sqrt(variance + self.spread / visits)

    def _close(self) -> None:
        """Close exhausted subtrees."""
        for node in reversed(self._path[:-1]):
            if node.options is None or len(node.children) < len(node.options):
                return
            if not all(child.closed for child in node.children.values()):
                return
            node.closed = True

    # ---- observe
    def observe(self, tried: Tried) -> None:
        super().observe(tried)
        for node in self.paths.popleft() if self.paths else ():
            node.total += tried.reward
            node.squares += tried.reward**2
            node.best = max(node.best, tried.reward)


# ---- Execution of one search: candidates are proposed, checked against the limits and scored, until the budget ends.


SEARCHES: dict[str, type[Search]] = {"hill": Hill, "mcts": TreeSearch, "random": Random}
DEFAULT_SEARCH = "hill"  # the least regret of all (examples/suites/results/predicted/regret.md)
REPEATS = 20  # tries per program after which a space counts as used up
LEADERS = 8  # schedules of a kernel that are kept, in case the best is wrong
REPORTED = 50  # attempts that are handed on at once
SHARE = 0.1  # of the time of a search, for checks before its end
FIRST = 0.3  # seconds that the first check is expected to take: a short search checks at its end only


@dataclass(frozen=True)
class Budget:
    """Limits of a search: tries, distinct programs, seconds, and programs without an improvement. None: no limit."""

    tries: int | None = None
    programs: int | None = None
    seconds: float | None = None
    patience: int | None = None


@dataclass(frozen=True)
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

    @property
    def ahead(self) -> int:
        """Number of candidates that are built at once."""
        return AHEAD if self.assemble else 1


def gain(default: float | None, seconds: float | None) -> float:
    """Return the time of the default divided by another time, 1 if one of them is unknown."""
    return default / seconds if default is not None and seconds is not None else 1.0


Observer = Callable[["SearchRun", Tried], None]
Scored = tuple[tuple[ScheduleCandidate, int, Score], ...]  # schedules of kernels, how often each is launched, its score


@dataclass
class SearchRun:
    """One search and its results so far.

    store: receives the attempts on each kernel, and the fastest right schedules, so that an interrupted search keeps
    them. Checks run at improvements and take at most a tenth of the search; the details of an entry say if its search
    has not ended. before: the entry of the store for each kernel before the search.

    best: the fastest program as (seconds, candidate); fastest: the fastest schedules of each kernel by itself,
    independent of the other kernels. curve: (try, programs, seconds) of every improvement. refused: rejected by the
    limits before anything was built; failed: rejected or wrong later; repeated: known programs. since: programs since
    the last improvement.
    """

    space: ProgramSpace
    evaluator: Evaluator
    options: SearchOptions
    store: TuningStore | None = None
    observe: Observer = lambda run, tried: None
    before: dict[Program, Tuned | None] = field(default_factory=dict)
    default: Score = field(init=False)
    tries: int = 0
    programs: int = 0
    refused: int = 0
    failed: int = 0
    repeated: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    best: tuple[float, ProgramCandidate] | None = None
    fastest: dict[Program, list[tuple[float, ScheduleCandidate]]] = field(default_factory=dict)
    curve: list[tuple[int, int, float]] = field(default_factory=list)
    since: int = 0

    def __post_init__(self) -> None:
        self.search = SEARCHES[self.options.search](self.space, random.Random(self.options.seed))
        self._scores: dict[str, Score] = {}  # of kernels
        self._known: set[str] = set()  # programs
        self._attempts: dict[Program, list[Attempt]] = {}
        self._began = time.monotonic()
        self._checking, self._expected = 0.0, FIRST  # seconds of all checks, and of the next one
        self._improved: dict[Program, float] = {}  # kernels whose best schedule is not stored yet
        self._best: dict[Program, float] = {}
        self._verdicts: dict[str, Verdict] = {}

    @property
    def limit(self) -> int | None:
        return self.options.budget.tries

    @property
    def gain(self) -> float:
        """Time of the default divided by the best time, 1 if one of them is unknown."""
        return gain(self.default.seconds, self.best and self.best[0])

    def record(self) -> dict[str, Any]:
        """Return the search as data. The times of the curve are in microseconds."""
        names = "tries", "programs", "refused", "failed", "repeated", "seconds", "interrupted"
        curve = [[tries, programs, seconds * 1e6] for tries, programs, seconds in self.curve]
        return {"search": self.options.search, **{name: getattr(self, name) for name in names}, "curve": curve}

    def attempt(self, candidate: ScheduleCandidate, score: Score) -> Attempt:
        found_by = self.options.search, self.options.seed, self.tries
        return Attempt(candidate.schedule, candidate.key, score, *found_by)

    def tuned(self, schedule: Schedule, seconds: float, default: float, checked: str, details: dict[str, Any]) -> Tuned:
        """Return a result for the store."""
        found_by = self.options.search, self.options.seed, self.tries
        return Tuned(schedule, seconds, self.default.basis, default, *found_by, checked, details)

    def key(self, start: Program) -> TuningKey:
        """Return the key of a kernel in the store."""
        return key_of(start[0], self.space.target, self.space.tools.rules)

    def run(self) -> SearchRun:
        """Search until the budget ends. Ctrl-C ends the search too, and the results are kept."""
        first = self.space.default()
        self.default, parts = self._scored(first)
        ahead = self.options.ahead
        try:
            with ThreadPoolExecutor(ahead) if ahead > 1 else nullcontext() as pool:
                self._hear(first, self.default, parts)
                while not self._spent() >= 1.0 and self._round(ahead, pool):
                    pass
        except KeyboardInterrupt:
            self.interrupted = True
        self.seconds = time.monotonic() - self._began
        self._hand_on(0)
        return self

    def _round(self, ahead: int, pool: Executor | None) -> bool:
        """Evaluate some proposals together. Return False if the search has no more."""
        tries = self.options.budget.tries
        left = ahead if tries is None else min(ahead, tries - self.tries)
        proposals: list[ProgramCandidate] = []
        while len(proposals) < left and (proposal := self.search.propose()) is not None:
            proposals.append(proposal)
        each = map if pool is None else pool.map
        for candidate, (score, parts) in zip(proposals, each(self._scored, proposals), strict=True):
            self._hear(candidate, score, parts)
        return bool(proposals)

    # ---- scores
    def score(self, candidate: ScheduleCandidate) -> Score:
        """Return the score of a schedule of one kernel, cached by its key."""
        known = self._scores.get(candidate.key)
        if known is not None:
            return known
        why = refusal(candidate.tile, candidate.target, candidate.space.granted)
        return Score(None, self.evaluator.basis, "refused", why) if why else self.evaluator(candidate)

    def _scored(self, whole: ProgramCandidate) -> tuple[Score, Scored]:
        """Return the score of a program, its times summed over the launches, and the scores of its kernels."""
        if whole.problem:
            return Score(None, self.evaluator.basis, "refused", whole.problem), ()
        parts = tuple((candidate, count, self.score(candidate)) for candidate, count in whole.parts)
        return together([(score, count) for _, count, score in parts]), parts

    def _hear(self, candidate: ProgramCandidate, score: Score, parts: Scored) -> None:
        self.tries += 1
        for part, _, own in parts:
            if part.key in self._scores:
                continue
            self._scores[part.key] = own
            self._attempts.setdefault(part.loops, []).append(self.attempt(part, own))
            if own.seconds is not None:
                leaders = self.fastest.setdefault(part.loops, [])
                bisect.insort(leaders, (own.seconds, part), key=lambda pair: pair[0])
                del leaders[LEADERS:]
        key = candidate.key
        if key in self._known:
            self.repeated += 1
        else:
            self.programs += 1
            self.since += 1
            self._known.add(key)
            self.refused += score.status == "refused"
            self.failed += score.status not in ("ok", "refused")
            if score.seconds is not None and (self.best is None or score.seconds < self.best[0]):
                self.since, self.best = 0, (score.seconds, candidate)
                self.curve.append((self.tries, self.programs, score.seconds))
        # rewards refer to the default, or to the first candidate that can be launched if the default cannot
        reference = self.default.seconds or (self.curve[0][2] if self.curve else None)
        tried = Tried(candidate, score, reward(score, reference), parts)
        self.search.observe(tried)
        self._hand_on(REPORTED)
        if self.store is not None and self.options.check:
            self._keep_improvements(self.store, parts)
        self.observe(self, tried)

    # ---- the store
    def verdict(self, candidate: ScheduleCandidate) -> Verdict:
        """Return the result of the correctness check of a candidate. Each runs once."""
        if candidate.key not in self._verdicts:
            self._verdicts[candidate.key] = verdict(candidate)
        return self._verdicts[candidate.key]

    def _keep_improvements(self, store: TuningStore, parts: Scored) -> None:
        """Check and store improvements if the share of time for checks allows it."""
        for candidate, _, score in parts:
            if score.seconds is not None and score.seconds < self._best.get(candidate.loops, float("inf")):
                self._improved[candidate.loops] = self._best[candidate.loops] = score.seconds
        began = time.monotonic()
        if self._improved and self._checking + self._expected <= SHARE * (began - self._began):
            for start in self._improved:
                self._put_fastest(store, start)
            self._improved = {}
            self._expected = time.monotonic() - began
            self._checking += self._expected

    def _put_fastest(self, store: TuningStore, start: Program) -> None:
        """Store the fastest right schedule of a kernel."""
        try:
            leaders = ((seconds, one, self.verdict(one)) for seconds, one in self.fastest.get(start, []))
            best = next(((seconds, one, found.how) for seconds, one, found in leaders if found.right), None)
        except DplcError:  # the host cannot run it: the end of the search says so
            return
        if best is None:
            return
        seconds, candidate, checked = best
        key, default = self.key(start), candidate.space.default()
        if start not in self.before:
            self.before[start] = store.get(key)
        if (usual := self.score(default).seconds) is not None:
            details: dict[str, Any] = {**self.score(candidate).details, UNFINISHED: self.tries}
            store.put(key, self.tuned(candidate.schedule, seconds, usual, checked, details))

    def _hand_on(self, least: int) -> None:
        if sum(map(len, self._attempts.values())) > least:
            for start, attempts in self._attempts.items():
                if self.store is not None:
                    self.store.record(self.key(start), attempts)
            self._attempts = {}

    def _spent(self) -> float:
        """Return the used share of the budget."""
        limits, elapsed = self.options.budget, time.monotonic() - self._began
        pairs = (self.tries, limits.tries), (self.programs, limits.programs), (elapsed, limits.seconds)
        shares = [used / limit if limit else 1.0 for used, limit in pairs if limit is not None]
        if limits.patience is not None and self.since >= limits.patience:
            return 1.0
        if limits.programs is not None and self.tries >= REPEATS * limits.programs:
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


# ---- Log of a search: times by parameter value, and the tree of decisions, for every kind of search.


MOST_NODES = 20_000
DEEPEST, WIDEST = 14, 6  # of the tree that is shown


def micro(seconds: float | None) -> str:
    """Write seconds as microseconds."""
    return "-" if seconds is None or seconds == math.inf else f"{seconds * 1e6:.2f}"


@dataclass
class CandidateTimes:
    """Times of some candidates, in seconds: how many had one, the best, the sum of logarithms; how many had none."""

    count: int = 0
    best: float = math.inf
    logs: float = 0.0
    without: int = 0

    def add(self, seconds: float | None) -> None:
        if seconds is None:
            self.without += 1
            return
        self.count, self.best, self.logs = self.count + 1, min(self.best, seconds), self.logs + math.log(seconds)

    @property
    def mean(self) -> float:
        """Geometric mean of the times, infinite without any."""
        return math.exp(self.logs / self.count) if self.count else math.inf


@dataclass
class SharedPrefix:
    """Candidates with the same first decisions. label: the last of these decisions."""

    label: str = ""
    times: CandidateTimes = field(default_factory=CandidateTimes)
    children: dict[Any, SharedPrefix] = field(default_factory=dict)

    @property
    def visits(self) -> int:
        return self.times.count + self.times.without

    def record(self, default: float | None, depth: int = 0) -> dict[str, Any]:
        """Return the tree for the page: chains without a choice merged, and the most visited children.

        A reward is the default's time divided by the candidate's, 0 without a time.
        """
        found, labels = self, [self.label] if self.label else []
        while len(found.children) == 1 and (only := next(iter(found.children.values()))).visits == found.visits:
            found = only
            labels.append(found.label)
        first, *rest = labels or [""]
        parts = (label.split(": ")[-1] for label in rest)
        best, mean = (
            default / seconds if default and 0 < seconds < math.inf else 0.0
            for seconds in (self.times.best, self.times.mean)
        )
        below = sorted(found.children.values(), key=lambda child: (-child.visits, child.times.best))[:WIDEST]
        return {
            "label": " · ".join([first, *(part for part in parts if part not in (DEFAULT, SKIP))]),
            "tried": self.visits, "without": self.times.without, "best": best, "mean": mean,
            "below": [child.record(default, depth + 1) for child in below] if depth < DEEPEST else [],
        }  # fmt: skip


class SearchLog:
    """Listener of a search.

    effects: {(kernel, pass, rule, parameter): {value: times of that kernel}}; kernels: {Loop IR of a kernel: (seconds
    by default, number of launches)}.
    """

    def __init__(self) -> None:
        self.root = SharedPrefix()
        self.kernels: dict[Program, tuple[float | None, int]] = {}
        self.effects: dict[tuple[str, str, str, str], dict[str, CandidateTimes]] = {}
        self.default: float | None = None
        self._nodes = 0

    def observe(self, run: SearchRun, tried: Tried) -> None:
        """Add a candidate."""
        self.default = run.default.seconds
        branch, seconds = self.root, tried.score.seconds
        branch.times.add(seconds)
        ways, whole = run.search.space.ways, tried.candidate
        path: list[tuple[Any, str]] = [(whole.way, f"candidate: {ways[whole.way]}")] if len(ways) > 1 else []
        path += (((slot, token), f"{slot.step}: {show(token)}") for slot, token in whole.genome)
        for decided, label in path:
            if decided not in branch.children:
                if self._nodes >= MOST_NODES:
                    break
                branch.children[decided] = SharedPrefix(label)
                self._nodes += 1
            branch = branch.children[decided]
            branch.times.add(seconds)
        for candidate, count, score in tried.parts:
            self.kernels.setdefault(candidate.loops, (score.seconds, count))  # the first that is tried is the default
            effects: list[tuple[str, str, str, str]] = []  # pass, rule, parameter, value
            for decision in candidate.schedule:
                for name, value in decision.parameters.items():
                    effects.append((decision.step, decision.rule, name, plain_text(value)))
            for slot, token in candidate.genome:
                if isinstance(token, Fire) or token == SKIP:
                    effects.append((slot.step, slot.step, "decision", "fires" if isinstance(token, Fire) else "skips"))
            for *place, value in effects:
                times = self.effects.setdefault((candidate.loops[0].name, *place), {})  # type: ignore[arg-type]
                times.setdefault(value, CandidateTimes()).add(score.seconds)


def show(token: Token) -> str:
    """Return a decision as text."""
    if not isinstance(token, Fire):
        return token
    values = ", ".join(f"{name}={plain_text(value)}" for name, value in token.values)
    return f"{token.rule}({values})" if values else token.rule


def plain_text(value: Any) -> str:
    return "(" + ", ".join(map(plain_text, value)) + ")" if isinstance(value, (tuple, list)) else str(value)
