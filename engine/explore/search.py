"""The search for a good solution: greedy descents over the stores, merging of siblings, a beam over spellings.

Greedy keeps the program as it was written. The beam changes the expression of one class, or makes all possible readers
of a class read it at once (q, k and v as slices of one matmul, which pays only if all three change). A descent near the
change follows. All orders are fixed, so the same program returns the same solution.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ...ir import compose
from ...ir.dtypes import INTEGERS
from ...ir.tensor import Const, Elementwise, Fold, Input, Remap, Term, axes, operands
from ..kernels.kernels import Prepared
from .problem import ENode, Problem
from .solution import BETTER, FOLDS, Choice, Extraction, Group, PricedSolution, Solution

DESCENTS_OF_GREEDY = 4  # descents of the greedy search, one after another: the last ones gain nothing
PATIENCE_OF_BEAM = 24  # expansions of a search without progress
WORTH_KEEPING = 1.3  # times the best cost: slower solutions rarely lead to a faster one
NEAR_BEST = 1.03  # times the best cost: below it, a descent tries every store
GOOD_ENOUGH_TO_MERGE = 1.15  # times the best cost: below it, siblings merge
ALIKE_IN_BEAM = 4  # solutions of one signature in a beam: more of them displace different solutions
LONGEST_BEAM = 64  # solutions of a beam


@dataclass(frozen=True)
class Effort:
    """Limits of a search.

    kernels: the number of kernels that it prices, so that the answer does not depend on the machine's load. seconds:
    the time after which it stops all the same. width: of the beam. lowerings: kernels of a region that it lowers to
    find their actual price.
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
        self.deadline = self.limit = math.inf

    # ---- the program as written
    def as_written(self, stored: Set[int] | None = None, groups: Sequence[Group] = ()) -> PricedSolution:
        """Return the solution with the original spellings.

        stored: the classes that are written, by default every operation's result; groups of them share a kernel.
        """
        graph, extraction = self.graph, self.extraction
        choice: Choice = {}
        for cls, node in zip(graph.of, graph.problem.nodes, strict=True):
            choice.setdefault(cls, graph.classes[cls].index(graph.spelled(node)))
        every = set(graph.of) if stored is None else stored
        found = extraction.solution(choice, every, groups)
        found = found or extraction.solution({}, every)  # where a rule united a value with one above it
        assert found is not None
        return extraction.evaluate(found)

    def greedy(self) -> PricedSolution:
        """Drop or add stores while that is cheaper, in both orders, with siblings merged."""
        solutions = []
        for upwards in (False, True):
            here = self.descend(self.as_written(), upwards)
            for _ in range(DESCENTS_OF_GREEDY):
                before, here = here, self.descend(self.merge(here), not upwards)
                if here.seconds >= before.seconds * BETTER:
                    break
            solutions.append(here)
        return cheapest(*solutions)

    # ---- moves that keep the spellings
    def descend(self, best: PricedSolution, upwards: bool = False, near: Set[int] | None = None) -> PricedSolution:
        """Drop or add the first store for which that is an improvement, and repeat until there is none."""
        extraction, before = self.extraction, None
        given = extraction.leaves | extraction.roots
        while best is not before and not self.late():
            before = best
            order = [cls for cls in best.solution.choice if cls not in given and (near is None or cls in near)]
            for cls in order if upwards else reversed(order):
                now = best.solution
                if cls in now.choice and not extraction.is_view(cls, now.choice):
                    other = extraction.solution(now.choice, now.stored ^ {cls}, now.groups)
                    if other and other.stored != now.stored:
                        best = self._better(best, other)
        return best

    def merge(self, best: PricedSolution) -> PricedSolution:
        """Merge kernels while that is cheaper.

        Kernels that read a common buffer become one.
        """
        before = None
        while best is not before:
            before, now = best, best.solution
            for (a, first), (b, second) in itertools.combinations(best.table.items(), 2):
                if first.touched & second.touched:
                    groups = (*(group for group in now.groups if group not in (a, b)), (*a, *b))
                    better = self._better(best, Solution(now.choice, now.stored, groups))
                    if better is not best:
                        best = best if self.late() else better
                        break
        return best

    def _better(self, best: PricedSolution, other: Solution) -> PricedSolution:
        """Return a changed solution if it is cheaper than the best one, or else the best one."""
        return cheapest(best, self.extraction.evaluate(other, best.seconds * BETTER, best))

    # ---- the beam
    def explore(self, start: PricedSolution) -> list[PricedSolution]:
        """Return different solutions, best first, from a first one.

        The first one is included even if the model has no price for it.
        """
        self.deadline = time.perf_counter() + self.effort.seconds
        self.limit = self.extraction.evaluated + self.effort.kernels
        beam, stale = [start], 0
        done: set[Hashable] = set()
        seen: set[Hashable] = set()
        while stale < PATIENCE_OF_BEAM and not self.late():
            here = next((e for e in beam[: self.effort.width] if e.solution.key not in done), None)
            if here is None:
                break
            done.add(here.solution.key)
            stale += 1
            best = beam[0].seconds
            for changed in self._neighbours(here.solution, seen):
                found = self._settled(changed, here, best)
                if found.seconds < best * WORTH_KEEPING:
                    beam.append(found)
                if found.seconds < best * (1 - 1e-6):
                    stale = 0
                    done.discard(here.solution.key)
                    break
            beam = _different(beam)
        self.deadline = self.limit = math.inf
        return beam

    def _neighbours(self, now: Solution, seen: set[Hashable]) -> Iterator[Solution]:
        """Yield the solutions one change of spelling away, without and with stores of the reductions that it brings."""
        extraction = self.extraction
        for move in self._moves(now):
            if self.late():
                return
            base = extraction.solution({**now.choice, **move}, now.stored, now.groups)
            if base is None:
                continue
            new = base.choice.keys() - now.choice - extraction.leaves
            folds = {cls for cls in new if extraction.node(cls, base.choice)[0] in FOLDS}
            for stored in dict.fromkeys((base.stored, base.stored | folds)):
                changed = extraction.solution(base.choice, stored, now.groups)
                if changed and changed.key not in seen:
                    seen.add(changed.key)
                    yield changed

    def _settled(self, changed: Solution, before: PricedSolution, best: float) -> PricedSolution:
        """Return a move, priced, for which the stores around it are decided again."""
        near = {cls for cls, _ in changed.choice.items() - before.solution.choice.items()}
        near |= {child for cls in near for child in self.extraction.node(cls, changed.choice)[2]}
        found = self.descend(self.extraction.evaluate(changed, before=before), near=near)
        if found.seconds < best * NEAR_BEST:
            found = cheapest(self.descend(found), self.descend(found, upwards=True))
        return self.merge(found) if found.seconds < best * GOOD_ENOUGH_TO_MERGE else found

    def _moves(self, now: Solution) -> list[Choice]:
        """Return changes of spelling.

        First all consumers that could read a class that is not read yet, then one class at a time.
        """
        single: list[Choice] = []
        pulled: dict[tuple[int, str], Choice] = {}
        leaves = self.extraction.leaves
        for cls, chosen in now.choice.items():
            for place, (op, _, children) in enumerate(self.graph.classes[cls] if cls not in leaves else ()):
                if place != chosen:
                    single.append({cls: place})
                for child in children:
                    if child not in leaves and child not in now.choice:
                        pulled.setdefault((child, op), {})[cls] = place
        return [move for move in pulled.values() if len(move) > 1] + single

    def late(self) -> bool:
        return self.extraction.evaluated > self.limit or time.perf_counter() > self.deadline


def cheapest(*found: PricedSolution) -> PricedSolution:
    """Return the first one of the solutions with the least seconds."""
    return min(found, key=lambda one: one.seconds)


def _different(beam: list[PricedSolution]) -> list[PricedSolution]:
    """Return the best of every signature: else equal spellings crowd out what is different."""
    alike: Counter[Hashable] = Counter()
    kept: dict[Hashable, PricedSolution] = {}
    for found in sorted(beam, key=lambda one: one.seconds):
        signature = found.signature
        exactly = signature, round(found.seconds * 1e9, 1)
        if alike[signature] < ALIKE_IN_BEAM and exactly not in kept and found.seconds < math.inf:
            alike[signature] += 1
            kept[exactly] = found
    return list(kept.values())[:LONGEST_BEAM] or beam[:1]


# ---- A solution as Tensor IR again: its terms, which of them are stored, and what is computed when weights are loaded.


@dataclass
class Rebuilt:
    """A region, rebuilt. roots: {root of the region: what it is now}; groups: stored values that share a kernel."""

    roots: dict[Term, Term]
    stored: set[Term]
    groups: list[tuple[Term, ...]]
    prepared: list[Prepared]
    same: dict[Term, Term]  # a new value -> the one of the program that it equals


@dataclass
class Rebuilder:
    """Rebuilds one solution over the terms of a problem (of the same key as the one that was solved).

    now: what became of values that other regions computed; name: a fresh name for a weight.
    """

    extraction: Extraction
    found: PricedSolution
    problem: Problem
    now: Mapping[Term, Term]
    name: Callable[[str], str]
    built: dict[int, Term] = field(default_factory=dict)
    prepared: dict[Term, Prepared] = field(default_factory=dict)

    def rebuild(self) -> Rebuilt:
        graph, terms, solution = self.extraction.graph, self.problem.terms, self.found.solution
        needed = (*graph.roots, *sorted(solution.stored))
        for cls, node in self.extraction.in_order(solution.choice, needed):
            read = self.built.__getitem__ if cls in self.extraction.loaded else self.read
            self.built[cls] = self.make(node, [read(child) for child in node[2]])
            axes(self.built[cls])  # remembered from below
        roots = {terms[root]: self.built[graph.of[root]] for root in self.problem.roots}
        stored = {self.built[cls] for cls in solution.stored}
        groups = [tuple(self.built[cls] for cls in group) for group in solution.groups]
        same: dict[Term, Term] = {}
        for cls, term in zip(graph.of, terms, strict=True):
            if cls in self.built:
                same.setdefault(self.built[cls], term)
        return Rebuilt(roots, stored, groups, list(self.prepared.values()), same)

    def make(self, node: ENode, args: list[Term]) -> Term:
        op, attributes, _ = node
        if op == "Leaf":
            leaf = self.problem.leaf_terms[attributes[0]]
            return self.now.get(leaf, leaf)
        if op == "Num":
            return Const(_number(*attributes), attributes[1])
        if op == "E":
            return Elementwise(attributes[0], tuple(args))
        if op in FOLDS:
            fn, mask = attributes
            pairs = zip(self.problem.extents, self.problem.axes, strict=True)
            over = tuple(axis for bit, axis in pairs if bit & mask)
            return compose.reduce(fn, over, args[0]) if op == "Red" else Fold(fn, over, tuple(args))
        return self.problem.forms[attributes[0]].make(args)

    def read(self, cls: int) -> Term:
        """Return the term that a kernel reads for a class: an input of its own for a value that loading computes."""
        value = self.built[cls]
        renamed = value.x if isinstance(value, Remap) else value  # an input under a renaming is read as it is
        if cls not in self.extraction.loaded or isinstance(renamed, Input):
            return value
        if value not in self.prepared:
            own = axes(value)
            below = ([axis for axis in axes(x) if axis in own] for x in operands(value))
            order = tuple(dict.fromkeys((*max(below, key=len, default=()), *own)))  # as the widest operand has them
            weight = Input(self.name("weight"), order, self.extraction.graph.dtype[cls])
            self.prepared[value] = Prepared(weight, value)
        return self.prepared[value].input


def _number(text: str, kind: str) -> float:
    if kind == "b8":
        return text == "true"
    if kind in INTEGERS:
        return int(text) if text.lstrip("-").isdigit() else int(float(text))
    return float(text)
