"""A solution: one spelling for every class that is needed, and which classes are written to memory.

Its price is the sum over its kernels. Kernels are priced by the model, remembered by what they compute; where the
lowering has shown what a kernel really takes, that price stands instead (corrections).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...codegen.target import Target
from ..cost.price import Price, impossible, price
from .body import Body
from .graph import EGraph
from .permissions import Permissions

Group = tuple[int, ...]  # classes that one kernel stores
VIEWS = ("Map",)
FOLDS = ("Red", "Fold")
BETTER = 1 - 1e-9


@dataclass(frozen=True)
class Solution:
    """choice: {class: place of its spelling}, for the classes that are reached; stored; groups that share a kernel."""

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
        self.allowed = {op: (permissions.allows(op, True), permissions.allows(op, False)) for op in graph.constructors}
        self.memory = Body(graph, self.leaves)
        self.default = self._cheapest()
        self.prices: dict[Any, Price] = {}
        self.corrections: dict[Any, Price] = {}
        self.ratios: dict[
            Any, float
        ] = {}  # form of a kernel -> how far the model is below what the lowering makes of it
        self.evaluated = 0  # kernels looked at: what a search spends

    # ---- spellings
    def space(self, cls_node: Any) -> int:
        """The axes that an e-node runs over."""
        op, attributes, children = cls_node
        mask = 0
        for child in children:
            mask |= self.graph.mask[child]
        return mask | attributes[1] if op in FOLDS else mask

    def _cheapest(self) -> dict[int, int]:
        """For every class the spelling with the least work as a tree: the one to take where nothing is decided."""
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

    def in_order(self, choice: dict[int, int], roots: Iterable[int], done: Container[int]) -> Iterator[tuple[int, Any]]:
        """What roots are made of, operands first: (class, its e-node). done: those that are there already; who takes a
        class adds it. An explicit stack, since chains may be long."""
        for root in roots:
            stack = [root]
            while stack:
                top = stack[-1]
                if top in done:
                    stack.pop()
                    continue
                node = self.graph.classes[top][choice.get(top, self.default[top])]
                waiting = [child for child in node[2] if child not in done]
                if waiting:
                    stack.extend(waiting)
                else:
                    yield top, node

    def is_view(self, cls: int, choice: dict[int, int]) -> bool:
        return cls not in self.leaves and self.node(cls, choice)[0] in VIEWS

    def solution(self, choice: dict[int, int], stored: Iterable[int], groups: Sequence[Group] = ()) -> Solution | None:
        """The reachable part of a choice, with the stores that nothing permits to drop. None where it is a circle."""
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
        """What is written for others: a root that may be a view is read where its operand is stored."""
        out: set[int] = set()
        for root in self.roots:
            cls = root
            while cls not in self.fixed and self.is_view(cls, needed):
                (cls,) = self.graph.classes[cls][needed[cls]][2]
            if cls not in self.leaves:
                out.add(cls)
        return out

    def _reach(self, root: int, given: Any, stores: Any, needed: Any, holds: Any, kept: Any) -> bool:
        """Visits what a class needs, operands first; an explicit stack, since chains may be long. ~cls: leave cls."""
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
        """Decides the stores right below a class. Whether computing it folds something in place."""
        classes, leaves = self.graph.classes, self.leaves
        op, _, children = classes[cls][needed[cls]]
        folding = op in FOLDS
        may_fold, may_inline = self.allowed[op]
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
            ratio = self.graph.missed.get(key) or self.ratios.get(found.form)
            if ratio is not None:
                found = found._replace(seconds=found.seconds * ratio)
        return PricedKernel(found, touched, key)

    def correct(self, kernel: PricedKernel, lowered: Price) -> None:
        """What a kernel really takes; others of its form are expected to miss the model's price by as much.

        Of several kernels of a form the one that the model told best counts, so that nothing is given up too soon. The
        same kernel at other extents, in another region of this structure, is expected to miss by what it missed here.
        """
        expected = self.prices[kernel.key]
        self.corrections[kernel.key] = lowered
        if expected.legal and expected.form:
            ratio = max(1.0, lowered.seconds / expected.seconds)
            self.ratios[expected.form] = min(ratio, self.ratios.get(expected.form, math.inf))
            if lowered.legal:
                self.graph.missed[kernel.key] = ratio

    def forget(self) -> None:
        """Frees what only a search needs: a price that is asked for again is found again."""
        self.prices.clear()
        self.corrections.clear()

    def groups(self, solution: Solution) -> list[Group]:
        """The kernels of a solution, by what they store."""
        together = {cls: group for group in solution.groups for cls in group}
        return list(dict.fromkeys(together.get(cls, (cls,)) for cls in sorted(solution.stored)))

    def evaluate(
        self, solution: Solution, bound: float = math.inf, before: PricedSolution | None = None
    ) -> PricedSolution:
        """The seconds of a solution, and its kernels. Above `bound` the answer may be incomplete, its seconds infinite;
        without one every kernel is there, even where one has no price.

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
        # what stays is added first, so that what is too dear is seen after few kernels
        for group in [group for group, kernel in table.items() if kernel is NOTHING]:
            if total >= bound and bound < math.inf:
                return PricedSolution(solution, math.inf, {})
            table[group] = self.kernel(group, solution)
            total += table[group].price.seconds
        if total >= bound and bound < math.inf:
            return PricedSolution(solution, math.inf, {})
        if solution.groups and not self._acyclic(solution, table):
            return PricedSolution(solution, math.inf, table)
        return PricedSolution(solution, total, table)

    def _acyclic(self, solution: Solution, table: Table) -> bool:
        """Whether kernels that store several values can be put in an order."""
        owner = {cls: group for group in table for cls in group}
        below = {
            group: {owner[cls] for cls in kernel.touched if cls in owner and cls not in group}
            for group, kernel in table.items()
        }
        done: set[Group] = set()
        while len(done) < len(below):
            ready = [group for group, needs in below.items() if group not in done and needs <= done]
            if not ready:
                return False
            done.update(ready)
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
        """What tells solutions apart for a person: the kind of each kernel and the bytes it moves."""
        kernels = (kernel.price for kernel in self.table.values())
        return tuple(sorted((price.kind, round(price.bytes / 1e4)) for price in kernels))
