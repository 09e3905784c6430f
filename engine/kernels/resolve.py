"""Index maps pushed to the leaves: what a kernel computes, with maps left only on what it loads.

Maps on computed values stay nodes until it is known what is stored; then reading `v` under a map is computing `v` with
its axes substituted. A Reduce inside keeps its own axes: one that would capture a substituted expression is renamed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container
from typing import Any

from ...ir.expr import Axis, Binary, Call, Not, Size, Sum, rebuild
from ...ir.facts.dataflow import Dataflow
from ...ir.facts.index import substitute
from ...ir.node import Node, contents, marks_of
from ...ir.tensor import (
    Case,
    Const,
    Elementwise,
    Fold,
    Index,
    Input,
    Reduce,
    Remap,
    Term,
    axes,
    index_axes,
    is_condition,
    operands,
)

Substitution = tuple[tuple[Axis, Any], ...]


class Resolver:
    """Resolves the values of one flow. stored: the leaves. values: names of terms, which follow them.

    sources: filled with the value that each resolved one was.
    """

    def __init__(self, flow: Dataflow, stored: Container[Any], values: dict[Any, str], sources: dict[Any, Any]):
        self.flow, self.stored, self.values, self.sources = flow, stored, values, sources
        self.names = {axis.name for axis in flow.axes}
        self.memo: dict[tuple[Any, Substitution], Term] = {}
        self.missing: list[tuple[Any, Substitution]] = []
        self.plain: dict[Any, bool] = {}
        for term in flow.order:
            self.plain[term] = self._is_plain(term)

    def _is_plain(self, term: Any) -> bool:
        """Whether nothing needs to be pushed below this value."""
        if term in self.stored:
            return True
        if term.__class__ is Remap and not self._leaf(term.x):
            return False
        return all(self.plain[operand] for operand in operands(term))

    def _leaf(self, term: Any) -> bool:
        return term.__class__ is Input or term in self.stored

    def kernel(self, root: Term) -> Term:
        """The value of a stored term over other stored terms and inputs."""
        if all(self.plain[operand] for operand in operands(root)) and (
            root.__class__ is not Remap or self._leaf(root.x)
        ):
            return root
        return self._resolve((root, ()), self._step)

    def rename(self, term: Term, axes_: dict[Axis, Axis]) -> Term:
        """A resolved value with free axes renamed."""
        return self._resolve(
            (term, self._order({own: new for own, new in axes_.items() if own in axes(term)})), self._step
        )

    def moved(self, value: Term, places: dict[Axis, Any]) -> Term:
        """The value of a stored term at other places."""
        return self._resolve((value, self._order(places)), self._step)

    def _resolve(self, task: tuple[Any, Substitution], first: Callable[..., Term]) -> Term:
        # An explicit stack: a chain of ten thousand operations is no deeper than one.
        stack = [task]
        while stack:
            key = stack[-1]
            if key in self.memo and key is not task:
                stack.pop()
                continue
            self.missing = []
            result = first(*key)
            if self.missing:
                stack.extend(reversed(self.missing))
                continue
            if key[0] in self.values:
                self.values.setdefault(result, self.values[key[0]])
            if result is not key[0]:
                self.sources.setdefault(result, self.sources.get(key[0], key[0]))
            axes(result)  # remembered bottom-up: no recursion later
            if key is task:
                return result
            self.memo[key] = result
            stack.pop()
        raise AssertionError("the task itself ends the loop")

    def _order(self, sub: dict[Axis, Any]) -> Substitution:
        if len(sub) < 2:
            return tuple(sub.items())
        return tuple(sorted(sub.items(), key=lambda pair: self.flow.bit(pair[0])))

    def _need(self, term: Any, sub: dict[Axis, Any]) -> Term:
        """term under sub if it is known already; otherwise it is noted as missing and the answer is of no use."""
        if sub:
            own = axes(term)
            sub = {axis: e for axis, e in sub.items() if e is not axis and axis in own}
        if self._leaf(term):
            return Remap(term, tuple((axis, sub[axis]) for axis in axes(term) if axis in sub)) if sub else term  # type: ignore[no-any-return]
        if not sub and self.plain.get(term, False):
            return term  # type: ignore[no-any-return]
        key = (term, self._order(sub))
        known = self.memo.get(key)
        if known is None:
            self.missing.append(key)
            return term  # type: ignore[no-any-return]
        return known

    def _index(self, e: Any, sub: dict[Axis, Any]) -> Any:
        return substitute(e, sub, lambda term: as_index(self._need(term, sub)))

    def _step(self, term: Any, pairs: Substitution) -> Term:
        kind, sub = term.__class__, dict(pairs)
        if kind is Elementwise:
            return Elementwise(term.fn, tuple([self._need(arg, sub) for arg in term.args]))
        if kind is Reduce or kind is Fold:
            return self._reduce(term, sub)
        if kind is Remap:
            inner = {axis: self._index(e, sub) for axis, e in term.map}
            outer = {axis: e for axis, e in sub.items() if axis not in inner}
            return self._need(term.x, {**outer, **inner})
        if kind is Case:
            cond = self._index(term.cond, sub)
            if cond is True or cond is False:
                return self._need(term.a if cond else term.b, sub)
            return Case(cond, self._need(term.a, sub), self._need(term.b, sub))
        if kind is Index:
            return as_term(self._index(term.expr, sub))
        return term  # type: ignore[no-any-return]

    def _reduce(self, term: Reduce | Fold, sub: dict[Axis, Any]) -> Term:
        free = {axis for e in sub.values() for axis in index_axes(e)}
        renamed = {axis: self._fresh(axis, free) for axis in term.over if axis in free} if free else {}
        over, inner = tuple(renamed.get(axis, axis) for axis in term.over), {**sub, **renamed}
        if isinstance(term, Fold):
            return Fold(term.part, over, tuple([self._need(arg, inner) for arg in term.args]))
        return Reduce(term.fn, over, self._need(term.x, inner))

    def _fresh(self, axis: Axis, avoid: set[Axis]) -> Axis:
        """Another axis of the same extent that is not used here. The same question gets the same answer."""
        for number in itertools.count(1):
            candidate = Axis(f"{axis.name}{number}", axis.extent)
            if candidate.name not in self.names and candidate not in avoid:
                return candidate
        raise AssertionError("count never ends")


def as_index(term: Any) -> Any:
    """A value where an index expression is wanted."""
    if term.__class__ is Index:
        return term.expr
    return term.value if term.__class__ is Const else term


def as_term(e: Any) -> Term:
    """An index expression where a value is wanted."""
    if isinstance(e, bool) or e.__class__ is int:
        return Const(e, "b8" if isinstance(e, bool) else "i64")
    if (isinstance(e, Node) and not isinstance(e, Term)) or is_condition(e):
        return Index(e)
    return e  # type: ignore[no-any-return]


def over_variables(e: Any, variables: dict[Axis, Any], value: Callable[[Any], Any]) -> Any:
    """Axes to loop variables, Terms to the values that hold them. The folding that extents allow happened before."""

    def change(x: Any) -> Any:
        if x.__class__ is Axis:
            return variables[x]
        if isinstance(x, (Sum, Binary, Not, Call)):
            return rebuild(x, change)
        return value(x) if isinstance(x, Node) and x.__class__ is not Size else x

    return change(e)


def holds_terms(e: Any) -> bool:
    """Whether an index expression reads values. Remembered by its nodes: places that are looked up are deep."""
    return isinstance(e, Node) and contents(e) & marks_of(Term) != 0
