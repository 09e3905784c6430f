"""The graph levels' events in the one trace: torch to tensor (`d:`), algebra (`a:`), fusion (`f:`).

Texts are made when the trace is printed: a compile whose trace is not printed pays for the records only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...ir.compose import Folded
from ...ir.tensor import Remap, TensorGraph, Term, operands, postorder
from ...ir.text.tensor import print_lines
from ...ir.text.torch import print_torch_op
from ..language.evaluate import Expressions
from ..language.rule import Rule
from ..rewrite.terms.matcher import LEAVES, NearMiss, begins_at, nearest_miss
from ..rewrite.terms.rewriter import TermEvidence
from ..rewrite.torch_rules.lower import Lowered
from ..rewrite.torch_rules.template import Numbers
from ..rewrite.trace import Firing, Skip, Trace, held, show, written
from .fusion_pass import Fused, FusionDecisions, called, called_in, kind_of
from .kernels import Plan

NOWHERE = "the pattern matches nowhere"
READS_NOTHING = "it reads nothing that is computed"


@dataclass(frozen=True)
class LazyText:
    """A text that is made when it is printed. values: the terms that it shows; origin: the user's op on torch."""

    make: Callable[[], str]
    values: tuple[Term, ...] = ()
    origin: str = ""

    def __str__(self) -> str:
        return self.make()

    @property
    def name(self) -> str:
        """The text of a value that a pattern bound."""
        return self.make()


class Events:
    """Adds the events of one graph to a trace. names: of the values of the program."""

    def __init__(self, trace: Trace, prefix: str, graph: TensorGraph, names: Mapping[Term, str]):
        self.trace, self.prefix, self.graph, self.names = trace, prefix, graph, names

    def line(self, value: Term) -> str:
        """Return the line that computes a value of its operands."""
        return self.lines((value,)).split("\n")[-1]

    def lines(self, values: Iterable[Term], stored: Collection[Term] = (), below: Sequence[Term] | None = None) -> str:
        """Return the lines of some values, `stored` ones as `mat(..)`; the values `below` (their operands) by name."""
        found = []
        for value in values:
            *made, last = print_lines(self.graph, value, operands(value) if below is None else below).split("\n")
            left, equals, right = last.rpartition(" = ")
            found += [*made, f"{left} = mat({right})" if equals and value in stored else last]
        return "\n".join(found)

    def joined(self, values: Sequence[Term]) -> str:
        """Return stored values as one kernel stores them: `(a, b) = mat(v, w)`."""
        *made, first, second = self.lines(values, values).split("\n")
        (a, _, v), (b, _, w) = first.partition(" = "), second.partition(" = ")
        return "\n".join((*made, f"({a}, {b}) = mat({v[4:-1]}, {w[4:-1]})"))

    def shown(self, value: Any) -> str:
        """Return the text of a bound value: the name of a value of the program, else its operation."""
        if isinstance(value, tuple):
            return f"({', '.join(map(self.shown, value))})"
        if not isinstance(value, Term):
            return show(value)
        return self.names.get(value) or self.line(value).rpartition(" = ")[2]

    def bound(self, bound: Mapping[str, Any]) -> dict[str, Any]:
        return {name: LazyText(partial(self.shown, value)) for name, value in bound.items()}

    def fired(
        self, rule: Rule, where: str, before: Callable[[], str], after: Callable[[], str], bound: Mapping[str, Any],
        guards: Callable[[], tuple[str, ...]], folded: tuple[Folded, ...] = (), *shown: Any,
    ) -> None:  # fmt: skip
        at = rule.file, rule.name, rule.location, self.graph.name, where
        texts = (LazyText(before),), (LazyText(after, *shown),)
        self.trace.add(Firing(self.prefix, *at, {}, *texts, bound=bound, folded=folded, held=guards))

    def skipped(self, file: str, rule: str, at: str, text: str) -> None:
        self.trace.add(Skip(self.prefix, file, rule, f"{self.graph.name}.{at}" if at else self.graph.name, text))

    def unmatched(self, rule: Rule, at: Term | None, why: str) -> None:
        """Report a rule whose pattern does not match, and the value at which it comes nearest."""
        where = "" if at is None else called(at, self.names)
        self.skipped(rule.file, rule.name, where, f"{rule.location}: {rule.name}: {NOWHERE}{why}")


def _no_last(rule: Rule) -> str:
    return f": no value here is made as its last, `{written(list(rule.left.values())[-1].node)}`"


def trace_lowering(trace: Trace | None, lowered: Lowered) -> None:
    """Trace a firing for every torch op: the op, and the lines of Tensor IR that it became.

    An op has many rules that do not apply, so a refusal is traced only if the trace selects its rule.
    """
    if trace is None:
        return
    events = Events(trace, "d", lowered.graph, {})
    for rule, statement, reason in lowered.refusals:
        if rule.name in trace.asked:
            events.skipped(rule.file, rule.name, statement.dst, f"{rule.location}: {rule.name}: {reason.text}")
    for fired in lowered.firings:
        guards = partial(held, fired.rule, dict(fired.bound), Numbers())
        before = partial(print_torch_op, fired.before)
        after = partial(print_lines, lowered.graph, fired.after.term, fired.operands)
        details = before, after, fired.bound, guards, fired.folded, (), fired.origin
        events.fired(fired.rule, fired.before.dst, *details)


def trace_algebra(
    trace: Trace | None, evidence: TermEvidence | None, before: TensorGraph, after: TensorGraph, rules: Iterable[Rule]
) -> None:
    """Trace replaced values, the guards that kept rules away, and for each file that is silent its nearest miss."""
    if trace is None or evidence is None:
        return
    names = called_in(before) | called_in(after)
    events, made = Events(trace, "a", before, names), Events(trace, "a", after, names)
    for fired in evidence.firings:
        name = names.get(fired.before) or called(fired.after, names)
        texts = (
            partial(events.lines, (fired.before,)),
            partial(made.lines, (fired.after,), below=operands(fired.before)),
        )
        guards = partial(held, fired.rule, dict(fired.bound), Expressions("tensor"), names)
        events.fired(fired.rule, name, *texts, events.bound(fired.bound), guards, fired.folded, (fired.after,))
    for refusal in evidence.refusals:
        events.skipped(refusal.rule.file, refusal.rule.name, called(refusal.term, names), refusal.render(names))
    reported = {fired.rule.name for fired in evidence.firings} | {refusal.rule.name for refusal in evidence.refusals}
    for rule, miss, where in _nearest(rules, reported, trace.asked, (made, events)):
        events.unmatched(rule, None if miss is None else miss.root, _miss(rule, miss, where))


Miss = tuple[Rule, NearMiss | None, Events]


def _nearest(
    rules: Iterable[Rule], reported: set[str], asked: frozenset[str], graphs: tuple[Events, ...]
) -> Iterator[Miss]:
    """Yield the rule that came furthest in each file without firings and refusals, and each selected rule.

    The finished program is searched first: a rule absorbed the values that are gone from it.
    """
    files: dict[str, list[Rule]] = {}
    for rule in rules:
        files.setdefault(rule.file, []).append(rule)
    for members in files.values():
        misses = [_nearest_in(rule, graphs) for rule in members if rule.name not in reported]
        best = max((miss.followed for _, miss, _ in misses if miss is not None), default=0)
        silent = best and reported.isdisjoint(rule.name for rule in members)
        for rule, miss, where in misses:
            first = silent and miss is not None and miss.followed == best
            if first or rule.name in asked:
                yield rule, miss, where
            silent = silent and not first


def _nearest_in(rule: Rule, graphs: tuple[Events, ...]) -> Miss:
    """Return the nearest miss in the first of some graphs that has one."""
    for events in graphs:
        miss = nearest_miss(rule, tuple(out.value for out in events.graph.outs))
        if miss is not None:
            return rule, miss, events
    return rule, None, graphs[0]


def _miss(rule: Rule, miss: NearMiss | None, events: Events) -> str:
    if miss is None:
        return _no_last(rule)
    found = events.line(miss.found) if isinstance(miss.found, Term) else show(miss.found)
    if miss.expected is None:
        return f"; `{found}` is like it, but what it reads is rewritten first"
    count = f"{miss.followed} operation{'' if miss.followed == 1 else 's'}"
    return f"; nearest miss after {count}: expected `{written(miss.expected)}`, found `{found}`"


def trace_fusion(trace: Trace | None, plan: Plan, graph: TensorGraph, rules: Iterable[Rule]) -> None:
    """Trace which values lost their `mat`, to whom, and why the others are stored."""
    if trace is None or plan.decisions is None:
        return
    decisions = plan.decisions
    events = FusionEvents(trace, graph, decisions)
    for fused in _worth_a_line(decisions.firings):
        events.fused(fused)
    for refusal in decisions.refusals:
        at = called(refusal.term, events.names)
        events.skipped(refusal.rule.file, refusal.rule.name, at, refusal.render(events.names))
    reported = {fused.rule.name for fused in decisions.firings} | {refusal.rule.name for refusal in decisions.refusals}
    for rule in rules:
        if rule.name in trace.asked and rule.name not in reported:
            events.unmatched(rule, *events.nearest(rule))
    for stored in plan.why:
        if not stored.location:  # a refusal reports the value that its guard stored, a firing one that a rule stored
            reader = "nothing" if stored.reader is None else called(stored.reader, events.names)
            events.skipped("fuse", "", called(stored.value, events.names), f"{stored.reason}: {reader} reads it")


def _worth_a_line(firings: Iterable[Fused]) -> Iterator[Fused]:
    """Yield the firings that are worth a line: every rule that absorbed a value, once, and all direct consumers.

    Operations between a value and a consumer further up absorbed the value before, by a rule with a line of its own.
    """
    rules: dict[Term, set[str]] = {}
    for fused in firings:
        known = rules.setdefault(fused.value, set())
        if fused.reader is None or fused.rule.name not in known or _reads(fused.reader, fused.value):
            yield fused
        known.add(fused.rule.name)


def _reads(reader: Term, value: Term) -> bool:
    """Return whether a value is an operand, perhaps through index maps.

    Values above it in its kernel are not worth a line.
    """
    waiting = list(operands(reader))
    while waiting:
        term = waiting.pop()
        if term is value:
            return True
        if isinstance(term, Remap):
            waiting.append(term.x)
    return False


class FusionEvents(Events):
    """Events of fusion, and the reason why a rule has none.

    The reason names the nearest operation at which the rule could apply, and the decision on the values that it would
    have absorbed there.
    """

    def __init__(self, trace: Trace, graph: TensorGraph, decisions: FusionDecisions):
        super().__init__(trace, "f", graph, called_in(graph))
        self.decisions = decisions
        self.taken: dict[tuple[Term, Term | None], Rule] = {}
        for fused in decisions.firings:
            self.taken.setdefault((fused.value, fused.reader), fused.rule)

    def fused(self, fused: Fused) -> None:
        """Report a `mat(v)` that is gone, or climbed over what reads v, or that a rule put there."""
        share = "share" if fused.value in self.decisions.stored else ""
        kind = share if fused.reader is None else kind_of(fused.rule)
        values = (fused.value,) if fused.reader is None else (fused.value, fused.reader)
        where = (" and " if kind == "siblings" else " into ").join(called(term, self.names) for term in values)
        before = {"share": (), "siblings": values}.get(kind, values[:1])
        after = {"share": values, "climb": values[1:]}.get(kind, ())
        joined = partial(self.joined, values) if kind == "siblings" else partial(self.lines, values, after)
        texts, bound = (partial(self.lines, values, before), joined), self.bound(fused.bound)
        self.fired(fused.rule, where, *texts, bound, lambda: fused.held, (), values)

    def nearest(self, rule: Rule) -> tuple[Term | None, str]:
        """Return the value at which a rule came nearest, None where there is none, and why it did not fire there."""
        kind = kind_of(rule)
        if kind == "siblings":
            several = len(self.decisions.stored) > 1
            return None, f": {'no two stored values are left for it' if several else 'one value is stored'}"
        readers = [term for term in postorder(out.value for out in self.graph.outs) if begins_at(rule, term)]
        if not readers:
            return None, _no_last(rule)
        if kind == "share":
            return None, ": what is made as its last is computed by one kernel, and once there"
        if kind == "climb" and not any(one.reader for one in self.decisions.why.values()):
            return None, ": no value is stored because of who reads it, so no `mat` climbs"
        return max((self._at(term) for term in readers), key=lambda found: found[0])[1:]

    def _at(self, reader: Term) -> tuple[int, Term, str]:
        """Return how near a rule came at an operation, and the decision on the values in the operation's kernel."""
        near, text = 0, READS_NOTHING
        waiting, seen = [*operands(reader)], set[Term]()
        while waiting:
            value = waiting.pop(0)
            if value not in seen and not isinstance(value, LEAVES):
                seen.add(value)
                waiting += () if value in self.decisions.stored else operands(value)
                near, text = max((near, text), self._value(value, reader), key=lambda found: found[0])
        return near, reader, f"; nearest at `{self.line(reader)}`: {text}"

    def _value(self, value: Term, reader: Term) -> tuple[int, str]:
        """Return how near a value was to being absorbed, and the decision on it."""
        name = f"`{self._name(value)}`"
        here, anywhere = self.taken.get((value, reader)), self.taken.get((value, None))
        if here is not None:
            return 3, f"`{here.name}`, which is asked before it, takes {name} in"
        if value in self.decisions.stored:
            why = self.decisions.why.get(value)
            cause = "" if why is None or why.reader is None else f" for `{self._name(why.reader)}`: {why.reason}"
            return 1, f"{name} is stored{cause}"
        if anywhere is not None:
            return 2, f"{name} is not stored there: `{anywhere.name}` dropped its `mat` before"
        return 0, READS_NOTHING

    def _name(self, value: Term) -> str:
        return self.names.get(value) or self.line(value)
