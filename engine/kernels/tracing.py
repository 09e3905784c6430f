"""The graph levels' events in the one trace: torch to tensor (`d:`), algebra (`a:`), fusion (`f:`).

Texts are made when the trace is printed: a compile whose trace is not printed pays for the records only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from ...ir.compose import Folded
from ...ir.tensor import Remap, TensorGraph, Term, operands, postorder
from ...ir.text.tensor import print_lines
from ..language.evaluate import Expressions
from ..language.rule import Rule
from ..rewrite.terms.matcher import LEAVES, NearMiss, begins_at, nearest_miss
from ..rewrite.terms.rewriter import TermEvidence
from ..rewrite.torch_rules.lower import Fired, Lowered
from ..rewrite.torch_rules.template import Numbers
from ..rewrite.trace import Firing, Skip, TextReason, Trace, held, show, written
from .fusion_pass import Fused, FusionDecisions, Stored, called, called_in, kind_of
from .kernels import Plan

# Why a rule of fusion says nothing of a program: the nearest operation at which it could be asked, and what became of
# the values that it would have taken in there.


NOWHERE = "the pattern matches nowhere"
READS_NOTHING = "it reads nothing that is computed"


class Unmatched:
    """Answers of one program: who took what in, and who is stored for whom."""

    def __init__(self, graph: TensorGraph, decisions: FusionDecisions, names: Mapping[Term, str]):
        self.graph, self.decisions, self.names = graph, decisions, names
        self.taken: dict[tuple[Term, Term | None], Rule] = {}
        for fused in decisions.firings:
            self.taken.setdefault((fused.value, fused.reader), fused.rule)

    def told(self, rule: Rule) -> tuple[Term | None, str]:
        """The value at which a rule came nearest, None where there is none, and why it did not fire there."""
        kind = kind_of(rule)
        if kind == "siblings":
            several = len(self.decisions.stored) > 1
            return None, f"{NOWHERE}: {'no two stored values are left for it' if several else 'one value is stored'}"
        outs = tuple(out.value for out in self.graph.outs)
        readers = [term for term in postorder(outs) if begins_at(rule, term)]
        if not readers:
            return None, f"{NOWHERE}: no value here is made as its last, `{written(list(rule.left.values())[-1].node)}`"
        if kind == "share":
            return None, f"{NOWHERE}: what is made as its last is computed by one kernel, and once there"
        if kind == "climb" and not any(one.reader for one in self.decisions.why.values()):
            return None, f"{NOWHERE}: no value is stored because of who reads it, so no `mat` climbs"
        return max((self._at(term) for term in readers), key=lambda found: found[0])[1:]

    def _at(self, reader: Term) -> tuple[int, Term, str]:
        """How near a rule came at an operation, and what became of the values of its kernel."""
        told = [self._value(value, reader) for value in self._below(reader)]
        near, text = max(told, key=lambda found: found[0], default=(0, READS_NOTHING))
        return near, reader, f"{NOWHERE}; nearest at `{self._line(reader)}`: {text}"

    def _below(self, reader: Term) -> Iterator[Term]:
        """What an operation reads, and what its kernel computes for that."""
        waiting, seen = [*operands(reader)], set[Term]()
        while waiting:
            value = waiting.pop(0)
            if value not in seen and not isinstance(value, LEAVES):
                seen.add(value)
                yield value
                waiting += () if value in self.decisions.stored else operands(value)

    def _value(self, value: Term, reader: Term) -> tuple[int, str]:
        """How near a value was to being taken in, and what became of it."""
        called = f"`{self.names.get(value) or self._line(value)}`"
        here, anywhere = self.taken.get((value, reader)), self.taken.get((value, None))
        if here is not None:
            return 3, f"`{here.name}`, which is asked before it, takes {called} in"
        if value in self.decisions.stored:
            return 1, f"{called} is stored{self._because(value)}"
        if anywhere is not None:
            return 2, f"{called} is not stored there: `{anywhere.name}` dropped its `mat` before"
        return 0, READS_NOTHING

    def _because(self, value: Term) -> str:
        stored = self.decisions.why.get(value)
        if stored is None or stored.reader is None:
            return ""
        return f" for `{self.names.get(stored.reader) or self._line(stored.reader)}`: {stored.reason}"

    def _line(self, value: Term) -> str:
        return print_lines(self.graph, value, operands(value)).split("\n")[-1]


NOTHING: Mapping[str, Any] = MappingProxyType({})


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
class JoinedLines:
    """Stored values as one kernel stores them: `(a, b) = mat(v, w)`."""

    lines: Lines

    def __str__(self) -> str:
        *made, first, second = str(self.lines).split("\n")
        (a, _, v), (b, _, w) = first.partition(" = "), second.partition(" = ")
        return "\n".join((*made, f"({a}, {b}) = mat({v[4:-1]}, {w[4:-1]})"))


@dataclass(frozen=True)
class LoweredLines:
    """What a torch op became, as lines of the graph."""

    fired: Fired
    graph: TensorGraph

    def __str__(self) -> str:
        return self.fired.after(self.graph)


@dataclass(frozen=True)
class Called:
    """What a pattern on tensor bound: a value of the program by its name there, one without a name as it is made."""

    value: Any
    graph: TensorGraph
    names: Mapping[Term, str]

    @property
    def name(self) -> str:
        """As text."""
        return self._called(self.value)

    def _called(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(map(self._called, value))})"
        if not isinstance(value, Term):
            return show(value)
        known = self.names.get(value)
        return known or print_lines(self.graph, value, operands(value)).split("\n")[-1].rpartition(" = ")[2]


@dataclass(frozen=True)
class Op:
    """A torch op as text."""

    fired: Fired

    def __str__(self) -> str:
        return self.fired.before()


def trace_lowering(trace: Trace | None, lowered: Lowered) -> None:
    """A firing for every torch op: the op, and the lines of Tensor IR that it became. Who was asked and did not take
    one is told where somebody asks for the rule: an op has many.
    """
    if trace is None:
        return
    for refused in lowered.refusals:
        rule, unit = refused.rule, f"{lowered.graph.name}.{refused.statement.dst}"
        if rule.name in trace.asked:
            reason = TextReason(f"{rule.location}: {rule.name}: {refused.reason.told}")
            trace.add(Skip("d", rule.file, rule.name, unit, reason))
    for fired in lowered.firings:
        texts = (Op(fired),), (LoweredLines(fired, lowered.graph),)
        guards = partial(held, fired.rule, dict(fired.bound), Numbers())
        where = lowered.graph, fired.statement.dst
        trace.add(_firing("d", fired.rule, *where, *texts, fired.bound, fired.folded, guards))


def trace_algebra(
    trace: Trace | None, evidence: TermEvidence | None, before: TensorGraph, after: TensorGraph, rules: Iterable[Rule]
) -> None:
    """Replaced values, the guards that kept rules away, and for each file that is silent its nearest miss."""
    if trace is None or evidence is None:
        return
    names = called_in(before) | called_in(after)
    for fired in evidence.firings:
        name = names.get(fired.before) or called(fired.after, names)
        made = Lines(after, (fired.after,), below=operands(fired.before))
        texts = (Lines(before, (fired.before,)),), (made,)
        guards = partial(held, fired.rule, dict(fired.bound), Expressions("tensor"), names)
        bound = _called(fired.bound, before, names)
        trace.add(_firing("a", fired.rule, before, name, *texts, bound, fired.folded, guards))
    for refusal in evidence.refusals:
        unit, reason = f"{before.name}.{called(refusal.term, names)}", TextReason(refusal.text(names))
        trace.add(Skip("a", refusal.rule.file, refusal.rule.name, unit, reason))
    heard = {fired.rule.name for fired in evidence.firings} | {refusal.rule.name for refusal in evidence.refusals}
    for rule, miss, graph in _nearest(rules, heard, trace.asked, (after, before)):
        unit = before.name if miss is None else f"{before.name}.{called(miss.root, names)}"
        trace.add(
            Skip(
                "a",
                rule.file,
                rule.name,
                unit,
                TextReason(f"{rule.location}: {rule.name}: {_miss(rule, miss, graph)}"),
            )
        )


def _nearest(
    rules: Iterable[Rule], heard: set[str], asked: frozenset[str], graphs: tuple[TensorGraph, ...]
) -> Iterator[tuple[Rule, NearMiss | None, TensorGraph]]:
    """Of each file in which no rule did or refused anything, the rule that came furthest, if it came anywhere; and
    whom somebody asks for. Looked for in the program as it came out first: what is gone from there, a rule took.
    """
    files: dict[str, list[Rule]] = {}
    for rule in rules:
        files.setdefault(rule.file, []).append(rule)
    for members in files.values():
        misses = [(rule, *_nearest_in(rule, graphs)) for rule in members if rule.name not in heard]
        best = max((miss.followed for _, miss, _ in misses if miss is not None), default=0)
        silent = best and heard.isdisjoint(rule.name for rule in members)
        for rule, miss, graph in misses:
            first = silent and miss is not None and miss.followed == best
            if first or rule.name in asked:
                yield rule, miss, graph
            silent = silent and not first


def _nearest_in(rule: Rule, graphs: tuple[TensorGraph, ...]) -> tuple[NearMiss | None, TensorGraph]:
    """The nearest miss in the first of some graphs that has one."""
    found = ((nearest_miss(rule, tuple(out.value for out in graph.outs)), graph) for graph in graphs)
    return next(((miss, graph) for miss, graph in found if miss is not None), (None, graphs[0]))


def _miss(rule: Rule, miss: NearMiss | None, graph: TensorGraph) -> str:
    pattern = list(rule.left.values())[-1]
    if miss is None:
        return f"the pattern matches nowhere: no value here is made as its last, `{written(pattern.node)}`"
    found = show(miss.found)
    if isinstance(miss.found, Term):
        found = print_lines(graph, miss.found, operands(miss.found)).split("\n")[-1]
    if miss.expected is None:
        return f"the pattern matches nowhere; `{found}` is like it, but what it reads is rewritten first"
    count = f"{miss.followed} operation{'' if miss.followed == 1 else 's'}"
    parts = f"expected `{written(miss.expected)}`, found `{found}`"
    return f"the pattern matches nowhere; nearest miss after {count}: {parts}"


def trace_fusion(trace: Trace | None, plan: Plan, graph: TensorGraph, rules: Iterable[Rule]) -> None:
    """Which values lost their `mat`, to whom, and why the others are stored."""
    if trace is None or plan.decisions is None:
        return
    names = called_in(graph)
    for fused in _told(plan.decisions.firings):
        trace.add(_fused(graph, names, fused))
    for refusal in plan.decisions.refusals:
        unit = f"{graph.name}.{called(refusal.term, names)}"
        trace.add(Skip("f", refusal.rule.file, refusal.rule.name, unit, TextReason(refusal.text(names))))
    rules = tuple(rules)
    heard = {fused.rule.name for fused in plan.decisions.firings}
    heard |= {refusal.rule.name for refusal in plan.decisions.refusals}
    heard |= {rule.name for rule in rules if rule.location in {stored.location for stored in plan.why}}
    for rule in rules:
        if rule.name in trace.asked and rule.name not in heard:
            near, why = Unmatched(graph, plan.decisions, names).told(rule)
            unit = graph.name if near is None else f"{graph.name}.{called(near, names)}"
            trace.add(Skip("f", rule.file, rule.name, unit, TextReason(f"{rule.location}: {rule.name}: {why}")))
    by_location = {rule.location: rule for rule in rules}
    for stored in plan.why:
        event = _stored(graph, names, stored, by_location)
        if event is not None:
            trace.add(event)


def _told(firings: Iterable[Fused]) -> Iterator[Fused]:
    """The firings that are worth a line: every rule that took a value in, once, and all that read it as it is.

    Between a value and a reader further up stand operations that took it in before, by a rule that is told there.
    """
    rules: dict[Term, set[str]] = {}
    for fused in firings:
        known = rules.setdefault(fused.value, set())
        if fused.reader is None or fused.rule.name not in known or _reads(fused.reader, fused.value):
            yield fused
        known.add(fused.rule.name)


def _fused(graph: TensorGraph, names: dict[Term, str], fused: Fused) -> Firing:
    """`mat(v)` gone, or climbed over what reads v."""
    value, reader = fused.value, fused.reader
    bound = _called(fused.bound, graph, names)
    values = (value,) if reader is None else (value, reader)
    kind = "" if reader is None else kind_of(fused.rule)
    where = (" and " if kind == "siblings" else " into ").join(called(term, names) for term in values)
    if kind == "siblings":
        both = Lines(graph, values, frozenset(values))
        return _firing("f", fused.rule, graph, where, (both,), (JoinedLines(both),), bound, held=lambda: fused.held)
    climbed = frozenset(values[1:]) if kind == "climb" else frozenset()
    before, after = Lines(graph, values, frozenset((value,))), Lines(graph, values, climbed)
    return _firing("f", fused.rule, graph, where, (before,), (after,), bound, held=lambda: fused.held)


def _stored(graph: TensorGraph, names: dict[Term, str], stored: Stored, rules: dict[str, Rule]) -> Firing | Skip | None:
    """A `mat` that a rule put, or a value that no rule is about; what a guard stored is told by its refusal."""
    name = called(stored.value, names)
    rule = rules.get(stored.location)
    if stored.reader is None and rule is not None:
        values = (stored.value,)
        after = Lines(graph, values, frozenset(values))
        bound, before = _called(stored.bound, graph, names), (Lines(graph, values),)
        return _firing("f", rule, graph, name, before, (after,), bound, held=lambda: stored.held)
    if stored.location:
        return None
    reader = "nothing" if stored.reader is None else called(stored.reader, names)
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


def _called(bound: Mapping[str, Any], graph: TensorGraph, names: Mapping[Term, str]) -> dict[str, Called]:
    return {name: Called(value, graph, names) for name, value in bound.items()}


def _firing(
    prefix: str, rule: Rule, graph: TensorGraph, where: str, before: tuple[object, ...], after: tuple[object, ...],
    bound: Mapping[str, Any] = NOTHING, folded: tuple[Folded, ...] = (),
    held: Callable[[], tuple[str, ...]] = tuple,
) -> Firing:  # fmt: skip
    where_ = (rule.file, rule.name, rule.location, graph.name, where)
    return Firing(prefix, *where_, {}, before, after, bound=bound, folded=folded, held=held)
