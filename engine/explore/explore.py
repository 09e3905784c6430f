"""Exploring a program: for each region the best spellings and cuts, put together as candidates for compile.

`Cutting` cuts the program into regions. The order of rules (greedy fusion) is always one of the candidates. A
candidate is only called better when the lowering itself has made its kernels and the model says so (`KernelPricer`): a
kernel that cannot be lowered, or not well, is priced as what it really becomes, and the search goes on with that.
"""

from __future__ import annotations

import gc
import itertools
import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any, TypeVar

import msgspec

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.facts.dataflow import Dataflow, read_again
from ...ir.functions import FUNCTIONS
from ...ir.names import unused
from ...ir.node import immutable
from ...ir.program import Kernel, Module
from ...ir.sizes import at_hint, has_sizes
from ...ir.tensor import (
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Named,
    Output,
    Reduce,
    Remap,
    TensorGraph,
    Term,
    axes,
    dtype,
    factors,
    operands,
)
from ...ir.torch import TorchOp
from ...ir.verify.kernel import problems
from ..compiler import Compiler, Explore, Values
from ..cost.instruction_counts import buffer_bytes
from ..cost.kernel_estimate import Price, impossible
from ..kernels.fusion_pass import Fusion, FusionDecisions, FusionRules, is_renaming
from ..kernels.kernels import Candidate, Kernels, Plan, Prepared, commute, compile_graph, values_in_tf32
from ..kernels.sharing import FusionSummary, key
from ..language.rule import policy
from ..language.rule_files import collections_paused
from ..rewrite.statements.driver import Shaped
from ..rewrite.terms.rewriter import rewrite_graph
from ..rewrite.trace import STRICT, is_strict, program_key
from ..ruleset import Toolchain
from ..schedule.scheduling import StoredSchedules, figures, seconds_of
from ..schedule.space import FusionVariant
from ..store.store import FUSING, PROGRAM, Decision, Schedule, TuningKey, tools_of
from .problem import Problem, Reader, RegionTooLarge, as_written
from .saturate import (
    NotProved,
    SaturationBudget,
    Spellings,
    StoredSolution,
    available,
    export,
    proved,
    region_of,
    used_rules,
    written,
)
from .solution import Effort, EgraphSearch, Extraction, Permissions, PricedSolution, Rebuilder, Rebuilt

# ---- Exploration is on top of what the rules decide: where it fails, they decide, and a note says so.


T = TypeVar("T")


def or_else(make: Callable[[], T], otherwise: Callable[[], T], tell: Callable[[str], None]) -> T:
    """Return the result of `make`; if it fails, report why, and call `otherwise`. DPLC_STRICT raises the failure.

    A program that is too large is not a failure: there is nothing to fix.
    """
    try:
        return make()
    except RegionTooLarge as error:
        tell(f"the program is not explored: {error}")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of egglog is not an Exception
        if is_strict():
            raise
        tell(
            f"exploration failed, so the rules decide in their order ({type(error).__name__}: {error}; "
            f"this is a defect of dplc, {STRICT}=1 shows where)"
        )
    return otherwise()


# ---- A program cut into regions small enough for a search: at values that are stored in any case.
#
# These are what is read across a contraction (the residual stream), what goes from one contraction through
# something that is not linear into another one, and what is folded and read under an index map. Where a region is still
# too large, what the greedy fusion stores is a cut too, and at last every so many operations.


LINEAR = ("multiply", "add", "subtract", "divide", "negative")


Region = tuple[Term, ...]  # the values that a part of a program computes for others, in the order of the program


class Cutting:
    """Cuts one program. greedy: the values that the default order stores."""

    def __init__(self, graph: TensorGraph, greedy: Iterable[Term], target: Target):
        self.policy = policy(target)
        self.largest = self.policy.region_operations
        self.flow = flow = Dataflow({out.value: out.axes for out in graph.outs})
        self.outs, self.greedy = {*graph.roots}, set(greedy)
        self.cuts: set[Term] = set()
        self.below = {term: [x for x in operands(term) if not is_leaf(x)] for term in flow.order}
        # sums of a product that read a factor again: contractions, or the product of a matrix and a vector
        self.repeating = {
            term for term in flow.order if any(read_again(flow.mask[term], flow.mask[x]) for x in factors(term))
        }

    def regions(self) -> tuple[list[Region], set[Term]]:
        """Return the regions in an order in which each finds what it reads, and all cuts."""
        self.cuts |= {*self._across(), *self._between(), *self._viewed()}
        for _ in range(self.policy.region_cuts):
            regions, large = self._components(self._levels())
            if not large:
                break
            self.cuts |= large
        return regions, self.cuts

    # ---- values that are stored whatever happens

    def _across(self) -> Iterable[Term]:
        """Yield values that meet the result of a contraction of themselves."""
        flow = self.flow
        for value in flow.order:
            if is_leaf(value) or len(flow.readers[value]) < 2:
                continue
            plain, deep, places = {value}, set[Term](), flow.elements(flow.mask[value])
            following: list[Term] = flow.order[flow.position[value] + 1 :][: self.policy.region_sight * self.largest]
            for term in following:
                below = self.below[term]
                if not deep.isdisjoint(below) or (term in self.repeating and not plain.isdisjoint(factors(term))):
                    meets = term.__class__ is Elementwise and not (plain - deep).isdisjoint(below)
                    readers = flow.readers[term]  # a factor of contractions alone is x again, next to weights of x
                    if meets and not (readers and self.repeating.issuperset(readers)):
                        yield value
                        break
                    deep.add(term)
                elif not plain.isdisjoint(below) and flow.elements(flow.mask[term]) == places:
                    plain.add(term)

    def _between(self) -> Iterable[Term]:
        """Yield values on the way from one contraction through a function to another one that would repeat them."""
        flow = self.flow
        bent: set[Term] = set()  # what has a contraction, and then something that is not linear, below
        for term in flow.order:
            if term in self.repeating:
                for factor in term.x.args:
                    new = read_again(flow.mask[term], flow.mask[factor])
                    if factor in bent and flow.elements(new) >= self.policy.repeated_columns:
                        yield factor
                continue
            function = term.__class__ is Elementwise and term.fn in FUNCTIONS and term.fn not in LINEAR
            if not (bent | self.repeating if function else bent).isdisjoint(self.below[term]):
                bent.add(term)

    def _viewed(self) -> Iterable[Term]:
        """Yield values that contain a reduction and that an index map reads at other indices."""
        folds: set[Term] = set()
        for term in self.flow.order:
            if term.__class__ is Remap and term.x in folds and not is_renaming(term):
                yield term.x
            elif term.__class__ in (Reduce, Fold) or not folds.isdisjoint(self.below[term]):
                folds.add(term)

    # ---- levels and components

    def _levels(self) -> dict[Term, int]:
        """Count the cuts below each term. A reduction that is read at a higher level than its own becomes a cut."""
        while True:
            level: dict[Term, int] = {}
            folds: set[Term] = set()
            more: set[Term] = set()
            for term in self.flow.order:
                below = self.below[term]
                level[term] = max((level[x] + (x in self.cuts) for x in below), default=0)
                folded = folds.intersection(below) - self.cuts
                more.update(x for x in folded if level[x] < level[term])
                if term.__class__ in (Reduce, Fold) or folded:
                    folds.add(term)
            if not more:
                return level
            self.cuts |= more

    def _components(self, level: Mapping[Term, int]) -> tuple[list[Region], set[Term]]:
        """Return the regions of roots that belong together, and further cuts where a region is too large."""
        flow = self.flow
        groups: dict[Term, list[Term]] = {term: [term] for term in flow.order if not is_leaf(term)}

        def join(one: Term, other: Term) -> None:
            small, large = sorted((groups[one], groups[other]), key=len)
            if small is not large:
                large += small
                groups.update(dict.fromkeys(small, large))

        for term in groups:
            for x in self.below[term]:
                if x not in self.cuts and level[x] == level[term]:
                    join(x, term)
        first: dict[tuple[Term, int], Term] = {}
        for term in filter(self.repeating.__contains__, groups):
            for factor in factors(term):  # contractions of one operand may share a kernel, or a packed weight
                if factor in self.cuts or (is_leaf(factor) and factor.__class__ is not Const):
                    other = first.setdefault((factor, level[term]), term)
                    if len(groups[other]) + len(groups[term]) <= self.largest:
                        join(other, term)
        distinct = {id(part): part for part in groups.values()}.values()
        parts: list[list[Term]] = [sorted(part, key=flow.position.__getitem__) for part in distinct]
        roots = [(part, tuple(term for term in part if term in self.cuts | self.outs)) for part in parts]
        large = [part for part, own in roots if own and len(part) > self.largest]
        if not large:
            regions = [own for _, own in roots if own]
            return sorted(regions, key=lambda own: (level[own[0]], flow.position[own[0]])), set()
        # what greedy fusion stores there, else one value every so many operations
        inside = {term for part in large for term in part}
        step = max(1, self.largest // 2)
        spread = {term for part in large for term in part[step::step]}
        return [], inside & self.greedy - self.cuts - self.outs or spread - self.cuts or inside


def is_leaf(term: Term) -> bool:
    """Return whether a term is read, or a number: nothing that a kernel computes for others."""
    return term.__class__ in (Input, Const) or (term.__class__ is Index and not operands(term))


# ---- The result of lowering kernels: scheduled by the rules, counted, and priced by the model.
#
# Kernels of one structure are lowered once. This is how extraction finds what can be lowered: not by a list of forms,
# but by doing it.


Scheduling = Callable[[Module], Module]  # Loop IR to Kernel IR, by the rules


@immutable
class KernelPrice:
    """One kernel, or a program of them. problem: why it cannot be lowered; then seconds is infinite."""

    seconds: float
    bytes: float
    kernels: int
    problem: str
    signature: object


class KernelPricer:
    """Prices of kernels of Loop IR, found by lowering them with the rules."""

    def __init__(self, schedule: Scheduling, target: Target):
        self.schedule, self.target = schedule, target
        self.known: dict[str, KernelPrice] = {}
        self.summarised: dict[FusionSummary, KernelPrice] = {}

    def kernel(self, kernel: Kernel) -> KernelPrice:
        name = key(kernel)
        if name not in self.known:
            self.known[name] = self._lower(kernel, name)
            if not gc.isenabled():  # a search paused it: the circles that lowering leaves are among what is young
                gc.collect(0)
        return self.known[name]

    def _lower(self, kernel: Kernel, name: str) -> KernelPrice:
        try:
            launches = self.schedule((kernel,))
            broken = (f"its schedule is not well formed: {problem}" for made in launches for problem in problems(made))
            problem = next(broken, "")  # a defect of ours: better another candidate than one that cannot be built
        except DplcError as error:
            problem = error.what
        if problem:
            return KernelPrice(math.inf, _bytes(kernel), 1, problem, name)
        return KernelPrice(seconds_of(launches, self.target), sum(map(_bytes, launches)), len(launches), "", name)

    def stores(self, plan: Plan, values: frozenset[Term]) -> KernelPrice:
        """Return the kernels of a program that store some values."""
        return _sum(self.kernel(k) for k, stored in zip(plan.kernels, plan.stores, strict=True) if values & set(stored))

    def program(self, arranged: Kernels) -> KernelPrice:
        """Return all kernels of a program. One that looks like an earlier one is not even lifted."""
        return _sum(self._summarised(draw(), lift) for draw, lift in arranged.summarised())

    def _summarised(self, drawn: FusionSummary, lift: Callable[[], Kernel]) -> KernelPrice:
        if drawn not in self.summarised:
            self.summarised[drawn] = self.kernel(lift())
        return self.summarised[drawn]


def _sum(prices: Iterable[KernelPrice]) -> KernelPrice:
    every = list(prices)
    return KernelPrice(
        sum(each.seconds for each in every), sum(each.bytes for each in every), sum(each.kernels for each in every),
        next((each.problem for each in every if each.problem), ""),
        tuple(sorted(str(each.signature) for each in every)),
    )  # fmt: skip


def _bytes(kernel: Kernel) -> float:
    """Return the bytes of its buffers, for symbolic dimensions at their hints."""
    return float(at_hint(buffer_bytes(kernel)))


# ---- The model's price of a region's kernels, compared with the price of the lowered kernels.
#
# The best solution's kernels are lowered and priced as they are then; that changes what is best, until the best one is
# made of kernels that were lowered. The estimate of a kernel is an optimistic price, so little is overlooked; where it
# is far too optimistic for one kernel, it is taken to be so for others of that form.


@dataclass
class Trial:
    """Lowers solutions of one region, taken by itself: what others compute for it is an input."""

    problem: Problem
    search: EgraphSearch
    fusion: FusionRules
    lowering: KernelPricer

    def __post_init__(self) -> None:
        self.extraction = self.search.extraction
        self.stand_ins: dict[Term, Term] = {}
        for number, leaf in enumerate(self.problem.leaf_terms):
            if leaf.__class__ is not Input and self.problem.leaves[number].memory:
                self.stand_ins[leaf] = Input(f"value{number}_", axes(leaf), dtype(leaf))
        self.left = self.search.effort.lowerings

    def choose(self, found: Iterable[PricedSolution]) -> list[PricedSolution]:
        """Return solutions, best first.

        The kernels of the first one were lowered. So were those of the order of the rules, which comes last in
        `found`: no solution that is only expected to be better precedes it.
        """
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
                return sorted(pool, key=lambda found: not self.was_lowered(found))
            self.lower(best)

    def _once(self, found: Iterable[PricedSolution]) -> list[PricedSolution]:
        return list({e.solution.key: e for e in found}.values())

    def was_lowered(self, found: PricedSolution) -> bool:
        return all(kernel.key in self.extraction.corrections for kernel in found.table.values())

    def lower(self, found: PricedSolution) -> None:
        """Correct the prices of the kernels of a solution by lowering them with the rules."""
        extraction = self.extraction
        count = itertools.count(1)  # the names of weights that loading computes are not visible
        rebuilder = Rebuilder(extraction, found, self.problem, self.stand_ins, lambda hint: f"{hint}{next(count)}_")
        made = rebuilder.rebuild()
        outs = tuple(Output(f"out{n}_", axes(term), term) for n, term in enumerate(made.roots.values()))
        flow = Dataflow({out.value: out.axes for out in outs})
        ins = tuple(term for term in flow.order if term.__class__ is Input)
        stored = made.stored & set(flow.order) | {out.value for out in outs}
        graph = TensorGraph("region", ins, outs)
        decisions = FusionDecisions(flow, stored, made.groups)
        plan = compile_graph(graph, self.fusion, extraction.target, decisions=decisions)
        for group, kernel in found.table.items():
            if kernel.key in extraction.corrections:
                continue
            priced = self.lowering.stores(plan, frozenset(rebuilder.built[cls] for cls in group))
            price = Price(priced.seconds, priced.bytes, kernel.price.kind)
            extraction.correct(kernel, impossible(priced.problem) if priced.problem else price)
            self.left -= 1


HINT = 'fusion explores with egglog, which is not here: pip install "dplc[explore]"'


@dataclass
class Solved:
    """A distinct region: its search, and its solutions, best first."""

    search: EgraphSearch
    found: list[PricedSolution]


@immutable
class ExplorationOptions:
    """Options of an exploration. top: the number of candidates."""

    top: int = 4
    effort: Effort = field(default_factory=Effort)
    budget: SaturationBudget = field(default_factory=SaturationBudget)

    @property
    def looked_at(self) -> int:
        """Solutions of a region of which candidates are made, since some look alike then."""
        return 4 * self.top


exported = lru_cache(8)(export)  # the last few sets of equations as egglog text


class Exploration:
    """One program on one device."""

    def __init__(
        self,
        graph: TensorGraph,
        tools: Toolchain,
        target: Target,
        lowering: KernelPricer,
        known: Iterable[str],
        origins: Mapping[Term, TorchOp],
        options: ExplorationOptions,
        ordered: TensorGraph | None = None,
    ):
        self.graph, self.fusion, self.exported, self.target = graph, tools.fusion, exported(tools.equations), target
        self.lowering, self.known, self.origins = lowering, frozenset(known), dict(origins)
        self.options = options
        self.spellings = Spellings(self.exported, self.options.budget)
        self.solved: dict[Hashable, Solved] = {}
        self.permissions = Permissions.of(self.fusion)
        self.notes: list[str] = [] if available() else [HINT]
        self.in_tf32 = values_in_tf32(origins, target)
        self.rule_order = Fusion(graph, self.fusion, target, in_tf32=self.in_tf32).decide()
        self.ordered = ordered or graph  # the program as the rules spell it, in their order
        self.remembered: Mapping[str, StoredSolution] | None = None  # by region: then nothing is searched

    # ---- regions

    @cached_property
    def cutting(self) -> tuple[list[Region], set[Term]]:
        return Cutting(self.graph, self.rule_order.stored, self.target).regions()

    @cached_property
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

    def problem(self, region: Region, cuts: set[Term]) -> Problem:
        return Reader(region, cuts, self.known, {*self.graph.roots}).problem

    def solve(self, problem: Problem) -> Solved:
        """Return the solutions of a problem. Raises NotProved if a stored solution does not hold."""
        if self.remembered is not None:
            return self._replayed(problem, self.remembered.get(region_of(problem)))
        graph = self.spellings.of(problem) if available() else as_written(problem)
        extraction = Extraction(graph, self.target, self.permissions)
        search = EgraphSearch(extraction, self.options.effort)
        rules = self._as_rules_decide(search, problem)
        greedy = min(search.greedy(), rules, key=lambda e: e.seconds)
        found = search.explore(greedy)
        trial = Trial(problem, search, self.fusion, self.lowering)
        found = trial.choose([*found, greedy, rules])[: self.options.looked_at]
        extraction.forget()
        return Solved(search, found)

    def _replayed(self, problem: Problem, recorded: StoredSolution | None) -> Solved:
        if recorded is None:
            raise NotProved("a region of the program has no recorded solution")
        graph, found = proved(problem, recorded, self.exported, self.options.budget)
        extraction = Extraction(graph, self.target, self.permissions)
        stored = frozenset(found[place][0] for place in recorded.stored)
        groups = tuple(tuple(found[place][0] for place in group) for group in recorded.groups)
        solution = extraction.solution(dict(found), stored, groups)
        if solution is None:
            raise NotProved("it needs itself")
        return Solved(EgraphSearch(extraction, self.options.effort), [extraction.evaluate(solution)])

    @cached_property
    def rule_kernels(self) -> tuple[tuple[Term, ...], ...]:
        """Values that the kernels store if the rules fuse the program as it is spelled."""
        arranged = Kernels(self.graph, self.rule_order, self.fusion, self.target, self.origins)
        arranged.arrange()
        return arranged.stores

    def _as_rules_decide(self, search: EgraphSearch, problem: Problem) -> PricedSolution:
        """Return the region as the rules cut it."""
        of = {term: search.graph.of[place] for place, term in enumerate(problem.terms)}
        stored = {cls for term, cls in of.items() if term in self.rule_order.stored}
        groups = [tuple(dict.fromkeys(of[term] for term in kernel if term in of)) for kernel in self.rule_kernels]
        found = search.as_written(stored, [group for group in groups if len(group) > 1])
        return found if found.seconds < math.inf else search.as_written(stored)

    # ---- candidates

    def candidates(self) -> list[Candidate]:
        """Return different candidates, best first, including the order of the rules.

        A failure leaves that order alone, and a note.
        """
        with collections_paused():
            return or_else(self._candidates, lambda: [self.by_rules()], self.notes.append)

    def _candidates(self) -> list[Candidate]:
        found = [self.by_rules()]
        seen = {found[0].signature}
        for choice in itertools.islice(self.choices(), self.options.looked_at):
            candidate = self.candidate(choice, "explored")
            if candidate.signature not in seen:
                seen.add(candidate.signature)
                found.append(candidate)
            if len(found) >= self.options.top + 1:
                break
        found.sort(key=lambda c: (bool(c.problem), c.predicted_us, c.label != "rules"))
        shown = found[: self.options.top]
        return shown if any(c.label == "rules" for c in shown) else [*shown, *(c for c in found if c.label == "rules")]

    def choices(self) -> Iterable[tuple[int, ...]]:
        """Yield choices of a solution for each region: the best of all, then one region at a time with its next one."""
        best = (0,) * len(self.problems)
        yield best
        others: list[tuple[float, tuple[int, ...]]] = []
        places: dict[int, list[int]] = {}
        for place, (_, solved) in enumerate(self.problems):
            places.setdefault(id(solved), []).append(place)
        for mine in places.values():
            first, *rest = self.problems[mine[0]][1].found
            for rank, other in enumerate(rest, 1):
                choice = tuple(rank if place in mine else 0 for place in range(len(best)))
                others.append(((other.seconds - first.seconds) * len(mine), choice))
        yield from (choice for _, choice in sorted(others))

    def by_rules(self) -> Candidate:
        """Return the candidate that the rules decide in their order."""
        decided = self.rule_order
        if self.ordered is not self.graph:
            decided = Fusion(self.ordered, self.fusion, self.target, in_tf32=self.in_tf32).decide()
        return self._priced("rules", self.ordered, decided, (), self.origins)

    def candidate(self, ranks: Sequence[int], label: str) -> Candidate:
        """Return the program with the given solution of each region."""
        regions, now, rules = list[Rebuilt](), dict[Term, Term](), dict[str, None]()
        named: tuple[Input | Output | Named, ...] = (*self.graph.ins, *self.graph.outs, *self.graph.names)
        used = {one.name for one in named}
        for (problem, solved), rank in zip(self.problems, ranks, strict=True):
            search, found = solved.search, solved.found[rank]
            made = Rebuilder(search.extraction, found, problem, now, partial(_fresh, used)).rebuild()
            now.update(made.roots)
            regions.append(made)
            rules |= dict.fromkeys(used_rules(search.graph, found.solution))
        return replace(self._together(regions, now, label), rules=tuple(rules))

    def _together(self, regions: list[Rebuilt], now: Mapping[Term, Term], label: str) -> Candidate:
        outs = tuple(Output(out.name, out.axes, now.get(out.value, out.value)) for out in self.graph.outs)
        prepared = tuple(p for region in regions for p in region.prepared)
        flow = Dataflow({out.value: out.axes for out in outs})
        there = flow.position.keys()
        ins = tuple(x for x in self.graph.ins if x in there or x.name not in self.known)
        fresh = tuple(p.input for p in prepared if p.input in there)
        same = {new: old for region in regions for new, old in region.same.items()}
        origins = self.origins | {new: self.origins[old] for new, old in same.items() if old in self.origins}
        names = {named.value: named.name for named in self.graph.names}
        kept: dict[str, Named] = {}
        for term in flow.order:
            name = names.get(term) or names.get(same.get(term, term))
            if name is not None and term.__class__ is not Input:
                kept.setdefault(name, Named(name, term))
        ordered = tuple(kept[named.name] for named in self.graph.names if named.name in kept)
        graph = TensorGraph(self.graph.name, (*ins, *fresh), outs, ordered, self.graph.calls)
        stored = {term for region in regions for term in region.stored} & there | {out.value for out in outs}
        groups = [group for region in regions for group in region.groups if set(group) <= stored]
        decisions = FusionDecisions(flow, stored, groups)
        return self._priced(label, graph, decisions, prepared, origins)

    def _priced(
        self,
        label: str,
        graph: TensorGraph,
        decisions: FusionDecisions,
        prepared: tuple[Prepared, ...],
        origins: Mapping[Term, TorchOp],
    ) -> Candidate:
        price = self.lowering.program(Kernels(graph, decisions, self.fusion, self.target, origins))
        there = tuple(p for p in prepared if p.input in graph.ins)
        make_plan = partial(compile_graph, graph, self.fusion, self.target, origins, decisions=decisions)
        return Candidate(
            label, graph, decisions, there, price.kernels, price.bytes, price.seconds * 1e6, price.problem,
            price.signature, origins, make_plan,
        )  # fmt: skip


def _fresh(used: set[str], hint: str) -> str:
    name = unused(hint, used, (hint,))  # always with a number
    used.add(name)
    return name


# ---- Candidates of a program, for its compile and for a search.


def exploration(values: Values, options: ExplorationOptions | None = None) -> Exploration:
    """Return the exploration of a program, not begun yet; of exact values if the tools are (`tools.exactly`).

    A kernel is priced under the schedule that the compiler would give it, which may come from a store.
    """
    compiler = values.compiler.untraced
    tools, target = compiler.tools, compiler.target
    start = rewrite_graph(values.lowered, tools.exactly.algebra, target, None, values.origins)
    ordered = commute(values.graph, tools.commuting, target, None, values.origins)
    options = options or ExplorationOptions()
    return Exploration(start, tools, target, lowering(compiler), values.known, values.origins, options, ordered)


def replayed(values: Values, remembered: Iterable[StoredSolution]) -> Candidate:
    """Return the candidate of recorded solutions, proved by the rules in force. Raises NotProved."""
    made = exploration(values)
    made.remembered = {one.region: one for one in remembered}
    found = made.candidate((0,) * len(made.problems), "remembered")
    if found.problem:
        raise NotProved(f"it cannot be lowered: {found.problem}")
    return found


class ExplorationWarning(UserWarning):
    """Exploration was not possible as requested: the note says what the rules decide instead."""


def warn(note: str) -> None:
    """Warn a Python program with a note of exploration."""
    warnings.warn(f"dplc: {note}", ExplorationWarning, stacklevel=2)


def best(
    values: Values, options: ExplorationOptions | None = None, tell: Callable[[str], None] = warn
) -> Candidate | None:
    """Return the best candidate of a program for its compile, with its plan.

    If the search fails, `tell` receives the reason, and the result is None: the rules decide.
    """

    def search() -> Candidate | None:
        made = exploration(values, options or ExplorationOptions(top=1))
        found = made.candidates()[0]
        for note in made.notes:
            tell(note)
        if found.problem:  # even by the rules, whose own error says more
            return None
        plan = found.plan(values.results)  # a plan that fails does so here, where the rules can still decide
        return replace(found, plan=lambda *_: plan)

    return or_else(search, lambda: None, tell)


def lowering(compiler: Compiler) -> KernelPricer:
    """Return the pricer of loop nests, which the compiler schedules."""
    return KernelPricer(lambda kernels: compiler.kernel_ir(compiler.tiles(kernels, Shaped())[0]), compiler.target)


# Ways of fusing as decisions: the candidates of exploration for a search, and the one it chose as data in the store.
#
# What is remembered of a program is the solution of each of its regions (`saturate.py`) with the rules that
# prove it; a compile proves it again by the rules in force, so that no store can make a program wrong. The entry also
# names the rules that the schedules of its kernels use: an edit of one of them makes it void, an edit of any other does
# not.


STEP = "candidate"  # the label of the decision
SOLUTION, BY_RULES = "(solution)", "(rules)"  # instead of a rule name, for decisions that no rule made
TOP = 4


def key_of_program(values: Values) -> TuningKey:
    """Return the key under which a store holds the candidate of a program."""
    target, rules = values.compiler.target, values.compiler.tools.rules
    name = program_key(values.lowered, values.known)
    return TuningKey(name, target.name, target.arch, rules.digest, tools_of(target), PROGRAM)


class Fusing:
    """Candidates of a program, built one by one.

    top: the maximum number, including the choice of the rules; tensors: returns those that the capture does not hold.
    Without egglog there is nothing to choose: no stored candidate could be proved. The same holds for a length that
    is known only at a call, because exploration counts elements.
    """

    def __init__(self, values: Values, top: int = TOP, tensors: Callable[[], Mapping[str, Any]] = dict):
        self.values, self.compiler, self.tensors = values, values.compiler, tensors
        self.top = top if available() and not has_sizes(values.captured.graph) else 1
        self._built: dict[tuple[str, ...], int] = {}

    @cached_property
    def exploration(self) -> Exploration:
        with collections_paused():
            made = exploration(self.values, ExplorationOptions(top=self.top))
            _ = made.problems
        return made

    @cached_property
    def choices(self) -> list[tuple[int, ...]]:
        """Solutions of the regions put together: the best, then those that differ from all before in their kernels.

        Where exploration fails there are none: what the rules decide is all there is.
        """
        return or_else(self._choices, list, warn)

    def _choices(self) -> list[tuple[int, ...]]:
        found: dict[Hashable, tuple[int, ...]] = {}
        problems = self.exploration.problems
        for choice in self.exploration.choices():
            alike = tuple(solved.found[rank].signature for (_, solved), rank in zip(problems, choice, strict=True))
            found.setdefault(alike, choice)
            if len(found) >= self.top - 1:
                break
        return list(found.values())

    def ways(self) -> list[FusionVariant]:
        """Return the fusion that the rules decide in their order, then the candidates.

        This searches the regions, but builds no candidate.
        """
        explored = range(1, len(self.choices) + 1) if self.top > 1 else ()
        names = ("rules", *(f"candidate {number}" for number in explored))
        return [FusionVariant(name, partial(self.kernels, number)) for number, name in enumerate(names)]

    def kernels(self, way: int) -> Sequence[Kernel]:
        """Return the kernels of a choice.

        Raises DplcError for one that cannot be lowered, or that is an earlier one again.
        """
        if way == 0:
            kernels = self.compiler.untraced.fused(self.values)[1].kernels
        else:
            made = or_else(lambda: self.candidate(way), lambda: None, warn)
            if made is None or made.problem:
                raise DplcError(f"it cannot be lowered: {made.problem if made else 'its exploration failed'}")
            kernels = made.plan(self.values.results).kernels
        first = self._built.setdefault(tuple(sorted(map(key, kernels))), way)
        if first != way:
            raise DplcError("its kernels are those of " + ("the rules" if first == 0 else f"candidate {first}"))
        return kernels

    @cache  # noqa: B019 - as long-lived as the exploration
    def candidate(self, way: int) -> Candidate:
        """Return a candidate, built. It is not 0: that is what the rules decide."""
        return self.exploration.candidate(self.choices[way - 1], "explored")

    def rules(self, way: int) -> tuple[str, ...]:
        """Return the rules that matched where a candidate spells the program in another way."""
        return self.candidate(way).rules if way else ()

    def written(self, way: int, scheduling: Iterable[str]) -> Schedule:
        """Return a way as it is remembered. scheduling: the rules that the schedules of its kernels use.

        Raises NotProved for a solution that cannot be proved again (a saturation that ran out of time).
        """
        uses = tuple(Decision("schedule", rule, "") for rule in sorted(set(scheduling)))
        if way == 0:
            return (Decision(STEP, BY_RULES, ""), Decision(STEP, FUSING, ""), *uses)
        found: dict[str, StoredSolution] = {}
        made, choice = self.exploration, self.choices[way - 1]
        for (problem, solved), rank in zip(made.problems, choice, strict=True):
            solution = solved.found[rank].solution
            recorded = written(problem, solved.search.extraction, solution)
            if recorded.region not in found:
                proved(problem, recorded, made.exported, made.options.budget)
                found[recorded.region] = recorded
        fusing = (Decision(STEP, rule, "") for rule in (FUSING, *self.rules(way)))
        solutions = (Decision(STEP, SOLUTION, r.region, msgspec.to_builtins(r)) for r in found.values())
        return (*solutions, *fusing, *uses)


def replayed_schedule(schedule: Schedule, values: Values) -> Candidate | None:
    """Return a stored choice, proved by the rules in force; None for the choice of the rules.

    Raises NotProved or DplcError.
    """
    solutions = [decision for decision in schedule if decision.rule == SOLUTION]
    if not solutions:
        return None
    try:
        found = [msgspec.convert(decision.parameters, StoredSolution) for decision in solutions]
    except msgspec.ValidationError as error:
        raise NotProved(f"it is not a solution: {error}") from None
    return replayed(values, found)


def remembered(otherwise: Explore | None, tell: Callable[[str], None] = lambda line: None) -> Explore:
    """Return a function that chooses the tuned fusion of a program from the compiler's store.

    Without a store, or if the store has no valid entry for the program, the function returns the choice of `otherwise`.
    """

    def choose(values: Values) -> Candidate | None:
        schedules, target = values.compiler.schedules, values.compiler.target
        if isinstance(schedules, StoredSchedules) and schedules.store.has_family(PROGRAM, target.name, target.arch):
            wanted = key_of_program(values)
            for entry in schedules.store.valid(schedules.store.exact(wanted), wanted):
                try:
                    found = replayed_schedule(entry.tuned.schedule, values)
                except (NotProved, DplcError) as error:
                    tell(f"the remembered candidate of fusion is not taken: {error}")
                    continue
                tell(f"candidate of fusion from the store: {figures(entry)}")
                return found
        return otherwise(values) if otherwise is not None else None

    return choose
