"""The search for a good solution: greedy descents over the stores, merging of siblings, a beam over spellings.

Greedy keeps the program as it was written. The beam changes one spelling at a time, or lets all who could read a
class do so at once (q, k and v as slices of one matmul: one by one that is uphill), each followed by a descent near the
change. Everything is in a fixed order, so the same program gives the same answer.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..language.policy import policy
from .graph import sorted_operands
from .solution import BETTER, Extraction, Group, PricedSolution, Solution


@dataclass(frozen=True)
class Effort:
    """How long a search may take: kernels that are priced, so that the answer does not depend on the machine's load.

    seconds: where it stops all the same. width: of the beam. lowerings: kernels of a region that are lowered to see
    what they really take.
    """

    kernels: int = 1000
    seconds: float = 5.0
    width: int = 12
    lowerings: int = 8


class EgraphSearch:
    """One search over one e-graph."""

    def __init__(self, extraction: Extraction, effort: Effort | None = None):
        self.extraction, self.effort = extraction, effort or Effort()
        self.graph = extraction.graph
        self.policy = policy(extraction.target)
        self.deadline = math.inf
        self.limit = math.inf
        self.timed_out = False

    # ---- the program as written
    def as_written(self, stored: Iterable[int] | None = None, groups: Sequence[Group] = ()) -> PricedSolution:
        """The original spellings. stored: classes that are written, by default every operation's result; groups of them
        share a kernel."""
        graph = self.graph
        choice: dict[int, int] = {}
        for place, (op, attributes, children) in enumerate(graph.problem.nodes):
            node = sorted_operands((op, attributes, tuple(graph.of[c] for c in children)))
            choice.setdefault(graph.of[place], graph.classes[graph.of[place]].index(node))
        every = set(graph.of) if stored is None else set(stored)
        found = self.extraction.solution(choice, every, groups)
        if found is None:  # a rule united a value with one above it
            found = self.extraction.solution({}, every)
        assert found is not None
        return self.extraction.evaluate(found)

    def greedy(self) -> PricedSolution:
        """Stores dropped or added while that is cheaper, in both orders, with siblings merged."""
        best: PricedSolution | None = None
        for upwards in (False, True):
            found = self.descend(self.as_written(), upwards)
            for _ in range(self.policy.descents_of_greedy):
                before = found.seconds
                found = self.descend(self.merge(found), not upwards)
                if found.seconds >= before * BETTER:
                    break
            if best is None or found.seconds < best.seconds:
                best = found
        assert best is not None
        return best

    # ---- moves that keep the spellings
    def descend(self, start: PricedSolution, upwards: bool = False, near: set[int] | None = None) -> PricedSolution:
        """Takes the first store that is better dropped or added, in turn, until there is none."""
        extraction, best = self.extraction, start
        roots, leaves = extraction.roots, extraction.leaves
        improved = True
        while improved and not self.late():
            improved = False
            order = [c for c in best.solution.choice if c not in leaves and (near is None or c in near)]
            for cls in order if upwards else reversed(order):
                now = best.solution
                if cls not in now.choice or cls in roots or extraction.is_view(cls, now.choice):
                    continue
                other = extraction.solution(now.choice, now.stored ^ {cls}, now.groups)
                if other is None or other.stored == now.stored:
                    continue
                found = extraction.evaluate(other, best.seconds * BETTER, best)
                if found.seconds < best.seconds * BETTER:
                    best, improved = found, True
        return best

    def merge(self, start: PricedSolution) -> PricedSolution:
        """Kernels that read a common buffer become one, and kernels of several values go into their readers, while that
        is cheaper."""
        best = start
        while True:
            better = next(self._merged(best), None)
            if better is None or self.late():
                return best
            best = better

    def _merged(self, best: PricedSolution) -> Iterator[PricedSolution]:
        table, now = best.table, best.solution
        for a, b in itertools.combinations(table, 2):
            if not table[a].touched & table[b].touched:
                continue
            together: Group = (*a, *b)
            groups = (*(group for group in now.groups if group not in (a, b)), together)
            found = self.extraction.evaluate(Solution(now.choice, now.stored, groups), best.seconds * BETTER, best)
            if found.seconds < best.seconds * BETTER:
                yield found
        for group in now.groups:  # value by value, each reader would wait for the kernel that still makes the others
            other = self.extraction.solution(now.choice, now.stored.difference(group), now.groups)
            if other is not None and other.stored.isdisjoint(group):
                found = self.extraction.evaluate(other, best.seconds * BETTER, best)
                if found.seconds < best.seconds * BETTER:
                    yield found

    # ---- the beam
    def explore(self, start: PricedSolution) -> list[PricedSolution]:
        """Different solutions, best first, from a first one; it is there even where the model has no price for it."""
        self.deadline = time.perf_counter() + self.effort.seconds
        self.limit = self.extraction.evaluated + self.effort.kernels
        self.timed_out = False
        beam: list[PricedSolution] = [start]
        done: set[object] = set()
        seen: set[object] = set()
        stale = 0
        while stale < self.policy.patience_of_beam and not self.late():
            following = next((e for e in beam[: self.effort.width] if e.solution.key not in done), None)
            if following is None:
                break
            done.add(following.solution.key)
            stale += 1
            best = beam[0].seconds
            progress = False
            for found in self._neighbours(following, best, seen):
                beam.append(found)
                if found.seconds < best * (1 - 1e-6):
                    progress = True
                    done.discard(following.solution.key)
                    break
            beam = self._different(beam)
            if progress:
                stale = 0
        self.timed_out, self.deadline, self.limit = self.late(), math.inf, math.inf
        return beam

    def _neighbours(self, here: PricedSolution, best: float, seen: set[object]) -> Iterable[PricedSolution]:
        now = here.solution
        for move in self._moves(now):
            if self.late():
                return
            base = self.extraction.solution({**now.choice, **dict(move)}, now.stored, now.groups)
            if base is None:
                continue
            new = frozenset(c for c in base.choice if c not in now.choice and self._folds(c, base))
            for extra in (frozenset(), new) if new else (frozenset(),):
                changed = self.extraction.solution(base.choice, base.stored | extra, now.groups)
                if changed is None or changed.key in seen:
                    continue
                seen.add(changed.key)
                moved = self.extraction.evaluate(changed, math.inf, here)
                for first in (moved, self._side_by_side(moved, new - extra)):
                    if first is not None:
                        found = self._settled(first, here, best)
                        if found.seconds < best * self.policy.worth_keeping:
                            yield found

    def _side_by_side(self, moved: PricedSolution, new: frozenset[int]) -> PricedSolution | None:
        """With one kernel for all that would compute something new: one by one, q, k and v are three matmuls of one."""
        for cls in sorted(new):
            groups = [group for group, kernel in moved.table.items() if cls in kernel.touched]
            if len(groups) > 1:
                now, together = moved.solution, tuple(sorted(itertools.chain(*groups)))
                rest = (group for group in now.groups if group not in groups)
                return self.extraction.evaluate(Solution(now.choice, now.stored, (*rest, together)), math.inf, moved)
        return None

    def _folds(self, cls: int, solution: Solution) -> bool:
        node = self.extraction.node(cls, solution.choice)
        return cls not in self.extraction.leaves and node[0] in ("Red", "Fold")

    def _settled(self, found: PricedSolution, before: PricedSolution, best: float) -> PricedSolution:
        """A move, with the stores around it decided anew."""
        choice, old = found.solution.choice, before.solution.choice
        near = {c for c in choice if old.get(c) != choice[c]}
        near |= {child for c in near for child in self.extraction.node(c, choice)[2]}
        found = self.descend(found, near=near)
        if found.seconds < best * self.policy.near_best:
            found = min((self.descend(found, upwards) for upwards in (False, True)), key=lambda e: e.seconds)
        return self.merge(found) if found.seconds < best * self.policy.good_enough_to_merge else found

    def _moves(self, now: Solution) -> list[tuple[tuple[int, int], ...]]:
        """Changes of spelling: all who could read a class that is not read yet, all sums of one value that have
        a factor in common, then one class at a time."""
        single: list[tuple[tuple[int, int], ...]] = []
        pulled: dict[tuple[int, str | int], list[tuple[int, int]]] = {}
        for cls, chosen in now.choice.items():
            if cls in self.extraction.leaves:
                continue
            summed = self._summed(cls, now)
            for place, (op, _, children) in enumerate(self.graph.classes[cls]):
                if place != chosen:
                    single.append(((cls, place),))
                for child in children:
                    if child in self.extraction.leaves:
                        continue
                    if child not in now.choice:
                        pulled.setdefault((child, op), []).append((cls, place))
                    elif place != chosen:
                        for value in summed:
                            pulled.setdefault((child, value), []).append((cls, place))
        together = [tuple(dict(moves).items()) for moves in pulled.values() if len(dict(moves)) > 1]
        return together + single

    def _summed(self, cls: int, now: Solution) -> tuple[int, ...]:
        """What is computed and a class sums, as it is spelled: a value, or the factors of a product."""
        op, _, below = self.extraction.node(cls, now.choice)
        if op != "Red" or below[0] in self.extraction.leaves:
            return ()
        (value,) = below
        op, attributes, factors = self.extraction.node(value, now.choice)
        found = factors if op == "E" and attributes == ("multiply",) else (value,)
        return tuple(child for child in found if child not in self.extraction.leaves)

    def _different(self, beam: list[PricedSolution]) -> list[PricedSolution]:
        """The best of every signature: else equal spellings crowd out what is different."""
        alike: dict[object, int] = {}
        costs: set[object] = set()
        kept: list[PricedSolution] = []
        for found in sorted(beam, key=lambda e: e.seconds):
            signature = found.signature
            exactly = signature, round(found.seconds * 1e9, 1)
            many = alike.get(signature, 0)
            if many < self.policy.alike_in_beam and exactly not in costs and found.seconds < math.inf:
                alike[signature] = many + 1
                costs.add(exactly)
                kept.append(found)
        return kept[: self.policy.longest_beam] or beam[:1]

    def late(self) -> bool:
        return self.extraction.evaluated > self.limit or time.perf_counter() > self.deadline
