"""Names that a rule gives: none of them may be a word of the language. Such a name would be the function, dtype or role
to some readers of the rule, and the variable to others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....ir.diagnostic import DplcError, Span
from ....ir.text import equations as eq
from ....ir.text import syntax as s
from ..positions import walk
from ..sorts import kind_of_word, told_of_a_word

Named = tuple[str, Span]


def refuse_words(declared: s.Syntax) -> None:
    """Raises DplcError at the first name that a declaration gives and the language has."""
    head = f"rule `{declared.name}`: " if isinstance(declared, s.Rule) else ""
    for part in _parts(declared):
        for node in walk(part):
            for name, span in _given(node):
                kind = kind_of_word(name)
                if kind is not None:
                    raise taken(head, name, kind, span)


def taken(head: str, name: str, kind: str, span: Span) -> DplcError:
    """What is told of a variable that has the name of a word."""
    what, note, hint = told_of_a_word(name, kind)
    return DplcError(head + what, span, (note,), hint)


def _parts(declared: s.Syntax) -> tuple[object, ...]:
    """What of a declaration may give names: examples are programs, which have names of their own."""
    if isinstance(declared, s.Rule):
        return declared.parameters, declared.clauses
    return (declared,) if isinstance(declared, s.FactOf | eq.GuardGroup | eq.StatementForm) else ()


def _given(node: s.Syntax) -> Iterator[Named]:
    """The names that one node gives, each with its place."""
    if isinstance(node, s.Parameter | s.LetClause | s.PickClause | eq.LetStatement | eq.SplitPart):
        yield node.name, node.span
    elif isinstance(node, s.CaptureStatement | s.InsideBlock):
        yield node.name, _word(node.name, node.span)
    elif isinstance(node, s.Comprehension):
        yield node.variable, _word(node.variable, node.span, r"(?:(?<=\bfor )|(?<=\bchoose ))")
    elif isinstance(node, s.Arm) and node.variable is not None:
        yield node.variable, _word(node.variable, node.span, r"(?<=\bfor )")
    elif isinstance(node, s.EachBlock):
        yield from ((name, _word(name, node.span)) for name in node.names)
    elif isinstance(node, eq.GuardGroup | eq.StatementForm):
        yield from ((item.text, item.span) for item in node.parameters if isinstance(item, s.NameOf))


def _word(name: str, span: Span, behind: str = r"\b") -> Span:
    """Where a word stands in a piece of text; all of the piece where it does not."""
    for line in range(span.line, span.end_line + 1):
        text = span.source.line(line)
        found = re.compile(rf"{behind}{re.escape(name)}\b").search(text, span.column if line == span.line else 0)
        if found:
            return Span(span.source, line, found.start(), line, found.end())
    return span
