"""What the model expects of a region's kernels, held against what the lowering makes of them.

The best solution's kernels are lowered and priced as they are then; that changes what is best, until the best one is
made of kernels that were lowered. The estimate of a kernel is an optimistic price, so little is overlooked; where it
is far too optimistic for one kernel, it is taken to be so for others of that form.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from ...ir.facts.dataflow import Dataflow
from ...ir.tensor import Input, Output, TensorGraph, Term, axes, dtype
from ..cost.price import Price, impossible
from ..kernels.decisions import FusionDecisions
from ..kernels.kernels import Plan
from .lowered import KernelPricer
from .problem import Problem
from .rebuild import Rebuilder
from .search import EgraphSearch
from .solution import PricedSolution

MakePlan = Callable[[TensorGraph, FusionDecisions, Any], Plan]


class Trial:
    """Lowers solutions of one region, taken by itself: what others compute for it is an input."""

    def __init__(self, problem: Problem, search: EgraphSearch, plan: MakePlan, lowering: KernelPricer):
        self.problem, self.search, self.make_plan, self.lowering = problem, search, plan, lowering
        self.extraction = search.extraction
        self.stand_ins: dict[Term, Term] = {}
        for number, leaf in enumerate(problem.leaf_terms):
            if leaf.__class__ is not Input and problem.leaves[number].memory:
                self.stand_ins[leaf] = Input(f"value{number}_", axes(leaf), dtype(leaf))
        self.left = search.effort.lowerings

    def choose(self, found: Iterable[PricedSolution]) -> list[PricedSolution]:
        """Solutions, best first. The first one is made of kernels that were lowered, and so is the order of rules,
        which comes last in `found`: nothing that is expected to be better stands before it unseen."""
        pool = self._once(found)
        rules = pool[-1]
        self.lower(rules)
        explored = 0
        while True:
            pool = sorted((self.extraction.evaluate(e.solution) for e in pool), key=lambda e: e.seconds)
            best = pool[0]
            if self.was_lowered(best):
                if explored >= 1 or self.left <= 0:
                    return pool
                explored += 1
                pool = self._once([*self.search.explore(best), *pool])
                continue
            if self.left <= 0:
                return self._seen_first(pool)
            self.lower(best)

    def _once(self, found: Iterable[PricedSolution]) -> list[PricedSolution]:
        return list({e.solution.key: e for e in found}.values())

    def _seen_first(self, pool: list[PricedSolution]) -> list[PricedSolution]:
        seen = [e for e in pool if self.was_lowered(e)]
        return seen + [e for e in pool if not self.was_lowered(e)]

    def was_lowered(self, found: PricedSolution) -> bool:
        return all(kernel.key in self.extraction.corrections for kernel in found.table.values())

    def lower(self, found: PricedSolution) -> None:
        """Prices the kernels of a solution by what the rules make of them."""
        extraction = self.extraction
        count = itertools.count(1)  # nobody sees the names of weights that loading computes
        rebuilder = Rebuilder(extraction, found, self.problem, self.stand_ins, lambda hint: f"{hint}{next(count)}_")
        made = rebuilder.rebuild()
        outs = tuple(Output(f"out{n}_", axes(term), term) for n, term in enumerate(made.roots.values()))
        flow = Dataflow(out.value for out in outs)
        ins = tuple(term for term in flow.order if term.__class__ is Input)
        stored = made.stored & set(flow.order) | {out.value for out in outs}
        graph = TensorGraph("region", ins, outs)
        plan = self.make_plan(graph, FusionDecisions(flow, stored, made.groups), {})
        for group, kernel in found.table.items():
            if kernel.key in extraction.corrections:
                continue
            told = self.lowering.stores(plan, frozenset(rebuilder.built[cls] for cls in group))
            price = Price(told.seconds, told.bytes, kernel.price.kind)
            extraction.correct(kernel, impossible(told.problem) if told.problem else price)
            self.left -= 1
