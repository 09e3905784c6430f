"""The graph levels' events in the one trace: torch to tensor (`d:`), algebra (`a:`), fusion (`f:`).

Texts are made when the trace is printed: a compile whose trace is not printed pays for the records only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from ...ir.node import immutable
from ...ir.tensor import Remap, TensorGraph, Term, operands, postorder, terms
from ...ir.text.tensor import print_lines
from ...ir.text.torch import print_torch_op
from ..language.evaluate import Expressions
from ..language.rule import Rule
from ..rewrite.terms.matcher import LEAVES, NearMiss, begins_at, nearest_miss
from ..rewrite.terms.rewriter import TermEvidence
from ..rewrite.torch_rules.lower import Lowered
from ..rewrite.torch_rules.pattern import Numbers
from ..rewrite.trace import Firing, Refusal, RewriteStep, Skip, Trace, held, show, written
from .fusion_pass import Fused, FusionDecisions, called, called_in, kind_of
from .kernels import Plan

READS_NOTHING = "it reads nothing that is computed"


@immutable
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


@dataclass
class Events:
    """Adds the events of one graph to a trace. names: of the values of the program."""

    trace: Trace
    prefix: str
    graph: TensorGraph
    names: Mapping[Term, str]

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
        *made, first, second = self.lines(values).split("\n")
        (a, _, v), (b, _, w) = first.partition(" = "), second.partition(" = ")
        return "\n".join((*made, f"({a}, {b}) = mat({v}, {w})"))

    def shown(self, value: object) -> str:
        """Return the text of a bound value: the name of a value of the program, else its operation."""
        if isinstance(value, tuple):
            return f"({', '.join(map(self.shown, value))})"
        if not isinstance(value, Term):
            return show(value)
        return self.names.get(value) or self.line(value).rpartition(" = ")[2]

    def bound(self, bound: Mapping[str, object]) -> dict[str, LazyText]:
        return {name: LazyText(partial(self.shown, value)) for name, value in bound.items()}

    def fired(
        self, step: RewriteStep | Fused, where: str, before: Callable[[], str], after: LazyText,
        bound: Mapping[str, object], guards: Callable[[], tuple[str, ...]],
    ) -> None:  # fmt: skip
        at = step.rule.file, step.rule.name, step.rule.location, self.graph.name, where
        folded = step.folded if isinstance(step, RewriteStep) else ()
        texts = (LazyText(before),), (after,)
        self.trace.add(Firing(self.prefix, *at, {}, *texts, bound=bound, folded=folded, held=guards))

    def skipped(self, file: str, rule: str, at: str, text: str) -> None:
        self.trace.add(Skip(self.prefix, file, rule, f"{self.graph.name}.{at}" if at else self.graph.name, text))

    def refused(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            at = called(refusal.term, self.names)
            self.skipped(refusal.rule.file, refusal.rule.name, at, refusal.render(self.names))

    def unmatched(self, rule: Rule, at: Term | None, why: str) -> None:
        """Report a rule whose pattern does not match, and the value at which it comes nearest."""
        where = "" if at is None else called(at, self.names)
        what = f"{rule.location}: {rule.name}: the pattern matches nowhere"
        self.skipped(rule.file, rule.name, where, f"{what}{why}")


def _no_last(rule: Rule) -> str:
    return f": no value here is made as its last, `{written([*rule.left.values()][-1].node)}`"


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
        after = LazyText(partial(print_lines, lowered.graph, fired.after.term, fired.operands), origin=fired.origin)
        guards = partial(held, fired.rule, dict(fired.bound), Numbers())
        before = partial(print_torch_op, fired.before)
        events.fired(fired, fired.before.dst, before, after, fired.bound, guards)


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
        text = LazyText(partial(made.lines, (fired.after,), below=operands(fired.before)), (fired.after,))
        guards = partial(held, fired.rule, dict(fired.bound), Expressions("tensor"), names)
        events.fired(fired, name, partial(events.lines, (fired.before,)), text, events.bound(fired.bound), guards)
    events.refused(evidence.refusals)
    reported = {fired.rule.name for fired in evidence.firings} | {refusal.rule.name for refusal in evidence.refusals}
    taken = {fired.before: fired.rule for fired in reversed(evidence.firings)}  # the first at each value
    for rule, miss, where in _nearest(rules, reported, trace.asked, (made, events)):
        events.unmatched(rule, None if miss is None else miss.root, _miss(rule, miss, where, taken))


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
        silent = reported.isdisjoint(rule.name for rule in members)
        wanted = [rule for rule in members if rule.name not in reported and (silent or rule.name in asked)]
        misses = [_nearest_in(rule, graphs) for rule in wanted]
        furthest = max(misses, key=lambda found: found[1].followed if found[1] else 0, default=None)
        yield from (found for found in misses if found[0].name in asked or (found is furthest and found[1]))


def _nearest_in(rule: Rule, graphs: tuple[Events, ...]) -> Miss:
    """Return the nearest miss in the first of some graphs that has one."""
    for events in graphs:
        miss = nearest_miss(rule, events.graph.roots)
        if miss is not None:
            break
    return rule, miss, events


def _miss(rule: Rule, miss: NearMiss | None, events: Events, taken: Mapping[Term, Rule]) -> str:
    if miss is None:
        return _no_last(rule)
    found = events.line(miss.found) if isinstance(miss.found, Term) else show(miss.found)
    if miss.expected is None:
        first = [taken[term] for term in (miss.root, *postorder((miss.root,))) if term in taken]
        who = "".join(f" by `{one.name}` ({one.location})" for one in first[:1])
        return f"; `{found}` is like it, but it or what it reads is rewritten first{who}"
    count = f"{miss.followed} operation{'' if miss.followed == 1 else 's'}"
    return f"; nearest miss after {count}: expected `{written(miss.expected)}`, found `{found}`"


def trace_fusion(trace: Trace | None, plan: Plan, graph: TensorGraph, rules: Iterable[Rule]) -> None:
    """Trace which values lost their `mat`, to whom, and why the others are stored."""
    if trace is None or plan.decisions is None:
        return
    decisions = plan.decisions
    events = FusionEvents(trace, graph, decisions)
    known: dict[Term, set[str]] = {}  # the rules that have a line, by the value that they absorbed
    for fused in decisions.firings:
        # Operations between a value and a consumer further up absorbed it before, by a rule with a line of its own.
        seen = known.setdefault(fused.value, set())
        if fused.reader is None or fused.rule.name not in seen or _reads(fused.reader, fused.value):
            events.fused(fused)
        seen.add(fused.rule.name)
    events.refused(decisions.refusals)
    reported = {fused.rule.name for fused in decisions.firings} | {refusal.rule.name for refusal in decisions.refusals}
    for rule in rules:
        if rule.name in trace.asked and rule.name not in reported:
            events.unmatched(rule, *events.nearest(rule))
    for stored in plan.why:
        if not stored.location:  # a refusal reports the value that its guard stored, a firing one that a rule stored
            reader = "nothing" if stored.reader is None else called(stored.reader, events.names)
            events.skipped("fuse", "", called(stored.value, events.names), f"{stored.reason}: {reader} reads it")


def _reads(reader: Term, value: Term) -> bool:
    """Return whether a value is an operand, perhaps through index maps."""
    for term in operands(reader):
        while term is not value and isinstance(term, Remap):
            term = term.x
        if term is value:
            return True
    return False


class FusionEvents(Events):
    """Events of fusion, and the reason why a rule has none.

    The reason names the nearest operation at which the rule could apply, and the decision on the values that it would
    have absorbed there.
    """

    def __init__(self, trace: Trace, graph: TensorGraph, decisions: FusionDecisions):
        super().__init__(trace, "f", graph, called_in(graph))
        self.decisions = decisions
        self.taken = {(fused.value, fused.reader): fused.rule for fused in reversed(decisions.firings)}  # the first

    def fused(self, fused: Fused) -> None:
        """Report a `mat(v)` that is gone, or climbed over what reads v, or that a rule put there."""
        share = "share" if fused.value in self.decisions.stored else ""
        kind = share if fused.reader is None else kind_of(fused.rule)
        values = (fused.value,) if fused.reader is None else (fused.value, fused.reader)
        where = (" and " if kind == "siblings" else " into ").join(called(term, self.names) for term in values)
        before = {"share": (), "siblings": values}.get(kind, values[:1])
        after = {"share": values, "climb": values[1:]}.get(kind, ())
        joined = partial(self.joined, values) if kind == "siblings" else partial(self.lines, values, after)
        text, bound = LazyText(joined, values), self.bound(fused.bound)
        self.fired(fused, where, partial(self.lines, values, before), text, bound, lambda: fused.held)

    def nearest(self, rule: Rule) -> tuple[Term | None, str]:
        """Return the value at which a rule came nearest, None where there is none, and why it did not fire there."""
        kind = kind_of(rule)
        if kind == "siblings":
            several = len(self.decisions.stored) > 1
            return None, f": {'no two stored values are left for it' if several else 'one value is stored'}"
        readers = [term for term in terms(self.graph) if begins_at(rule, term)]
        if not readers:
            return None, _no_last(rule)
        if kind == "share":
            return None, ": what is made as its last is computed by one kernel, and once there"
        if kind == "climb" and not any(one.reader for one in self.decisions.why.values()):
            return None, ": no value is stored because of who reads it, so no `mat` climbs"
        return max(map(self._at, readers), key=itemgetter(0))[1:]

    def _at(self, reader: Term) -> tuple[int, Term, str]:
        """Return how near a rule came at an operation, and the decision on the values in the operation's kernel."""
        found, seen = [(0, READS_NOTHING)], set[Term]()
        waiting = deque(operands(reader))
        while waiting:
            value = waiting.popleft()
            if value not in seen and not isinstance(value, LEAVES):
                seen.add(value)
                waiting += () if value in self.decisions.stored else operands(value)
                found.append(self._value(value, reader))
        near, text = max(found, key=itemgetter(0))
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
