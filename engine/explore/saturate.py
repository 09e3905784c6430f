"""A problem to egglog text, saturated step by step under budgets, and read back.

egglog sees limits only between iterations, so one iteration is run at a time, rows are counted, and it stops: never
"until saturated". A stopped e-graph is smaller, never wrong, and the program as it was written is always in it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import PathFinder
from importlib.resources import files
from typing import Any

import msgspec

from ...ir.dtypes import FLOATS
from ...ir.functions import CAST, COMPARE, DTYPES, FUNCTIONS, LOGICAL, opmath, result_dtype
from ...ir.monoid_texts import PARTS
from ...ir.monoids import of_part
from .problem import CONSTRUCTORS, LISTS, EGraph, ENode, IndexForm, Problem, Stop, read_back, sorted_operands
from .rules_as_egglog import RuleTexts
from .solution import Extraction, Solution

# ---- E-graphs of egglog, a new one for each problem: all rules are read (0.07 s), a problem says which of them run.
#
# A graph that keeps the rules and gets one problem after the other by `push` and `pop` answers by what it saw before:
# rules then match that do not match in a new graph.


@functools.cache
def bindings() -> Any:
    """Return the compiled module of egglog by itself. Raises ImportError if egglog is not installed.

    The classes for Python programs around the module take 40 times as long to import.
    """
    name = "egglog.bindings"
    package = importlib.util.find_spec("egglog")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(name, places) if places is not None else None
    if name in sys.modules or spec is None or spec.loader is None:
        return importlib.import_module(name)
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def run(graph: Any, text: str) -> Any:
    """Run the commands of a text and return the answers of egglog. No command has two lines.

    Line by line: every word of a parsed text keeps a copy of all of it, 100 MB for the rules.
    """
    return [answer for line in text.splitlines() for answer in graph.run_program(*graph.parse_program(line))]


@dataclass(frozen=True)
class SaturationBudget:
    """When to stop: e-nodes, seconds, iterations."""

    nodes: int = 2000
    seconds: float = 2.0
    iterations: int = 30


def available() -> bool:
    """Return whether egglog can be imported here."""
    try:
        bindings()
    except ImportError:
        return False
    return True


@cache
def prelude() -> str:
    """Return sorts, constructors, and the analyses: axes, dtype, known when loaded, varies at run time."""
    out = ["(sort T)"]
    for name, (attributes, arity) in CONSTRUCTORS.items():
        out.append(f"(constructor {name} ({' '.join((*attributes, *['T'] * arity))}) T)")
    out.append((files(__package__) / "analyses.egg").read_text())
    out += [f'(set (opmath "{name}") "{opmath(name)}")' for name in DTYPES]
    out += [f'(floating "{name}")' for name in FLOATS]
    for name, function in FUNCTIONS.items():
        given = function.kind in (COMPARE, LOGICAL, CAST)
        out.append(f'(gives "{name}" "{result_dtype(name)}")' if given else f'(keeps "{name}")')
    for part in PARTS:  # of a reduction over tuples: a part has the axes of what it depends on
        monoid, own = of_part(part)
        names = dict(zip("abc", monoid.operands))
        read = [name for name, operand in names.items() if operand in monoid.reads(own)]
        asked = " ".join(f"(= m{name} (axes {name}))" for name in read)
        mask = functools.reduce("(| {} {})".format, (f"m{name}" for name in read)) if read else "0"
        axes = f"(set (axes e) (& {mask} (not-i64 k)))"
        out.append(f'(rule ((= e (F{len(names)} "{part}" k {" ".join(names)})) {asked}) ({axes}) :ruleset analysis)')
    return "\n".join(out)


def constructor(node: ENode) -> str:
    """Return the egglog constructor of an e-node."""
    op, _, children = node
    return f"{LISTS[op]}{len(children)}" if op in LISTS else op


def node_text(node: ENode, name: str) -> str:
    """Return an e-node over classes called `name` and their number."""
    attributes = (f'"{a}"' if isinstance(a, str) else str(a) for a in node[1])
    return f"({' '.join((constructor(node), *attributes, *(f'{name}{child}' for child in node[2])))})"


def text_of(problem: Problem) -> str:
    """Return the program and what is known of it."""
    out: list[str] = []
    for number, node in enumerate(problem.nodes):
        out.append(f"(let $t{number} {node_text(node, '$t')})")
        if node[0] == "Leaf":
            leaf = problem.leaves[node[1][0]]
            out.append(f'(set (axes $t{number}) {leaf.mask}) (set (dtype $t{number}) "{leaf.dtype}")')
            if leaf.memory:
                out.append(f"({'known' if leaf.known else 'varies'} $t{number})")
        elif (literal := literal_of(node)) is not None:
            out.append(f"(set (literal $t{number}) {literal})")
        elif node[0] == "Op":
            out.append(f"(set (axes $t{number}) {problem.forms[node[1][0]].mask})")
            out.append(f'(set (dtype $t{number}) "{problem.dtypes[number]}") (varies $t{number})')
    out += [f"(single {bit})" for bit in problem.extents]
    for number, form in enumerate(problem.forms):
        source, image = moved(form)
        out.append(
            f"(set (source {number}) {source}) (set (image {number}) {image}) (set (brings {number}) {form.mask})"
        )
    out += [f"(set (extent {mask}) {size})" for mask, size in sizes(problem).items()]
    for pack in problem.packs:
        at = f"$t{pack.weight} {pack.over}"
        out.append(f"(set (packed {at}) $t{pack.whole}) (set (places {at}) {pack.places})")
    for mean in problem.means:
        out.append(f"(one_over $t{mean.number} {mean.over}) (set (first {mean.over}) {mean.first})")
    return "\n".join(out)


def literal_of(node: ENode) -> int | None:
    """Return a whole number as what a rule compares with an extent."""
    text = node[1][0] if node[0] == "Num" else ""
    return int(float(text)) if text.endswith(".0") and abs(float(text)) < 2**53 else None


def moved(form: IndexForm) -> tuple[int, int]:
    """Return the axes that an index map reads, and those under which it reads them."""
    source = image = 0
    for axis, mask in form.images:
        source, image = source | axis, image | mask
    return source, image


def sizes(problem: Problem) -> dict[int, int]:
    """Return the number of elements along each set of axes that a rule can query."""
    masks = {node[1][1] for node in problem.nodes if node[0] == "Red"}.union(
        problem.extents, *map(moved, problem.forms)
    )
    return {mask: problem.size(mask) for mask in sorted(masks)}


def order_of_sizes(problem: Problem, constants: Iterable[int]) -> tuple[int, ...]:
    """Return all that rules can see of extents: their order.

    The extents are compared among themselves and with numbers of the program and of the rules.
    """
    numbers = [n for n in map(literal_of, problem.nodes) if n is not None]
    values = (*sizes(problem).values(), *numbers, *constants)
    place = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return tuple(place[value] for value in values)


def graph_of_rules(exported: RuleTexts, only: Collection[str] | None = None) -> Any:
    """Return an e-graph of egglog in which some rules run, by default all, and the commutativity of functions."""
    commuting = {
        f"commutes_{name}": f'(rewrite (E2 "{name}" a b) (E2 "{name}" b a) :ruleset commutes_{name})'
        for name, function in sorted(FUNCTIONS.items())
        if function.commutative and function.arity == 2
    }
    rules = {f"rule_{name}": text for name, text in exported.text.items()}
    wanted = [f"rule_{name}" for name in exported.text if only is None or name in only]
    rulesets = (f"(ruleset {name})" for name in (*rules, *commuting))
    graph = bindings().EGraph()
    run(graph, "\n".join((prelude(), *rulesets, *rules.values(), *commuting.values())))
    run(graph, f"(unstable-combined-ruleset algebra {' '.join((*wanted, *commuting))})")
    return graph


def saturate(problem: Problem, exported: RuleTexts, budget: SaturationBudget | None = None) -> EGraph:
    """Return the e-graph of a problem under all rules."""
    return saturated(graph_of_rules(exported), problem, exported, budget or SaturationBudget())


def saturated(graph: Any, problem: Problem, exported: RuleTexts, budget: SaturationBudget) -> EGraph:
    """Put a problem into an e-graph of egglog, and let its algebra run."""
    start = time.perf_counter()
    run(graph, text_of(problem))
    run(graph, "(run-schedule (saturate analysis))")
    reason, rows, done = "", len(problem.nodes), 0
    hits: Counter[str] = Counter()
    while not reason:
        if rows > budget.nodes:
            reason = "nodes"
        elif time.perf_counter() - start >= budget.seconds:
            reason = "seconds"
        elif done >= budget.iterations:
            reason = "iterations"
        else:
            done += 1
            report = run(graph, "(run-schedule (run algebra))")[0].report
            hits.update(report.num_matches_per_rule)
            run(graph, "(run-schedule (saturate analysis))")
            rows = sum(len(f.rows) for name, f in graph.freeze().functions.items() if name in CONSTRUCTORS)
            reason = "" if report.updated else "saturated"
    stop = Stop(reason, done, rows, time.perf_counter() - start)
    return read_back(graph, problem, stop, tuple(name for name in exported.text if hits[name]))


class Spellings:
    """The e-graphs of problems. Those that differ in extents share one, unless a rule could tell them apart."""

    def __init__(self, exported: RuleTexts, budget: SaturationBudget):
        self.exported, self.budget = exported, budget
        self.made: dict[Hashable, EGraph] = {}

    def of(self, problem: Problem) -> EGraph:
        key = problem.structure, order_of_sizes(problem, sorted(self.exported.constants))
        if key not in self.made:
            self.made[key] = saturate(problem, self.exported, self.budget)
        return replace(self.made[key], problem=problem)


# ---- Solutions as plain data: the choice of a search is put into the e-graph again, and proved there.
#
# A recorded solution is a list of e-nodes over the leaves, forms and axes of its region, and none of it is trusted. It
# is accepted for the program only if the rules that are named with it, as they are written now, prove the two equal
# again.


AGAIN = 3  # iterations in which a solution that was put in may meet the program
KINDS = frozenset(("E", "Red", "Fold", "Map", "Case", "Op", "Leaf", "Num"))
WORD = re.compile(r"[A-Za-z0-9_.+-]+")  # functions, dtypes, numbers


class StoredSolution(msgspec.Struct, frozen=True):
    """Solution of one region.

    region: a hash of the region; rules: the rules that prove it; nodes: (constructor, attributes, indices of
    operands), operands first; roots, stored, groups: indices of nodes.
    """

    region: str
    rules: tuple[str, ...]
    nodes: tuple[ENode, ...]
    roots: tuple[int, ...]
    stored: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] = ()


class NotProved(Exception):
    """A recorded solution that the rules do not make equal to the program."""


def region_of(problem: Problem) -> str:
    """Return a hash of a region: equal for regions of equal structure, extents and dtypes."""
    return hashlib.sha256(repr(problem.key).encode()).hexdigest()[:16]


def written(problem: Problem, extraction: Extraction, solution: Solution) -> StoredSolution:
    """Return a solution of a region as data."""
    graph = extraction.graph
    place: dict[int, int] = {}
    nodes: list[ENode] = []
    needed = (*graph.roots, *sorted(solution.stored))
    for cls, (op, attributes, children) in extraction.in_order(solution.choice, needed):
        place[cls] = len(nodes)
        nodes.append((op, attributes, tuple(place[child] for child in children)))
    groups = tuple(tuple(place[cls] for cls in group) for group in solution.groups)
    stored = tuple(sorted(place[cls] for cls in solution.stored))
    roots = tuple(place[graph.of[root]] for root in problem.roots)
    rules = used_rules(graph, solution)
    return StoredSolution(region_of(problem), rules, tuple(nodes), roots, stored, groups)


def proved(
    problem: Problem, recorded: StoredSolution, exported: RuleTexts, budget: SaturationBudget
) -> tuple[EGraph, list[tuple[int, int]]]:
    """Return the e-graph of a region that proves a recorded solution, and the class and spelling of each of its nodes.

    Raises NotProved if the solution does not equal the program.
    """
    if not available():
        raise NotProved("egglog is not here")
    places = {place for group in (recorded.roots, recorded.stored, *recorded.groups) for place in group}
    if len(recorded.roots) != len(problem.roots) or not places <= set(range(len(recorded.nodes))):
        raise NotProved("it is not a solution: it names nodes that are not there")
    try:
        graph = graph_of_rules(exported, recorded.rules)
        made = saturated(graph, problem, exported, budget)
        run(graph, "\n".join(f"(let $r{n} {_text(node, n)})" for n, node in enumerate(recorded.nodes)))
        for turn in range(AGAIN + 1):
            run(graph, f"(run-schedule {'(run algebra) ' if turn else ''}(saturate analysis))")
            if _equal(graph, problem, recorded):
                assert made.stop is not None
                found = read_back(graph, problem, made.stop, made.fired)
                return found, _classes(found, recorded)
    except NotProved:
        raise
    except Exception as error:  # it holds something else, which egglog or we do not read
        raise NotProved(f"it is not a solution: {type(error).__name__}") from None
    raise NotProved("the rules do not make it equal to the program")


def used_rules(graph: EGraph, solution: Solution) -> tuple[str, ...]:
    """Return the rules that matched in a region if a solution spells it in another way than the program does."""
    written_so = {(graph.of[place], graph.spelled(node)) for place, node in enumerate(graph.problem.nodes)}
    chosen = ((cls, graph.classes[cls][place]) for cls, place in solution.choice.items())
    return () if all(pair in written_so for pair in chosen) else graph.fired


def _text(node: ENode, place: int) -> str:
    """Return a node as egglog text. It comes from a file: nothing but a node can come out. Raises NotProved."""
    op, attributes, children = node
    plain = all(isinstance(a, int) or (isinstance(a, str) and WORD.fullmatch(a)) for a in attributes)
    if op not in KINDS or not plain or not all(0 <= child < place for child in children):
        raise NotProved(f"it is not a solution: node {place}")
    return node_text((op, tuple(attributes), tuple(children)), "$r")


def _equal(graph: Any, problem: Problem, recorded: StoredSolution) -> bool:
    named = {name: t.rows[0].output for name, t in graph.freeze().functions.items() if t.is_let_binding}
    pairs = zip(recorded.roots, problem.roots, strict=True)
    return all(named[f"$r{mine}"] == named[f"$t{root}"] for mine, root in pairs)


def _classes(graph: EGraph, recorded: StoredSolution) -> list[tuple[int, int]]:
    """Return the class of each recorded node, and its place among the spellings of the class."""
    of = {node: (cls, n) for cls, spelled in enumerate(graph.classes) for n, node in enumerate(spelled)}
    out: list[tuple[int, int]] = []
    for op, attributes, children in recorded.nodes:
        out.append(of[sorted_operands((op, tuple(attributes), tuple(out[child][0] for child in children)))])
    return out
