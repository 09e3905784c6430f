"""Elaboration: dplc rewrites the conveniences of a rule into the core language once, when it reads the file.

These are `split`, `let` in a template, `guards` and `form`s. No later reader of a rule (matchers,
proofs, static checks, mutants) meets them, so all see one meaning. New nodes have the span of the user's text, so every
message points there. `rules show` prints the original text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.text import equations as eq
from ...ir.text import syntax as s
from ...ir.text.syntax import children, walk, words_in
from .sorts import KINDS_OF_WORDS, word_taken
from .spelling import expression
from .splits import Splits, steps
from .typed_slots import every, names, substituted

# Names that a rule gives. None may be a word of the language: some readers of the rule would take such a name for a
# function, dtype or role, others for a variable.


T = TypeVar("T")
Block = Callable[[s.Nodes], Iterable[s.Syntax]]


def block_changed(node: s.Syntax, change: Block) -> s.Syntax:
    """Return a statement with the block in it, if it has one, changed."""
    body: Any = getattr(node, "body", None)
    return replace(node, body=tuple(change(body))) if body else node  # type: ignore[call-arg]


Declared = eq.GuardGroup | eq.StatementForm  # what the rules of a file share


def refuse_words(declared: s.Syntax) -> None:
    """Raise DplcError at the first name of a declaration that is a word of the language.

    Examples are programs with names of their own.
    """
    giving = declared if isinstance(declared, s.FactOf | Declared) else ()
    for node in walk((declared.parameters, declared.clauses) if isinstance(declared, s.Rule) else giving):
        for name, span in _given(node):
            if name in KINDS_OF_WORDS:
                taken = word_taken(name, span)
                raise taken.of(f"rule `{declared.name}`") if isinstance(declared, s.Rule) else taken


def _given(node: s.Syntax) -> Iterator[tuple[str, Span]]:
    """Yield the names that one node defines, each with its span."""
    match node:
        case (
            s.Parameter() | s.LetClause() | s.PickClause() | s.CaptureStatement() | s.InsideBlock()
            | eq.LetStatement() | eq.SplitPart()
        ):  # fmt: skip
            yield node.name, node.span
        case s.Comprehension(variable=str(name)) | s.Arm(variable=str(name)) | s.EachBlock(variable=name):
            yield name, _word(name, node.span, r"(?:(?<=\bfor )|(?<=\bchoose )|(?<=\beach ))")
        case eq.GuardGroup() | eq.StatementForm():
            yield from ((item.text, item.span) for item in node.parameters if isinstance(item, s.NameOf))


def _word(name: str, span: Span, behind: str = r"\b") -> Span:
    """Return the span of a word in a piece of text; the whole piece if it does not contain the word."""
    for line in range(span.line, span.end_line + 1):
        text = span.source.line(line)
        match = re.compile(rf"{behind}{re.escape(name)}\b").search(text, span.column if line == span.line else 0)
        if match:
            return Span(span.source, line, match.start(), line, match.end())
    return span


def located(value: T, place: Callable[[Span], Span]) -> T:
    """Return syntax with the span of each part changed."""

    def moved(value: Any) -> Any:
        if value.__class__ is tuple:
            return tuple([moved(item) for item in value])
        if not isinstance(value, s.Syntax):
            return value
        return value.__class__(place(value.span), *[moved(part) for part in children(value)])

    found: T = moved(value)
    return found


# Declarations with parameters that rules of one file share.
#
# `form NAME(parameters):` once in a file, `form NAME(arguments)` in the patterns and templates of its rules.
# `guards NAME(parameters):` once in a file, `guards NAME(arguments)` in its rules: conditions and their reasons.
# A name that is not a parameter belongs to the rule: the rule reads it as if it contained the statements or clauses.


_WORDS: dict[type, str] = {
    eq.StatementForm: "form", eq.UseForm: "form", eq.GuardGroup: "guards", eq.UseGuards: "guards",
}  # fmt: skip


_READ = {s.NameOf, s.Member, s.Keyword, s.Guard, s.Text}  # their texts are values, or names of fields


class Shared:
    """The forms and the groups of guards of one file. A form may hold those above it. unused: by no rule so far."""

    def __init__(self, declared: Iterable[Declared]):
        self.known: dict[tuple[str, str], Declared] = {}
        self.unused: dict[tuple[str, str], s.Syntax] = {}
        for one in declared:
            key = word, _ = _WORDS[type(one)], one.name
            if key in self.known:
                first = f"first in line {self.known[key].span.line}"
                raise DplcError(f"`{word} {one.name}` is declared twice", one, "choose another name", (first,))
            said = [item.text for item in one.parameters if isinstance(item, s.NameOf)]
            for item in one.parameters:
                if not isinstance(item, s.NameOf) or said.count(item.text) > 1:
                    raise DplcError(
                        f"the parameters of `{word}` are names, each once",
                        item,
                        "choose a name that no other parameter has",
                    )
            one = replace(one, body=self.written_out(one.body))
            self.known[key] = self.unused[key] = one
            _check_shared(one)

    def written_out(self, nodes: s.Nodes) -> s.Nodes:
        """Return clauses or statements with what a form or a group says in the place of its name."""
        statements: list[s.Syntax] = []
        for node in nodes:
            if isinstance(node, eq.UseForm | eq.UseGuards):
                statements += self._asked(_WORDS[type(node)], node.call)
            else:
                statements.append(block_changed(node, self.written_out))
        return tuple(statements)

    def _asked(self, word: str, call: s.Apply) -> s.Nodes:
        """Return the body of the declaration that a call names, with its arguments."""
        declared = self.known.get((word, call.fn))
        if declared is None:
            raise DplcError(
                f"this file declares no `{word} {call.fn}`",
                call,
                did_you_mean(call.fn, [name for of, name in self.known if of == word]),
            )
        wanted = [name.text for name in names(declared.parameters)]
        if len(call.items) != len(wanted):
            counted = f"{len(wanted)} argument{'s' * (len(wanted) > 1)}, {', '.join(wanted)}"
            raise DplcError(
                f"`{word} {declared.name}` takes {counted if wanted else 'no arguments'}; here are {len(call.items)}",
                call,
                "give each parameter a value",
            )
        given = dict(zip(wanted, call.items, strict=True))
        texts = {part for node in walk(declared.body) if type(node) not in _READ for part in children(node)}
        for name, item in given.items():
            if name in texts and not isinstance(item, s.NameOf):
                what = f"`{word} {declared.name}` says `{name}` where only a name can be"
                raise DplcError(what, item, f"name it first, as `let {name} = {expression(item)}`")
        self.unused.pop((word, call.fn), None)
        return substituted(declared.body, given)


def _check_shared(declared: Declared) -> None:
    """Raise DplcError for a parameter that nothing reads."""
    if isinstance(declared, eq.StatementForm):
        read = {part for node in walk(declared.body) for part in children(node) if isinstance(part, str)}
        unread = f"no statement of `form {declared.name}` says"
    else:
        read = {name.text for name in names(declared.body)}
        unread = f"no guard of `{declared.name}` reads"
    for item in names(declared.parameters):
        if item.text not in read:
            raise DplcError(f"{unread} `{item.text}`", item, "use it, or take it out")


# `let row = ri*TM + i` in a template: the value is substituted in the statements that follow it in its block.


BINDERS = (s.Parameter, s.LetClause, s.PickClause)
MOST = 1 << 11  # uses of names in a `let` with those it reads written out; our own rules have 40


def refuse_doubling(rule: s.Rule) -> None:
    """Raise DplcError for a `let` that, with those above it written out, uses names MOST times or more.

    Each may read the preceding one twice: after forty, no memory holds the value.
    """
    uses: dict[str, int] = {}
    for let in every(rule.clauses, s.LetClause | eq.LetStatement):
        uses[let.name] = sum(uses.get(name.text, 1) for name in every(let.value, s.NameOf))
        if uses[let.name] >= MOST:
            raise DplcError(
                f"rule `{rule.name}`: `{let.name}`, written out, is too long: every `let` before it doubles it",
                let,
                "read a `let` once, or take fewer of them",
            )


def without_lets(rule: s.Rule, body: s.Nodes) -> s.Nodes:
    """Return the template of a rule with its `let`s written out."""
    taken: dict[str, Span] = {}
    for clause in (*rule.parameters, *rule.clauses):
        if isinstance(clause, BINDERS):
            taken[clause.name] = clause.span
        elif isinstance(clause, s.Match):
            for name in names(clause.body):
                taken.setdefault(name.text, name.span)

    def block(bound: dict[str, Span], statements: s.Nodes) -> Iterator[s.Syntax]:
        taken = dict(bound)
        while statements:
            node, statements = statements[0], statements[1:]
            if not isinstance(node, eq.LetStatement):
                yield block_changed(node, partial(block, taken))
                continue
            if node.name in taken:
                raise DplcError(
                    f"`{node.name}` is bound twice",
                    node,
                    "choose another name",
                    (f"first in line {taken[node.name].line}",),
                )
            taken[node.name] = node.span
            behind = substituted(statements, {node.name: node.value}, words=False)
            if behind is statements:
                raise DplcError(
                    f"`let {node.name}` is never used", node, "it holds for the statements behind it in its block"
                )
            statements = behind

    return tuple(block(taken, body))


SUGAR = (eq.SplitClause, eq.LetStatement, eq.PartLoop, eq.UseGuards, eq.UseForm)
LEVELS = ("module", "loop", "tile")


def elaborated(declarations: s.Nodes) -> s.Nodes:
    """Return the declarations of a file with their rules written out. Raises DplcError at the first mistake."""
    for one in declarations:
        refuse_words(one)
        if isinstance(one, s.Rule):
            refuse_doubling(one)
    shared = Shared(one for one in declarations if isinstance(one, Declared))
    kept = (one for one in declarations if not isinstance(one, Declared))
    written = tuple(_written_out(one, shared) if isinstance(one, s.Rule) else one for one in kept)
    for (word, name), declared in shared.unused.items():
        raise DplcError(f"no rule of this file has `{word} {name}(..)`", declared, "use it in a rule, or take it out")
    return written


@contextmanager
def in_rule(name: str) -> Iterator[None]:
    """Name the rule in an error that is raised inside."""
    try:
        yield
    except DplcError as error:
        raise type(error)(f"rule `{name}`: {error.what}", error, error.hint, error.notes) from None


_PATTERNS_HAVE_NO: dict[type, str] = {
    eq.LetStatement: "a pattern defines nothing: `let` is a clause, or stands in a template",
    eq.PartLoop: "a loop of a pattern has bounds: `for {0.var} in 0..K reduce:`",
}


def _written_out(rule: s.Rule, shared: Shared) -> s.Rule:
    """Return a rule with its clauses written out, and the conditions of the splits among them on their parts."""
    if not any(isinstance(node, SUGAR) for node in walk(rule.clauses)):
        return rule
    with in_rule(rule.name):
        written = shared.written_out(rule.clauses)
        for clause in written:
            if isinstance(clause, eq.SplitClause) and rule.level not in LEVELS:
                raise DplcError(
                    f"loops and axes are split on {', '.join(LEVELS)}; this rule is on {rule.level}",
                    clause,
                    "write it on those levels, or take the clause out",
                )
            for node in walk(clause if not isinstance(clause, s.Rewrite) else ()):
                if type(node) in _PATTERNS_HAVE_NO:
                    raise DplcError(
                        _PATTERNS_HAVE_NO[type(node)].format(node),
                        node,
                        "write the statement as `dplc compile --ir tile` prints it",
                    )
        words = {*rule.words, *words_in(tuple(c for c in written if not isinstance(c, s.Match)))}
        rule = replace(rule, clauses=tuple(one for clause in written for one in steps(clause)))
        write = partial(without_lets, rule)
        clauses = (block_changed(one, write) if isinstance(one, s.Rewrite) else one for one in rule.clauses)
        rule = replace(rule, clauses=tuple(clauses))
        splits, core = Splits(rule), list[s.Syntax]()
        for clause in rule.clauses:
            if isinstance(clause, eq.SplitClause):
                core += splits.fresh_names(clause)
            elif isinstance(clause, s.Rewrite):
                core.append(block_changed(clause, splits.block))
            else:
                core.append(splits.clause(clause) if splits.all else clause)
        splits.finish()
        covers = tuple(splits.covers())
    return replace(rule, clauses=tuple(core), written=written, words=tuple(sorted(words)), covers=covers)
