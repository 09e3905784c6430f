"""Searches over schedules: hill climbing (the default), SP-MCTS and random."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..rewrite.statements.driver import RuleSite
from ..schedule.space import (
    DEFAULT,
    SKIP,
    DecisionPoint,
    Decisions,
    Fire,
    Genome,
    ScheduleCandidate,
    Space,
    State,
    Token,
    Whole,
)
from ..store.records import Score

WORST, BEST = -2.0, 2.0  # logarithms of default over candidate between which rewards lie
ELSEWHERE = 1 / 4  # how often a search leaves the fusion variant of its best schedule
NEAR = 0.2  # largest difference in reward of a fusion variant that may still win: 2.2 times as slow


@dataclass(frozen=True)
class Proposal:
    """Candidate to evaluate. memo: data that the search gets back with the score."""

    candidate: Whole
    memo: Any = None


@dataclass(frozen=True)
class Tried:
    """Evaluated proposal. reward: 0 (cannot be launched, or much slower than the default) to 1.

    parts: the schedules of the kernels, the number of launches and the score of each.
    """

    proposal: Proposal
    score: Score
    reward: float
    parts: tuple[tuple[ScheduleCandidate, int, Score], ...] = ()

    @property
    def candidate(self) -> Whole:
        return self.proposal.candidate


def reward(score: Score, default: float | None) -> float:
    """Return ln(default / candidate), clipped and scaled to 0..1. A candidate as fast as the default gets 0.5."""
    if score.seconds is None:
        return 0.0
    gain = 0.0 if default is None else math.log(default / score.seconds)
    return (min(max(gain, WORST), BEST) - WORST) / (BEST - WORST)


class Search(ABC):
    """Base of all searches. The first candidate, observed before anything is proposed, is the default schedule."""

    name: ClassVar[str]

    def __init__(self, space: Decisions, dice: random.Random):
        self.space, self.dice = space, dice
        self.best: Whole | None = None
        self.best_reward = -1.0
        self.best_of: dict[int, tuple[float, Whole]] = {}  # by fusion variant

    @abstractmethod
    def propose(self) -> Proposal | None:
        """Return the next candidate, or None if none is left. spent: used share of the budget."""

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


def ordered(space: Space, spot: RuleSite, reference: Any = None) -> tuple[Any, ...]:
    """Return the values of the open parameter by distance from the reference or the rule's default."""
    assert spot.open is not None
    values = space.plain_values(spot)
    near = reference if reference is not None else space.plain(spot.default)
    order = sorted(range(len(values)), key=lambda n: space.distance(values[n], near))
    return tuple(spot.open.values[n] for n in order)


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
    found = spot.filled(lambda open_: ordered(space, open_))
    return None if found is None else space.token(found)


def random_token(space: Space, state: State, dice: random.Random) -> Token:
    """Return a random option with random values."""
    option = dice.choice(options(space, state))
    token = random_fill(space, option, dice) if isinstance(option, RuleSite) else option
    return DEFAULT if token is None else token


def neighbour(space: Space, state: State, token: Token, dice: random.Random) -> Token:
    """Return a different decision at a state: mostly another value of one parameter, else another option."""
    fire = token if isinstance(token, Fire) else _first_fire(space, state, token)
    if fire is not None and dice.random() < ONE_PARAMETER:
        changed = _changed(space, state, fire, dice)
        if changed is not None:
            return changed
    others = [option for option in options(space, state) if option != token and not _same(option, fire)]
    if not others:
        return token
    option = dice.choice(others)
    if isinstance(option, RuleSite):
        fill = default_fill(space, option) if dice.random() < 0.5 else random_fill(space, option, dice)
        return DEFAULT if fill is None else fill
    return option


def _same(option: Token | RuleSite, fire: Fire | None) -> bool:
    return fire is not None and _is(option, fire)


def _first_fire(space: Space, state: State, token: Token) -> Fire | None:
    """Return the first firing of the default in a pass."""
    if token == SKIP:
        return None
    _, own = space.by_default(state)
    return space.fire_of(own[0]) if own else None


def _changed(space: Space, state: State, fire: Fire, dice: random.Random) -> Fire | None:
    """Change the value of one parameter, or of two, so that a tile may keep its area."""
    domains = space.domains(state, fire)
    open_ = [name for name, values in domains.items() if len(values) > 1]
    if not open_:
        return None
    count = 2 if len(open_) > 1 and dice.random() < TWO_PARAMETERS else 1
    values = dict(fire.values)
    for name in dice.sample(open_, count):
        values[name] = _near(space, domains[name], values.get(name), dice)
    return Fire(fire.rule, fire.where, tuple(values.items()))


def _near(space: Space, domain: tuple[Any, ...], value: Any, dice: random.Random) -> Any:
    """Return another value of a domain, near values more often."""
    others = sorted((other for other in domain if other != value), key=lambda other: space.distance(other, value))
    return others[min(int(dice.expovariate(0.7)), len(others) - 1)]


def mutated(whole: Whole, dice: random.Random) -> Genome:
    """Change one or two decisions of a schedule, more often in passes with more options."""
    made: Genome = dict(whole.genome)
    for _ in range(2 if dice.random() < SECOND else 1):
        places = list(_places(whole))
        if not places:
            break
        space, state, token = dice.choices([p[:3] for p in places], [p[3] for p in places])[0]
        made[space.slot(state)] = neighbour(space, state, token, dice)
    return made


def _places(whole: Whole) -> Iterator[tuple[Space, State, Token, float]]:
    """Yield the states of a schedule with more than one option, and a weight for each."""
    for candidate, _ in whole.parts:
        space = candidate.space
        for state, token in space.states(candidate.genome):
            count = sum(len(spot.open.values) if spot.open else 1 for spot in space.spots(state))
            if count:
                yield space, state, token, math.log2(1 + count)


class Random(Search):
    """Search that makes every decision at random."""

    name: ClassVar[str] = "random"

    def propose(self) -> Proposal | None:
        way = self.dice.randrange(len(self.space.ways))
        return Proposal(self.space.walk(lambda space, state, slot: random_token(space, state, self.dice), way))


class Hill(Search):
    """First-improvement hill climbing: change one or two decisions of the best schedule, and accept equal rewards."""

    name: ClassVar[str] = "hill"

    def propose(self) -> Proposal | None:
        way = self.way()
        if way not in self.best_of:
            return Proposal(decided(self.space, self.incumbent, way))
        return Proposal(decided(self.space, mutated(self.best_of[way][1], self.dice), way))


def decided(space: Decisions, genome: Genome, way: int) -> Whole:
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

    name: ClassVar[str] = "mcts"
    exploration: ClassVar[float] = 0.3
    spread: ClassVar[float] = 0.02
    chance: ClassVar[float] = 0.15  # probability that a rollout leaves the best schedule

    def __init__(self, space: Decisions, dice: random.Random):
        super().__init__(space, dice)
        self.root = TreeNode()
        self._path: list[TreeNode] = []
        self._guide: Genome = {}
        self._inside = True

    # ---- propose
    def propose(self) -> Proposal | None:
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
        return Proposal(candidate, tuple(self._path))

    def _decide(self, space: Space, state: State, slot: DecisionPoint) -> Token:
        if not self._inside:
            return self._rollout(space, state, slot)
        found = self._level(options(space, state), self._name)
        if isinstance(found, RuleSite):
            return self._values(space, slot, found)
        return found  # type: ignore[no-any-return]

    def _values(self, space: Space, slot: DecisionPoint, spot: RuleSite) -> Token:
        """Choose one value after the other, first in the tree, then by rollout."""
        wanted = self._wanted(slot, spot)
        found: RuleSite | None = spot
        while found is not None and found.open is not None:
            values = ordered(space, found, wanted.get(found.open.name))
            if self._inside:
                value = self._level(values, space.plain)
                found = self._legal(found.choose(value))
            elif self.dice.random() < self.chance:
                return random_fill(space, found, self.dice) or DEFAULT
            else:
                found = found.first(values)
        return DEFAULT if found is None else space.token(found)

    def _wanted(self, slot: DecisionPoint, spot: RuleSite) -> dict[str, Any]:
        """Return the values of the best schedule for this rule at this site."""
        token = self._guide.get(slot)
        same = isinstance(token, Fire) and (token.rule, token.where) == (spot.rule, spot.where)
        return dict(token.values) if same else {}  # type: ignore[union-attr]

    def _legal(self, found: RuleSite | None) -> RuleSite | None:
        if found is None:  # a condition rejects the value: the search does not visit it again
            self._path[-1].closed = True
            self._close()
            self._inside = False
        return found

    def _rollout(self, space: Space, state: State, slot: DecisionPoint) -> Token:
        if self.dice.random() < self.chance:
            return random_token(space, state, self.dice)
        return self._guide.get(slot, DEFAULT)

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
        for node in tried.proposal.memo or ():
            node.total += tried.reward
            node.squares += tried.reward**2
            node.best = max(node.best, tried.reward)
