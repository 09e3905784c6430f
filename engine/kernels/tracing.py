"""The graph levels' events in the one trace: torch to tensor (`d:`), algebra (`a:`), fusion (`f:`).

Texts are made when the trace is printed: a compile whose trace is not printed pays for the records only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...ir.tensor import Input, Remap, TensorGraph, Term, operands
from ...ir.text.tensor import print_lines
from ..language.rule import Rule
from ..rewrite.terms.terms import TermEvidence
from ..rewrite.torch_rules.lower import Fired, Lowered
from ..rewrite.trace import Firing, Skip, TextReason, Trace
from .decide import Fused, Stored
from .kernels import Plan
from .rules import kind_of


@dataclass(frozen=True)
class Lines:
    """The lines of some values of a graph, `stored` ones as `mat(..)`; what is `below` (their operands) by name."""

    graph: TensorGraph
    values: tuple[Term, ...]
    stored: frozenset[Term] = frozenset()
    below: tuple[Term, ...] | None = None

    def __str__(self) -> str:
        return "\n".join(map(self._lines, self.values))

    def _lines(self, value: Term) -> str:
        text = print_lines(self.graph, value, operands(value) if self.below is None else self.below)
        *made, last = text.split("\n")
        left, equals, right = last.rpartition(" = ")
        return "\n".join((*made, f"{left} = mat({right})" if equals and value in self.stored else last))


@dataclass(frozen=True)
class LoweredLines:
    """What a torch op became, as lines of the graph."""

    fired: Fired
    graph: TensorGraph

    def __str__(self) -> str:
        return self.fired.after(self.graph)


@dataclass(frozen=True)
class Op:
    """A torch op as text."""

    fired: Fired

    def __str__(self) -> str:
        return self.fired.before()


def trace_lowering(trace: Trace | None, lowered: Lowered) -> None:
    """A firing for every torch op: the op, and the lines of Tensor IR that it became."""
    if trace is None:
        return
    for fired in lowered.firings:
        texts = (Op(fired),), (LoweredLines(fired, lowered.graph),)
        trace.add(_firing("d", fired.rule, lowered.graph, fired.statement.dst, *texts))


def trace_algebra(trace: Trace | None, evidence: TermEvidence | None, before: TensorGraph, after: TensorGraph) -> None:
    """Replaced values, and the guards that kept rules away."""
    if trace is None or evidence is None:
        return
    names = _names(before) | _names(after)
    for fired in evidence.firings:
        name = names.get(fired.before) or names.get(fired.after) or "a value"
        made = Lines(after, (fired.after,), below=operands(fired.before))
        texts = (Lines(before, (fired.before,)),), (made,)
        trace.add(_firing("a", fired.rule, before, name, *texts))
    for refusal in evidence.refusals:
        name = names.get(refusal.term, "a value")
        trace.add(Skip("a", refusal.rule.file, refusal.rule.name, f"{before.name}.{name}", TextReason(str(refusal))))


def trace_fusion(trace: Trace | None, plan: Plan, graph: TensorGraph, rules: Iterable[Rule]) -> None:
    """Which values lost their `mat`, to whom, and why the others are stored."""
    if trace is None or plan.decisions is None:
        return
    names = _names(graph)
    for fused in plan.decisions.firings:
        climbs = kind_of(fused.rule) == "climb"
        if climbs or _reads(fused.reader, fused.value):
            trace.add(_fused(graph, names, fused, climbs))
    for refusal in plan.decisions.refusals:
        unit = f"{graph.name}.{names.get(refusal.term, 'a value')}"
        trace.add(Skip("f", refusal.rule.file, refusal.rule.name, unit, TextReason(str(refusal))))
    by_location = {rule.location: rule for rule in rules}
    for stored in plan.why:
        event = _stored(graph, names, stored, by_location)
        if event is not None:
            trace.add(event)


def _fused(graph: TensorGraph, names: dict[Term, str], fused: Fused, climbs: bool) -> Firing:
    """`mat(v)` gone, or climbed over what reads v."""
    value, reader = fused.value, fused.reader
    where = f"{names.get(value, 'a value')} into {names.get(reader, 'a value')}"
    before = Lines(graph, (value, reader), frozenset((value,)))
    after = Lines(graph, (value, reader), frozenset((reader,)) if climbs else frozenset())
    return _firing("f", fused.rule, graph, where, (before,), (after,))


def _stored(graph: TensorGraph, names: dict[Term, str], stored: Stored, rules: dict[str, Rule]) -> Firing | Skip | None:
    """A `mat` that a rule put, or a value that no rule is about; what a guard stored is told by its refusal."""
    name = names.get(stored.value, "a value")
    rule = rules.get(stored.location)
    if stored.reader is None and rule is not None:
        values = (stored.value,)
        after = Lines(graph, values, frozenset(values))
        return _firing("f", rule, graph, name, (Lines(graph, values),), (after,))
    if stored.location:
        return None
    reader = "nothing" if stored.reader is None else names.get(stored.reader, "a value")
    return Skip("f", "fuse", "", f"{graph.name}.{name}", TextReason(f"{stored.reason}: {reader} reads it"))


def _reads(reader: Term, value: Term) -> bool:
    """Whether a value is an operand, perhaps through index maps. What is above it in its kernel is not worth a line."""
    waiting = list(operands(reader))
    while waiting:
        term = waiting.pop()
        if term is value:
            return True
        if isinstance(term, Remap):
            waiting.append(term.x)
    return False


def _firing(
    prefix: str, rule: Rule, graph: TensorGraph, where: str, before: tuple[object, ...], after: tuple[object, ...]
) -> Firing:
    return Firing(prefix, rule.file, rule.name, rule.location, graph.name, where, {}, before, after)


def _names(graph: TensorGraph) -> dict[Term, str]:
    named = {x: x.name for x in graph.ins if isinstance(x, Input)}
    return named | {n.value: n.name for n in graph.names} | {out.value: out.name for out in graph.outs}
