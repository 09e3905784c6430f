"""Searches without a tree: at random, hill climbing, evolution."""

from __future__ import annotations

import random
from typing import ClassVar

from .moves import mutated, random_token
from .search import Proposal, Search, Tried
from .space import DEFAULT, Candidate, Genome, Space


class Random(Search):
    """Every decision at random."""

    name: ClassVar[str] = "random"

    def propose(self, spent: float) -> Proposal | None:
        start = self.dice.randrange(len(self.space.starts))
        return Proposal(self.space.walk(lambda state, slot: random_token(self.space, state, self.dice), start))


class Hill(Search):
    """First-improvement hill climbing: one decision of the best schedule is changed, or two; equal is accepted."""

    name: ClassVar[str] = "hill"

    def propose(self, spent: float) -> Proposal | None:
        start = self.start()
        if self.best is None or self.space.starts[start] is not self.best.start:
            return Proposal(self.space.default(start))
        return Proposal(decided(self.space, mutated(self.space, self.best.genome, start, self.dice), start))


class Evolution(Search):
    """A steady-state genetic algorithm: the child of two parents replaces the worst.

    Parents by tournament (Goldberg and Deb 1991), uniform crossover over decisions (Syswerda 1989), one mutation.
    """

    name: ClassVar[str] = "evolution"
    size: ClassVar[int] = 16
    tournament: ClassVar[int] = 3

    def __init__(self, space: Space, dice: random.Random):
        super().__init__(space, dice)
        self.population: list[Tried] = []

    def propose(self, spent: float) -> Proposal | None:
        start = self.start()
        same = [one for one in self.population if one.candidate.start is self.space.starts[start]]
        if not same:
            return Proposal(self.space.default(start))
        mother, father = (self._parent(same) for _ in range(2))
        child: Genome = dict(mother.candidate.genome)
        if len(same) >= self.size // 2:
            for slot, token in father.candidate.genome:
                if self.dice.random() < 0.5:
                    child[slot] = token
        whole = decided(self.space, child, start)
        return Proposal(decided(self.space, mutated(self.space, whole.genome, start, self.dice), start))

    def _parent(self, among: list[Tried]) -> Tried:
        return max(self.dice.choices(among, k=self.tournament), key=lambda one: one.reward)

    def observe(self, tried: Tried) -> None:
        super().observe(tried)
        self.population.append(tried)
        if len(self.population) > self.size:
            self.population.remove(min(self.population, key=lambda one: one.reward))


def decided(space: Space, genome: Genome, start: int) -> Candidate:
    """The schedule of these decisions; what they leave open is decided by default."""
    return space.walk(lambda state, slot: genome.get(slot, DEFAULT), start)
