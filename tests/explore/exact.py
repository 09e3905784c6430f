"""An oracle of the search: branch and bound over spellings and stores, kernel by kernel from the results.

Each kernel stores one value. What is still to be written costs at least a launch and its bytes; a branch that cannot
come below the best solution so far is left.
"""

from __future__ import annotations

import itertools

from dplc.engine.cost.limits import fixed_seconds
from dplc.engine.explore.solution import BETTER, VIEWS, Extraction, PricedSolution, Solution


class Exact:
    """One search from a first solution. limit: the states after which it gives up."""

    def __init__(self, extraction: Extraction, seed: PricedSolution, limit: int):
        self.extraction, self.best, self.limit, self.states = extraction, seed, limit, 0
        self.graph, self.leaves = extraction.graph, extraction.leaves
        self.choice: dict[int, int] = {}
        fixed, rate = fixed_seconds(extraction.target), extraction.target.dram_bytes_per_second
        self.least = [
            0.0 if any(node[0] in VIEWS for node in spelled) else fixed + size / rate
            for spelled, size in zip(self.graph.classes, extraction.memory.sizes, strict=True)
        ]
        roots = [root for root in self.graph.roots if root not in self.leaves]
        self.stored = set(roots)
        self._solve(roots, 0.0)

    def _stop(self, waiting: list[int], cost: float) -> bool:
        self.states += 1
        least = cost + sum(self.least[cls] for cls in waiting)
        return self.states >= self.limit or least >= self.best.seconds * BETTER

    def _solve(self, waiting: list[int], cost: float) -> None:
        """All kernels of the values that are still to be written."""
        if self._stop(waiting, cost):
            return
        if waiting:
            self._grow(waiting[-1], [waiting[-1]], waiting[:-1], cost)
            return
        whole = self.extraction.solution(self.choice, self.stored)
        if whole is not None:
            found = self.extraction.evaluate(whole, self.best.seconds)
            self.best = found if found.seconds < self.best.seconds * BETTER else self.best

    def _grow(self, root: int, todo: list[int], waiting: list[int], cost: float) -> None:
        """Decide what the kernel of `root` computes; todo: classes in it that are still to be spelled."""
        if not todo:
            kernel = self.extraction.kernel((root,), Solution(self.choice, frozenset(self.stored)))
            if kernel.price.legal:
                self._solve(waiting, cost + kernel.price.seconds)
            return
        *rest, cls = todo
        if cls in self.choice:
            self._expand(root, cls, rest, waiting, cost)
            return
        for place, node in enumerate(self.graph.classes[cls]):
            if not any(self._reaches(child, cls) for child in node[2]):
                self.choice[cls] = place
                self._expand(root, cls, rest, waiting, cost)
                del self.choice[cls]

    def _expand(self, root: int, cls: int, rest: list[int], waiting: list[int], cost: float) -> None:
        """Which operands of a spelling are stored, in every way. A view owns no kernel: what it looks at is stored."""
        op, _, below = self.graph.classes[cls][self.choice[cls]]
        operands = [c for c in dict.fromkeys(below) if c not in self.leaves and c not in self.stored]
        view = cls == root and op in VIEWS and root not in self.extraction.fixed
        inside = [c for c in operands if c in self.choice and not view]
        free = [c for c in operands if c not in inside]
        for chosen in [(True,) * len(free)] if view else itertools.product((False, True), repeat=len(free)):
            written = list(itertools.compress(free, chosen))
            if self._stop([*waiting, *written, *([] if view else [root])], cost):
                continue
            self.stored.update(written)
            if view:
                self._solve(waiting + written, cost)
            else:
                self._grow(root, rest + inside + [c for c in free if c not in written], waiting + written, cost)
            self.stored.difference_update(written)

    def _reaches(self, start: int, target: int) -> bool:
        """Whether what is decided so far makes one class need another."""
        below = (
            () if start in self.leaves or start not in self.choice else self.graph.classes[start][self.choice[start]][2]
        )
        return start == target or any(self._reaches(cls, target) for cls in below)
