"""The search for a good solution: greedy descents over the stores, merging of siblings, a beam over spellings.

Greedy keeps the program as it was written. The beam changes one spelling at a time, or lets all who could read a
class do so at once (q, k and v as slices of one matmul: one by one that is uphill), each followed by a descent near the
change. Everything is in a fixed order, so the same program gives the same answer.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir import compose
from ...ir.dtypes import INTEGERS
from ...ir.expr import Axis
from ...ir.tensor import Const, Elementwise, Fold, Input, Remap, Term, axes, operands
from ..cost.kernel_estimate import bits
from ..kernels.kernels import Prepared
from .problem import EGraph, Problem
from .solution import BETTER, Extraction, Group, PricedSolution, Solution

DESCENTS_OF_GREEDY = 4  # descents of the greedy search, one after another: the last ones gain nothing
PATIENCE_OF_BEAM = 24  # expansions of a search without progress
WORTH_KEEPING = 1.3  # of the best: what is worse leads nowhere better
NEAR_BEST = 1.03  # of the best: from here descents go everywhere
GOOD_ENOUGH_TO_MERGE = 1.15  # of the best: from here siblings merge
ALIKE_IN_BEAM = 4  # solutions of one signature in a beam: more crowd out what is different
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
        self.deadline = math.inf
        self.limit = math.inf

    # ---- the program as written
    def as_written(self, stored: Iterable[int] | None = None, groups: Sequence[Group] = ()) -> PricedSolution:
        """Return the solution with the original spellings.

        stored: the classes that are written, by default every operation's result; groups of them share a kernel.
        """
        graph = self.graph
        choice: dict[int, int] = {}
        for place, node in enumerate(graph.problem.nodes):
            choice.setdefault(graph.of[place], graph.classes[graph.of[place]].index(graph.spelled(node)))
        every = set(graph.of) if stored is None else set(stored)
        found = self.extraction.solution(choice, every, groups)
        if found is None:  # a rule united a value with one above it
            found = self.extraction.solution({}, every)
        assert found is not None
        return self.extraction.evaluate(found)

    def greedy(self) -> PricedSolution:
        """Drop or add stores while that is cheaper, in both orders, with siblings merged."""
        best: PricedSolution | None = None
        for upwards in (False, True):
            found = self.descend(self.as_written(), upwards)
            for _ in range(DESCENTS_OF_GREEDY):
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
        """Drop or add the first store for which that is an improvement, and repeat until there is none."""
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
        """Merge kernels while that is cheaper.

        Kernels that read a common buffer become one.
        """
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

    # ---- the beam
    def explore(self, start: PricedSolution) -> list[PricedSolution]:
        """Return different solutions, best first, from a first one.

        The first one is included even if the model has no price for it.
        """
        self.deadline = time.perf_counter() + self.effort.seconds
        self.limit = self.extraction.evaluated + self.effort.kernels
        beam: list[PricedSolution] = [start]
        done: set[object] = set()
        seen: set[object] = set()
        stale = 0
        while stale < PATIENCE_OF_BEAM and not self.late():
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
        self.deadline = self.limit = math.inf
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
                found = self._settled(self.extraction.evaluate(changed, math.inf, here), here, best)
                if found.seconds < best * WORTH_KEEPING:
                    yield found

    def _folds(self, cls: int, solution: Solution) -> bool:
        node = self.extraction.node(cls, solution.choice)
        return cls not in self.extraction.leaves and node[0] in ("Red", "Fold")

    def _settled(self, found: PricedSolution, before: PricedSolution, best: float) -> PricedSolution:
        """Return a move for which the stores around it are decided again."""
        choice, old = found.solution.choice, before.solution.choice
        near = {c for c in choice if old.get(c) != choice[c]}
        near |= {child for c in near for child in self.extraction.node(c, choice)[2]}
        found = self.descend(found, near=near)
        if found.seconds < best * NEAR_BEST:
            found = min((self.descend(found, upwards) for upwards in (False, True)), key=lambda e: e.seconds)
        return self.merge(found) if found.seconds < best * GOOD_ENOUGH_TO_MERGE else found

    def _moves(self, now: Solution) -> list[tuple[tuple[int, int], ...]]:
        """Return changes of spelling.

        First all consumers that could read a class that is not read yet, then one class at a time.
        """
        single: list[tuple[tuple[int, int], ...]] = []
        pulled: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for cls, chosen in now.choice.items():
            if cls in self.extraction.leaves:
                continue
            for place, (op, _, children) in enumerate(self.graph.classes[cls]):
                if place != chosen:
                    single.append(((cls, place),))
                for child in children:
                    if child not in self.extraction.leaves and child not in now.choice:
                        pulled.setdefault((child, op), []).append((cls, place))
        together = [tuple(dict(moves).items()) for moves in pulled.values() if len(dict(moves)) > 1]
        return together + single

    def _different(self, beam: list[PricedSolution]) -> list[PricedSolution]:
        """Return the best of every signature: else equal spellings crowd out what is different."""
        alike: dict[object, int] = {}
        costs: set[object] = set()
        kept: list[PricedSolution] = []
        for found in sorted(beam, key=lambda e: e.seconds):
            signature = found.signature
            exactly = signature, round(found.seconds * 1e9, 1)
            many = alike.get(signature, 0)
            if many < ALIKE_IN_BEAM and exactly not in costs and found.seconds < math.inf:
                alike[signature] = many + 1
                costs.add(exactly)
                kept.append(found)
        return kept[:LONGEST_BEAM] or beam[:1]

    def late(self) -> bool:
        return self.extraction.evaluated > self.limit or time.perf_counter() > self.deadline


# ---- A solution as Tensor IR again: its terms, which of them are stored, and what is computed when weights are loaded.


@dataclass
class Rebuilt:
    """A region, rebuilt. roots: {root of the region: what it is now}; groups: stored values that share a kernel."""

    roots: dict[Term, Term]
    stored: set[Term]
    groups: list[tuple[Term, ...]]
    prepared: list[Prepared]
    same: dict[Term, Term]  # a new value -> the one of the program that it equals


class Rebuilder:
    """Rebuilds one solution over the terms of a problem (of the same key as the one that was solved).

    now: what became of values that other regions computed; name: a fresh name for a weight.
    """

    def __init__(
        self, extraction: Extraction, found: PricedSolution, problem: Problem, now: Mapping[Term, Term],
        name: Callable[[str], str],
    ):  # fmt: skip
        self.graph: EGraph = extraction.graph
        self.extraction, self.found, self.problem, self.now, self.name = extraction, found, problem, now, name
        self.built: dict[int, Term] = {}
        self.prepared: dict[Term, Prepared] = {}

    def rebuild(self) -> Rebuilt:
        graph, solution = self.graph, self.found.solution
        roots = {self.problem.terms[root]: self.term(graph.of[root]) for root in self.problem.roots}
        stored = {self.term(cls) for cls in sorted(solution.stored)}
        groups = [tuple(self.term(cls) for cls in group) for group in solution.groups]
        same: dict[Term, Term] = {}
        for place, cls in enumerate(graph.of):
            if cls in self.built:
                same.setdefault(self.built[cls], self.problem.terms[place])
        return Rebuilt(roots, stored, groups, list(self.prepared.values()), same)

    def term(self, cls: int) -> Term:
        """Return the term of a class."""
        for top, node in self.extraction.in_order(self.found.solution.choice, (cls,), self.built):
            loading = top in self.graph.known and top in self.extraction.leaves
            args = [self.built[child] if loading else self.read(child) for child in node[2]]
            self.built[top] = self.make(node, args)
            axes(self.built[top])  # remembered from below
        return self.built[cls]

    def make(self, node: Any, args: list[Term]) -> Term:
        op, attributes, _ = node
        if op == "Leaf":
            leaf = self.problem.leaf_terms[attributes[0]]
            return self.now.get(leaf, leaf)
        if op == "Num":
            text, kind = attributes
            return Const(_number(text, kind), kind)
        if op == "E":
            return Elementwise(attributes[0], tuple(args))
        if op == "Red":
            return compose.reduce(attributes[0], self.axes(attributes[1]), args[0])
        if op == "Fold":
            return Fold(attributes[0], self.axes(attributes[1]), tuple(args))
        made: Term = self.problem.forms[attributes[0]].make(args)
        return made

    def axes(self, mask: int) -> tuple[Axis, ...]:
        return tuple(self.problem.axes[bit.bit_length() - 1] for bit in bits(mask))

    def read(self, cls: int) -> Term:
        """Return the term that a kernel reads for a class: an input of its own for a value that loading computes."""
        value = self.built[cls]
        if (
            cls not in self.graph.known
            or cls not in self.extraction.leaves
            or value.__class__ is Input
            or _plain(value)
        ):
            return value
        if value not in self.prepared:
            made = Input(self.name("weight"), _memory_order(value), self.graph.dtype[cls])
            self.prepared[value] = Prepared(made, value)
        return self.prepared[value].input


def _plain(value: Any) -> bool:
    """Return whether a value is an input under a renaming, which is read as it is."""
    return value.__class__ is Remap and value.x.__class__ is Input


def _memory_order(value: Term) -> tuple[Axis, ...]:
    """Return axes as the widest operand has them."""
    widest: tuple[Axis, ...] = ()
    for operand in operands(value):
        own = tuple(axis for axis in axes(operand) if axis in axes(value))
        if len(own) > len(widest):
            widest = own
    return tuple(dict.fromkeys((*widest, *axes(value))))


def _number(text: str, kind: str) -> Any:
    if kind == "b8":
        return text == "true"
    if kind in INTEGERS:
        return int(text) if text.lstrip("-").isdigit() else int(float(text))
    return float(text)
