"""`p = fold online over [n, q] of x into (m, l) scaling o`: what one more chunk does to the running form of a softmax.

The recurrence is the monoid's: its leading part (the running maximum) takes in the chunk, over the lanes that share it;
what all else was multiplied with changes by a factor, so that it is scaled; the elements come in with the weight that
the monoid lifts them to, relative to the base that the new leading part gives. `p` is that weight.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ....ir import expr as e
from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.monoid_texts import NAMES
from ....ir.monoids import Monoid, monoid
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import names

BASE = "base"  # of a monoid's definitions: what its elements are compared with


class Recurrence(NamedTuple):
    """Of a monoid with a leading part and a sum that is relative to it. leading: how two leading parts become one, of
    which an element is its own; base: what elements are compared with, of the leading part m; total: how two sums
    become one; gap and factor: what the sum so far is multiplied with, m1 the leading part so far; below and weight:
    what x counts for.
    """

    leading: str
    base: e.Call
    total: str
    gap: e.Call
    factor: e.Call
    below: e.Call
    weight: e.Call


def recurrence(one: Monoid) -> Recurrence | None:
    """The recurrence of a monoid; None where it is no sum relative to a leading part."""
    if len(one.parts) != 2:
        return None
    (m, total), lift, combine = one.parts, _table(one.lift), _table(one.combine)
    leading: Any = combine.get(m)
    both: Any = combine.get(total)
    lifted: Any = lift.get(total)
    if not (_calls(leading, 2) and _calls(both, 2) and _calls(lifted, 2) and lift.get(m) == e.Var(one.operands[0])):
        return None
    old, weight = both.args[0], lifted.args[0]
    if not (_calls(old, 2) and old.args[0] == e.Var(f"{total}1") and _calls(weight, 1) and _calls(old.args[1], 1)):
        return None
    gap: Any = combine.get(_name(old.args[1].args[0]))
    below: Any = lift.get(_name(weight.args[0]))
    if not (_calls(gap, 2) and _calls(below, 2) and gap.args[1] == below.args[1] == e.Var(BASE)):
        return None
    return Recurrence(leading.fn, combine[BASE], both.fn, gap, old.args[1], below, weight)


def _table(block: Any) -> dict[str, Any]:
    return {stmt.dst: stmt.val for stmt in block}


def _calls(value: Any, arity: int) -> bool:
    return isinstance(value, e.Call) and len(value.args) == arity


def _name(value: Any) -> str:
    return value.name if isinstance(value, e.Var) else ""


def without_folds(rule: s.Rule) -> Callable[[s.Syntax], s.Syntax]:
    """A function that gives a clause of the rule without the folds of its template."""
    taken = {name.text for name in names(rule.clauses)} | {parameter.name for parameter in rule.parameters}
    return lambda clause: (
        dataclasses.replace(clause, body=_block(clause.body, taken)) if isinstance(clause, s.Rewrite) else clause
    )


def _block(statements: tuple[s.Syntax, ...], taken: set[str]) -> tuple[s.Syntax, ...]:
    found: list[s.Syntax] = []
    for node in statements:
        if isinstance(node, eq.FoldAssign):
            found += _written_out(node, taken)
            continue
        body = getattr(node, "body", None)
        found.append(dataclasses.replace(node, body=_block(body, taken)) if body else node)  # type: ignore[call-arg]
    return tuple(found)


def _written_out(node: eq.FoldAssign, taken: set[str]) -> Iterator[s.Syntax]:
    if node.monoid not in NAMES:
        raise DplcError(f"unknown monoid `{node.monoid}`", node.span, (), did_you_mean(node.monoid, NAMES))
    one = monoid(node.monoid)
    form = recurrence(one)
    if form is None:
        known = " or ".join(f"`{name}`" for name in NAMES if recurrence(monoid(name)) is not None)
        notes = (f"such is {known}: its sum is scaled when the leading part changes",)
        raise DplcError(f"`{node.monoid}` is no sum relative to a leading part", node.span, notes)
    if len(node.parts) != len(one.parts):
        what = f"`{node.monoid}` has {len(one.parts)} parts, {', '.join(one.parts)}; this names {len(node.parts)}"
        raise DplcError(what, node.span)
    yield from _Steps(node, taken).steps(one, form)


class _Steps:
    """The statements of one fold."""

    def __init__(self, node: eq.FoldAssign, taken: set[str]):
        self.node, self.taken, self.at = node, taken, node.span

    def steps(self, one: Monoid, form: Recurrence) -> Iterator[s.Syntax]:
        m, total = self.node.parts
        chunk = self.node.value
        if self.node.lanes is not None:
            chunk = yield from self._shared("c", form.leading, self.node.value)
        x, lead = one.operands[0], one.parts[0]
        top = yield from self._value("top", s.Apply(self.at, form.leading, (m, chunk)))
        base = yield from self._value(BASE, self._call(form.base, {lead: top}))
        gap = yield from self._value("gap", self._call(form.gap, {f"{lead}1": m, BASE: base}))
        fix = yield from self._value("fix", s.Apply(self.at, form.factor.fn, (gap,)))
        yield self._into(m, form.leading, top)
        below = yield from self._value("below", self._call(form.below, {x: self.node.value, BASE: base}))
        own = isinstance(self.node.target, s.NameOf)
        weight = self.node.target if own else self._new("p")
        yield s.Assign(self.at, weight, s.Apply(self.at, form.weight.fn, (below,)))
        added = weight
        if self.node.lanes is not None:
            added = yield from self._shared("total", form.total, weight)
        yield self._scale(total, fix)
        yield self._into(total, form.total, added)
        for other in self.node.scaled:
            yield self._scale(other, fix)
        if not own:
            yield s.Assign(self.at, self.node.target, weight)

    def _shared(self, name: str, fn: str, value: s.Syntax) -> Any:
        """What the lanes have together: its statements, and its name."""
        new = self._new(name)
        yield self._into(new, fn, value)
        lanes = s.Keyword(self.at, "over", self.node.lanes or new)
        yield s.Statement(self.at, s.Apply(self.at, "Combine", (new, s.NameOf(self.at, fn), lanes)))
        return new

    def _value(self, name: str, value: s.Syntax) -> Any:
        new = self._new(name)
        yield s.Assign(self.at, new, value)
        return new

    def _into(self, target: s.Syntax, fn: str, value: s.Syntax) -> s.Syntax:
        return s.AccumulateInto(self.at, target, s.Apply(self.at, fn, (target, value)))

    def _scale(self, target: s.Syntax, factor: s.Syntax) -> s.Syntax:
        return s.Statement(self.at, s.Apply(self.at, "Scale", (target, factor)))

    def _call(self, call: e.Call, known: Mapping[str, s.Syntax]) -> s.Syntax:
        return _syntax(call, known, self.at)

    def _new(self, name: str) -> s.NameOf:
        """A name that the rule does not use yet."""
        while name in self.taken:
            name += "1"
        self.taken.add(name)
        return s.NameOf(self.at, name)


def _syntax(value: Any, known: Mapping[str, s.Syntax], at: Span) -> s.Syntax:
    if isinstance(value, e.Call):
        return s.Apply(at, value.fn, tuple(_syntax(argument, known, at) for argument in value.args))
    return known[value.name] if isinstance(value, e.Var) else s.Number(at, value)
