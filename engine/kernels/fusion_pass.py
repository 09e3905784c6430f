"""Choice of the stored values: fusion rules run forward over the program.

Every computed value starts stored: `mat(v)`. Going forward, each operation y queries the rules to absorb the values
below it whose `mat` is still open. Literally, a rule `y = op(.., mat(v), ..) => y = op(.., v, ..)` would rebuild the
terms above v at every firing, and again at every later operation, since a kernel that may hold v may still be refused
further up. So a `mat` here is an entry in a table: `open[y]` holds the values v that y's kernel computes, with the
axes y sees each of them under. A rule's `mat(v)` matches an operand of y through which an open v is seen. The guards
check the kernel that would end in y. If every v is accepted, they stay open and the next operation follows. If one is
refused, v is stored for good, after its `mat` has climbed over its epilogue by the rules `op(mat(x)) => mat(op(x))`,
and the walk goes back to that operation. The walk ends: each way back stores a value that was not stored, and none is
removed, so there are at most as many as operations. Each operation is visited once, and once per store between it and
its operands: linear in practice, and no term is rebuilt.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Axis
from ...ir.facts.dataflow import Dataflow
from ...ir.node import immutable
from ...ir.tensor import Elementwise, Fold, Input, Reduce, Remap, TensorGraph, Term, index_axes, operands
from ..cost.limits import parts
from ..language import core as s
from ..language.check import load_facts
from ..language.evaluate import SITE, Environment, Expressions
from ..language.rule import Rule, policy
from ..language.spelling import expression
from ..rewrite.terms.matcher import LEAVES, AtTerm, RefusingSite, TermRuleWriter, executor_of
from ..rewrite.terms.rewriter import Table
from ..rewrite.trace import Refusal, failed_guard, held
from .index_maps import Places

# ---- What fusion decided, as data: which values are stored, by which rules, and why others did not fire.


@immutable
class Stored:
    """Reason why a value is stored.

    value: the stored value; reader: the operation that could not absorb it, None if a rule stored it; reason: the guard
    that failed, or what the rule says of itself.
    """

    value: Term
    reader: Term | None
    reason: str
    location: str = ""


@immutable
class Fused:
    """Rule that fired.

    value: the value whose `mat` was dropped (or climbed, or put there); reader: the operation that absorbed it, or None
    if the `mat` was dropped for all consumers, or put there. bound: what its names are bound to, if the plan records
    it; held: the guards with their values, if they are recorded for the rule. They are kept at once, because the site
    changes later.
    """

    rule: Rule
    value: Term
    reader: Term | None
    bound: Mapping[str, Any]
    held: tuple[str, ...]


@dataclass
class FusionDecisions:
    """Program as a flow, its stored values, and the reasons.

    groups: stored values that share a kernel, if that is decided; None leaves it to the rules for siblings.
    The last field holds names of rules, or of their files, whose guards are recorded when they hold. None: no reasons
    are needed.
    """

    flow: Dataflow
    stored: set[Any]
    groups: Sequence[Sequence[Any]] | None = None
    why: dict[Any, Stored] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    firings: list[Fused] = field(default_factory=list)
    asked: frozenset[str] | None = None


class Recorder:
    """Makes the records of firings and refusals on a program, with their values if `asked` is not None.

    The values are read at once, because the site changes later.
    """

    def __init__(self, graph: TensorGraph, asked: frozenset[str] | None):
        self.asked = asked
        self.names = {} if asked is None else called_in(graph)

    def fired(self, rule: Rule, value: Term, reader: Term | None, bound: Environment, env: Environment) -> Fused:
        """Return the record of a rule that fired. bound: the names of its pattern; env: what its guards read."""
        if self.asked is None:
            return Fused(rule, value, reader, {}, ())
        silent = self.asked.isdisjoint((rule.name, rule.file, rule.family))
        return Fused(rule, value, reader, bound, () if silent else held(rule, env, Expressions("tensor"), self.names))

    def refused(self, rule: Rule, guard: s.Guard, value: Term, env: Environment) -> Refusal:
        """Return the record of a guard that did not hold."""
        found = failed_guard(rule, guard, {} if self.asked is None else env, term=value)
        text = "" if self.asked is None else found.text(self.names)
        return replace(found, text=lambda names: text)


def called_in(graph: TensorGraph) -> dict[Any, str]:
    """Return the names of the values of a program."""
    named: dict[Any, str] = {x: x.name for x in graph.ins if isinstance(x, Input)}
    return named | {n.value: n.name for n in graph.names} | {out.value: out.name for out in graph.outs}


def called(value: Term, names: Mapping[Term, str]) -> str:
    """Return the name of a value; its operation if it has none: `multiply(..)`."""
    made = value.fn if isinstance(value, Elementwise) else type(value).__name__
    inside = f"{value.fn}, .." if isinstance(value, Reduce) else ".."
    return names.get(value) or f"{made}({inside})"


# Fusion rules, distinguished by what they do with `mat`. A rule is recognised by its two sides alone.
#
# h = mat(v)                          =>  h = v                        inline: not worth storing for any reader
# y = op(.., mat(v), ..)              =>  y = op(.., v, ..)            fuse: y's kernel computes v
# y = op(.., mat(x), ..)              =>  y = mat(op(.., x, ..))       climb: store the epilogue instead
# y = op(..)                          =>  y = mat(op(..))              share: store what several kernels compute
# a = mat(v), b = mat(w)              =>  (a, b) = mat(v, w)           siblings: one kernel stores both

# How many `mat`s each side has, and whether each of them is one as a whole.
KINDS: dict[tuple[int, ...], str] = {
    (1, 0, True, False): "inline", (1, 0, False, False): "fuse", (1, 1, False, True): "climb",
    (0, 1, False, True): "share",
}  # fmt: skip


ONLY_MATS = "its right side is its left side less one `mat`, or with the `mat` moved to the root, or with one put there"


def kind_of(rule: Rule) -> str:
    """Return the kind of a fusion rule: inline, fuse, climb, share or siblings.

    Raises DplcError for a rule that does not only move a `mat`.
    """
    if len(rule.rewrite) == 1 and isinstance(rule.rewrite[0], s.Assign) and isinstance(rule.rewrite[0].target, s.Group):
        return "siblings"
    sides = [[*_parts(list(side.values())[-1], side)] for side in (rule.left, rule.right)]
    kind = KINDS.get((*(side.count(s.MatTerm) for side in sides), *(side[0] is s.MatTerm for side in sides)))
    before, after = ([part for part in side if part is not s.MatTerm] for side in sides)
    if kind is None or before != after:
        what = f"rule `{rule.name}`: a fusion rule changes nothing but a `mat`"
        raise DplcError(what, rule, notes=(ONLY_MATS,))
    return kind


def _parts(value: Any, defined: Mapping[str, s.ValueTerm]) -> Iterator[Any]:
    """Yield the classes and fields of a value in the order of its text, names of other statements written out."""
    if isinstance(value, s.NameTerm) and value.name in defined:
        yield from _parts(defined[value.name], defined)
    elif isinstance(value, s.ValueTerm):
        yield type(value)
        for name in type(value).__slots__:
            yield from _parts(getattr(value, name), defined)
    elif isinstance(value, tuple):
        yield len(value)
        for item in value:
            yield from _parts(item, defined)
    else:
        yield expression(value) if isinstance(value, s.Syntax) else value


class SiblingsSite(RefusingSite, Protocol):
    """A program whose kernels may be put together, which records what its rules did."""

    target: Target
    recorder: Recorder


class Siblings:
    """A two-root rule: guards over a pair of stored values."""

    def __init__(self, rule: Rule, parameters: dict[str, Any]):
        self.rule = rule
        self.names: list[str] = []
        for name, value in rule.left.items():
            if not isinstance(value, s.MatTerm) or not isinstance(value.x, s.NameTerm):
                what = f"rule `{rule.name}`: a rule of two kernels matches `a = mat(v)` and `b = mat(w)`"
                raise DplcError(what, value.span)
            self.names += name, value.x.name
        if len(rule.left) != 2:
            raise DplcError(f"rule `{rule.name}`: a rule of two kernels matches two stored values", rule.span)
        self.decide, self.pinned = executor_of(rule, parameters)

    def joined(self, first: Term, second: Term, site: SiblingsSite) -> Fused | None:
        """Return the record of the rule if it lets two stored values share a kernel.

        Otherwise the site records the guard that keeps them apart.
        """
        bound = dict(zip(self.names, (first, first, second, second), strict=True))
        env = self.decide({**bound, SITE: site, "target": site.target}, self.pinned, AtTerm(self.rule, site, second))
        return None if env is None else site.recorder.fired(self.rule, first, second, bound, env)


class FusionRules:
    """The rules of rules/fusion, compiled, by kind."""

    def __init__(self, rules: Iterable[Rule], parameters: dict[str, Any] | None = None):
        load_facts()
        self.rules, parameters = tuple(rules), parameters or {}
        self.siblings: list[Siblings] = []
        found: dict[str, list[Any]] = {kind: [] for kind in KINDS.values()}
        for rule in self.rules:
            kind = kind_of(rule)
            if kind == "siblings":
                self.siblings.append(Siblings(rule, parameters))
            else:
                found[kind].append(TermRuleWriter(rule, parameters, evidence=True, bind=True).write())
        self.inline, self.fuse, self.climb, self.share = map(Table, found.values())


# By value and reader; the reader is None where the `mat` is dropped, or put, for all.
Firings = dict[tuple[Any, Any], Fused]


class Fusion:
    """Run of the rules over one program.

    marked: for examples, the only values whose `mat` is in question. asked: if given, every refusal is kept with the
    values of its guard, and so are the firings of the named rules. in_tf32: the values of operators in TF32.

    While an operation is tried, the facts of rules read here what its kernel would hold.
    """

    reader: Any  # the operation that is tried
    value: Any  # the open value in question
    top: Any  # the value that a climbing store has reached
    seen: dict[Any, int]  # open value -> mask of the axes that the reader sees it under
    folded = 0  # mask of the axes that reductions of this kernel fold
    space = 0  # mask of the axes the reader runs over
    owners: dict[Any, int]  # value -> the kernels that compute it, a bit each

    def __init__(
        self,
        graph: TensorGraph,
        rules: FusionRules,
        target: Target,
        marked: frozenset[Any] | None = None,
        asked: frozenset[str] | None = None,
        in_tf32: Collection[Term] = (),
    ):
        self.rules, self.target, self.marked, self.in_tf32 = rules, target, marked, in_tf32
        self.recorder = Recorder(graph, asked)
        self.result_axes = {out.value: out.axes for out in graph.outs}
        self.flow, self.kept = Dataflow(self.result_axes), set(self.result_axes)
        self.open: dict[Any, dict[Any, int]] = {}
        self.why: dict[Any, Stored] = {}
        self.refusals: dict[tuple[str, str, Any], Refusal] = {}
        self.refused: list[Refusal] = []  # of the operation for the value; without `asked` the first alone
        self.fused, self.climbed, self.shared = Firings(), Firings(), Firings()
        self.evaluations: dict[Any, int] = {}
        self.places = Places(self.flow, self.kept)
        self.known_parts: dict[Any, tuple[list[Any], list[Any]]] = {}  # by value and ends

    def decide(self) -> FusionDecisions:
        place, order = 0, self.flow.order
        while place < len(order):
            place = self._visit(order[place])
            if place == len(order):
                place = self._share()
        firings = [
            one
            for (value, reader), one in self.fused.items()
            if value not in self.kept and (reader is None or reader in self.kept or value in self.open[reader])
        ]
        firings += [one for one in self.climbed.values() if one.reader in self.why]
        firings += self.shared.values()
        refusals = list(self.refusals.values())
        return FusionDecisions(self.flow, self.kept, None, self.why, refusals, firings, self.recorder.asked)

    # ---- rules
    def stored(self, operand: Any) -> Any:
        """Return the value that `mat(v)` matches at this operand, or None."""
        return self.value if operand is self.value or self.value in self.open.get(operand, ()) else None

    def refuse(self, rule: Rule, guard: s.Guard, term: Any, env: Environment) -> None:
        if not self.refused or self.recorder.asked is not None:
            self.refused.append(self.recorder.refused(rule, guard, term, env))

    def _fires(self, table: Table, term: Any, value: Any, fired: Firings) -> Fused | None:
        """Return the record of the first rule of a table that fires at an operation for a value, and keep it."""
        self.reader, self.value, self.refused, found = term, value, [], None
        for attempt, run in table.at(term):
            bound = run(term, self)
            if bound is not None:
                reader = None if term is value else term
                found = fired[value, reader] = self.recorder.fired(attempt.rule, value, reader, bound, bound)
                break
        if found is None or self.recorder.asked is not None:
            for one in self.refused:
                self.refusals.setdefault((one.rule.name, one.because, value), one)
        return found

    def parts(self, value: Term, ends: tuple[Term, ...] = ()) -> tuple[list[Any], list[Any]]:
        """Return the operations that make a value from what is in memory or at the ends, and what they read there."""
        if (value, ends) not in self.known_parts:
            self.known_parts[value, ends] = parts(value, self.kept, ends)
        return self.known_parts[value, ends]

    # ---- the walk
    def _visit(self, term: Any) -> int:
        """Absorb the values below an operation, or store one of them. Return the index to go on from."""
        flow, seen = self.flow, self._seen(term)
        self.reader, self.seen = term, seen
        back = self._absorb(term) if seen else None
        if back is not None:
            return back
        counts = [1 if x in self.kept else self.evaluations[x] for x in operands(term)]  # of x for one element of term
        self.evaluations[term] = sum(counts) if term.__class__ is Remap else max(counts, default=1)
        self.places.visit(term)
        asked = not isinstance(term, LEAVES) and term not in self.kept and (self.marked is None or term in self.marked)
        if asked and self._fires(self.rules.inline, term, term, self.fused) is None:
            seen = {**seen, term: flow.mask[term]}
        self.open[term] = seen
        return flow.position[term] + 1

    def _below(self, operand: Any) -> dict[Any, int]:
        """Return the open values of an operand: those that its reader's kernel would compute."""
        return {} if operand in self.kept else self.open[operand]

    def _seen(self, term: Any) -> dict[Any, int]:
        """Return the open values below a term, with the axes that it would see them under."""
        flow = self.flow
        found: dict[Any, int] = {}
        if term.__class__ is Remap:
            mapping = [(flow.bit(axis), flow.mask_of_axes(index_axes(e))) for axis, e in term.map]
            for value, mask in self._below(term.x).items():
                for bit, onto in mapping:
                    if mask & bit:
                        mask = mask & ~bit | onto
                found[value] = mask
            for x in operands(term)[1:]:
                found.update(self._below(x))
            return found
        below = [self.open[x] for x in operands(term) if x not in self.kept and self.open[x]]
        if len(set(map(id, below))) == 1:  # one table, mostly: it is shared
            return below[0]
        for one in below:
            for value, mask in one.items():
                found[value] = found.get(value, 0) | mask
        return found

    def _absorb(self, term: Any) -> int | None:
        """Absorb the open values that an operation sees, or store one of them and return the index to go back to."""
        flow, rules, position = self.flow, self.rules, self.flow.position
        self.space = flow.mask[term] | flow.mask_of_axes(term.over if term.__class__ in (Reduce, Fold) else ())
        folds = [one.over for one in (term, *self.seen) if one.__class__ in (Reduce, Fold)]
        self.folded = flow.mask_of_axes({axis for over in folds for axis in over})
        # an operation absorbs all in an example of another rule, unless a `mat` has to climb
        climbing = rules.climb.attempts and term.__class__ not in (Reduce, Fold, Remap)
        if self.marked is not None and not rules.fuse.at(term) and (rules.fuse.attempts or climbing):
            return None
        refused: Any = None
        place: Any = None
        why, enough, leading = list[Refusal](), set[Any](), set[Any]()
        for value in sorted(self.seen, key=position.__getitem__):
            asked = refused is None or (value in leading and self._place_of(value, term) in enough)
            if asked and self._fires(rules.fuse, term, value, self.fused) is None:
                refused, why = value, self.refused
                place = self._place_of(refused, term)
                enough, leading = self._instead(refused, place, term)
        if refused is None:
            return None
        reason = why[0].because if why else "no fusion rule takes it in"
        self.why[place] = Stored(place, term, reason, why[0].location if why else "")
        self._store((place,))
        return position[place]

    def _instead(self, refused: Any, stored: Any, term: Any) -> tuple[set[Any], set[Any]]:
        """Return the values that are enough to store if one was refused, and the values whose store may climb to them.

        They are not larger than `stored`, which would be stored for the refused one. All paths from the refused one to
        the operation lead through them: the walk from the operation, latest value first, has no other to visit then.
        """
        flow, enough = self.flow, set[Any]()
        latest, between = [-flow.position[term]], {term}
        while latest:
            here = flow.order[-heapq.heappop(latest)]
            if not latest and here is not term and flow.size(here) <= flow.size(stored):
                enough.add(here)
            for x in operands(here):
                if x not in between and x not in self.kept and refused in self.open[x]:
                    between.add(x)
                    heapq.heappush(latest, -flow.position[x])
        leading = {x for x in between if term.__class__ is Remap and x in self._below(term.x)}
        pending = [*enough]
        while pending:
            here = pending.pop()
            leading.add(here)
            if here.__class__ is Remap or self.rules.climb.at(here):
                pending += [x for x in operands(here) if x in between and x not in leading]
        return enough, leading

    # ---- stores
    def _store(self, values: Iterable[Any]) -> None:
        """Store values, and forget the parts of what they may be computed into: all values that come later."""
        self.kept.update(values)
        position = self.flow.position
        first = min(map(position.__getitem__, values), default=len(position))
        self.known_parts = {key: known for key, known in self.known_parts.items() if position[key[0]] <= first}

    def _place_of(self, value: Any, reader: Any) -> Any:
        """Return the value to store so that a reader finds a value in memory: the value, or one computed from it.

        All consumers flow into that one, as the climbing rules allow.
        """
        if reader.__class__ is Remap and value in self._below(reader.x):
            return reader.x  # what a view reads stays stored as it is: a map is not an epilogue
        place = value
        while (following := self._above(place, value, reader)) is not None:
            place = following
        return place

    def _above(self, top: Any, value: Any, reader: Any) -> Any:
        """Return the operation over which the store of a value climbs from the place that it has reached, or None."""
        self.top, front = top, set(self._readers(top, reader))
        for left in range(policy(self.target).diamond_operations, -1, -1):
            first = min(front, key=self.flow.position.__getitem__)
            front.discard(first)
            if first is reader or first in self.kept or (front and not left):
                return None
            if self._fires(self.rules.climb, first, value, self.climbed) is None:
                return None
            if not front:  # a diamond (x * sigmoid(x)) closes where all its paths meet
                return first
            front.update(self._readers(first, reader))
        return None

    def _readers(self, term: Any, stop: Any) -> Iterator[Any]:
        """Yield the readers of a value; those of an index map that only renames axes instead of the map."""
        for other in self.flow.readers[term]:
            view = other.__class__ is Remap and other is not stop and other.x is term and other not in self.kept
            if view and is_renaming(other):
                yield from self._readers(other, stop)
            else:
                yield other

    # ---- values that several kernels would compute
    def _share(self) -> int:
        """Store values that several kernels compute, if a rule says so. Return the index to go on from."""
        self.owners, changed = self._owners(), []
        for term in self.flow.order:
            if term in self.kept or isinstance(term, LEAVES) or not self._several(term):
                continue
            fired = self._fires(self.rules.share, term, term, self.shared)
            if fired is not None:
                changed.append(term)
                rule = fired.rule
                self.why[term] = Stored(term, None, rule.docs[0] if rule.docs else rule.name, rule.location)
        self._store(changed)
        return min(map(self.flow.position.__getitem__, changed), default=len(self.flow.order))

    def _several(self, term: Any) -> bool:
        """Return whether several kernels compute a value, and not all of them the same reader of it.

        A reader over more axes counts, too: several of its blocks may compute what it reads.
        """
        mask, readers, mine = self.flow.mask, self.flow.readers, self.owners[term]
        if (mine.bit_count() > 1 or self.marked is not None) and all(
            reader in self.kept or self.owners[reader] != mine for reader in readers[term]
        ):
            return True  # else the same kernels compute a reader of it: that is stored instead
        pairs = ((mask[seen], mask[reader]) for seen in self.flow.forms(term) for reader in readers[seen])
        return any(own & ~wider == 0 != wider & ~own for own, wider in pairs)

    def _owners(self) -> dict[Any, int]:
        """Return for every value the kernels that compute it, a bit each; for a stored one its own."""
        owners, bit = dict[Any, int](), 1
        for term in reversed(self.flow.order):
            if term in self.kept:
                owners[term], bit = bit, bit << 1
                continue
            owners[term] = 0
            for reader in self.flow.readers[term]:
                owners[term] |= owners[reader]
        return owners


def is_renaming(term: Remap) -> bool:
    """Return whether a map only gives axes other names."""
    return all(e.__class__ is Axis for _, e in term.map)
