"""Branch and bound over spellings and stores, kernel by kernel from the results: the best solution of a small e-graph.

Each kernel stores one value (siblings are not merged). What is still to be written costs at least a launch and its
bytes; a branch that cannot come below the best solution so far is left. Seeded with what the beam found, it mostly
proves that this is the best.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from dplc.engine.cost.limits import fixed_seconds
from dplc.engine.explore.problem import ENode
from dplc.engine.explore.solution import BETTER, VIEWS, Extraction, PricedSolution, Solution

STATES = 4000  # states after which it gives up


@dataclass
class OptimalityProof:
    """The best solution, and whether nothing (that stores one value a kernel) is better."""

    best: PricedSolution
    proved: bool
    states: int


class Exact:
    """One search. states: when it gives up."""

    def __init__(self, extraction: Extraction, seed: PricedSolution, states: int = STATES):
        self.extraction, self.best, self.limit = extraction, seed, states
        self.graph = extraction.graph
        self.states = 0
        self.choice: dict[int, int] = {}
        self.stored: set[int] = set()
        target = extraction.target
        fixed = fixed_seconds(target)
        self.least = [
            0.0 if any(node[0] in VIEWS for node in spelled) else fixed + size / target.dram_bytes_per_second
            for spelled, size in zip(self.graph.classes, extraction.memory.sizes, strict=True)
        ]

    def search(self) -> OptimalityProof:
        roots = [root for root in self.graph.roots if root not in self.extraction.leaves]
        self.stored = set(roots)
        self._solve(roots, 0.0)
        return OptimalityProof(self.best, self.states < self.limit, self.states)

    def _solve(self, waiting: list[int], cost: float) -> None:
        """All kernels of the values that are still to be written."""
        self.states += 1
        if self.states >= self.limit or self._hopeless(waiting, cost):
            return
        if waiting:
            self._grow(waiting[-1], [waiting[-1]], waiting[:-1], cost)
            return
        whole = self.extraction.solution(self.choice, self.stored)
        if whole is not None:
            found = self.extraction.evaluate(whole, self.best.seconds)
            if found.seconds < self.best.seconds * BETTER:
                self.best = found

    def _hopeless(self, waiting: list[int], cost: float) -> bool:
        return cost + sum(self.least[cls] for cls in waiting) >= self.best.seconds * BETTER

    def _grow(self, root: int, todo: list[int], waiting: list[int], cost: float) -> None:
        """Decides what the kernel of `root` computes; todo: classes in it that are still to be spelled."""
        if self.states >= self.limit:
            return
        if not todo:
            kernel = self.extraction.kernel((root,), Solution(self.choice, frozenset(self.stored)))
            if kernel.price.legal:
                self._solve(waiting, cost + kernel.price.seconds)
            return
        cls, rest = todo[-1], todo[:-1]
        if cls in self.choice:
            self._expand(root, self.node(cls), cls, rest, waiting, cost)
            return
        for place, node in enumerate(self.graph.classes[cls]):
            if not any(child == cls or self._reaches(child, cls) for child in node[2]):
                self.choice[cls] = place
                self._expand(root, node, cls, rest, waiting, cost)
                del self.choice[cls]

    def node(self, cls: int) -> ENode:
        return self.graph.classes[cls][self.choice[cls]]

    def _expand(self, root: int, node: ENode, cls: int, rest: list[int], waiting: list[int], cost: float) -> None:
        """Which operands of a spelling are stored, in every way."""
        self.states += 1
        leaves = self.extraction.leaves
        operands = [c for c in dict.fromkeys(node[2]) if c not in leaves and c not in self.stored]
        if cls == root and node[0] in VIEWS and root not in self.extraction.fixed:
            self.stored.update(operands)  # a view owns no kernel: what it looks at is written
            self._solve(waiting + operands, cost)
            self.stored.difference_update(operands)
            return
        inside = [c for c in operands if c in self.choice]
        free = [c for c in operands if c not in self.choice]
        for chosen in itertools.product((False, True), repeat=len(free)):
            written = [c for c, store in zip(free, chosen, strict=True) if store]
            computed = [c for c, store in zip(free, chosen, strict=True) if not store]
            if self._hopeless([*waiting, *written, root], cost):
                continue
            self.stored.update(written)
            self._grow(root, rest + inside + computed, waiting + written, cost)
            self.stored.difference_update(written)

    def _reaches(self, start: int, target: int) -> bool:
        """Whether what is decided so far makes one class need another."""
        stack, seen = [start], set()
        while stack:
            cls = stack.pop()
            if cls == target:
                return True
            if cls in seen or cls not in self.choice or cls in self.extraction.leaves:
                continue
            seen.add(cls)
            stack.extend(self.node(cls)[2])
        return False
