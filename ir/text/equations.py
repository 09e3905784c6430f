"""Syntax that makes a rule an equation: splits, parts that rules share.

This syntax has no meaning by itself: engine/language/elaboration expands it into the rest of the language, once for
each file, before a rule is read.
"""

from __future__ import annotations

from . import syntax as s
from .syntax import Syntax, syntax_node


@syntax_node
class SplitPart(Syntax):
    """`name:size=ROLE`, a digit of a split."""

    name: str
    size: Syntax | None
    role: str | None


@syntax_node
class SplitClause(Syntax):
    """`split what:size => parts`, outermost first.

    what: the names of axes or loops. further: the parts of the last part, and so on, after further
    `=>`.
    """

    what: tuple[s.NameOf, ...]
    size: Syntax | None
    parts: tuple[SplitPart, ...]
    further: tuple[tuple[SplitPart, ...], ...] = ()


@syntax_node
class GuardGroup(Syntax):
    """`guards name(parameters):` and guards that the rules of a file share, with the `let`s that they read."""

    docs: tuple[str, ...]
    name: str
    parameters: tuple[Syntax, ...]
    body: tuple[Syntax, ...]


@syntax_node
class UseGuards(Syntax):
    """`guards name(arguments)` in a rule."""

    call: s.Apply


@syntax_node
class StatementForm(Syntax):
    """`form name(parameters):` and statements that the rules of a file share."""

    docs: tuple[str, ...]
    name: str
    parameters: tuple[Syntax, ...]
    body: tuple[Syntax, ...]


@syntax_node
class UseForm(Syntax):
    """`form name(arguments)` in a pattern or a template."""

    call: s.Apply


@syntax_node
class LetStatement(Syntax):
    """`let name = value` in a template, for the following statements of its block."""

    name: str
    value: Syntax


@syntax_node
class PartLoop(Syntax):
    """`for ko unroll=4:` in a template: the loop over a part of a split."""

    var: str
    attributes: tuple[Syntax, ...]
    body: tuple[Syntax, ...]
