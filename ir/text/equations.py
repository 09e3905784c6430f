"""The syntax of what makes a rule an equation: splits, joins, folds, what rules share. None of it means anything by
itself: engine/language/elaboration writes it out in the rest of the language, once for each file, before anybody reads
a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Transformer, v_args

from ..diagnostic import Source, Span
from . import syntax as s
from .syntax import Syntax


@dataclass(frozen=True, slots=True)
class SplitPart(Syntax):
    """`name:size=ROLE`, a digit of a split."""

    name: str
    size: Syntax | None
    role: str | None


@dataclass(frozen=True, slots=True)
class SplitClause(Syntax):
    """`split what:size => parts`, outermost first. what: names, or one sum that stands for what it computes. further:
    the parts of the last part, and so on: `=> parts => parts`."""

    what: tuple[Syntax, ...]
    size: Syntax | None
    parts: tuple[SplitPart, ...]
    further: tuple[tuple[SplitPart, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class JoinClause(Syntax):
    """`join a, b => part`: one axis or loop over all pairs, the first outermost."""

    names: tuple[s.NameOf, ...]
    part: SplitPart


@dataclass(frozen=True, slots=True)
class GuardGroup(Syntax):
    """`guards name(parameters):` and guards that the rules of a file share, with the `let`s that they read."""

    docs: tuple[str, ...]
    name: str
    parameters: tuple[Syntax, ...]
    guards: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class UseGuards(Syntax):
    """`guards name(arguments)` in a rule."""

    call: s.Apply


@dataclass(frozen=True, slots=True)
class StatementForm(Syntax):
    """`form name(parameters):` and statements that the rules of a file share."""

    docs: tuple[str, ...]
    name: str
    parameters: tuple[Syntax, ...]
    body: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class UseForm(Syntax):
    """`form name(arguments)` in a pattern or a template."""

    call: s.Apply


@dataclass(frozen=True, slots=True)
class LetStatement(Syntax):
    """`let name = value` in a template: for the statements behind it in its block."""

    name: str
    value: Syntax


@dataclass(frozen=True, slots=True)
class PartLoop(Syntax):
    """`for ko unroll=4:` in a template: the loop over a part of a split."""

    var: str
    attributes: tuple[Syntax, ...]
    body: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class FoldAssign(Syntax):
    """`target = fold monoid over lanes of value into (parts) scaling others` in a template."""

    target: Syntax
    monoid: str
    lanes: Syntax | None
    value: Syntax
    parts: tuple[Syntax, ...]
    scaled: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Edit(Syntax):
    """`"before" => "after"`: a line, or a part of lines. after: the lines that take its place; one "" is none."""

    before: str
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariedExample(Syntax):
    """`example "title" as "other"`, edits, `gives no "reason"`: the program of another example of the rule, edited.

    gives: the reason, or the edits of what the other one gives.
    """

    title: str
    arguments: tuple[s.Keyword, ...]
    other: str
    edits: tuple[Edit, ...]
    gives: str | tuple[Edit, ...]


@v_args(meta=True)
class EquationBuilder(Transformer[Any, Any]):
    """What Lark calls for the alternatives of this file."""

    source: Source

    def span(self, meta: Any) -> Span:
        if getattr(meta, "empty", True):
            return Span(self.source, 1, 0, 1, 0)
        return Span(self.source, meta.line, meta.column - 1, meta.end_line, meta.end_column - 1)

    def place(self, token: Token) -> Span:
        line, column = token.line or 1, (token.column or 1) - 1
        return Span(self.source, line, column, line, column + len(token))

    def part(self, meta: Any, c: list[Any]) -> SplitPart:
        return SplitPart(self.span(meta), str(c[0]), c[1], None if c[2] is None else str(c[2]))

    def parts(self, meta: Any, c: list[Any]) -> tuple[SplitPart, ...]:
        return tuple(c)

    def split_clause(self, meta: Any, c: list[Any]) -> SplitClause:
        first, *further = (x for x in c if isinstance(x, tuple))
        *what, size = (x for x in c if not isinstance(x, tuple))
        return SplitClause(self.span(meta), tuple(what), size, first, tuple(further))

    def join_clause(self, meta: Any, c: list[Any]) -> JoinClause:
        names = tuple(s.NameOf(self.place(x), str(x)) for x in c[:-1])
        return JoinClause(self.span(meta), names, c[-1])

    def let_stmt(self, meta: Any, c: list[Any]) -> LetStatement:
        return LetStatement(self.place(c[1]), str(c[1]), c[2])

    def for_part(self, meta: Any, c: list[Any]) -> PartLoop:
        return PartLoop(self.place(c[0]), str(c[0]), tuple(x for x in c[1:-1] if x is not None), c[-1])

    def fold(self, meta: Any, c: list[Any]) -> FoldAssign:
        at, monoid, lanes, value, parts, *scaled = self.place(c[1]), *c[1:]
        return FoldAssign(at, value, str(monoid), lanes, value, parts, tuple(x for x in scaled if x is not None))

    def fold_assign(self, meta: Any, c: list[Any]) -> FoldAssign:
        fold: FoldAssign = c[1]
        return replace(fold, target=c[0])

    def guard_group(self, meta: Any, c: list[Any]) -> GuardGroup:
        docs = tuple(x[1] for x in c if isinstance(x, tuple))
        call = next(x for x in c if isinstance(x, s.Apply))
        guards = tuple(x for x in c if isinstance(x, s.Guard | s.LetClause))
        return GuardGroup(call.span, docs, call.fn, call.items, guards)

    def use_guards(self, meta: Any, c: list[Any]) -> UseGuards:
        return UseGuards(c[0].span, c[0])

    def form(self, meta: Any, c: list[Any]) -> StatementForm:
        docs = tuple(x[1] for x in c[:-1] if isinstance(x, tuple))
        call = next(x for x in c if isinstance(x, s.Apply))
        return StatementForm(call.span, docs, call.fn, call.items, c[-1])

    def use_form(self, meta: Any, c: list[Any]) -> UseForm:
        return UseForm(c[1].span, c[1])

    def edit(self, meta: Any, c: list[Any]) -> Edit:
        before, *after = (str(token)[1:-1] for token in c)
        return Edit(self.place(c[0]), before, tuple(after))

    def edits(self, meta: Any, c: list[Any]) -> tuple[Edit, ...]:
        return tuple(c)

    def varied(self, meta: Any, c: list[Any]) -> VariedExample:
        title, other, *reason = (x for x in c if isinstance(x, Token))
        arguments = tuple(x for x in c if isinstance(x, s.Keyword))
        edits = [x for x in c if isinstance(x, tuple)]
        gives = str(reason[0])[1:-1] if reason else edits.pop()
        edited = edits[0] if edits else ()
        return VariedExample(self.place(title), str(title)[1:-1], arguments, str(other)[1:-1], edited, gives)
