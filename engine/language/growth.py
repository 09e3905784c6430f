"""Clauses that only grow: each reads the one before it twice, and after forty the value fits in no memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...ir.text import syntax as s
from .findings import Finding
from .positions import walk
from .rule import Rule
from .subject import CheckedRule

MOST = 1 << 12  # uses of what a pattern binds, all lets of a clause written out; our own rules have 40


def grown_values(subject: CheckedRule) -> Iterator[Finding]:
    """A `let` that, with those it reads written out, uses what the pattern binds more than MOST times."""
    for clause in subject.rule.clauses:
        if isinstance(clause, s.LetClause) and growth_of(subject.rule)[clause.name] > MOST:
            what = f"`{clause.name}`, written out, is more than {MOST:,} values: every `let` before it doubles it"
            yield subject.finding(what, clause.span, (), "read a `let` once, or take fewer of them")
            return


def growth_of(rule: Rule) -> dict[str, int]:
    """{let: how many values it is made of when the lets that it reads are written out}"""
    found: dict[str, int] = {}
    for clause in rule.clauses:
        if isinstance(clause, s.LetClause):
            uses = Counter(node.text for node in walk(clause.value) if isinstance(node, s.NameOf))
            total = sum(count * found.get(name, 1) for name, count in uses.items())
            found[clause.name] = min(total, MOST * 2)
    return found
