"""Solutions: one spelling for every class that is needed, and which classes are written to memory.

The price of a solution is the sum over its kernels. The model prices kernels, remembered by their computation. If
lowering has shown the actual price of a kernel, that price is used instead (corrections).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from ...codegen.target import Target
from ...ir.dtypes import DTYPES, HALVES
from ...ir.tensor import postorder
from ..cost.kernel_estimate import EstimatedValue, KernelEstimate, Price, bits, impossible, price
from ..kernels.index_maps import side_by_side
from .problem import EGraph
from .rules_as_egglog import Permissions

# ---- A kernel under a choice of spellings: the estimate of what it computes.
#
# A value inside of a kernel is an instance: the class, and the axes that it is seen under. Index maps on computed
# values move them to the leaves, as lifting does; a reduction whose axis would be captured gets fresh ones.


SPELLINGS = 20  # bits for the index of a spelling: budgets allow far fewer
Under = tuple[tuple[int, int], ...]  # ((axis, mask it is seen as), ...): only where it is another one


class Body:
    """Estimates of kernels, and what they depend on."""

    def __init__(self, graph: EGraph, leaves: Container[int]):
        self.graph, self.leaves = graph, leaves
        self.items = [DTYPES[name].item_bytes for name in graph.dtype]
        self.products: dict[int, int] = {}
        self.sizes = [graph.problem.size(mask) * item for mask, item in zip(graph.mask, self.items, strict=True)]

    def used(
        self, roots: Sequence[int], choice: Mapping[int, int], stored: Container[int]
    ) -> tuple[frozenset[int], set[int]]:
        """Return all that an estimate depends on, and the classes among it.

        As numbers: a class and its spelling where it is computed, a class alone where it is loaded.
        """
        classes, leaves = self.graph.classes, self.leaves
        pending, seen, found = list(roots), set(roots), []
        for cls in pending:
            if cls in leaves or (cls in stored and cls not in roots):
                found.append(cls << SPELLINGS)
                continue
            place = choice[cls]
            found.append(cls << SPELLINGS | place + 1)
            for child in classes[cls][place][2]:
                if child not in seen:
                    seen.add(child)
                    pending.append(child)
        return frozenset(found), seen

    def estimate(
        self, roots: Sequence[int], choice: Mapping[int, int], stored: Container[int]
    ) -> KernelEstimate | None:
        """Return the estimate. None for several roots whose loops differ; axes of equal extents are one axis there."""
        self.choice, self.stored, self.roots = choice, stored, frozenset(roots)
        self.steps: list[EstimatedValue] = []
        self.seen: dict[tuple[int, Under], int] = {}
        self.extents = self.graph.problem.extents
        paired = self.side_by_side(roots) if len(roots) > 1 else None
        paired = paired or [self.paired(self.graph.mask[roots[0]], self.graph.mask[root]) for root in roots]
        stores = tuple(self.visit(root, under or (), True) for root, under in zip(roots, paired, strict=True))
        if any(under is None for under in paired):
            return None
        own = self.extents is self.graph.problem.extents
        sizes = self.products if own else dict(self.products)
        return KernelEstimate(tuple(self.steps), stores, self.extents, sizes)

    def paired(self, first: int, own: int) -> Under | None:
        """Return the axes of a root as those of the first one of its kernel; None if their extents differ."""
        extents, mine, others = self.graph.problem.extents, own & ~first, first & ~own
        pairs = tuple(zip(bits(mine), bits(others), strict=False))
        same = mine.bit_count() == others.bit_count()
        return pairs if same and all(extents[a] == extents[b] for a, b in pairs) else None

    def side_by_side(self, roots: Sequence[int]) -> list[Under | None] | None:
        """Return the axes of roots that read ranges of one value, with that value's indices as one kernel axis."""
        views = [self.ranges(root) for root in roots]
        found = side_by_side(views, self.graph.problem.extents)
        if found is None:
            return None
        extents, (_, ranges) = self.graph.problem.extents, found
        own = self.graph.mask[roots[0]] & ~ranges[0][0]
        along = self.fresh(ranges[0][0], sum(extents[axis] for axis, _ in ranges))
        paired = [
            self.paired(own, self.graph.mask[root] & ~axis) for root, (axis, _) in zip(roots, ranges, strict=True)
        ]
        return [
            pairs if pairs is None else ((axis, along), *pairs) for pairs, (axis, _) in zip(paired, ranges, strict=True)
        ]

    def ranges(self, root: int) -> dict[Any, tuple[int, int]]:
        """Return the values, computed in its kernel, that a root reads at a range of one of its own axes."""
        found: dict[Any, tuple[int, int]] = {}
        pending, seen = [root], {root}
        while pending:
            op, attributes, children = self.graph.classes[(cls := pending.pop())][self.choice[cls]]
            for child in children:
                if child in self.leaves or child in self.stored:
                    continue
                shift = self.graph.problem.forms[attributes[0]].shift if op == "Map" else None
                if shift is not None and shift[1] & self.graph.mask[root]:
                    found.setdefault((child, shift[0]), shift[1:])
                if child not in seen:
                    seen.add(child)
                    pending.append(child)
        return found

    # ---- masks under other axes
    def mask(self, mask: int, under: Under) -> int:
        for axis, image in under:
            if mask & axis:
                mask = mask & ~axis | image if image & axis == 0 else mask | image
        return mask

    def restricted(self, under: Under, mask: int) -> Under:
        return tuple((axis, image) for axis, image in under if mask & axis)

    def visit(self, cls: int, under: Under, top: bool = False) -> int:
        """Return the step of a class seen under some axes."""
        mask = self.graph.mask[cls]
        under = self.restricted(under, mask) if under else under
        known = self.seen.get((cls, under))
        if known is None:
            step = self.load(cls, under) if self.is_load(cls, top) else self.compute(cls, under)
            known = self.seen[cls, under] = self.put(step)
        return known

    def put(self, step: EstimatedValue) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def is_load(self, cls: int, top: bool) -> bool:
        return cls in self.leaves or (cls in self.stored and not (top and cls in self.roots) and cls not in self.roots)

    def load(self, cls: int, under: Under) -> EstimatedValue:
        axes = self.mask(self.graph.mask[cls], under)
        if not self.in_memory(cls):
            return EstimatedValue(axes, item=0)
        return EstimatedValue(axes, buffer=cls, item=self.items[cls], whole=self.sizes[cls])

    def in_memory(self, cls: int) -> bool:
        """Return whether reading a leaf is reading memory: numbers and indices are not there."""
        if cls not in self.leaves or cls in self.graph.known:
            return True
        first = self.graph.classes[cls][0]
        return not (first[0] == "Num" or (first[0] == "Leaf" and not self.graph.problem.leaves[first[1][0]].memory))

    def compute(self, cls: int, under: Under) -> EstimatedValue:
        place = self.choice[cls]
        op, attributes, children = self.graph.classes[cls][place]
        axes = self.mask(self.graph.mask[cls], under)
        item = self.items[cls]
        if op in ("Red", "Fold"):
            return self.fold(attributes, children, under, axes, item)
        if op == "Map":
            return self.read(attributes[0], children[0], under, axes, item)
        reads = tuple(self.visit(child, under) for child in children)
        if op == "Op":
            form = self.graph.problem.forms[attributes[0]]
            inner = {axis: self.mask(image, under) for axis, image in form.images}
            first = self.visit(children[0], self.under(children[0], inner, under)) if inner else reads[0]
            reads = (first, *reads[1:])
        fn = attributes[0] if op == "E" else "where" if op == "Case" else "copy"
        return EstimatedValue(axes, reads, 0, fn, item=item)

    def under(self, cls: int, inner: Mapping[int, int], under: Under) -> Under:
        """Return the axes of a class below an index map that is itself read under other axes."""
        out = {axis: self.mask(axis, under) for axis in bits(self.graph.mask[cls])}
        out.update((axis, image) for axis, image in inner.items() if axis in out)
        return tuple((axis, image) for axis, image in sorted(out.items()) if image != axis)

    def read(self, form: int, child: int, under: Under, axes: int, item: int) -> EstimatedValue:
        images = {axis: self.mask(image, under) for axis, image in self.graph.problem.forms[form].images}
        place = self.visit(child, self.under(child, images, under))
        return EstimatedValue(axes, (place,), 0, "copy", item=item)

    def fold(self, attributes: Any, children: Sequence[int], under: Under, axes: int, item: int) -> EstimatedValue:
        fn, over = attributes
        taken = 0
        for _, image in under:
            taken |= image
        if over & taken:  # an axis of its own would be captured
            renamed = {axis: self.fresh(axis) for axis in bits(over & taken)}
            under = (*under, *renamed.items())
            over = self.mask(over, tuple(renamed.items()))
        reads = tuple(self.visit(child, under) for child in children)
        half = all(self.graph.dtype[child] in HALVES for child in children)
        return EstimatedValue(axes, reads, over, fn, item=item, half=half)

    def fresh(self, axis: int, extent: int | None = None) -> int:
        """Return another axis of the same or a given extent, for this kernel only."""
        if self.extents is self.graph.problem.extents:
            self.extents = dict(self.extents)
        bit = 1 << max(extent.bit_length() for extent in self.extents)
        self.extents[bit] = self.extents[axis] if extent is None else extent
        return bit


Group = tuple[int, ...]  # classes that one kernel stores
VIEWS = ("Map",)
FOLDS = ("Red", "Fold")
BETTER = 1 - 1e-9


@dataclass(frozen=True)
class Solution:
    """Spellings and stores of a region.

    choice: {class: index of its spelling}, for the classes that are reached; stored: the classes that are written;
    groups: classes that share a kernel.
    """

    choice: dict[int, int]
    stored: frozenset[int]
    groups: tuple[Group, ...] = ()

    @property
    def key(self) -> Any:
        return frozenset(self.choice.items()), self.stored, self.groups


class PricedKernel(NamedTuple):
    """A priced kernel: the classes it looks at, and the key under which its price is remembered."""

    price: Price
    touched: set[int]
    key: Any


Table = dict[Group, PricedKernel]
NOTHING = PricedKernel(impossible("it has no price yet"), set(), None)


class Extraction:
    """Prices solutions of one e-graph on one device."""

    def __init__(self, graph: EGraph, target: Target, permissions: Permissions):
        self.graph, self.target, self.permissions = graph, target, permissions
        self.roots = frozenset(graph.roots)
        self.fixed = frozenset(graph.of[root] for root in graph.problem.fixed)
        self.leaves = frozenset(
            cls
            for cls, spelled in enumerate(graph.classes)
            if (cls in graph.known and cls not in self.roots) or any(node[0] in ("Leaf", "Num") for node in spelled)
        )
        self.memory = Body(graph, self.leaves)
        self.default = self._cheapest()
        self.prices: dict[Any, Price] = {}
        self.corrections: dict[Any, Price] = {}
        self.ratios: dict[Any, float] = {}  # {form of a kernel: lowered price over the model's, at least 1}
        self.evaluated = 0  # kernels looked at: what a search spends

    # ---- spellings
    def space(self, cls_node: Any) -> int:
        """Return the axes that an e-node runs over."""
        op, attributes, children = cls_node
        mask = 0
        for child in children:
            mask |= self.graph.mask[child]
        return mask | attributes[1] if op in FOLDS else mask

    def _cheapest(self) -> dict[int, int]:
        """Return for every class the spelling with the least work as a tree, the default without a decision."""
        cost: dict[int, float] = {}
        how: dict[int, int] = {}
        for cls, spelled in enumerate(self.graph.classes):
            for place, node in enumerate(spelled):
                if not node[2]:
                    cost[cls], how[cls] = 0.0, place
                    break
        changed = True
        while changed:
            changed = False
            for cls, spelled in enumerate(self.graph.classes):
                for place, node in enumerate(spelled):
                    if not node[2] or any(child not in cost for child in node[2]):
                        continue
                    work = 1.0 if cls in self.leaves else 1.0 + self.graph.problem.size(self.space(node))
                    total = work + sum(cost[child] for child in node[2])
                    if total < cost.get(cls, math.inf):
                        cost[cls], how[cls], changed = total, place, True
        return how

    def node(self, cls: int, choice: dict[int, int]) -> Any:
        return self.graph.classes[cls][choice[cls]]

    def in_order(
        self, choice: dict[int, int], roots: Iterable[int], done: Container[int] = ()
    ) -> Iterator[tuple[int, Any]]:
        """Yield the classes that roots are computed from, operands first, and their e-nodes. done: classes to skip."""

        def node(cls: int) -> Any:
            return self.graph.classes[cls][choice.get(cls, self.default[cls])]

        order = postorder(roots, lambda cls: () if cls in done else node(cls)[2][::-1])
        return ((cls, node(cls)) for cls in order if cls not in done)

    def is_view(self, cls: int, choice: dict[int, int]) -> bool:
        return cls not in self.leaves and self.node(cls, choice)[0] in VIEWS

    def solution(self, choice: dict[int, int], stored: Iterable[int], groups: Sequence[Group] = ()) -> Solution | None:
        """Return the reachable part of a choice, with the stores that nothing permits to drop, or None for a circle."""
        given, stores = dict(choice), set(stored)
        needed: dict[int, int] = {}
        holds: dict[int, bool] = {}  # whether a reduction would be folded in place
        kept: set[int] = set()
        for root in self.graph.roots:
            if not self._reach(root, given, stores, needed, holds, kept):
                return None
        kept |= self._stored_roots(needed)
        merged = []
        for group in groups:
            rest = tuple(cls for cls in group if cls in kept)
            if len(rest) > 1:
                merged.append(rest)
        return Solution(needed, frozenset(kept), tuple(merged))

    def _stored_roots(self, needed: dict[int, int]) -> set[int]:
        """Return the values that are stored for other regions: the operand of a root that is a view."""
        out: set[int] = set()
        for root in self.roots:
            cls = root
            while cls not in self.fixed and self.is_view(cls, needed):
                (cls,) = self.graph.classes[cls][needed[cls]][2]
            if cls not in self.leaves:
                out.add(cls)
        return out

    def _reach(self, root: int, given: Any, stores: Any, needed: Any, holds: Any, kept: Any) -> bool:
        """Visit what a class needs, operands first; an explicit stack, since chains may be long. ~cls: leave cls."""
        classes, leaves, default = self.graph.classes, self.leaves, self.default
        stack, open_ = [root], set()
        while stack:
            cls = stack.pop()
            if cls < 0:
                open_.discard(~cls)
                holds[~cls] = self._decide_stores(~cls, stores, needed, holds, kept)
                continue
            if cls in holds:
                continue
            if cls in leaves:
                needed[cls], holds[cls] = default[cls], False
                continue
            if cls in open_:
                return False
            open_.add(cls)
            place = needed[cls] = given.get(cls, default[cls])
            stack.append(~cls)
            for child in classes[cls][place][2]:
                if child in open_:
                    return False
                stack.append(child)
        return True

    def _decide_stores(self, cls: int, stores: Any, needed: Any, holds: Any, kept: Any) -> bool:
        """Decide the stores directly below a class. Return whether computing it includes an unstored reduction."""
        classes, leaves = self.graph.classes, self.leaves
        op, _, children = classes[cls][needed[cls]]
        folding = op in FOLDS
        may_fold, may_inline = op in self.permissions.folding, self.permissions.plain
        through = op in VIEWS and cls in stores and cls not in self.roots
        for child in children:
            if child in leaves:
                continue
            spelled = classes[child][needed[child]]
            view = spelled[0] in VIEWS
            wanted = not view and (through or child in stores)  # a view owns no kernel: what it looks at is stored
            if wanted or (child not in kept and not (may_fold if holds[child] else may_inline)):
                stored = spelled[2][0] if view else child
                if stored not in leaves:
                    kept.add(stored)
            if child not in kept:
                folding |= holds[child]
        return folding

    # ---- prices
    def kernel(self, group: Group, solution: Solution) -> PricedKernel:
        self.evaluated += 1
        used, touched = self.memory.used(group, solution.choice, solution.stored)
        key = (used, group)
        found = self.corrections.get(key)
        if found is None:
            found = self.prices.get(key)
            if found is None:
                estimate = self.memory.estimate(group, solution.choice, solution.stored)
                found = self.prices[key] = price(estimate, self.target) if estimate is not None else _APART
            ratio = self.ratios.get(found.form)
            if ratio is not None:
                found = found._replace(seconds=found.seconds * ratio)
        return PricedKernel(found, touched, key)

    def correct(self, kernel: PricedKernel, lowered: Price) -> None:
        """Record the lowered price of a kernel; the model is expected to miss others of its form by the same factor.

        If several kernels have one form, the one that the model predicted best counts, so that nothing is given up
        too soon.
        """
        expected = self.prices[kernel.key]
        self.corrections[kernel.key] = lowered
        if expected.legal and expected.form:
            ratio = max(1.0, lowered.seconds / expected.seconds)
            self.ratios[expected.form] = min(ratio, self.ratios.get(expected.form, math.inf))

    def forget(self) -> None:
        """Free what only a search needs: a later query computes a price again."""
        self.prices.clear()
        self.corrections.clear()

    def groups(self, solution: Solution) -> list[Group]:
        """Return the kernels of a solution, by what they store."""
        together = {cls: group for group in solution.groups for cls in group}
        return list(dict.fromkeys(together.get(cls, (cls,)) for cls in sorted(solution.stored)))

    def evaluate(
        self, solution: Solution, bound: float = math.inf, before: PricedSolution | None = None
    ) -> PricedSolution:
        """Return the seconds of a solution, and its kernels.

        Above `bound` the answer may be incomplete and its seconds infinite. Without a bound it has every kernel, even
        one without a price.
        before: an evaluation whose kernels are kept where the change does not touch them.
        """
        total = 0.0
        old: Table = {}
        delta: set[int] = set()
        if before is not None:
            old = before.table
            delta = set(solution.stored ^ before.solution.stored)
            delta.update(c for c, place in solution.choice.items() if before.solution.choice.get(c) != place)
        table: Table = dict.fromkeys(self.groups(solution), NOTHING)  # in this order, whatever is priced first
        for group in table:
            kernel = old.get(group)
            if kernel is not None and not kernel.touched & delta:
                table[group] = kernel
                total += kernel.price.seconds
        # unchanged kernels are added first, so that too high a price is seen early
        for group in [group for group, kernel in table.items() if kernel is NOTHING]:
            if total >= bound and bound < math.inf:
                return PricedSolution(solution, math.inf, {})
            table[group] = self.kernel(group, solution)
            total += table[group].price.seconds
        if total >= bound and bound < math.inf:
            return PricedSolution(solution, math.inf, {})
        if solution.groups and not _acyclic(table):
            return PricedSolution(solution, math.inf, table)
        return PricedSolution(solution, total, table)


def _acyclic(table: Table) -> bool:
    """Return whether kernels that store several values can be put in an order."""
    owner = {cls: group for group in table for cls in group}
    below = {
        group: {owner[cls] for cls in kernel.touched if cls in owner and cls not in group}
        for group, kernel in table.items()
    }
    try:
        TopologicalSorter(below).prepare()
    except CycleError:
        return False
    return True


_APART = impossible("their loops differ")


@dataclass
class PricedSolution:
    """A solution with its seconds and the kernels that make it."""

    solution: Solution
    seconds: float
    table: Table

    @property
    def bytes(self) -> float:
        return sum(kernel.price.bytes for kernel in self.table.values())

    @property
    def signature(self) -> Any:
        """The difference between solutions that a person sees: the kind of each kernel and the bytes it moves."""
        kernels = (kernel.price for kernel in self.table.values())
        return tuple(sorted((price.kind, round(price.bytes / 1e4)) for price in kernels))
