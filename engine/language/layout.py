"""Rule files in one layout: the canonical text of every line, with the comments and the blank lines of its author.

A logical line is what the parser takes for one: brackets may span lines, a `because` may stand below its guard. The
canonical text has as many, in the same order, so comments keep their places without a second parser.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.diagnostic import InternalError, Source
from ...ir.text import syntax as s
from ...ir.text.parse import parse
from .format import WIDTH, lines_of
from .limits import within_limits
from .positions import rebuilt
from .spelling import INDENT

_TOKEN = re.compile(r'(?P<text>"[^"\n]*")|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comment>#.*)')


@dataclass
class OwnComment:
    """A comment on a line of its own. blank: there is a blank line above it."""

    text: str
    column: int
    blank: bool


@dataclass
class LogicalLine:
    """A line as the parser takes it. before: the comments above; beside: one at its end; lines: how many it spans."""

    text: str
    before: list[OwnComment] = field(default_factory=list)
    blank: bool = False
    beside: str = ""
    lines: int = 1


def formatted(source: Source) -> str:
    """The text of a rule file in its layout. Raises DplcError where it does not parse."""
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
        _separate(own[0], apart)
        for before, text in enumerate(texts):
            _put(out, own[before], text)
    out += [text for remark in last for text in ([""] if remark.blank and out else []) + [remark.text]]
    text = "\n".join(out) + "\n" if out else ""
    if text != source.text and not alike(parse(Source(source.name, text)), declarations):
        raise InternalError(f"{source.name}: formatting would change what it says")
    return text


def _docs_in(lines: Sequence[LogicalLine]) -> int:
    return sum(line.text.startswith("##") for line in lines)


def _separate(line: LogicalLine, apart: bool) -> None:
    """A blank line above a declaration of several lines, or behind one: above its comments, unless they have one."""
    first = line.before[0] if line.before else line
    if apart and not any(remark.blank for remark in line.before) and not line.blank:
        first.blank = True
    elif apart:
        first.blank = first.blank or first is not line


def _put(out: list[str], line: LogicalLine, text: str) -> None:
    """A line with what its author wrote around it."""
    lead = len(text) - len(text.lstrip())
    above = len(out[-1]) - len(out[-1].lstrip()) if out and out[-1] else lead
    for remark in line.before:
        if remark.blank and out:
            out.append("")
        out.append(" " * min((lead, above), key=lambda column: abs(column - remark.column)) + remark.text)
    if line.blank and out:
        out.append("")
    if line.text.startswith("##"):
        text = _documentation(line.text)
    out += _wrapped(text) if line.lines > 1 else text.split("\n")
    if line.beside:
        out[-1] += f"  {line.beside}"


def _documentation(text: str) -> str:
    """`## text`: what is indented within it stays so."""
    said = text[2:].rstrip()
    return "##" + (said if said.startswith((" ", "#")) or not said else f" {said}")


def _wrapped(text: str) -> list[str]:
    """What its author broke over lines, broken behind commas in brackets where it is too long."""
    out = []
    for line in text.split("\n"):
        lead = line[: len(line) - len(line.lstrip())] + 2 * INDENT
        while len(line) > WIDTH and (place := _break(line, len(lead))):
            out.append(line[:place])
            line = lead + line[place:].lstrip()
        out.append(line)
    return out


def _break(line: str, least: int) -> int:
    """The last place in a line, within the width, that is behind a comma in brackets; 0 for none."""
    depth = place = 0
    position = 0
    opened = line.startswith(" " * least)  # a line that goes on stands in brackets
    while position < min(len(line), WIDTH):
        token = _TOKEN.match(line, position)
        depth += (token is not None and token.lastgroup == "open") - (token is not None and token.lastgroup == "close")
        position = token.end() if token is not None else position + 1
        if line[position - 1] == "," and (depth > 0 or opened) and position > least:
            place = position
    return place if place < len(line) else 0


# ---- what the author wrote


def logical_lines(text: str) -> tuple[list[LogicalLine], list[OwnComment]]:
    """The logical lines of a text with their comments, and the comments behind the last one."""
    found: list[LogicalLine] = []
    remarks: list[OwnComment] = []
    depth, blank = 0, False
    for code, comment, column in _physical(text):
        if depth == 0 and not code:
            if comment:
                remarks.append(OwnComment(comment, column, blank))
            blank = not comment
            continue
        if code:
            if depth == 0 and not (code.startswith("because") and found):
                found.append(LogicalLine(code, remarks, blank))
                remarks, blank = [], False
            else:
                found[-1].lines += depth > 0
                _within(found[-1], remarks)
                remarks, blank = [], False
        depth += _opened(code)
        if comment and code and depth == 0:
            found[-1].beside = f"{found[-1].beside} {comment}".strip()
        elif comment:
            _within(found[-1], [OwnComment(comment, column, False)])
    return found, remarks


def _within(line: LogicalLine, remarks: list[OwnComment]) -> None:
    """Comments that stand inside of a line go above it, below its blank line."""
    if remarks:
        remarks[0].blank, line.blank = line.blank, False
    line.before += remarks


def _physical(text: str) -> Iterator[tuple[str, str, int]]:
    """The lines of a text: code, comment, and the column of the first of them. Documentation is code."""
    for line in text.splitlines():
        bare = line.strip()
        column = len(line) - len(line.lstrip())
        if bare.startswith("##"):
            yield bare, "", column
            continue
        comment = next((match for match in _TOKEN.finditer(line) if match.lastgroup == "comment"), None)
        code = line[: comment.start()] if comment is not None else line
        yield code.strip(), comment[0].rstrip() if comment is not None else "", column


def _opened(code: str) -> int:
    kinds = [match.lastgroup for match in _TOKEN.finditer(code)] if not code.startswith("##") else []
    return kinds.count("open") - kinds.count("close")


def _as_written(value: Any) -> Any:
    """Syntax with numbers as their author spells them: `1e-5` stays, which a float would print as `1e-05`."""
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


def alike(a: Any, b: Any) -> bool:
    """Whether two pieces of syntax say the same, wherever they stand."""
    if isinstance(a, tuple | list):
        return isinstance(b, tuple | list) and len(a) == len(b) and all(map(alike, a, b))
    if not isinstance(a, s.Syntax):
        return type(a) is type(b) and (a == b or a != a)
    names = (part.name for part in dataclasses.fields(a) if part.name != "span")
    return type(a) is type(b) and all(alike(getattr(a, name), getattr(b, name)) for name in names)
