"""The text of a rule file, cut at its declarations: each is parsed once for what it says, wherever it stands."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from ...ir.diagnostic import DplcError, Source, Span
from ...ir.text.parse import parse
from ..language import core as s
from ..language.typed_slots import parts

HEAD = re.compile(
    r"(?:override +)?(?:rule|number) |(?:override +)?fact +\w+ *\(|pipeline |form +\w+ *\(|examples +\w+ *$|without "
    r"|(?:kernel|graph) +\w+ *\(|guards +\w+ *\([^\n]*\) *:"
)
_ABOVE = re.compile(r"##|@\w+")


E = TypeVar("E", bound=DplcError)


@dataclass(frozen=True)
class Chunk:
    """A declaration with its documentation. start: its first line, from 0; text: its lines."""

    start: int
    text: str


def chunks(text: str) -> list[Chunk]:
    """The declarations of a text, each from its documentation to the next one's."""
    lines = text.splitlines()
    starts: list[int] = []
    above: int | None = None
    for number, line in enumerate(lines):
        if HEAD.match(line):
            starts.append(number if above is None else above)
            above = None
        elif _ABOVE.match(line):
            above = number if above is None else above
        elif line.strip() and not line.startswith("#"):
            above = None
    starts = sorted({0, *starts}) if lines else []
    ends = [*starts[1:], len(lines)]
    return [Chunk(start, "\n".join(lines[start:end])) for start, end in zip(starts, ends, strict=True)]


def parsed(source: Source, chunk: Chunk) -> tuple[s.Syntax, ...] | DplcError:
    """The declarations of a chunk at its place in a source; else what is wrong with it."""
    lead = len(chunk.text) - len(chunk.text.lstrip("\n"))  # empty lines around it are no part of what it says
    found = _parsed(source.name, chunk.text.strip("\n"))
    if isinstance(found, DplcError):
        return error_moved(found, source, chunk.start + lead)
    return _placed(source.name, chunk.text.strip("\n"), chunk.start + lead)


@functools.lru_cache(maxsize=4096)
def _parsed(name: str, text: str) -> tuple[s.Syntax, ...] | DplcError:
    try:
        return parse(Source(name, text + "\n"))
    except DplcError as error:
        return error


@functools.lru_cache(maxsize=4096)
def _placed(name: str, text: str, lines: int) -> tuple[s.Syntax, ...]:
    """A text's declarations so many lines down: the same objects while neither changes, of a source that says no more
    than the text, so that none keeps a whole file."""
    return _moved(_parsed(name, text), Source(name, "\n" * lines + text), lines)  # type: ignore[no-any-return]


def error_moved(error: E, source: Source, lines: int) -> E:
    """The same error so many lines further down."""
    if error.span is None:
        return error
    out = error.__class__.__new__(error.__class__)
    out.__dict__.update(error.__dict__, span=_span(error.span, source, lines))
    out.args = error.args
    return out


def _moved(value: Any, source: Source, lines: int) -> Any:
    """Syntax so many lines further down."""
    if value.__class__ is tuple:
        return tuple([_moved(item, source, lines) for item in value])
    if not isinstance(value, s.Syntax):
        return value
    cls = value.__class__
    fields = [_moved(getattr(value, name), source, lines) for name in parts(cls)]
    return cls(_span(value.span, source, lines), *fields)


def _span(span: Span, source: Source, lines: int) -> Span:
    return Span(source, span.line + lines, span.column, span.end_line + lines, span.end_column)
