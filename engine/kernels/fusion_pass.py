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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Axis
from ...ir.facts.dataflow import Dataflow
from ...ir.sizes import at_hint
from ...ir.tensor import Const, Elementwise, Fold, Index, Input, Reduce, Remap, TensorGraph, Term, index_axes, operands
from ..language import core as s
from ..language.check import load_facts
from ..language.evaluate import SITE, Environment, Expressions
from ..language.rule import Rule, RuleSet, policy
from ..language.spelling import expression
from ..rewrite.terms.matcher import AtTerm, TermRuleWriter, executor_of
from ..rewrite.terms.rewriter import Table, mentions_mat
from ..rewrite.trace import NAMELESS, Called, Refusal, failed_guard, held
from .index_maps import Places

# ---- What fusion decided, as data: which values are stored, by which rules, and why others did not fire.


@dataclass(frozen=True)
class Stored:
    """Reason why a value is stored.

    value: the stored value; reader: the operation that could not absorb it, None if a rule stored it; reason: the guard
    that failed, or what the rule says of itself.
    """

    value: Term
    reader: Term | None
    reason: str
    location: str = ""


@dataclass(frozen=True)
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
    bound: Mapping[str, Any] = field(default_factory=dict, compare=False)
    held: tuple[str, ...] = field(default=(), compare=False)


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


def guards_of(rule: Rule, env: dict[str, Any], asked: frozenset[str] | None, called: Called | None) -> tuple[str, ...]:
    """Return the guards of a rule that fired, with their values, if they are recorded for the rule."""
    if asked is None or asked.isdisjoint((rule.name, rule.file, rule.family)):
        return ()
    return held(rule, env, Expressions("tensor"), called or NAMELESS)


def refusal(rule: Rule, guard: s.Guard, value: Term, env: dict[str, Any], called: Called | None) -> Refusal:
    """Return the guard that did not hold, with its values, if the plan records them (called: the names of values).

    The values are read at once, because the site changes later.
    """
    found = failed_guard(rule, guard, {} if called is None else env, Expressions, term=value)
    text = "" if called is None else found.text(called)
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


class Siblings:
    """A two-root rule: guards over a pair of stored values."""

    def __init__(self, rule: Rule, names: tuple[str, str, str, str], parameters: dict[str, Any]):
        self.rule, self.names = rule, names
        executor, self.pinned = executor_of(rule, parameters)
        self.decide = executor.first()

    def names_of(self, first: Any, second: Any) -> dict[str, Any]:
        """Return the values of the names in the pattern."""
        a, v, b, w = self.names
        return {a: first, v: first, b: second, w: second}

    def decided(self, first: Any, second: Any, site: Any) -> Environment | None:
        """Return the environment in which two stored values may share a kernel, or None.

        The site records a guard that keeps them apart.
        """
        env = {**self.names_of(first, second), SITE: site, "target": site.target}
        return self.decide(env, self.pinned, AtTerm(site, second))


class FusionRules:
    """The rules of rules/fusion, compiled, by kind."""

    def __init__(self, rules: Iterable[Rule], parameters: dict[str, Any] | None = None):
        load_facts()
        found: dict[str, list[Any]] = {"inline": [], "fuse": [], "climb": [], "share": []}
        self.siblings: list[Siblings] = []
        self.rules = tuple(rules)
        for rule in self.rules:
            kind = kind_of(rule)
            if kind == "siblings":
                self.siblings.append(Siblings(rule, _pair(rule), parameters or {}))
                continue
            if kind == "inline":  # the root is the value itself: readers of mat(v) read v
                rule = replace(rule, match=(_without_mat(rule.match[-1]),))
            found[kind].append(TermRuleWriter(rule, parameters or {}, evidence=True, bind=True).write())
        self.inline, self.fuse = Table(found["inline"]), Table(found["fuse"])
        self.climb, self.share = Table(found["climb"]), Table(found["share"])

    @classmethod
    def of(cls, rules: RuleSet, parameters: dict[str, Any] | None = None) -> FusionRules:
        """Return the fusion of a rule set: its rules on tensor that move a `mat`."""
        return cls((rule for rule in rules.at("tensor") if mentions_mat(rule)), parameters)


def _without_mat(statement: Any) -> s.Syntax:
    """Return `h = v` for `h = mat(v)`."""
    return s.Assign(statement.span, statement.target, statement.value.items[0])


def _spell(value: Any, defined: dict[str, s.ValueTerm], mats: list[Any]) -> Any:
    """Return a value as nested tuples without its `mat`s, which go to `mats`.

    The names of other statements are written out.
    """
    if isinstance(value, s.MatTerm):
        mats.append(value)
        return _spell(value.x, defined, mats)
    if isinstance(value, s.NameTerm):
        return _spell(defined[value.name], defined, mats) if value.name in defined else value.name
    if isinstance(value, s.ValueTerm):
        return (
            type(value).__name__,
            *(_spell(getattr(value, field), defined, mats) for field in type(value).__slots__),
        )
    if isinstance(value, tuple):
        return tuple(_spell(item, defined, mats) for item in value)
    return expression(value) if isinstance(value, s.Syntax) else value


def kind_of(rule: Rule) -> str:
    """Return the kind of a fusion rule: inline, fuse, climb, share or siblings.

    Raises DplcError for a rule that does not only move a `mat`.
    """
    if len(rule.rewrite) == 1 and isinstance(rule.rewrite[0], s.Assign) and isinstance(rule.rewrite[0].target, s.Group):
        return "siblings"
    sides = []
    for defined in (rule.left, rule.right):
        root, mats = list(defined.values())[-1], list[Any]()
        sides.append((_spell(root, defined, mats), len(mats), isinstance(root, s.MatTerm)))
    (before, had, stored), (after, has, stores) = sides
    if before == after:
        if (had, has) == (1, 0):
            return "inline" if stored else "fuse"
        if stores and not stored and (had, has) in ((1, 1), (0, 1)):
            return "climb" if had else "share"
    raise DplcError(
        f"rule `{rule.name}`: a fusion rule changes nothing but a `mat`", rule.span,
        ("its right side is its left side less one `mat`, or with the `mat` moved to the root, or with one put there",),
    )  # fmt: skip


def _pair(rule: Rule) -> tuple[str, str, str, str]:
    """Return the names in `a = mat(v)`, `b = mat(w)`."""
    names: list[str] = []
    for name, value in rule.left.items():
        if not isinstance(value, s.MatTerm) or not isinstance(value.x, s.NameTerm):
            raise DplcError(
                f"rule `{rule.name}`: a rule of two kernels matches `a = mat(v)` and `b = mat(w)`", value.span
            )
        names += [name, value.x.name]
    if len(names) != 4:
        raise DplcError(f"rule `{rule.name}`: a rule of two kernels matches two stored values", rule.span)
    return names[0], names[1], names[2], names[3]


NEVER_STORED = (Input, Const, Index)


class Fusion:
    """Run of the rules over one program.

    marked: for examples, the only values whose `mat` is in question. If the last parameter is given, every refusal is
    kept with the values of its guard, and so are the firings of the named rules.
    """

    def __init__(
        self,
        graph: TensorGraph,
        rules: FusionRules,
        target: Target,
        marked: frozenset[Any] | None = None,
        asked: frozenset[str] | None = None,
    ):
        self.rules, self.target, self.marked, self.asked = rules, target, marked, asked
        self.flow = Dataflow(out.value for out in graph.outs)
        self.kept = {out.value for out in graph.outs}
        self.result_axes = {out.value: out.axes for out in graph.outs}
        self.open: dict[Any, dict[Any, int]] = {}
        self.why: dict[Any, Stored] = {}
        self.refusals: dict[tuple[str, str, Any], Refusal] = {}
        self.fused: dict[tuple[Any, Any], Fused] = {}  # by value and reader; None where no reader was tried
        self.climbed: dict[tuple[Any, Any], Fused] = {}
        self.shared: list[Fused] = []
        self.called = None if asked is None else called_in(graph)
        # the operation that is tried, and the open values that its kernel would hold, for the facts of the rules
        self.reader: Any = None
        self.seen: dict[Any, int] = {}  # open value -> mask of the axes that the reader sees it under
        self.folded = 0  # mask of the axes that reductions of this kernel fold
        self.space = 0  # mask of the axes the reader runs over
        self.value: Any = None  # the open value in question
        self.top: Any = None  # the value that a climbing store has reached
        self.refused: Refusal | None = None
        self.owners: dict[Any, int] = {}
        self.evaluations: dict[Any, int] = {}
        self.places = Places(self.flow, self.kept)

    def decide(self) -> FusionDecisions:
        start: int | None = 0
        while start is not None:
            self._forward(start)
            start = self._share()
        fused = [one for one in self.fused.values() if self._is_open(one.value, one.reader)]
        fused += [one for one in self.climbed.values() if one.reader in self.why]
        fused += self.shared
        refusals = list(self.refusals.values())
        return FusionDecisions(self.flow, self.kept, None, self.why, refusals, fused, self.asked)

    def _fired(self, rule: Rule, bound: dict[str, Any], value: Any, reader: Any) -> Fused:
        guards = guards_of(rule, bound, self.asked, self.called)
        return Fused(rule, value, reader, {} if self.asked is None else bound, guards)

    def _is_open(self, value: Any, reader: Any) -> bool:
        """Return whether the kernel of a reader computes a value, now that all is decided."""
        return value not in self.kept and (reader is None or value in self.open[reader] or reader in self.kept)

    def stored(self, operand: Any) -> Any:
        """Return the value that `mat(v)` matches at this operand, or None."""
        return self.value if operand is self.value or self.value in self.open.get(operand, ()) else None

    def refuse(self, rule: Rule, guard: s.Guard, term: Any, env: dict[str, Any]) -> None:
        if self.refused is not None and self.asked is None:
            return
        refused = refusal(rule, guard, term, env, self.called)
        if self.asked is not None:
            self.refusals.setdefault((rule.name, guard.reason, self.value), refused)
        self.refused = self.refused or refused  # the first rule that fits is the one that the reader expects

    # ---- the walk
    def _forward(self, start: int) -> None:
        place, order = start, self.flow.order
        while place < len(order):
            back = self._visit(order[place])
            place = place + 1 if back is None else back

    def _visit(self, term: Any) -> int | None:
        """Absorb the values below an operation, or store one of them and return the index to go on from."""
        seen = self._seen(term)
        if seen:
            refused = self._refused(term, seen)
            if refused is not None:
                value, refusal = refused
                return self._store(value, term, refusal)
        self.evaluations[term] = self._evaluations(term)
        self.places.visit(term)
        if not isinstance(term, NEVER_STORED) and term not in self.kept and not self._inlined(term):
            seen = {**seen, term: self.flow.mask[term]}
        self.open[term] = seen
        return None

    def _evaluations(self, term: Any) -> int:
        """Count computations of a value below a term for one element, to find an index and at that index."""
        counts = [1 if operand in self.kept else self.evaluations[operand] for operand in operands(term)]
        return sum(counts) if term.__class__ is Remap else max(counts, default=1)

    def _seen(self, term: Any) -> dict[Any, int]:
        """Return the open values below a term, with the axes that it would see them under."""
        if term.__class__ is Remap:
            return self._seen_through(term)
        found: dict[Any, int] = {}
        for operand in operands(term):
            below = self.open[operand] if operand not in self.kept else None
            if below:
                if not found:
                    found = below
                elif below is not found:
                    found = dict(found)
                    for value, mask in below.items():
                        found[value] = found.get(value, 0) | mask
        return found

    def _seen_through(self, term: Remap) -> dict[Any, int]:
        flow, found = self.flow, {}
        if term.x not in self.kept:
            mapping = [(flow.bit(axis), flow.mask_of_axes(index_axes(e))) for axis, e in term.map]
            for value, mask in self.open[term.x].items():
                for bit, onto in mapping:
                    if mask & bit:
                        mask = mask & ~bit | onto
                found[value] = mask
        for operand in operands(term)[1:]:
            if operand not in self.kept:
                found.update(self.open[operand])
        return found

    def _refused(self, term: Any, seen: dict[Any, int]) -> tuple[Any, Refusal | None] | None:
        """Return the first open value that no rule lets this operation absorb."""
        self._at(term, seen)
        values = seen if len(seen) < 2 else sorted(seen, key=self.flow.position.__getitem__)
        attempts = self.rules.fuse.at(term)
        if self.marked is not None and not attempts and self._allowed_in_example(term):
            return None
        found: tuple[Any, Refusal | None] | None = None
        for value in values:
            if found is not None and not self._instead(value, found[0], term):
                continue
            self.value, self.refused = value, None
            for attempt, run in attempts:
                bound = run(term, self)
                if bound is not None:
                    self.fused[value, term] = self._fired(attempt.rule, bound, value, term)
                    break
                if self.refused is not None:
                    self.refusals.setdefault((self.refused.rule.name, self.refused.because, value), self.refused)
            else:
                found = value, self.refused
        return found

    def _instead(self, value: Any, refused: Any, term: Any) -> bool:
        """Return whether storing a value is enough if an earlier one was refused.

        The value to which its store climbs must not be larger than that of the other, and the other must reach the
        operation only through it.
        """
        if refused not in self.open.get(value, {}):
            return False
        place, other = self._place_of(value, term), self._place_of(refused, term)
        self.reader = term
        if self._elements(place) > self._elements(other):
            return False
        todo, seen, first = [term], {place}, self.flow.position[refused]
        while todo:
            below = todo.pop()
            if below is refused:
                return False
            fresh = [x for x in operands(below) if x not in seen and x not in self.kept]
            seen.update(fresh)
            todo += [x for x in fresh if self.flow.position[x] >= first]
        return True

    def _allowed_in_example(self, term: Any) -> bool:
        """Return whether an operation absorbs all in an example of another rule, unless a `mat` has to climb."""
        return bool(
            self.rules.fuse.attempts or (self.rules.climb.attempts and term.__class__ not in (Reduce, Fold, Remap))
        )

    def _at(self, term: Any, seen: dict[Any, int]) -> None:
        flow = self.flow
        self.reader, self.seen = term, seen
        folded = 0
        for value in seen:
            if value.__class__ in (Reduce, Fold):
                folded |= flow.mask_of_axes(value.over)
        self.space = flow.mask[term]
        if term.__class__ in (Reduce, Fold):
            folded |= flow.mask_of_axes(term.over)
            self.space = flow.mask[term] | flow.mask_of_axes(term.over)
        self.folded = folded

    def _inlined(self, term: Any) -> bool:
        """Return whether a rule `h = mat(v) => h = v` drops the `mat` before it is read."""
        if self.marked is not None and term not in self.marked:
            return True
        fired = self._fires(self.rules.inline, term, term)
        if fired is not None:
            self.fused[term, None] = self._fired(*fired, term, None)
        return fired is not None

    def _fires(self, table: Table, term: Any, value: Any) -> tuple[Rule, dict[str, Any]] | None:
        """Return the first rule of a table that fires at an operation for a value, and what its names are bound to."""
        self.reader, self.value, self.refused = term, value, None
        for attempt, run in table.at(term):
            bound = run(term, self)
            if bound is not None:
                return attempt.rule, bound
        self._note(term)
        return None

    def _note(self, term: Any) -> None:
        """Record every refusal in an example; otherwise only refusals that store something are kept."""
        refused = self.refused
        if self.marked is not None and refused is not None:
            self.refusals[refused.rule.name, refused.because, term] = refused

    # ---- stores
    def _store(self, value: Any, reader: Any, refusal: Refusal | None) -> int:
        chosen = self._place_of(value, reader)
        assert chosen not in self.kept, "the walk would go back without a change, and never end"
        self.kept.add(chosen)
        reason, where = ("no fusion rule takes it in", "") if refusal is None else (refusal.because, refusal.location)
        self.why[chosen] = Stored(chosen, reader, reason, where)
        return self.flow.position[chosen]

    def _place_of(self, value: Any, reader: Any) -> Any:
        """Return the value to store so that a reader finds a value in memory: the value, or one computed from it."""
        if reader.__class__ is Remap and reader.x not in self.kept and value in self.open[reader.x]:
            return reader.x  # what a view reads stays stored as it is: a map is not an epilogue
        return self._climb(value, reader)

    def _elements(self, term: Any) -> int:
        """Return the elements of a value; of one with sizes at their hints, for this weighs what pays."""
        return at_hint(self.flow.elements(self.flow.mask[term]))  # type: ignore[no-any-return]

    def _climb(self, value: Any, reader: Any) -> Any:
        """Return the value that is stored instead of another one, after climbing.

        All consumers flow into it, as the climbing rules allow.
        """
        flow, top, steps = self.flow, value, policy(self.target).diamond_operations
        while top not in self.kept:
            front = set(self._readers(top, reader))
            for _ in range(steps):  # a diamond (x * sigmoid(x)) closes where all its paths meet
                if len(front) < 2:
                    break
                first = min(front, key=flow.position.__getitem__)
                if first is reader or first in self.kept or not self._climbs(first, top, value):
                    return top
                front.discard(first)
                front.update(self._readers(first, reader))
            if len(front) != 1:
                return top
            (following,) = front
            if following is reader or not self._climbs(following, top, value):
                return top
            top = following
        return top

    def _readers(self, term: Any, stop: Any) -> Iterable[Any]:
        """Return the readers of a value; those of an index map that only renames axes instead of the map."""
        for other in self.flow.readers[term]:
            if (
                other.__class__ is Remap
                and other is not stop
                and other.x is term
                and other not in self.kept
                and is_renaming(other)
            ):
                yield from self._readers(other, stop)
            else:
                yield other

    def _climbs(self, term: Any, top: Any, value: Any) -> bool:
        self.top = top
        fired = self._fires(self.rules.climb, term, value)
        if fired is not None:
            self.climbed[value, term] = self._fired(*fired, value, term)
        return fired is not None

    # ---- values that several kernels would compute
    def _share(self) -> int | None:
        """Store values that several kernels compute, if a rule says so. Return the first changed index, or None."""
        if not self.rules.share.attempts:
            return None
        owners, readers = self._owners(), self.flow.readers
        changed = []
        for term in self.flow.order:
            mine = owners[term]
            if term in self.kept or isinstance(term, NEVER_STORED):
                continue
            several = mine & (mine - 1) != 0 or self.marked is not None
            if several and any(reader not in self.kept and owners[reader] == mine for reader in readers[term]):
                several = False  # the same kernels compute that as well: store it instead
            if not several and not self._widened(term):
                continue
            self.owners = owners
            fired = self._fires(self.rules.share, term, term)
            if fired is not None:
                rule, _ = fired
                changed.append(term)
                self.shared.append(self._fired(*fired, term, None))
                self.why[term] = Stored(term, None, rule.docs[0] if rule.docs else rule.name, rule.location)
        self.kept.update(changed)
        return min((self.flow.position[term] for term in changed), default=None)

    def _widened(self, term: Any) -> bool:
        """Return whether a reader runs over more axes, so that several blocks may compute what it reads."""
        mask, readers = self.flow.mask, self.flow.readers
        for seen in self.flow.forms(term):
            if any(mask[seen] & ~mask[reader] == 0 != mask[reader] & ~mask[seen] for reader in readers[seen]):
                return True
        return False

    def _owners(self) -> dict[Any, int]:
        """Return for every value the kernels that compute it, a bit each."""
        owners: dict[Any, int] = {}
        bits: dict[Any, int] = {}
        for term in reversed(self.flow.order):
            mask = 0
            for reader in self.flow.readers[term]:
                mask |= bits[reader] if reader in self.kept else owners[reader]
            if term in self.kept:
                bits[term] = 1 << len(bits)
            owners[term] = mask
        return owners


def is_renaming(term: Remap) -> bool:
    """Return whether a map only gives axes other names."""
    return all(e.__class__ is Axis for _, e in term.map)
