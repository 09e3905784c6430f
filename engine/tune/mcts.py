"""Monte-Carlo tree search for one player, over factored decisions.

UCT (Kocsis and Szepesvari 2006) in its single-player form with a term for the spread of rewards (Schadd et al. 2008),
progressive widening (Coulom 2007), the best reward passed upwards instead of the mean (one line is all that counts, as
in Cazenave's nested search, 2009), and rollouts that follow the best schedule known. A level of the tree is
skip-or-rule-at-a-site, or one parameter; where there is only one option there is no level.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..rewrite.statements.choices import RuleSite
from ..schedule.decisions import Decisions
from ..schedule.space import DEFAULT, DecisionPoint, Fire, Genome, Space, State, Token
from .local import Hill
from .neighbours import options, ordered, random_fill, random_token
from .search import Proposal, Search, Tried

Key = Any  # a Token without values, or a value


class TreeNode:
    """A point of the tree. options: what can be done, best guesses first, None until asked for."""

    __slots__ = ("best", "children", "closed", "options", "squares", "total", "visits")

    def __init__(self) -> None:
        self.children: dict[Key, TreeNode] = {}
        self.options: list[Key] | None = None
        self.visits, self.total, self.squares, self.best = 0, 0.0, 0.0, 0.0
        self.closed = False


class FactoredTree(Search):
    """Tree search alone; `mcts` goes on with hill climbing."""

    name: ClassVar[str] = "mcts-tree"
    exploration: ClassVar[float] = 0.3
    spread: ClassVar[float] = 0.02
    chance: ClassVar[float] = 0.15  # how often a rollout leaves the best schedule

    def __init__(self, space: Decisions, dice: random.Random):
        super().__init__(space, dice)
        self.root = TreeNode()
        self._path: list[TreeNode] = []
        self._guide: Genome = {}
        self._inside = True

    # ---- propose
    def propose(self, spent: float) -> Proposal | None:
        if self.root.closed:
            return None
        self._path, self._guide, self._inside = [self.root], self.incumbent, True
        way = self._level(range(len(self.space.ways)), lambda n: n)
        candidate = self.space.walk(self._decide, way)
        if self._inside:
            self._path[-1].closed = True
            self._close()
        for node in self._path:  # counted before the score is known: other proposals go elsewhere meanwhile
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
        """One value after the other, in the tree and then beyond it."""
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
        """The values that the best schedule has for this rule at this site."""
        token = self._guide.get(slot)
        same = isinstance(token, Fire) and (token.rule, token.where) == (spot.rule, spot.where)
        return dict(token.values) if same else {}  # type: ignore[union-attr]

    def _legal(self, found: RuleSite | None) -> RuleSite | None:
        if found is None:  # a guard refuses the value: never visited again
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
        """One of the options: a new child while there are few, else the most promising one."""
        if len(found) == 1:
            return found[0]
        node = self._path[-1]
        named = {name(option): option for option in found}
        if node.options is None:
            node.options = list(named)
        key = self._new(node)
        if key is None:
            key = self._promising(node)
        if key not in named:  # what is forbidden now was there before: a default reached from elsewhere
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
        """Upper confidence: its best reward, what it may hide, and how much its rewards differ."""
        visits = max(child.visits, 1)
        explore = self.exploration * math.sqrt(math.log(max(node.visits, 2)) / visits)
        variance = max(child.squares / visits - (child.total / visits) ** 2, 0.0)
        return self.value(child) + explore + math.sqrt(variance + self.spread / visits)

    def value(self, child: TreeNode) -> float:
        return child.best

    def _close(self) -> None:
        """Exhausted subtrees are not entered again."""
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


class TreeThenHill(Search):
    """Tree search for the first quarter of the budget, then hill climbing from its best."""

    name: ClassVar[str] = "mcts"
    share: ClassVar[float] = 0.25

    def __init__(self, space: Decisions, dice: random.Random):
        super().__init__(space, dice)
        self.tree, self.hill = FactoredTree(space, dice), Hill(space, dice)

    def propose(self, spent: float) -> Proposal | None:
        found = self.tree.propose(spent) if spent < self.share else None
        return found or self.hill.propose(spent)

    def observe(self, tried: Tried) -> None:
        super().observe(tried)
        self.hill.observe(tried)
        self.tree.observe(tried)


class PlainTree(FactoredTree):
    """Single-player MCTS as published (Schadd et al. 2008): mean rewards, random rollouts.

    A decision with all its values is one child.
    """

    name: ClassVar[str] = "mcts-plain"

    def _decide(self, space: Space, state: State, slot: DecisionPoint) -> Token:
        if not self._inside:
            return random_token(space, state, self.dice)
        return self._level(self._joint(space, state), lambda token: token)  # type: ignore[no-any-return]

    def _joint(self, space: Space, state: State) -> list[Token]:
        found: list[Token] = []
        for option in options(space, state):
            found += self._all(space, option) if isinstance(option, RuleSite) else [option]
        self.dice.shuffle(found)
        return found

    def _all(self, space: Space, spot: RuleSite) -> list[Token]:
        if spot.open is None:
            return [space.token(spot)]
        made = (spot.choose(value) for value in spot.open.values)
        return [token for one in made if one is not None for token in self._all(space, one)]

    def value(self, child: TreeNode) -> float:
        return child.total / max(child.visits, 1)
