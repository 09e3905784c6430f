"""Syntax to canonical text, for `dplc rules show NAME`. `parse(format(x))` is x, except for spans and comments."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.diagnostic import InternalError, Source
from ...ir.text import equations as eq
from ...ir.text import syntax as s
from ...ir.text.parse import parse
from .rule import Rule
from .rule_files import within_limits
from .spelling import INDENT, SUM, block, expression, items, statement
from .typed_slots import plain, rebuilt

REASONS = 48  # the column of `else`, where all guards of a rule are shorter
FURTHEST = 72  # it moves on for longer ones, up to here
WIDTH = 140  # a reason of a guard that does not fit is on the line below


def format_rule(rule: Rule) -> str:
    """Return a rule as text, ending in a newline. A member of a family is written out."""
    meant = (s.Match(rule.span, rule.match), *rule.clauses, s.Rewrite(rule.span, rule.rewrite))
    clauses = tuple(rule.written) or meant
    marks = tuple(sorted(rule.attributes))
    declared = s.Rule(
        rule.span, rule.docs, marks, rule.override, rule.name, rule.parameters, (), rule.level, clauses, rule.examples,
        device=rule.device,
    )  # fmt: skip
    return "\n".join(_rule(declared, (*clauses, *rule.examples))) + "\n"


def format_file(declarations: Iterable[s.Syntax]) -> str:
    """Return a rule file as text: its rules, pipelines and `without`s, a blank line between them."""
    return "\n".join("\n".join(lines_of(declaration)) + "\n" for declaration in declarations)


def lines_of(node: s.Syntax) -> list[str]:
    """Return the lines of a declaration as parsed, before elaboration.

    A line that ends in a long reason contains a line break.
    """
    if isinstance(node, s.Rule):
        parts: s.Nodes = (*node.clauses, *node.examples)
        return _rule(node, sorted(parts, key=lambda part: part.span.line))
    if isinstance(node, eq.GuardGroup):
        column = _column(node.guards)
        head = f"guards {node.name}({items(node.parameters)}):"
        guards = [line.replace("\n", f"\n{INDENT}") for guard in node.guards for line in _clause(guard, column)]
        return [*_docs(node.docs), head, *(INDENT + line for line in guards)]
    if isinstance(node, eq.StatementForm):
        return [*_docs(node.docs), f"form {node.name}({items(node.parameters)}):", *block(node.body, 1)]
    if isinstance(node, s.ExamplesOf):
        return [f"examples {node.rule}", *(line for one in node.examples for line in _clause(one))]
    if isinstance(node, s.NumberOf):
        return format_number(node).splitlines()
    if isinstance(node, s.FactOf):
        return format_fact(node).splitlines()
    if isinstance(node, s.Without):
        return [_because(f"without {node.name}", node.reason)]
    if isinstance(node, s.Pipeline):
        return [*_docs(node.docs), f"pipeline {node.name}", *(_entry(entry) for entry in node.entries)]
    return statement(node, 0)


def _rule(rule: s.Rule, clauses: Iterable[s.Syntax]) -> list[str]:
    head = f"{'override ' if rule.override else ''}rule {rule.name}"
    if rule.parameters:
        head += f"({', '.join(map(_parameter, rule.parameters))})"
    if rule.rows:
        head += f" for {', '.join(map(expression, rule.rows))}"
    lines = [*_docs(rule.docs), *(f"@{attribute}" for attribute in rule.attributes)]
    lines.append(f"{head} on {rule.level}{_device(rule)}")
    clauses = tuple(clauses)
    column = _column(clauses)
    return [*lines, *(line for clause in clauses for line in _clause(clause, column))]


def _device(declared: s.Rule | s.NumberOf | s.FactOf) -> str:
    return "" if declared.device is None else f" for {declared.device.text}"


def _column(clauses: Iterable[s.Syntax]) -> int:
    """Return the column at which the reasons of some guards begin."""
    widths = (len(_guard(clause)) for clause in clauses if isinstance(clause, s.Guard))
    return max([REASONS, *(width for width in widths if width <= FURTHEST)])


def _guard(guard: s.Guard) -> str:
    return f"{guard.kind} {expression(guard.condition)}"


def _docs(docs: Iterable[str]) -> list[str]:
    return [f"## {text}".rstrip() for text in docs]


def format_fact(node: s.FactOf) -> str:
    """Return a fact that is an expression as text, ending in a newline."""
    docs = "".join(f"## {text}".rstrip() + "\n" for text in node.docs)
    given = ", ".join(f"{p.name}: {p.sort}" for p in node.parameters)
    head = f"{'override ' if node.override else ''}fact {node.name}({given}) -> {node.result}"
    return f"{docs}{head} = {expression(node.value)}{_device(node)}\n"


def format_number(node: s.NumberOf) -> str:
    """Return a number of the policy as text, ending in a newline."""
    docs = [f"## {text}".rstrip() for text in node.docs]
    head = f"{'override ' if node.override else ''}number {node.name} = {expression(node.value)}{_device(node)}"
    return "\n".join([*docs, _because(head, node.reason)]) + "\n"


def _entry(entry: s.Syntax) -> str:
    if isinstance(entry, s.Without):
        return _because(f"{INDENT}without {entry.name}", entry.reason)
    if isinstance(entry, s.OneOf):
        return _because(f"{INDENT}one of {', '.join(entry.names)}", entry.reason)
    assert isinstance(entry, s.PassEntry)
    text = f"{INDENT}pass {entry.rule}" + (f"({items(entry.arguments)})" if entry.arguments else "")
    text += f" as {entry.alias}" if entry.alias else ""
    text += "".join(f" {kind} {name}" if name else f" {kind}" for kind, name in entry.places)
    return _because(text, entry.reason)


def _because(text: str, reason: str | None) -> str:
    return _reason(text, "because", reason, REASONS)


def _reason(text: str, word: str, reason: str | None, column: int) -> str:
    return text if reason is None else f'{text:{column}} {word} "{reason}"'


def _parameter(node: s.Parameter) -> str:
    sort = f": {node.sort}" if node.sort else ""
    domain = f" in {expression(node.domain)}" if node.domain is not None else ""
    return f"{node.name}{sort}{domain}" + (f" = {expression(node.default)}" if node.default is not None else "")


def _clause(clause: s.Syntax, column: int = REASONS) -> list[str]:
    if isinstance(clause, s.Match):
        return ["match", *block(clause.body, 1)]
    if isinstance(clause, s.Rewrite):
        return ["rewrite", *block(clause.body, 1)]
    if isinstance(clause, s.LetClause):
        return [f"let {clause.name} = {expression(clause.value)}"]
    if isinstance(clause, s.PickClause):
        return [f"pick {clause.name} in {expression(clause.domain)}"]
    if isinstance(clause, s.Guard):
        line = _reason(_guard(clause), "else", clause.reason, column)
        return [line if len(line) <= WIDTH else f'{_guard(clause)}\n{INDENT}else "{clause.reason}"']
    if isinstance(clause, eq.SplitClause):
        size = f":{expression(clause.size, SUM)}" if clause.size is not None else ""
        parts = " => ".join(map(items, (clause.parts, *clause.further)))
        return [f"split {', '.join(expression(node, SUM) for node in clause.what)}{size} => {parts}"]
    if isinstance(clause, eq.UseGuards):
        return [f"guards {expression(clause.call)}"]
    if isinstance(clause, eq.JoinClause):
        return [f"join {items(clause.names)} => {expression(clause.part)}"]
    if isinstance(clause, eq.VariedExample):
        first = f'example "{clause.title}"{f" ({items(clause.arguments)})" if clause.arguments else ""}'
        gives = (
            [f'gives no "{clause.gives}"'] if isinstance(clause.gives, str) else ["gives", *map(_edit, clause.gives)]
        )
        return [f'{first} as "{clause.other}"', *map(_edit, clause.edits), *gives]
    assert isinstance(clause, s.Example)
    arguments = f" ({items(clause.arguments)})" if clause.arguments else ""
    head = [f'example "{clause.title}"{arguments}', *block(clause.before, 1)]
    if isinstance(clause.gives, str):
        return [*head, f'gives no "{clause.gives}"']
    return [*head, "gives", *block(clause.gives, 1)]


def _edit(edit: eq.Edit) -> str:
    return f'{INDENT}"{edit.before}" => {", ".join(map(_quoted, edit.after))}'


def _quoted(text: str) -> str:
    return f'"{text}"'


# Rule files in one layout: the canonical text of every line, with the comments and blank lines of its author.
#
# A logical line is one that the parser reads: brackets may span lines, and an `else` may be below its guard. The
# canonical text has as many logical lines in the same order, so comments keep their positions without a second parser.


_TOKEN = re.compile(r'(?P<text>"[^"\n]*")|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comment>#.*)')


@dataclass
class LogicalLine:
    """Logical line as the parser reads it.

    before: the comments above it with their indentation, and an empty text for blank lines; beside: the comment at its
    end; lines: the number of physical lines.
    """

    text: str
    before: list[str]
    beside: str = ""
    lines: int = 1


def formatted(source: Source) -> str:
    """Return the text of a rule file in its layout. Raises DplcError if it does not parse."""
    declarations = parse(within_limits(source))
    lines, last = logical_lines(source.text)
    canonical = [lines_of(_as_written(declaration)) for declaration in declarations]
    if sum(map(len, canonical)) != len(lines):
        raise InternalError(f"{source.name}: {len(lines)} lines became {sum(map(len, canonical))}")
    out: list[str] = []
    taken = iter(lines)
    long = False
    for texts in canonical:
        own = [next(taken) for _ in texts]
        apart = bool(out) and (long or len(own) - _docs_in(own) > 1)
        long = len(own) - _docs_in(own) > 1
        if apart and own[0].before[:1] != [""]:
            own[0].before.insert(0, "")
        for before, text in enumerate(texts):
            _put(out, own[before], text)
    text = "\n".join([*out, *map(str.strip, last)]).strip("\n")
    text += "\n" if text else ""
    if text != source.text and plain(parse(Source(source.name, text))) != plain(declarations):
        raise InternalError(f"{source.name}: formatting would change what it says")
    return text


def _docs_in(lines: Sequence[LogicalLine]) -> int:
    return sum(line.text.startswith("##") for line in lines)


def _put(out: list[str], line: LogicalLine, text: str) -> None:
    """Add a line with its comments and blank lines."""
    lead = len(text) - len(text.lstrip())
    above = len(out[-1]) - len(out[-1].lstrip()) if out and out[-1] else lead
    for remark in line.before:
        own = len(remark) - len(remark.lstrip())
        out.append(remark and " " * min((lead, above), key=lambda column: abs(column - own)) + remark.strip())
    if line.text.startswith("##"):
        said = line.text[2:].rstrip()
        text = "##" + (said if said.startswith((" ", "#")) or not said else f" {said}")
    out += _wrapped(text) if line.lines > 1 else text.split("\n")
    if line.beside:
        out[-1] += f"  {line.beside}"


def _wrapped(text: str) -> list[str]:
    """Keep the line breaks of the author, and break a line that is too long after commas in brackets."""
    out = []
    for line in text.split("\n"):
        lead = line[: len(line) - len(line.lstrip())] + 2 * INDENT
        while len(line) > WIDTH and (place := _break(line, len(lead))):
            out.append(line[:place])
            line = lead + line[place:].lstrip()
        out.append(line)
    return out


def _break(line: str, least: int) -> int:
    """Return the last position in a line, within the width, that follows a comma in brackets; 0 if there is none."""
    depth = place = 0
    position = 0
    opened = line.startswith(" " * least)  # a line that continues is in brackets
    while position < min(len(line), WIDTH):
        token = _TOKEN.match(line, position)
        depth += (token is not None and token.lastgroup == "open") - (token is not None and token.lastgroup == "close")
        position = token.end() if token is not None else position + 1
        if line[position - 1] == "," and (depth > 0 or opened) and position > least:
            place = position
    return place if place < len(line) else 0


# The lines and comments of the author.


def logical_lines(text: str) -> tuple[list[LogicalLine], list[str]]:
    """Return the logical lines of a text with their comments, and the comments after the last line."""
    found: list[LogicalLine] = []
    remarks: list[str] = []
    depth = 0
    for line in text.splitlines():
        lead = line[: len(line) - len(line.lstrip())]
        tokens = [] if line.strip().startswith("##") else list(_TOKEN.finditer(line))  # documentation is code
        said = next((token for token in tokens if token.lastgroup == "comment"), None)
        code, comment = (line[: said.start()], said[0].rstrip()) if said is not None else (line, "")
        if depth == 0 and not code.strip():
            if comment or remarks[-1:] != [""]:
                remarks.append(comment and lead + comment)
            continue
        if code.strip():
            if depth == 0 and not (found and code.lstrip().startswith(("because", "else"))):
                found.append(LogicalLine(code.strip(), remarks))
            else:
                found[-1].lines += depth > 0
                found[-1].before += filter(None, remarks)
            remarks = []
        kinds = [token.lastgroup for token in tokens]
        depth += kinds.count("open") - kinds.count("close")
        if comment and code.strip() and depth == 0:
            found[-1].beside = f"{found[-1].beside} {comment}".strip()
        elif comment:
            found[-1].before.append(lead + comment)
    return found, remarks


def _as_written(value: Any) -> Any:
    """Return syntax with the author's spelling of numbers: `1e-5` stays, which a float would print as `1e-05`."""
    if isinstance(value, s.Number):
        span = value.span
        text = span.source.line(span.line)[span.column : span.end_column]
        return s.NameOf(span, text) if text[:1].isdigit() and span.line == span.end_line else value
    if isinstance(value, s.Rule):  # its words are names, no syntax
        changed = {
            name: _as_written(tuple(getattr(value, name))) for name in ("parameters", "rows", "clauses", "examples")
        }
        return dataclasses.replace(value, **changed)
    return rebuilt(value, _as_written)
