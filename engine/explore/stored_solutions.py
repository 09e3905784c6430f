"""Solutions as plain data: the choice of a search is put into the e-graph again, and proved there.

A recorded solution is a list of e-nodes over the leaves, forms and axes of its region, and none of it is trusted. It
is accepted for the program only if the rules that are named with it, as they are written now, prove the two equal
again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from .problem import EGraph, ENode, Problem, read_back, sorted_operands
from .rules_as_egglog import RuleTexts
from .saturate import SaturationBudget, available, graph_of_rules, node_text, run, saturated
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
