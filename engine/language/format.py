"""Syntax to canonical text, for `dplc rules show NAME`. `parse(format(x))` is x, except for spans and comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.diagnostic import InternalError, Source
from ...ir.text import equations as eq
from ...ir.text.parse import parse
from ...ir.text.syntax import (
    DECREASES,
    Example,
    ExamplesOf,
    FactOf,
    Guard,
    LetClause,
    LetExpression,
    Match,
    NameOf,
    Nodes,
    Number,
    NumberOf,
    OneOf,
    Pipeline,
    Rewrite,
    Rule as RuleSyntax,
    Syntax,
    Without,
    rebuilt,
)
from .rule import Rule
from .rule_files import TOKEN, within_limits
from .spelling import INDENT, block, expression, items, spelled, statement
from .typed_slots import plain

REASONS = 48  # the column of `else`, where all guards of a rule are shorter
FURTHEST = 72  # it moves on for longer ones, up to here
ANYWHERE = ("and", "or", "=>")  # words that may begin a line
IN_BRACKETS = (*ANYWHERE, "if", "else", "for")
WIDTH = 140  # of a line; a reason that does not fit is on the line below


def format_rule(rule: Rule) -> str:
    """Return a rule as text, ending in a newline. A member of a family is written out."""
    meant = (Match(rule.span, rule.match), *rule.clauses, Rewrite(rule.span, rule.rewrite))
    clauses = (*(rule.written or meant), *rule.examples)
    return "\n".join([*_docs(rule), *_rule(rule, sorted(rule.attributes), (), clauses)]) + "\n"


def format_file(declarations: Iterable[Syntax]) -> str:
    """Return the declarations of a rule file as text, a blank line between them. A number is one, too, and a fact."""
    return "\n".join("\n".join(lines_of(declaration)) + "\n" for declaration in declarations)


def lines_of(node: Syntax) -> list[str]:
    """Return the lines of a declaration, or of a clause, as parsed, before elaboration.

    A line that ends in a long reason contains a line break.
    """
    return [*_docs(node), *_LINES.get(type(node), statement)(node)]


def _docs(node: Any) -> list[str]:
    return [f"## {text}".rstrip() for text in getattr(node, "docs", ())]


def _declared(node: RuleSyntax) -> list[str]:
    parts = sorted((*node.clauses, *node.examples), key=lambda part: part.span.line)
    return _rule(node, (attribute.text for attribute in node.attributes), node.rows, parts)


def _rule(rule: Rule | RuleSyntax, attributes: Iterable[str], rows: Nodes, clauses: Sequence[Syntax]) -> list[str]:
    head = f"rule {rule.name}"
    if rule.parameters:
        head += f"({items(rule.parameters)})"
    if rows:
        head += f" for {items(rows)}"
    marks = (f"@{attribute}" for attribute in attributes)
    return [*marks, _head(rule, f"{head} on {rule.level}"), *_clauses(clauses)]


def _head(declared: Any, text: str) -> str:
    """Return the text of a declaration with `override` before it, and its device after it, where it has them."""
    override = "override " if declared.override else ""
    return override + text + spelled(declared, "{device: for }")


def _clauses(clauses: Sequence[Syntax], width: int = WIDTH) -> list[str]:
    """Return the lines of clauses, and of examples: the reasons of guards begin at one column."""
    guards = {one: expression(one) for one in clauses if isinstance(one, Guard)}
    column = max([REASONS, *(len(asked) for asked in guards.values() if len(asked) <= FURTHEST)])
    lines: list[str] = []
    for clause in clauses:
        if isinstance(clause, Guard):
            lines.append(_with_reason(guards[clause], column, f'else "{clause.reason}"', width))
        else:
            lines += lines_of(clause)
    return lines


def _because(text: str, reason: str | None) -> str:
    return text if reason is None else _with_reason(text, REASONS, f'because "{reason}"')


def _with_reason(text: str, column: int, reason: str, width: int = WIDTH) -> str:
    """Return a text with its reason at a column, or on the line below."""
    line = f"{text:{column}} {reason}"
    return line if len(line) <= width else f"{text}\n{INDENT}{reason}"


def _entry(entry: Any) -> str:
    if isinstance(entry, Without):
        return f"without {entry.name}"
    if isinstance(entry, OneOf):
        return f"one of {', '.join(entry.names)}"
    alias = f" as {entry.alias}" if entry.alias else ""
    places = "".join(f" {kind} {name}" if name else f" {kind}" for kind, name in entry.places)
    return f"pass {entry.rule}{_arguments(entry, '')}{alias}{places}"


def _arguments(node: Any, apart: str = " ") -> str:
    return f"{apart}({items(node.arguments)})" if node.arguments else ""


def _split(node: eq.SplitClause) -> list[str]:
    return [" => ".join((expression(node), *map(items, node.further)))]


def _example(node: Example) -> list[str]:
    gives = [f'gives no "{node.gives}"'] if isinstance(node.gives, str) else ["gives", *block(node.gives)]
    return [f'example "{node.title}"{_arguments(node)}', *block(node.before), *gives]


def _fact(node: FactOf) -> list[str]:
    """Return the line of a fact, or its lines if it names parts of its value."""
    head = expression(node)
    if not isinstance(node.value, LetExpression):
        line = _head(node, f"{head} = {expression(node.value)}")
        return [line if len(line) <= WIDTH else _head(node, f"{head} =\n{INDENT}{expression(node.value)}")]
    lets = (f"{INDENT}let {let.name} = {expression(let.value)}" for let in node.value.lets)
    return [f"{_head(node, head)}:", *lets, INDENT + expression(node.value.value)]


_LINES: dict[type, Callable[[Any], list[str]]] = {
    RuleSyntax: _declared,
    eq.GuardGroup: lambda node: [
        f"{expression(node)}:",
        *(INDENT + line.replace("\n", f"\n{INDENT}") for line in _clauses(node.body, WIDTH - len(INDENT))),
    ],
    ExamplesOf: lambda node: [f"examples {node.rule}", *_clauses(node.examples)],
    NumberOf: lambda node: [_because(_head(node, expression(node)), node.reason)],
    FactOf: _fact,
    Without: lambda node: [_because(_entry(node), node.reason)],
    Pipeline: lambda node: [
        f"pipeline {node.name}",
        *(_because(INDENT + _entry(entry), entry.reason) for entry in node.entries),
    ],
    Match: lambda node: ["match", *block(node.body)],
    Rewrite: lambda node: ["rewrite", *block(node.body)],
    LetClause: lambda node: [
        f"{node.name if node.name == DECREASES else f'let {node.name} ='} {expression(node.value)}"
    ],
    eq.SplitClause: _split,
    Example: _example,
}


# Rule files in one layout: the canonical text of every line, with the comments and blank lines of its author.
#
# A logical line is one that the parser reads: brackets may span lines, and an `else` may be below its guard. The
# canonical text has as many logical lines in the same order, so comments keep their positions without a second parser.


@dataclass
class LogicalLine:
    """Logical line as the parser reads it.

    before: the comments above it with their indentation, and an empty text for blank lines; beside: the comment at its
    end.
    """

    text: str
    before: list[str]
    beside: str = ""


def formatted(source: Source) -> str:
    """Return the text of a rule file in its layout. Raises DplcError if it does not parse."""
    declarations = parse(within_limits(source))
    lines, last = logical_lines(source.text)
    canonical = [lines_of(_as_written(declaration)) for declaration in declarations]
    became = sum(map(len, canonical))
    if became != len(lines):
        raise InternalError(f"{source.name}: {len(lines)} lines became {became}")
    out: list[str] = []
    taken = iter(lines)
    long = False
    for texts in canonical:
        own = [next(taken) for _ in texts]
        above, long = long, sum(not line.text.startswith("##") for line in own) > 1
        if out and (above or long) and own[0].before[:1] != [""]:
            own[0].before.insert(0, "")
        for line, text in zip(own, texts, strict=True):
            _put(out, line, text)
    text = "\n".join([*out, *map(str.strip, last)]).strip("\n")
    text += "\n" if text else ""
    if text != source.text and plain(parse(Source(source.name, text))) != plain(declarations):
        raise InternalError(f"{source.name}: formatting would change what it says")
    return text


def _lead(line: str) -> str:
    """Return the white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def _put(out: list[str], line: LogicalLine, text: str) -> None:
    """Add a line with its comments and blank lines."""
    leads = [_lead(text), _lead(out[-1]) if out and out[-1] else _lead(text)]
    for remark in line.before:
        out.append(remark and min(leads, key=lambda lead: abs(len(lead) - len(_lead(remark)))) + remark.strip())
    if line.text.startswith("##"):
        said = line.text[2:].rstrip()
        text = "##" + (said if said.startswith((" ", "#")) or not said else f" {said}")
    out += _wrapped(text)
    if line.beside:
        out[-1] += f"  {line.beside}"


def _wrapped(text: str) -> list[str]:
    """Return the lines of a text; those that are too long are broken after commas and before words."""
    out = []
    for line in text.split("\n"):
        lead, depth = _lead(line) + 2 * INDENT, 0
        while len(line) > WIDTH and not line.lstrip().startswith("##"):
            place, depth = _break(line, len(lead), depth)
            if not place:
                break
            out.append(line[:place].rstrip())
            line = lead + line[place:].lstrip()
        out.append(line)
    return out


def _break(line: str, lead: int, depth: int) -> tuple[int, int]:
    """Return the position within the width where a line is broken, 0 if there is none, and the open brackets there.

    Positions in fewer brackets are better, then later ones; one in the first half of the line is the last resort.
    depth: the brackets that are open where the line begins.
    """
    places = []
    for token in TOKEN.finditer(line):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        place = token.end() if token.lastgroup == "comma" else token.start()
        within = token.lastgroup == "comma" or token[0] in (IN_BRACKETS if depth else ANYWHERE)
        if within and lead < place <= WIDTH:
            places.append((2 * place > WIDTH, -depth, place))
    _, depth, place = max(places, default=(False, 0, 0))
    return place, -depth


# The lines and comments of the author.


def logical_lines(text: str) -> tuple[list[LogicalLine], list[str]]:
    """Return the logical lines of a text with their comments, and the comments after the last line."""
    lines: list[LogicalLine] = []
    remarks: list[str] = []
    depth, goes_on = 0, False
    for line in text.splitlines():
        tokens = [] if line.strip().startswith("##") else list(TOKEN.finditer(line))  # documentation is code
        end = next((token.start() for token in tokens if token.lastgroup == "comment"), len(line))
        code, comment = line[:end].strip(), line[end:].rstrip()
        remark = comment and _lead(line) + comment
        if depth == 0 and not code:
            if comment or remarks[-1:] != [""]:
                remarks.append(remark)
            continue
        if code:
            if depth == 0 and not (lines and (goes_on or re.match(r"(because|else|and|or)\b|=>", code))):
                lines.append(LogicalLine(code, remarks))
            else:
                lines[-1].before += filter(None, remarks)
            remarks = []
        goes_on = (code.endswith((",", "=")) and not code.startswith("##")) or (goes_on and not code)
        kinds = [token.lastgroup for token in tokens]
        depth += kinds.count("open") - kinds.count("close")
        if comment and code and depth == 0:
            lines[-1].beside = f"{lines[-1].beside} {comment}".strip()
        elif comment:
            lines[-1].before.append(remark)
    return lines, remarks


def _as_written(value: Any) -> Any:
    """Return syntax with the author's spelling of numbers: `1e-5` stays, which a float would print as `1e-05`."""
    if isinstance(value, Number):
        span = value.span
        text = span.source.line(span.line)[span.column : span.end_column]
        return NameOf(span, text) if text[:1].isdigit() and span.line == span.end_line else value
    return rebuilt(value, _as_written)
