"""Algebra that pays because of the kernels that result: asked before fusion, of the program as it stands.

Every rule sees the whole program, so that a guard may ask who reads a value. Where rules fire, the program is built
anew once; a rule does not see what another one made.
"""

from __future__ import annotations

from typing import Any

from ...codegen.target import Target
from ...ir.tensor import TensorGraph, dtype, postorder
from ...ir.torch import TorchOp
from ..rewrite.loops import RewriteStep
from ..rewrite.terms.terms import TermEvidence, TermRules, TermSite, rewrite_graph


def commute(
    graph: TensorGraph,
    rules: TermRules,
    target: Target,
    evidence: TermEvidence | None = None,
    origins: dict[Any, TorchOp] | None = None,
) -> TensorGraph:
    """The program with values replaced where a rule says that its kernels are better for it."""
    if not rules.rules:
        return graph
    table = rules.table(evidence is not None)
    roots = tuple(out.value for out in graph.outs)
    site = TermSite(target, evidence, roots=roots)
    replaced: dict[Any, Any] = {}
    for term in postorder(roots):
        for attempt, run in table.at(term):
            result = run(term, site)
            if result is not None and dtype(result) == dtype(term):
                replaced[term] = result
                if evidence is not None:
                    evidence.firings.append(RewriteStep(attempt.rule, term, result))
                break
    return rewrite_graph(graph, NOTHING, target, None, origins, replaced=replaced) if replaced else graph


NOTHING = TermRules(())
