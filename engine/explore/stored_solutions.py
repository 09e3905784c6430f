"""Solutions as plain data: the choice of a search is put into the e-graph again, and proved there.

A recorded solution is a list of e-nodes over the leaves, forms and axes of its region, and none of it is trusted. It
is accepted for the program only if the rules that are named with it, as they are written now, prove the two equal
again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from .problem import EGraph, ENode, Problem, read_back, sorted_operands
from .rules_as_egglog import RuleTexts
from .saturate import SaturationBudget, available, node_text, saturate
from .solution import Extraction, Solution

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
    nodes: tuple[tuple[str, tuple[Any, ...], tuple[int, ...]], ...]
    roots: tuple[int, ...]
    stored: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] = ()


class NotProved(Exception):
    """A recorded solution that the rules do not make equal to the program."""


def region_of(problem: Problem) -> str:
    """Return a hash of a region: equal for regions of equal structure, extents and dtypes."""
    parts = (
        problem.nodes, problem.roots, sorted(problem.fixed), problem.leaves, problem.forms, problem.dtypes,
        list(problem.extents.values()), problem.packs,
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def written(problem: Problem, extraction: Extraction, solution: Solution, rules: tuple[str, ...]) -> StoredSolution:
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
    return StoredSolution(region_of(problem), rules, tuple(nodes), roots, stored, groups)


def proved(
    problem: Problem, recorded: StoredSolution, exported: RuleTexts, budget: SaturationBudget
) -> tuple[EGraph, dict[int, int]]:
    """Return the e-graph of a region that proves a recorded solution, and the class of each of its nodes.

    Raises NotProved if the solution does not equal the program.
    """
    if not available():
        raise NotProved("egglog is not here")
    places = {place for group in (recorded.roots, recorded.stored, *recorded.groups) for place in group}
    if len(recorded.roots) != len(problem.roots) or not places <= set(range(len(recorded.nodes))):
        raise NotProved("it is no solution: it names nodes that are not there")
    try:
        graph = met(problem, recorded, exported, budget)
        assert graph.stop is not None
        found = read_back(graph.bindings, problem, graph.stop, graph.fired)
        return found, _classes(found, recorded)
    except (KeyError, IndexError, TypeError, ValueError) as error:  # it holds something else
        raise NotProved(f"it is no solution: {type(error).__name__}") from None


def met(problem: Problem, recorded: StoredSolution, exported: RuleTexts, budget: SaturationBudget) -> EGraph:
    """Return the e-graph in which the rules of a solution make it equal to the program. Raises NotProved."""
    graph = saturate(problem, exported, budget, recorded.rules)
    _run(graph.bindings, "\n".join(f"(let $r{n} {_text(node, n)})" for n, node in enumerate(recorded.nodes)))
    for turn in range(AGAIN + 1):
        _run(graph.bindings, "(run-schedule (saturate analysis))")
        if _equal(graph.bindings, problem, recorded):
            return graph
        if turn < AGAIN:
            _run(graph.bindings, "(run-schedule (run algebra))")
    raise NotProved("the rules do not make it equal to the program")


def needed_rules(
    extraction: Extraction, solution: Solution, exported: RuleTexts, budget: SaturationBudget
) -> tuple[str, ...]:
    """Return a smallest set of rules with which the e-graph still holds a solution, in the order of the rules.

    Each rule that matched is left out in sequence. If the solution still equals the program, the rule stays out.
    """
    graph = extraction.graph
    if graph.stop is None:
        return ()
    recorded = written(graph.problem, extraction, solution, ())

    def holds(rules: Iterable[str]) -> bool:
        try:
            met(graph.problem, msgspec.structs.replace(recorded, rules=tuple(rules)), exported, budget)
        except NotProved:
            return False
        return True

    if holds(()):
        return ()
    kept = list(graph.fired)
    for name in graph.fired:
        less = [rule for rule in kept if rule != name]
        kept = less if holds(less) else kept
    return tuple(kept)


def _text(node: Any, place: int) -> str:
    """Return a node as egglog text. It comes from a file: nothing but a node can come out. Raises NotProved."""
    op, attributes, children = node
    plain = all(isinstance(a, int) or (isinstance(a, str) and WORD.fullmatch(a)) for a in attributes)
    if op not in KINDS or not plain or not all(0 <= child < place for child in children):
        raise NotProved(f"it is no solution: node {place}")
    return node_text((op, tuple(attributes), tuple(children)), "$r")


def _run(bindings: Any, text: str) -> None:
    try:
        bindings.run_program(*bindings.parse_program(text))
    except Exception as error:  # egglog has an exception of its own for what does not parse or type
        raise NotProved(f"it is no solution: {error}") from None


def _equal(bindings: Any, problem: Problem, recorded: StoredSolution) -> bool:
    named = {name: t.rows[0].output for name, t in bindings.freeze().functions.items() if t.is_let_binding}
    pairs = zip(recorded.roots, problem.roots, strict=True)
    return all(named[f"$r{mine}"] == named[f"$t{root}"] for mine, root in pairs)


def _classes(graph: EGraph, recorded: StoredSolution) -> dict[int, int]:
    """Return the class of each recorded node, found by its spelling."""
    of = {node: cls for cls, spelled in enumerate(graph.classes) for node in spelled}
    out: dict[int, int] = {}
    for place, (op, attributes, children) in enumerate(recorded.nodes):
        out[place] = of[sorted_operands((op, tuple(attributes), tuple(out[child] for child in children)))]
    return out
