"""Searches without a tree: at random, hill climbing, evolution."""

from __future__ import annotations

import random
from typing import ClassVar

from ..schedule.decisions import Decisions, Whole
from ..schedule.space import DEFAULT, Genome
from .neighbours import mutated, random_token
from .search import Proposal, Search, Tried


class Random(Search):
    """Every decision at random."""

    name: ClassVar[str] = "random"

    def propose(self, spent: float) -> Proposal | None:
        way = self.dice.randrange(len(self.space.ways))
        return Proposal(self.space.walk(lambda space, state, slot: random_token(space, state, self.dice), way))


class Hill(Search):
    """First-improvement hill climbing: one decision of the best schedule is changed, or two; equal is accepted."""

    name: ClassVar[str] = "hill"

    def propose(self, spent: float) -> Proposal | None:
        way = self.way()
        if way not in self.best_of:
            return Proposal(decided(self.space, self.incumbent, way))
        return Proposal(decided(self.space, mutated(self.best_of[way][1], self.dice), way))


class Evolution(Search):
    """A steady-state genetic algorithm: the child of two parents replaces the worst.

    Parents by tournament (Goldberg and Deb 1991), uniform crossover over decisions (Syswerda 1989), one mutation.
    """

    name: ClassVar[str] = "evolution"
    size: ClassVar[int] = 16
    tournament: ClassVar[int] = 3

    def __init__(self, space: Decisions, dice: random.Random):
        super().__init__(space, dice)
        self.population: list[Tried] = []

    def propose(self, spent: float) -> Proposal | None:
        way = self.way()
        if way not in self.best_of:
            return Proposal(decided(self.space, self.incumbent, way))
        same = [one for one in self.population if one.candidate.way == way]
        if not same:  # they died out
            return Proposal(decided(self.space, mutated(self.best_of[way][1], self.dice), way))
        mother, father = (self._parent(same) for _ in range(2))
        child: Genome = dict(mother.candidate.genome)
        if len(same) >= self.size // 2:
            for slot, token in father.candidate.genome:
                if self.dice.random() < 0.5:
                    child[slot] = token
        whole = decided(self.space, child, way)
        return Proposal(decided(self.space, mutated(whole, self.dice), way))

    def _parent(self, among: list[Tried]) -> Tried:
        return max(self.dice.choices(among, k=self.tournament), key=lambda one: one.reward)

    def observe(self, tried: Tried) -> None:
        super().observe(tried)
        self.population.append(tried)
        if len(self.population) > self.size:
            self.population.remove(min(self.population, key=lambda one: one.reward))


def decided(space: Decisions, genome: Genome, way: int) -> Whole:
    """The schedules of these decisions; what they leave open is decided by default."""
    return space.walk(lambda _, state, slot: genome.get(slot, DEFAULT), way)  # type: ignore[no-any-return]
