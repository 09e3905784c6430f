"""The interface of a search: it proposes candidates and is told what came of them."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from ..schedule.decisions import Decisions, Whole
from ..schedule.space import Genome, ScheduleCandidate
from ..store.protocol import Score

WORST, BEST = -2.0, 2.0  # logarithms of default over candidate between which rewards lie
ELSEWHERE = 1 / 4  # how often a search looks at another way of fusing than that of its best
NEAR = 0.2  # rewards of ways lie so near that the slower one may still win: 2.2 times as slow


@dataclass(frozen=True)
class Proposal:
    """A candidate to be tried. memo: what the search wants to hear again with the score."""

    candidate: Whole
    memo: Any = None


@dataclass(frozen=True)
class Tried:
    """A proposal and what came of it. reward: 0 (cannot be launched, or much slower than the default) to 1.

    parts: the schedules of its kernels with their own scores, and how often each kernel is launched.
    """

    proposal: Proposal
    score: Score
    reward: float
    parts: tuple[tuple[ScheduleCandidate, int, Score], ...] = ()

    @property
    def candidate(self) -> Whole:
        return self.proposal.candidate


def reward(score: Score, default: float | None) -> float:
    """ln(default / candidate), clipped and scaled to 0..1; 0.5 is as fast as the default."""
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
        self.best_of: dict[int, tuple[float, Whole]] = {}  # of each way of fusing that was tried

    @abstractmethod
    def propose(self, spent: float) -> Proposal | None:
        """The next candidate; None if there is none left. spent: the share of the budget that is used up."""

    def observe(self, tried: Tried) -> None:
        """Hear what came of a proposal. Equal is good enough: flat places are walked through."""
        way = tried.candidate.way
        if tried.reward >= self.best_reward:
            self.best, self.best_reward = tried.candidate, tried.reward
        if way not in self.best_of or tried.reward >= self.best_of[way][0]:
            self.best_of[way] = tried.reward, tried.candidate

    @property
    def incumbent(self) -> Genome:
        """The decisions of the best schedule so far."""
        return {} if self.best is None else dict(self.best.genome)

    def way(self) -> int:
        """Which way of fusing to go on with: each once, then mostly that of the best, else one that is not far off."""
        if len(self.space.ways) == 1 or self.best is None:
            return 0
        unseen = next((way for way in range(len(self.space.ways)) if way not in self.best_of), None)
        if unseen is not None:
            return unseen
        others = [way for way, (found, _) in self.best_of.items() if 0 < found >= self.best_reward - NEAR]
        return self.dice.choice(others) if others and self.dice.random() < ELSEWHERE else self.best.way
