"""`let row = ri*TM + i` in a template: for the statements behind it in its block, written out where it is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....ir.diagnostic import DplcError
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import names, rebuilt, walk

MOST = 1 << 12  # nodes of a `let` with those it reads written out


def without_lets(rule: s.Rule) -> Callable[[s.Syntax], s.Syntax]:
    """A function that gives a clause of the rule without the `let`s of its template."""
    taken = {p.name: p.span for p in rule.parameters}
    for clause in rule.clauses:
        if isinstance(clause, s.LetClause | s.PickClause):
            taken[clause.name] = clause.span
        elif isinstance(clause, s.Match):
            for name in names(clause.body):
                taken.setdefault(name.text, name.span)
    return lambda clause: (
        dataclasses.replace(clause, body=_Lets(taken).block(clause.body, {}))
        if isinstance(clause, s.Rewrite)
        else clause
    )


class _Lets:
    def __init__(self, taken: Mapping[str, Any]):
        self.taken = dict(taken)
        self.used: set[str] = set()

    def block(self, statements: tuple[s.Syntax, ...], known: Mapping[str, s.Syntax]) -> tuple[s.Syntax, ...]:
        return tuple(self._statements(statements, dict(known)))

    def _statements(self, statements: tuple[s.Syntax, ...], known: dict[str, s.Syntax]) -> Iterator[s.Syntax]:
        own: list[eq.LetStatement] = []
        for node in statements:
            if not isinstance(node, eq.LetStatement):
                yield self.node(node, known)
                continue
            if node.name in self.taken:
                first = f"first in line {self.taken[node.name].line}"
                raise DplcError(f"`{node.name}` is bound twice", node.span, (first,))
            self.taken[node.name] = node.span
            known[node.name] = self.node(node.value, known)
            if sum(1 for _ in walk(known[node.name])) > MOST:
                what = f"`{node.name}`, written out, is too long: every `let` before it doubles it"
                raise DplcError(what, node.span, (), "read a `let` once, or take fewer of them")
            own.append(node)
        for node in own:
            del self.taken[node.name]
            if node.name not in self.used:
                hint = "it holds for the statements behind it in its block"
                raise DplcError(f"`let {node.name}` is never used", node.span, (), hint)

    def node(self, node: Any, known: Mapping[str, s.Syntax]) -> Any:
        if isinstance(node, s.NameOf) and node.text in known:
            self.used.add(node.text)
            return known[node.text]
        return (
            self.block(node, known) if isinstance(node, tuple) else rebuilt(node, lambda part: self.node(part, known))
        )
