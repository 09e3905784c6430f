"""Which rules made the difference: a smallest set with which the e-graph still holds a solution.

Each rule that matched is left out in turn; where the solution is still equal to the program without it, it stays out.
"""

from __future__ import annotations

from typing import Any

from .export import RuleTexts
from .saturate import SaturationBudget, node_text, saturate
from .solution import Extraction, Solution

AGAIN = 3  # iterations in which a solution that was put in may meet the program


def needed_rules(
    extraction: Extraction, solution: Solution, exported: RuleTexts, budget: SaturationBudget
) -> tuple[str, ...]:
    """The names of the rules that a solution needs, in the order of the rules."""
    graph = extraction.graph
    if graph.stop is None or holds(extraction, solution, exported, budget, set(graph.fired)):
        return ()
    out: set[str] = set()
    for name in graph.fired:
        if holds(extraction, solution, exported, budget, out | {name}):
            out.add(name)
    return tuple(name for name in graph.fired if name not in out)


def holds(
    extraction: Extraction, solution: Solution, exported: RuleTexts, budget: SaturationBudget, without: set[str]
) -> bool:
    """Whether a solution equals the program where some rules are left out."""
    graph = extraction.graph
    made = saturate(graph.problem, exported, budget, without)
    lines = []
    done: set[int] = set()
    for cls, node in extraction.in_order(solution.choice, graph.roots, done):
        lines.append(f"(let $c{cls} {node_text(node, '$c')})")
        done.add(cls)
    _run(made.bindings, "\n".join(lines))
    for _ in range(AGAIN):
        _run(made.bindings, "(run-schedule (saturate analysis))")
        if _equal(made.bindings, graph):
            return True
        _run(made.bindings, "(run-schedule (run algebra))")
    return _equal(made.bindings, graph)


def _run(bindings: Any, text: str) -> None:
    bindings.run_program(*bindings.parse_program(text))


def _equal(bindings: Any, graph: Any) -> bool:
    named = {name: t.rows[0].output for name, t in bindings.freeze().functions.items() if t.is_let_binding}
    return all(named[f"$c{graph.of[root]}"] == named[f"$t{root}"] for root in graph.problem.roots)
