"""Solutions: one spelling for every class that is needed, and which classes are written to memory.

The price of a solution is the sum over its kernels. The model prices kernels, remembered by their computation. If
lowering has shown the actual price of a kernel, that price is used instead (corrections).
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from math import inf
from typing import NamedTuple

from ...codegen.target import Target
from ...ir import compose
from ...ir.dtypes import DTYPES, HALVES, INTEGERS
from ...ir.node import immutable
from ...ir.tensor import Const, Elementwise, Fold, Input, Remap, Term, axes, operands, postorder
from ..cost.kernel_estimate import EstimatedValue, KernelEstimate, Price, bits, impossible, price
from ..kernels.fusion_pass import FusionRules, kind_of
from ..kernels.index_maps import side_by_side
from ..kernels.kernels import Prepared
from ..language import core as s
from .problem import EGraph, ENode, Problem

Group = tuple[int, ...]  # classes that one kernel stores
Choice = dict[int, int]  # {class: index of its spelling}
VIEWS = ("Map",)
FOLDS = ("Red", "Fold")
BETTER = 1 - 1e-9


@immutable
class Solution:
    """Spellings and stores of a region.

    choice: the spellings of the classes that are reached; stored: the classes that are written; groups: classes that
    share a kernel.
    """

    choice: Choice
    stored: frozenset[int]
    groups: tuple[Group, ...] = ()

    @property
    def key(self) -> Hashable:
        return frozenset(self.choice.items()), self.stored, self.groups


# ---- Fusion rules as edge permissions: which operations may compute what they read.
#
# A rule `op(.., mat(v), ..) => op(.., v, ..)` permits the operation to absorb a value that contains a reduction;
# `mat(v) => v` permits every reader to absorb a value that does not. Extraction decides where that pays.


CONSTRUCTOR_OF: dict[type[s.ValueTerm], str] = {
    s.ReduceTerm: "Red", s.CaseTerm: "Case", s.FoldTerm: "Fold", s.MappedTerm: "Map", s.ReadTerm: "Map",
    s.FunctionTerm: "E",
}  # fmt: skip


@immutable
class Permissions:
    """Permissions of the fusion rules.

    folding: the constructors that may absorb a value with a reduction in it; plain: whether others are inlined.
    """

    folding: frozenset[str]
    plain: bool

    @classmethod
    def of(cls, fusion: FusionRules) -> Permissions:
        kinds = [(kind_of(rule), type([*rule.left.values()][-1])) for rule in fusion.rules]
        folding = frozenset(CONSTRUCTOR_OF[made] for kind, made in kinds if kind == "fuse")
        return cls(folding, any(kind == "inline" for kind, _ in kinds))


# ---- A kernel under a choice of spellings: the estimate of what it computes.
#
# A value inside of a kernel is an instance: the class, and the axes that it is seen under. Index maps on computed
# values move them to the leaves, as lifting does; a reduction whose axis would be captured gets fresh ones.


Under = tuple[tuple[int, int], ...]  # ((axis, mask it is seen as), ...): only where it is another one


def seen_under(mask: int, under: Under) -> int:
    """Return the axes as which some axes are seen."""
    for axis, image in under:
        if mask & axis:
            mask = mask & ~axis | image
    return mask


class Body:
    """What kernels compute, and their estimates.

    items: for each class the bytes of an element, 0 for a number or an index, which nothing reads from memory.
    products: elements along sets of axes, which the estimates share.
    """

    def __init__(self, graph: EGraph, leaves: frozenset[int]):
        self.graph, self.leaves = graph, leaves
        self.items = []
        for cls, ((op, attributes, _), *_) in enumerate(graph.classes):
            absent = op == "Num" or (op == "Leaf" and not graph.problem.leaves[attributes[0]].memory)
            loaded = cls in graph.known or not absent
            self.items.append(DTYPES[graph.dtype[cls]].item_bytes if loaded else 0)
        self.sizes = [graph.problem.size(mask) * item for mask, item in zip(graph.mask, self.items, strict=True)]
        self.products: dict[int, int] = {}

    def inside(self, group: Group, solution: Solution) -> tuple[Choice, set[int]]:
        """Return the spellings that a kernel computes, and the classes that it looks at, what it loads included."""
        loaded = (self.leaves | solution.stored).difference(group)
        spelled: Choice = {}
        touched, pending = set(group), list(group)
        while pending:
            cls = pending.pop()
            place = spelled[cls] = solution.choice[cls]
            for child in self.graph.classes[cls][place][2]:
                if child not in touched:
                    touched.add(child)
                    if child not in loaded:
                        pending.append(child)
        return spelled, touched

    def estimate(self, group: Group, solution: Solution, spelled: Choice) -> KernelEstimate | None:
        """Return the estimate of a kernel that computes some spellings.

        None for several results whose loops differ; axes of equal extents are one axis there. Where the results are
        ranges of one value, their axes along it are parts of one axis.
        """
        extents, masks = self.graph.problem.extents, self.graph.mask
        self.spelled, self.extents = spelled, dict(extents)
        self.steps: list[EstimatedValue] = []
        self.seen: dict[tuple[int, Under], int] = {}
        ranges = side_by_side([self.ranges(root, solution) for root in group], extents) if len(group) > 1 else None
        parts = [axis for axis, _ in ranges[1]] if ranges else [0] * len(group)
        whole = self.fresh(sum(extents[part] for part in parts)) if ranges else 0
        first = masks[group[0]] & ~parts[0]
        stores = []
        for root, part in zip(group, parts, strict=True):
            own = masks[root] & ~part
            mine, others = list(bits(own & ~first)), list(bits(first & ~own))
            if [extents[axis] for axis in mine] != [extents[axis] for axis in others]:
                return None
            stores.append(self.visit(root, ((part, whole), *zip(mine, others, strict=True))))
        sizes = self.products if self.extents == extents else dict(self.products)
        return KernelEstimate(tuple(self.steps), tuple(stores), self.extents, sizes)

    def ranges(self, root: int, solution: Solution) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the values, computed in its kernel, that a root reads at a range of one of its own axes."""
        spelled, _ = self.inside((root,), solution)
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for cls, place in spelled.items():
            op, attributes, children = self.graph.classes[cls][place]
            shift = self.graph.problem.forms[attributes[0]].shift if op == "Map" else None
            if shift is not None and children[0] in spelled and shift[1] & self.graph.mask[root]:
                found.setdefault((children[0], shift[0]), shift[1:])
        return found

    def visit(self, cls: int, under: Under) -> int:
        """Return the step of a class seen under some axes."""
        mask = self.graph.mask[cls]
        key = cls, tuple(pair for pair in under if mask & pair[0])
        if key not in self.seen:
            if cls in self.spelled:
                step = self.compute(*key)
            else:
                step = EstimatedValue(seen_under(mask, under), buffer=cls, item=self.items[cls], whole=self.sizes[cls])
            self.steps.append(step)
            self.seen[key] = len(self.steps) - 1
        return self.seen[key]

    def compute(self, cls: int, under: Under) -> EstimatedValue:
        """Return the step of a class that the kernel computes, after the steps that it reads."""
        op, attributes, children = self.graph.classes[cls][self.spelled[cls]]
        axes = seen_under(self.graph.mask[cls], under)
        fn, over = attributes if op in FOLDS else ({"E": attributes[0], "Case": "where"}.get(op, "copy"), 0)
        if over:  # an axis of its own that would be captured is another one
            renamed = tuple(
                (axis, self.fresh(self.extents[axis])) for axis in bits(over) if any(image & axis for _, image in under)
            )
            under, over = under + renamed, seen_under(over, renamed)
        reads = () if op == "Map" else tuple(self.visit(child, under) for child in children)
        images = dict(self.graph.problem.forms[attributes[0]].images) if op in ("Map", "Op") else {}
        if images or op == "Map":  # of what is read under an index map, which is itself read under other axes
            inner = tuple(
                (axis, image)
                for axis in bits(self.graph.mask[children[0]])
                if (image := seen_under(images.get(axis, axis), under)) != axis
            )
            reads = (self.visit(children[0], inner), *reads[1:])
        half = over != 0 and all(self.graph.dtype[child] in HALVES for child in children)
        return EstimatedValue(axes, reads, over, fn, item=self.items[cls], half=half)

    def fresh(self, extent: int) -> int:
        """Return another axis, for this kernel only."""
        axis = 1 << len(self.extents)
        self.extents[axis] = extent
        return axis


class PricedKernel(NamedTuple):
    """A priced kernel: the classes it looks at, and the key under which its price is remembered."""

    price: Price
    touched: set[int]
    key: Hashable


@dataclass
class PricedSolution:
    """A solution with its seconds and the kernels that make it."""

    solution: Solution
    seconds: float
    table: dict[Group, PricedKernel]

    @property
    def signature(self) -> Hashable:
        """The difference between solutions that a person sees: the kind of each kernel and the bytes it moves."""
        kernels = (kernel.price for kernel in self.table.values())
        return tuple(sorted((price.kind, round(price.bytes / 1e4)) for price in kernels))


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
        self.loaded = graph.known & self.leaves  # the classes that loading computes
        self.memory = Body(graph, self.leaves)
        self.default = self._cheapest()
        self.prices: dict[Hashable, Price] = {}
        self.corrections: dict[Hashable, Price] = {}
        self.ratios: dict[Hashable, float] = {}  # {form of a kernel: lowered price over the model's, at least 1}
        self.evaluated = 0  # kernels looked at: what a search spends

    # ---- spellings
    def _cheapest(self) -> Choice:
        """Return for every class the spelling with the least work as a tree, the default without a decision."""
        classes, masks = self.graph.classes, self.graph.mask
        how, cost = [0] * len(classes), [inf] * len(classes)
        works = []
        for cls, spelled in enumerate(classes):
            for place, (op, attributes, children) in enumerate(spelled):
                space = attributes[1] if op in FOLDS else 0
                for child in children:
                    space |= masks[child]
                computed = 0 if cls in self.leaves else self.graph.problem.size(space)
                works.append((cls, place, 1.0 + computed if children else 0.0, children))
        works.sort(key=lambda work: work[3] != ())  # what reads nothing comes first
        changed = True
        while changed:
            changed = False
            for cls, place, work, children in works:
                total = work + sum(cost[child] for child in children)
                if total < cost[cls]:
                    cost[cls], how[cls], changed = total, place, True
        return dict(enumerate(how))

    def node(self, cls: int, choice: Mapping[int, int]) -> ENode:
        return self.graph.classes[cls][choice[cls]]

    def in_order(self, solution: Solution) -> Iterator[tuple[int, ENode]]:
        """Yield the classes that roots and stores are computed from, operands first, and their e-nodes."""
        choice = {**self.default, **solution.choice}
        order = postorder((*self.graph.roots, *sorted(solution.stored)), lambda cls: self.node(cls, choice)[2][::-1])
        return ((cls, self.node(cls, choice)) for cls in order)

    def is_view(self, cls: int, choice: Choice) -> bool:
        return cls not in self.leaves and self.node(cls, choice)[0] in VIEWS

    def solution(self, choice: Choice, stored: Set[int], groups: Iterable[Group] = ()) -> Solution | None:
        """Return the reachable part of a choice, with the stores that nothing permits to drop, or None for a circle."""
        classes, default, leaves = self.graph.classes, self.default, self.leaves
        needed: Choice = {}  # in the order in which classes are reached
        holds: dict[int, bool] = {}  # whether a reduction would be folded in place
        kept: set[int] = set()
        pending = list(self.graph.roots[::-1])
        while pending:  # ~cls: all below cls was visited
            cls = pending.pop()
            if cls < 0:
                held = self._decide_stores(~cls, stored, needed, holds, kept)
                if held is None:
                    return None
                holds[~cls] = held
            elif cls in leaves:
                needed[cls], holds[cls] = default[cls], False
            elif cls not in needed:
                place = needed[cls] = choice.get(cls, default[cls])
                pending += (~cls, *classes[cls][place][2])
        for cls in self.roots:  # what is stored for other regions: the operand of a root that is a view
            while cls not in self.fixed and self.is_view(cls, needed):
                (cls,) = self.node(cls, needed)[2]
            if cls not in leaves:
                kept.add(cls)
        merged = (tuple(cls for cls in group if cls in kept) for group in groups)
        return Solution(needed, frozenset(kept), tuple(group for group in merged if len(group) > 1))

    def _decide_stores(
        self, cls: int, stores: Set[int], needed: Choice, holds: dict[int, bool], kept: set[int]
    ) -> bool | None:
        """Decide the stores directly below a class. Return whether computing it includes an unstored reduction.

        None where the class is below itself.
        """
        classes, leaves = self.graph.classes, self.leaves
        op, _, children = classes[cls][needed[cls]]
        folding = op in FOLDS
        through = op in VIEWS and cls in stores and cls not in self.roots
        for child in children:
            if child in leaves:
                continue
            if child not in holds:
                return None
            below, _, operands = classes[child][needed[child]]
            view = below in VIEWS
            wanted = not view and (through or child in stores)  # a view owns no kernel: what it looks at is stored
            allowed = op in self.permissions.folding if holds[child] else self.permissions.plain
            if wanted or not (allowed or child in kept):
                written = operands[0] if view else child
                if written not in leaves:
                    kept.add(written)
            if child not in kept:
                folding |= holds[child]
        return folding

    # ---- prices
    def kernel(self, group: Group, solution: Solution) -> PricedKernel:
        self.evaluated += 1
        spelled, touched = self.memory.inside(group, solution)
        key = frozenset(spelled.items()), group
        found = self.corrections.get(key)
        if found is None:
            if key not in self.prices:
                estimate = self.memory.estimate(group, solution, spelled)
                self.prices[key] = price(estimate, self.target) if estimate else impossible("their loops differ")
            found = self.prices[key]
            found = found._replace(seconds=found.seconds * self.ratios.get(found.form, 1.0))
        return PricedKernel(found, touched, key)

    def correct(self, kernel: PricedKernel, lowered: Price) -> None:
        """Record the lowered price of a kernel; the model is expected to miss others of its form by the same factor.

        If several kernels have one form, the one that the model predicted best counts, so that nothing is given up
        too soon.
        """
        expected = self.prices[kernel.key]
        self.corrections[kernel.key] = lowered
        if expected.legal:
            known = self.ratios.get(expected.form, inf)
            self.ratios[expected.form] = min(known, max(1.0, lowered.seconds / expected.seconds))

    def forget(self) -> None:
        """Free what only a search needs: a later query computes a price again."""
        self.prices.clear()
        self.corrections.clear()

    def evaluate(self, solution: Solution, bound: float = inf, before: PricedSolution | None = None) -> PricedSolution:
        """Return the seconds of a solution, and its kernels.

        Above `bound` the answer has no kernels, and its seconds are infinite. Without a bound it has every kernel, even
        one without a price.
        before: an evaluation whose kernels are kept where the change does not touch them.
        """
        together = {cls: group for group in solution.groups for cls in group}
        groups = list(dict.fromkeys(together.get(cls, (cls,)) for cls in sorted(solution.stored)))
        kernels: dict[Group, PricedKernel] = {}
        if before is not None:
            delta = {cls for cls, _ in solution.choice.items() - before.solution.choice.items()}
            delta |= solution.stored ^ before.solution.stored
            kernels = {group: kernel for group, kernel in before.table.items() if not kernel.touched & delta}
        total = 0.0
        # unchanged kernels are added first, so that too high a price is seen early
        for group in sorted(groups, key=lambda group: group not in kernels):
            if group not in kernels:
                kernels[group] = self.kernel(group, solution)
            total += kernels[group].price.seconds
            if total >= bound < inf:
                return PricedSolution(solution, inf, {})
        table = {group: kernels[group] for group in groups}
        return PricedSolution(solution, inf if solution.groups and not _acyclic(table) else total, table)


def _acyclic(table: Mapping[Group, PricedKernel]) -> bool:
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


# ---- The search for a good solution: greedy descents over the stores, merging of siblings, a beam over spellings.
#
# Greedy keeps the program as it was written. The beam changes the expression of one class, or makes all possible
# readers of a class read it at once (q, k and v as slices of one matmul, which pays only if all three change). A
# descent near the change follows. All orders are fixed, so the same program returns the same solution.


DESCENTS_OF_GREEDY = 4  # descents of the greedy search, one after another: the last ones gain nothing
PATIENCE_OF_BEAM = 24  # expansions of a search without progress
WORTH_KEEPING = 1.3  # times the best cost: slower solutions rarely lead to a faster one
NEAR_BEST = 1.03  # times the best cost: below it, a descent tries every store
GOOD_ENOUGH_TO_MERGE = 1.15  # times the best cost: below it, siblings merge
ALIKE_IN_BEAM = 4  # solutions of one signature in a beam: more of them displace different solutions
LONGEST_BEAM = 64  # solutions of a beam


@immutable
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
        self.deadline = self.limit = inf

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
        self.deadline = self.limit = inf
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
        if alike[signature] < ALIKE_IN_BEAM and exactly not in kept and found.seconds < inf:
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
        for cls, node in self.extraction.in_order(solution):
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
