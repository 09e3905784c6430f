"""Log of a search: times by parameter value, and the tree of decisions, for every kind of search."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..rewrite.statements.compiled import Program
from ..schedule.space import Fire, ScheduleCandidate, Token
from .runner import SearchProgress
from .search import Tried

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

    def shown(self, depth: int = 0) -> SharedPrefix:
        """Return the relevant part of the tree: chains without a choice merged, and the most visited children."""
        found = self
        labels = [self.label] if self.label else []
        while len(found.children) == 1 and (only := next(iter(found.children.values()))).visits == found.visits:
            found = only
            if found.label not in ("default", "skip"):
                labels.append(found.label)
        children: list[SharedPrefix] = []
        if depth < DEEPEST:
            children = sorted(found.children.values(), key=lambda child: (-child.visits, child.times.best))[:WIDEST]
        label = " · ".join(label.split(": ")[-1] if n else label for n, label in enumerate(labels))
        return SharedPrefix(label, self.times, {n: child.shown(depth + 1) for n, child in enumerate(children)})


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

    def heard(self, run: SearchProgress, tried: Tried) -> None:
        """Add a candidate."""
        self.default = run.default.seconds
        branch, seconds = self.root, tried.score.seconds
        branch.times.add(seconds)
        for decided, label in self._path(run, tried):
            if decided not in branch.children:
                if self._nodes >= MOST_NODES:
                    break
                branch.children[decided] = SharedPrefix(label)
                self._nodes += 1
            branch = branch.children[decided]
            branch.times.add(seconds)
        for candidate, count, score in tried.parts:
            self.kernels.setdefault(candidate.loops, (score.seconds, count))  # the first that is tried is the default
            self._effects(candidate, score.seconds)

    def _path(self, run: SearchProgress, tried: Tried) -> Iterator[tuple[Any, str]]:
        """Yield the decisions of a candidate, first the fusion variant if there are several."""
        ways, whole = run.search.space.ways, tried.candidate
        if len(ways) > 1:
            yield whole.way, f"candidate: {ways[whole.way]}"
        for slot, token in whole.genome:
            yield (slot, token), f"{slot.step}: {show(token)}"

    def _effects(self, candidate: ScheduleCandidate, seconds: float | None) -> None:
        """Add the time of a kernel to each of its parameter values."""
        kernel = candidate.loops[0].name
        for decision in candidate.schedule:
            for name, value in decision.parameters.items():
                found = self.effects.setdefault((kernel, decision.step, decision.rule, name), {})
                found.setdefault(plain_text(_hashable(value)), CandidateTimes()).add(seconds)
        for slot, token in candidate.genome:
            if isinstance(token, Fire) or token == "skip":
                fired = "fires" if isinstance(token, Fire) else "skips"
                values = self.effects.setdefault((kernel, slot.step, slot.step, "decision"), {})
                values.setdefault(fired, CandidateTimes()).add(seconds)


def show(token: Token) -> str:
    """Return a decision as text."""
    if not isinstance(token, Fire):
        return token
    values = ", ".join(f"{name}={plain_text(value)}" for name, value in token.values)
    return f"{token.rule}({values})" if values else token.rule


def plain_text(value: Any) -> str:
    return "(" + ", ".join(map(plain_text, value)) + ")" if isinstance(value, tuple) else str(value)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
