"""Patterns of index expressions that bind variables: `ko*BK + k`, `x // 4`, `subtract(b, m)` inside sums.

A sum matches term by term, each term of the pattern against any term of the value that is left, in the value's order:
sums do not depend on the order of their terms. This is the slow and general way; values.py writes out the common cases.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

from ....ir import expr as e
from ....ir.diagnostic import DplcError
from ...language import core as s
from ...language.positions import calls, is_variable, names
from ...language.questions import Environment
from .expressions import RuleExpressions

Matcher = Callable[[Any, Environment], Iterator[Environment]]


def same(a: Any, b: Any) -> bool:
    """Equal, with 1, 1.0 and True apart; sums are equal in any order of their terms."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ is e.Sum:
        return a.constant == b.constant and len(a.terms) == len(b.terms) and dict(a.terms) == dict(b.terms)
    if a.__class__ is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and (a.__class__ is not float or repr(a) == repr(b))


def names_in(node: Any, facts: Container[str] = ()) -> frozenset[str]:
    """The variables that an expression mentions. Reserved words and constants are none, and facts that it calls."""
    called = (call.fn for call in calls(node) if call.fn not in facts)
    return frozenset(filter(is_variable, (*(name.text for name in names(node)), *called)))


class OpenExpressions:
    """Compiles expressions with free variables to matchers over (value, environment)."""

    def __init__(self, closed: RuleExpressions):
        self.closed = closed

    def compile(self, node: s.Syntax) -> Matcher:
        if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
            return self.compile(node.items[0])
        if isinstance(node, s.NameOf) and names_in(node):
            return _variable(node.text)
        if isinstance(node, s.NameOf) and node.text == "_":
            return lambda value, env: iter((env,))
        if not names_in(node) or isinstance(node, s.Member | s.Subscript):
            return self._value(node)
        if isinstance(node, s.Operation) and node.op in ("+", "-", "*"):
            return self._sum(node)
        if isinstance(node, s.Prefix) and node.op == "-":
            return self._sum(node)
        if isinstance(node, s.Operation) and node.op in e.OPERATORS:
            return self._binary(node)
        if isinstance(node, s.Apply):
            return self._call(node)
        raise DplcError("this is no pattern of an expression", node.span)

    def _value(self, node: s.Syntax) -> Matcher:
        compute = self.closed.compile(node)

        def match(value: Any, env: Environment) -> Iterator[Environment]:
            if same(value, compute(env)):
                yield env

        return match

    def _binary(self, node: s.Operation) -> Matcher:
        a, b, op = self.compile(node.a), self.compile(node.b), node.op

        def match(value: Any, env: Environment) -> Iterator[Environment]:
            if value.__class__ is e.Binary and value.op == op:
                for inner in a(value.a, env):
                    yield from b(value.b, inner)

        return match

    def _call(self, node: s.Apply) -> Matcher:
        items, fn = [self.compile(item) for item in node.items], node.fn
        head = _variable(fn) if names_in(s.NameOf(node.span, fn)) else None

        def match(value: Any, env: Environment) -> Iterator[Environment]:
            if value.__class__ is not e.Call or len(value.args) != len(items):
                return
            if head is None:
                yield from _all(items, value.args, env) if value.fn == fn else ()
                return
            for inner in head(e.Var(value.fn), env):
                yield from _all(items, value.args, inner)

        return match

    def _sum(self, node: s.Syntax) -> Matcher:
        parts = sorted(_addends(node, 1), key=lambda part: isinstance(part[1], s.Number))
        matchers = [(sign, self._term(part)) for sign, part in parts]

        def match(value: Any, env: Environment) -> Iterator[Environment]:
            terms, constant = e.linear(value) if not isinstance(value, float) else ({}, 0)
            pool = [*terms.items(), *([(1, constant)] if constant else [])]
            if len(pool) == len(matchers):
                yield from _assign(matchers, pool, env)

        return match

    def _term(self, node: s.Syntax) -> Callable[[Any, int, Environment], Iterator[Environment]]:
        """A matcher of `coefficient * atom`."""
        if isinstance(node, s.Operation) and node.op == "*":
            return self._product(node)
        whole = self.compile(node)
        return lambda atom, n, env: whole(e.multiply(atom, n), env)

    def _product(self, node: s.Operation) -> Callable[[Any, int, Environment], Iterator[Environment]]:
        a, b, exact = self.compile(node.a), self.compile(node.b), self._binary(node)

        def match(atom: Any, n: int, env: Environment) -> Iterator[Environment]:
            if n == 1:
                yield from exact(atom, env)
            if atom.__class__ is not int:
                for first, second in ((a, b), (b, a)):  # the coefficient may be written on either side
                    for inner in first(atom, env):
                        yield from second(n, inner)

        return match


def _variable(name: str) -> Matcher:
    def match(value: Any, env: Environment) -> Iterator[Environment]:
        if name not in env:
            yield {**env, name: value}
        elif same(env[name], value):
            yield env

    return match


def _all(matchers: list[Matcher], values: tuple[Any, ...], env: Environment) -> Iterator[Environment]:
    if not matchers:
        yield env
        return
    for inner in matchers[0](values[0], env):
        yield from _all(matchers[1:], values[1:], inner)


def _assign(matchers: list[Any], pool: list[Any], env: Environment) -> Iterator[Environment]:
    if not matchers:
        yield env
        return
    sign, matcher = matchers[0]
    for position, (atom, n) in enumerate(pool):
        for inner in matcher(atom, n * sign, env):
            yield from _assign(matchers[1:], pool[:position] + pool[position + 1 :], inner)


def _addends(node: s.Syntax, sign: int) -> list[tuple[int, s.Syntax]]:
    if isinstance(node, s.Group) and node.bracket == "(" and len(node.items) == 1:
        return _addends(node.items[0], sign)
    if isinstance(node, s.Operation) and node.op in ("+", "-"):
        return _addends(node.a, sign) + _addends(node.b, sign if node.op == "+" else -sign)
    if isinstance(node, s.Prefix) and node.op == "-":
        return _addends(node.a, -sign)
    return [(sign, node)]
