"""The e-graph and its candidates as a page: one file, no scripts from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from ...ir.text.tensor import print_graph
from ..cost.kernel_estimate import bits
from ..kernels.candidate import Candidate
from .explore import Exploration
from .graph import EGraph
from .solution import PricedSolution

TEMPLATE = Path(__file__).with_name("page.html")


def page(text: str, made: Exploration, found: Sequence[Candidate]) -> str:
    """The page of an exploration: candidates side by side, then every distinct region with its classes."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text())
    candidates = [_candidate(number, c) for number, c in enumerate(found, 1)]
    return template.render(text=text, device=made.target.name, candidates=candidates, regions=regions_of(made))


def regions_of(made: Exploration) -> list[dict[str, Any]]:
    """Every distinct region of a program with its classes, and how often it is there."""
    seen: dict[int, dict[str, Any]] = {}
    for problem, solved in made.problems:
        graph = solved.search.graph
        if id(solved) in seen:
            seen[id(solved)]["times"] += 1
        else:
            seen[id(solved)] = region(graph, solved.found[0], [named(term, made) for term in problem.terms])
    return list(seen.values())


def _candidate(number: int, candidate: Candidate) -> dict[str, Any]:
    return {
        "number": number, "kernels": candidate.kernels, "megabytes": candidate.bytes / 1e6,
        "microseconds": candidate.predicted_us, "rules": candidate.rules, "label": candidate.label,
        "problem": candidate.problem, "program": print_graph(candidate.graph),
    }  # fmt: skip


def named(term: Any, made: Exploration) -> str:
    """The name of a value in the program, or nothing."""
    names = {n.value: n.name for n in made.graph.names} | {out.value: out.name for out in made.graph.outs}
    return str(getattr(term, "name", "") or names.get(term, ""))


def region(graph: EGraph, best: PricedSolution, names: list[str]) -> dict[str, Any]:
    """One region: its classes with every spelling, and the kernels of the best solution."""
    problem = graph.problem
    axes = {1 << place: axis.name for place, axis in enumerate(problem.axes)}
    of: dict[int, str] = {}
    for place, cls in enumerate(graph.of):
        if names[place]:
            of.setdefault(cls, names[place])

    def title(cls: int) -> str:
        return of.get(cls) or f"c{cls}"

    def spelled(node: Any) -> str:
        op, attributes, children = node
        below = ", ".join(title(child) for child in children)
        if op == "E":
            return f"{attributes[0]}({below})"
        if op in ("Red", "Fold"):
            name = "Reduce" if op == "Red" else op
            return f"{name}({attributes[0]}, {', '.join(axes[bit] for bit in bits(attributes[1]))}, {below})"
        if op == "Num":
            return str(attributes[0])
        if op == "Leaf":
            return "read from memory" if problem.leaves[attributes[0]].memory else "index"
        return f"{op.lower()} {attributes[0]} of {below}"

    solution = best.solution
    classes = [
        {
            "title": title(cls),
            "axes": ", ".join(f"{axes[bit]}:{problem.extents[bit]}" for bit in bits(graph.mask[cls])),
            "dtype": graph.dtype[cls],
            "known": cls in graph.known,
            "stored": cls in solution.stored,
            "needed": cls in solution.choice,
            "spellings": [
                {"text": spelled(node), "chosen": solution.choice.get(cls) == place} for place, node in enumerate(nodes)
            ],
        }
        for cls, nodes in enumerate(graph.classes)
    ]
    stop = graph.stop
    return {
        "times": 1, "classes": classes, "enodes": graph.enodes, "operations": len(problem.nodes),
        "stop": "without egglog" if stop is None else f"{stop.reason} after {stop.iterations} iterations",
        "rules": graph.fired, "kernels": [" and ".join(title(cls) for cls in group) for group in best.table],
    }  # fmt: skip
