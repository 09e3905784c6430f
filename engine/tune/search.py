"""The interface of a search: it proposes candidates and is told what came of them."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from .protocol import Score
from .space import Candidate, Genome, Space

WORST, BEST = -2.0, 2.0  # logarithms of default over candidate between which rewards lie


@dataclass(frozen=True)
class Proposal:
    """A candidate to be tried. memo: what the search wants to hear again with the score."""

    candidate: Candidate
    memo: Any = None


@dataclass(frozen=True)
class Tried:
    """A proposal and what came of it. reward: 0 (cannot be launched, or much slower than the default) to 1."""

    proposal: Proposal
    score: Score
    reward: float

    @property
    def candidate(self) -> Candidate:
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

    def __init__(self, space: Space, dice: random.Random):
        self.space, self.dice = space, dice
        self.best: Candidate | None = None
        self.best_reward = -1.0

    @abstractmethod
    def propose(self, spent: float) -> Proposal | None:
        """The next candidate; None if there is none left. spent: the share of the budget that is used up."""

    def observe(self, tried: Tried) -> None:
        """Hear what came of a proposal. Equal is good enough: flat places are walked through."""
        if tried.reward >= self.best_reward:
            self.best, self.best_reward = tried.candidate, tried.reward

    @property
    def incumbent(self) -> Genome:
        """The decisions of the best schedule so far."""
        return {} if self.best is None else dict(self.best.genome)

    def start(self) -> int:
        """Which way of fusing to go on with: mostly that of the best."""
        if len(self.space.starts) == 1:
            return 0
        if self.best is None or self.dice.random() < 1 / 8:
            return self.dice.randrange(len(self.space.starts))
        return self.space.starts.index(self.best.start)
