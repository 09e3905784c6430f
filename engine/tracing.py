"""The graph levels' events in the one trace: torch to tensor (`d:`), algebra (`a:`), fusion (`f:`)."""

from __future__ import annotations

from ..ir.tensor import TensorGraph, Term
from ..ir.text.tensor import print_lines
from .front.lower import Lowered
from .fuse.kernels import Plan
from .match.terms import Evidence
from .match.trace import Firing, Skip, Text, Trace


def trace_lowering(trace: Trace | None, lowered: Lowered) -> None:
    """A firing for every torch op: the op, and the lines of Tensor IR that it became."""
    if trace is None:
        return
    for fired in lowered.firings:
        rule, statement = fired.rule, fired.statement
        after = fired.after(lowered.graph)
        trace.add(Firing("d", rule.file, rule.name, rule.location, lowered.graph.name, statement.dst, {}, (fired.before(),), (after,)))


def trace_algebra(trace: Trace | None, evidence: Evidence | None, before: TensorGraph, after: TensorGraph) -> None:
    """Replaced values, and the guards that kept rules away."""
    if trace is None or evidence is None:
        return
    names = _names(before) | _names(after)
    for fired in evidence.firings:
        name = names.get(fired.before) or names.get(fired.after) or "a value"
        texts = (_line(before, fired.before),), (_line(after, fired.after),)
        trace.add(Firing("a", fired.rule.file, fired.rule.name, fired.rule.location, before.name, name, {}, *texts))
    for refusal in evidence.refusals:
        name = names.get(refusal.term, "a value")
        trace.add(Skip("a", refusal.rule.file, refusal.rule.name, f"{before.name}.{name}", Text(str(refusal))))


def trace_fusion(trace: Trace | None, plan: Plan, graph: TensorGraph) -> None:
    """Why each stored value is stored."""
    if trace is None or plan.decisions is None:
        return
    names = _names(graph)
    for refusal in plan.decisions.refusals:
        unit = f"{graph.name}.{names.get(refusal.term, 'a value')}"
        trace.add(Skip("f", refusal.rule.file, refusal.rule.name, unit, Text(str(refusal))))


def _names(graph: TensorGraph) -> dict[Term, str]:
    return {named.value: named.name for named in graph.names} | {out.value: out.name for out in graph.outs}


def _line(graph: TensorGraph, term: Term) -> str:
    """A value as one line of the graph, what is below it by name."""
    from ..ir.tensor import operands

    return print_lines(graph, term, operands(term))
