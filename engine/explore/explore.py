"""Exploring a program: for each region the best spellings and cuts, put together as candidates for compile.

The order of rules (greedy fusion) is always one of the candidates. A candidate is only called better when the lowering
itself has made its kernels and the model says so: a kernel that cannot be lowered, or not well, is priced as what it
really becomes, and the search goes on with that.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...codegen.target import Target
from ...ir.facts.dataflow import Dataflow
from ...ir.names import unused
from ...ir.tensor import Input, Named, Output, TensorGraph, Term, postorder
from ...ir.torch import TorchOp
from ..kernels.candidate import Candidate, Prepared
from ..kernels.decide import Fusion
from ..kernels.decisions import FusionDecisions
from ..kernels.kernels import Kernels, Plan, plan
from ..kernels.rules import FusionRules
from ..language.collector import collections_paused
from .credit import needed_rules
from .exact import SMALL, Exact
from .export import RuleTexts
from .fallback import or_else
from .graph import as_written
from .lowered import KernelPricer
from .permissions import Permissions
from .problem import Problem, Reader
from .rebuild import Rebuilder, Rebuilt
from .regions import Cutting, Region
from .saturate import SaturationBudget, Spellings, available
from .search import Effort, EgraphSearch
from .solution import Extraction, PricedSolution
from .trial import Trial

HINT = 'fusion explores with egglog, which is not here: pip install "dplc[explore]"'


@dataclass
class Solved:
    """A distinct region: its search, and its solutions, best first."""

    search: EgraphSearch
    found: list[PricedSolution]
    credits: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def credit(self, rank: int, exported: RuleTexts, budget: SaturationBudget) -> tuple[str, ...]:
        """The rules that a solution needs."""
        if rank not in self.credits:
            self.credits[rank] = needed_rules(self.search.extraction, self.found[rank].solution, exported, budget)
        return self.credits[rank]


@dataclass(frozen=True)
class ExplorationOptions:
    """top: how many candidates."""

    top: int = 4
    effort: Effort = field(default_factory=Effort)
    budget: SaturationBudget = field(default_factory=SaturationBudget)

    @property
    def looked_at(self) -> int:
        """Solutions of a region of which candidates are made, since some look alike then."""
        return 4 * self.top


class Exploration:
    """One program on one device."""

    def __init__(
        self,
        graph: TensorGraph,
        fusion: FusionRules,
        exported: RuleTexts,
        target: Target,
        lowering: KernelPricer,
        known: Iterable[str] = (),
        origins: Mapping[Any, TorchOp] | None = None,
        options: ExplorationOptions | None = None,
        ordered: TensorGraph | None = None,
    ):
        self.graph, self.fusion, self.exported, self.target = graph, fusion, exported, target
        self.lowering, self.known, self.origins = lowering, frozenset(known), dict(origins or {})
        self.options = options or ExplorationOptions()
        self.spellings = Spellings(exported, self.options.budget)
        self.solved: dict[Any, Solved] = {}
        self.permissions = Permissions.of(fusion)
        self.notes: list[str] = [] if available() else [HINT]
        self.rule_order = Fusion(graph, fusion, target).decide()
        self.ordered = ordered or graph  # the program as the rules spell it, in their order

    # ---- regions

    @functools.cached_property
    def cutting(self) -> tuple[list[Region], set[Any]]:
        return Cutting(self.graph, self.rule_order.stored, self.target).regions()

    @functools.cached_property
    def problems(self) -> list[tuple[Problem, Solved]]:
        """Every region, and the solution of its structure."""
        regions, cuts = self.cutting
        out = []
        for region in regions:
            problem = self.problem(region, cuts)
            if problem.key not in self.solved:
                self.solved[problem.key] = self.solve(problem)
            out.append((problem, self.solved[problem.key]))
        return out

    def problem(self, region: Region, cuts: set[Any]) -> Problem:
        return Reader(region.roots, cuts, self.known, {out.value for out in self.graph.outs}).problem

    def solve(self, problem: Problem) -> Solved:
        if available():
            graph = self.spellings.of(problem)
        else:
            graph = as_written(problem)
        extraction = Extraction(graph, self.target, self.permissions)
        search = EgraphSearch(extraction, self.options.effort)
        rules = self._as_rules_decide(search, problem)
        greedy = min(search.greedy(), rules, key=lambda e: e.seconds)
        found = search.explore(greedy)
        if graph.enodes <= SMALL:
            found = [Exact(extraction, found[0]).search().best, *found]
        trial = Trial(problem, search, self.plan, self.lowering)
        found = trial.choose([*found, greedy, rules])[: self.options.looked_at]
        extraction.forget()
        return Solved(search, found)

    @functools.cached_property
    def rule_kernels(self) -> tuple[tuple[Any, ...], ...]:
        """The values that the kernels store which the rules make of the program as it is spelled."""
        arranged = Kernels(self.graph, self.rule_order, self.fusion, self.target, self.origins)
        arranged.arrange()
        return arranged.stores

    def _as_rules_decide(self, search: EgraphSearch, problem: Problem) -> PricedSolution:
        """The region as the rules cut it."""
        of = {term: search.graph.of[place] for place, term in enumerate(problem.terms)}
        stored = {cls for term, cls in of.items() if term in self.rule_order.stored}
        groups = [tuple(dict.fromkeys(of[term] for term in kernel if term in of)) for kernel in self.rule_kernels]
        found = search.as_written(stored, [group for group in groups if len(group) > 1])
        return found if found.seconds < float("inf") else search.as_written(stored)

    def explained(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with the rules without which they would not be there."""
        return or_else(
            lambda: [replace(c, rules=self._rules(c)) for c in candidates], lambda: list(candidates), self.notes.append
        )

    def _rules(self, candidate: Candidate) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for (_, solved), rank in zip(self.problems, candidate.ranks, strict=False):
            found.update(dict.fromkeys(solved.credit(rank, self.exported, self.options.budget)))
        return tuple(found)

    # ---- candidates

    def candidates(self) -> list[Candidate]:
        """Different candidates, best first; the order of rules is among them. A failure leaves it alone, and a note."""
        with collections_paused():
            return or_else(self._candidates, lambda: [self.by_rules()], self.notes.append)

    def _candidates(self) -> list[Candidate]:
        found = [self.by_rules()]
        seen = {found[0].signature}
        for choice in itertools.islice(self.choices(), self.options.looked_at):
            candidate = self.candidate(choice, "explored")
            candidate = replace(candidate, ranks=choice)
            if candidate.signature not in seen:
                seen.add(candidate.signature)
                found.append(candidate)
            if len(found) >= self.options.top + 1:
                break
        found.sort(key=lambda c: (bool(c.problem), c.predicted_us, c.label != "rules"))
        shown = found[: self.options.top]
        return shown if any(c.label == "rules" for c in shown) else [*shown, *(c for c in found if c.label == "rules")]

    def choices(self) -> Iterable[tuple[int, ...]]:
        """Which solution of each region: the best of all, then one region at a time with its next one."""
        best = tuple(0 for _ in self.problems)
        yield best
        others: list[tuple[float, tuple[int, ...]]] = []
        places: dict[int, list[int]] = {}
        for place, (_, solved) in enumerate(self.problems):
            places.setdefault(id(solved), []).append(place)
        for mine in places.values():
            solved = self.problems[mine[0]][1]
            for rank in range(1, len(solved.found)):
                worse = (solved.found[rank].seconds - solved.found[0].seconds) * len(mine)
                others.append((worse, tuple(rank if n in mine else 0 for n in range(len(best)))))
        for _, choice in sorted(others):
            yield choice

    def by_rules(self) -> Candidate:
        """What the rules decide in their order."""
        decided = self.rule_order
        if self.ordered is not self.graph:
            decided = Fusion(self.ordered, self.fusion, self.target).decide()
        return self._priced("rules", self.ordered, decided, (), self.origins)

    def candidate(self, ranks: Sequence[int], label: str) -> Candidate:
        """The program with the given solution of each region."""
        regions = []
        now: dict[Term, Term] = {}
        used = {x.name for x in self.graph.ins} | {out.name for out in self.graph.outs}
        used |= {named.name for named in self.graph.names}
        for (problem, solved), rank in zip(self.problems, ranks, strict=True):
            rebuilder = Rebuilder(
                solved.search.extraction, solved.found[rank], problem, now, functools.partial(_fresh, used)
            )
            made = rebuilder.rebuild()
            now.update(made.roots)
            regions.append(made)
        return self._together(regions, now, label)

    def _together(self, regions: list[Rebuilt], now: Mapping[Term, Term], label: str) -> Candidate:
        outs = tuple(Output(out.name, out.axes, now.get(out.value, out.value)) for out in self.graph.outs)
        prepared = tuple(p for region in regions for p in region.prepared)
        there = set(postorder(out.value for out in outs))
        ins = tuple(x for x in self.graph.ins if x in there or x.name not in self.known)
        fresh = tuple(p.input for p in prepared if p.input in there)
        same = {new: old for region in regions for new, old in region.same.items()}
        origins = dict(self.origins)
        origins.update((new, self.origins[old]) for new, old in same.items() if old in self.origins)
        names = {named.value: named.name for named in self.graph.names}
        kept: dict[str, Named] = {}
        for term in there:
            name = names.get(term) or names.get(same.get(term, term))
            if name is not None and term.__class__ is not Input:
                kept.setdefault(name, Named(name, term))
        ordered = tuple(kept[named.name] for named in self.graph.names if named.name in kept)
        graph = TensorGraph(self.graph.name, (*ins, *fresh), outs, ordered)
        flow = Dataflow(out.value for out in outs)
        stored = {term for region in regions for term in region.stored} & set(flow.order)
        stored |= {out.value for out in outs}
        groups = [group for region in regions for group in region.groups if set(group) <= stored]
        decisions = FusionDecisions(flow, stored, groups)
        return self._priced(label, graph, decisions, prepared, origins)

    def _priced(
        self, label: str, graph: TensorGraph, decisions: FusionDecisions, prepared: tuple[Prepared, ...], origins: Any
    ) -> Candidate:
        told = self.lowering.program(Kernels(graph, decisions, self.fusion, self.target, origins))
        there = tuple(p for p in prepared if p.input in graph.ins)
        return Candidate(
            label, graph, decisions, there, told.kernels, told.bytes, told.seconds * 1e6, told.problem, told.signature,
            origins, self.plan,
        )  # fmt: skip

    def plan(self, graph: TensorGraph, decisions: FusionDecisions, origins: Any, results: Any = None) -> Plan:
        return plan(graph, decisions, self.fusion, self.target, origins, results)


def _fresh(used: set[str], hint: str) -> str:
    name = unused(hint, used, (hint,))  # always with a number
    used.add(name)
    return name
