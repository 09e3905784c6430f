"""What a search did, for people: times by parameter value, and the tree of decisions, whatever the search was."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .describe import plain_text, show
from .running import Run
from .search import Tried
from .space import Fire

MOST_NODES = 20_000
DEEPEST, WIDEST = 14, 6  # of the tree that is shown


@dataclass
class Times:
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
        """The geometric mean."""
        return math.exp(self.logs / self.count) if self.count else math.inf


@dataclass
class Branch:
    """Candidates that decided alike so far. label: the last of these decisions."""

    label: str = ""
    times: Times = field(default_factory=Times)
    children: dict[Any, Branch] = field(default_factory=dict)

    @property
    def visits(self) -> int:
        return self.times.count + self.times.without

    def shown(self, depth: int = 0) -> Branch:
        """The part worth looking at: chains without a choice are one branch, of many children the most visited."""
        found = self
        labels = [self.label] if self.label else []
        while len(found.children) == 1 and (only := next(iter(found.children.values()))).visits == found.visits:
            found = only
            if found.label not in ("default", "skip"):
                labels.append(found.label)
        children: list[Branch] = []
        if depth < DEEPEST:
            children = sorted(found.children.values(), key=lambda child: (-child.visits, child.times.best))[:WIDEST]
        label = " · ".join(label.split(": ")[-1] if n else label for n, label in enumerate(labels))
        return Branch(label, self.times, {n: child.shown(depth + 1) for n, child in enumerate(children)})


class Chronicle:
    """Listens to a run. effects: {(pass, rule, parameter): {value: times}}."""

    def __init__(self) -> None:
        self.root = Branch()
        self.effects: dict[tuple[str, str, str], dict[str, Times]] = {}
        self.default: float | None = None
        self._nodes = 0

    def heard(self, run: Run, tried: Tried) -> None:
        """One candidate more."""
        self.default = run.default.seconds
        branch, seconds = self.root, tried.score.seconds
        branch.times.add(seconds)
        for slot, token in tried.candidate.genome:
            if token not in branch.children:
                if self._nodes >= MOST_NODES:
                    break
                branch.children[token] = Branch(f"{slot.step}: {show(token)}")
                self._nodes += 1
            branch = branch.children[token]
            branch.times.add(seconds)
        self._effects(tried, seconds)

    def _effects(self, tried: Tried, seconds: float | None) -> None:
        for decision in tried.candidate.schedule:
            for name, value in decision.parameters.items():
                found = self.effects.setdefault((decision.step, decision.rule, name), {})
                found.setdefault(plain_text(_hashable(value)), Times()).add(seconds)
        for slot, token in tried.candidate.genome:
            if isinstance(token, Fire) or token == "skip":
                fired = "fires" if isinstance(token, Fire) else "skips"
                self.effects.setdefault((slot.step, slot.step, "decision"), {}).setdefault(fired, Times()).add(seconds)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
