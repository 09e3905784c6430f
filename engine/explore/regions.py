"""A program cut into regions that a search can take in whole: at values that are stored whatever happens.

These are what is read across a contraction (the residual stream), what goes from one contraction through
something that is not linear into another one, and what is folded and read under an index map. Where a region is still
too large, what the greedy fusion stores is a cut too, and at last every so many operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.target import Target
from ...ir.facts.dataflow import Dataflow, read_again
from ...ir.functions import FUNCTIONS
from ...ir.tensor import Const, Elementwise, Fold, Index, Input, Reduce, Remap, TensorGraph, Term, factors, operands
from ..kernels.decide import is_renaming
from ..language.policy import policy

LINEAR = ("multiply", "add", "subtract", "divide", "negative")


@dataclass(frozen=True)
class Region:
    """roots: the values that it computes for others, in the order of the program."""

    roots: tuple[Term, ...]


class Cutting:
    """Cuts one program. greedy: the values that the default order stores."""

    def __init__(self, graph: TensorGraph, greedy: Iterable[Term], target: Target):
        self.policy = policy(target)
        self.largest = self.policy.region_operations
        self.flow = Dataflow(out.value for out in graph.outs)
        self.outs = {out.value for out in graph.outs if not is_leaf(out.value)}
        self.greedy = {term for term in greedy if not is_leaf(term)}
        self.cuts: set[Any] = set()
        self.folds: dict[Any, bool] = {}

    def regions(self) -> tuple[list[Region], set[Any]]:
        """The regions in an order in which each finds what it reads, and all cuts."""
        self.cuts |= set(self._across()) | set(self._between()) | set(self._viewed())
        for _ in range(self.policy.region_cuts):
            self._level()
            regions, large = self._components()
            if not large:
                break
            self.cuts |= large
        return regions, self.cuts

    # ---- values that are stored whatever happens

    def _repeats(self, term: Any) -> bool:
        """Whether a sum of a product reads a factor again: a contraction, or the product of a matrix and a vector."""
        return any(read_again(self.flow.mask[term], self.flow.mask[x]) for x in factors(term))

    def _across(self) -> Iterable[Term]:
        """Values that meet something that a contraction made of them."""
        flow = self.flow
        for value in flow.order:
            if is_leaf(value) or len(flow.readers[value]) < 2:
                continue
            plain, deep, places = {value}, set(), flow.elements(flow.mask[value])
            following: list[Any] = flow.order[flow.position[value] + 1 :][: self.policy.region_sight * self.largest]
            for term in following:
                below = operands(term)
                if any(x in deep for x in below) or (self._repeats(term) and any(x in plain for x in term.x.args)):
                    meets = term.__class__ is Elementwise and any(x in plain and x not in deep for x in below)
                    if meets and not self._factor(term):
                        yield value
                        break
                    deep.add(term)
                elif any(x in plain for x in below) and flow.elements(flow.mask[term]) == places:
                    plain.add(term)

    def _factor(self, term: Any) -> bool:
        """Whether a value is a factor that a contraction sums: x again beside weights that were made of x."""
        readers = self.flow.readers[term]
        return bool(readers) and all(self._repeats(reader) for reader in readers)

    def _between(self) -> Iterable[Term]:
        """Values on the way from one contraction through a function to another one that would repeat them."""
        flow = self.flow
        bent: dict[Any, bool] = {}  # whether a contraction and then something that is not linear is below
        for term in flow.order:
            below = [x for x in operands(term) if not is_leaf(x)]
            if term.__class__ is Reduce and self._repeats(term):
                product: Any = term.x
                for factor in product.args:
                    new = read_again(flow.mask[term], flow.mask[factor])
                    if bent.get(factor) and flow.elements(new) >= self.policy.repeated_columns:
                        yield factor
                bent[term] = False
                continue
            above = any(self._repeats(x) or bent.get(x, False) for x in below)
            function = term.__class__ is Elementwise and term.fn in FUNCTIONS and term.fn not in LINEAR
            bent[term] = any(bent.get(x, False) for x in below) or (above and function)

    def _viewed(self) -> Iterable[Term]:
        """Values with a reduction in them that an index map reads at other places."""
        folds: dict[Any, bool] = {}
        for term in self.flow.order:
            below = operands(term)
            folds[term] = term.__class__ in (Reduce, Fold) or any(folds[x] for x in below)
            if term.__class__ is Remap and folds[term.x] and not is_renaming(term):
                yield term.x
                folds[term] = False

    # ---- levels and components

    def _level(self) -> None:
        """How many cuts lie below a term. A fold that is read at a higher level than its own becomes a cut."""
        flow = self.flow
        while True:
            level: dict[Any, int] = {}
            folds: dict[Any, bool] = {}
            more: set[Any] = set()
            for term in flow.order:
                below = [x for x in operands(term) if not is_leaf(x)]
                level[term] = max((level[x] + (x in self.cuts) for x in below), default=0)
                folds[term] = term.__class__ in (Reduce, Fold) or any(folds[x] for x in below if x not in self.cuts)
                more.update(x for x in below if x not in self.cuts and folds[x] and level[x] < level[term])
            self.level, self.folds = level, folds
            if not more:
                return
            self.cuts |= more

    def _components(self) -> tuple[list[Region], set[Any]]:
        """Roots that belong together; further cuts where that is too much."""
        parent: dict[Any, Any] = {}

        def find(term: Any) -> Any:
            while parent.setdefault(term, term) is not term:
                parent[term] = parent[parent[term]]
                term = parent[term]
            return term

        count: dict[Any, int] = {}
        computed = [term for term in self.flow.order if not is_leaf(term)]
        for term in computed:
            for x in operands(term):
                if not is_leaf(x) and x not in self.cuts and self.level[x] == self.level[term]:
                    parent[find(x)] = find(term)
        for term in computed:
            count[find(term)] = count.get(find(term), 0) + 1
        self._join_readers(computed, find, parent, count)
        roots: dict[Any, list[Any]] = {}
        for term in computed:
            if term in self.cuts or term in self.outs:
                roots.setdefault(find(term), []).append(term)
        large = {root for root in roots if count[root] > self.largest}
        if large:
            return [], self._more_cuts(computed, find, large)
        groups = sorted(roots.values(), key=lambda group: (self.level[group[0]], self.flow.position[group[0]]))
        return [Region(tuple(group)) for group in groups], set()

    def _join_readers(self, computed: Sequence[Any], find: Any, parent: dict[Any, Any], count: dict[Any, int]) -> None:
        """Contractions of one operand at one level belong together: they may share a kernel, or a packed weight."""
        first: dict[Any, Any] = {}
        for term in computed:
            if not self._repeats(term):
                continue
            for factor in term.x.args:
                if factor.__class__ is Const or (is_leaf(factor) is False and factor not in self.cuts):
                    continue
                key = factor, self.level[term]
                other = find(first.setdefault(key, term))
                mine = find(term)
                if other is not mine and count[other] + count[mine] <= self.largest:
                    parent[mine] = other
                    count[other] += count.pop(mine)

    def _more_cuts(self, computed: Sequence[Any], find: Any, large: set[Any]) -> set[Any]:
        """What greedy fusion stores in these, or every so many operations."""
        stored = {t for t in computed if find(t) in large and t in self.greedy and t not in self.cuts | self.outs}
        if stored:
            return stored
        more: set[Any] = set()
        for root in large:
            inside = [term for term in computed if find(term) is root]
            step = max(1, self.largest // 2)
            more.update(inside[step::step])
        return more - self.cuts or {term for root in large for term in computed if find(term) is root}


def is_leaf(term: Any) -> bool:
    """Whether a term is read, or a number: nothing that a kernel computes for others."""
    return term.__class__ in (Input, Const) or (term.__class__ is Index and not operands(term))
