"""`dplc rules test --accept`: what rules give becomes what their examples say."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...ir.diagnostic import DplcError, Source, Span
from ..language import core as s
from ..language.layout import formatted
from ..language.positions import walk
from ..language.spelling import INDENT
from ..rewrite.statements.examples import Failure
from .output_file import write_file, writing
from .show import print_note

ANYTHING = re.compile(b"")  # the file is given to be written
AWAITED = f"{INDENT}pass"  # a graph may be of another level than what a rule makes of it
_EXAMPLE = re.compile(r'example "[^"]*" *(?:\([^)]*\))? *$')


def accept(failures: Iterable[Failure]) -> int:
    """Write what the rules give into the `gives` of examples that say something else. Returns how many were written.

    Examples that several rules of a family share are written where all of them give the same.
    """
    found: dict[tuple[Path, int], tuple[s.Example, set[str]]] = {}
    for failure in failures:
        example = failure.example
        if failure.got and isinstance(example.gives, tuple):
            place = Path(example.span.source.name), example.span.line
            found.setdefault(place, (example, set()))[1].add(failure.got)
    written = 0
    for path in sorted({path for path, _ in found}):
        lines = path.read_text(encoding="utf-8").splitlines()
        for (where, _), (example, texts) in sorted(found.items(), key=lambda item: -item[0][1]):
            if where == path and len(texts) == 1:
                lines = _replaced(lines, example, texts.pop())
                written += 1
            elif where == path:
                print_note(f'note: example "{example.title}" is of several rules, which give different programs')
        write_file(path, formatted(Source(str(path), "\n".join(lines) + "\n")), ANYTHING)
    return written


@contextlib.contextmanager
def kept_if_refused(files: Iterable[Path]) -> Iterator[None]:
    """Files are as they were, byte for byte, when what is done with them ends with an error."""
    before = {file: file.read_bytes() for file in files}
    try:
        yield
    except BaseException:
        for file, text in before.items():
            if file.read_bytes() != text:
                with writing(file, ANYTHING) as whole:
                    whole.write(text)
        raise


def fill(path: Path) -> dict[int, Span]:
    """Give examples without a program behind `gives`, or without `gives`, what `accept` compares with: their own
    program, and `pass` where that is a graph. Returns which they are, counted from 1, and where they stood.
    Raises DplcError for a file that is wrong besides."""
    text = path.read_text(encoding="utf-8-sig")
    source, lines = Source(str(path), text), text.splitlines()
    whole, which = _filled(lines)
    if whole != lines:
        write_file(path, formatted(Source(str(path), "\n".join(whole) + "\n")), ANYTHING)
    return {number: Span(source, line, 0, line, len(lines[line - 1])) for number, line in which.items()}


def require_answers(failures: Iterable[Failure], filled: Mapping[Path, Mapping[int, Span]]) -> None:
    """Raises DplcError at an example that said nothing yet, and has no answer: its rule does not fire, or the rules of
    its family give different programs."""
    told: dict[tuple[Path, int], str] = {}
    for failure in failures:
        path, line = Path(failure.example.span.source.name), failure.example.span.line
        number = sum(map(bool, map(_EXAMPLE.match, path.read_text(encoding="utf-8").splitlines()[:line])))
        if number in filled.get(path, ()):
            error, span = failure.error(), filled[path][number]
            if not failure.got:
                raise DplcError(error.what, span, error.notes)
            if told.setdefault((path, number), failure.got) != failure.got:
                what = f'example "{failure.example.title}" is of several rules, which give different programs'
                raise DplcError(what, span)


def _filled(lines: list[str]) -> tuple[list[str], dict[int, int]]:
    """The lines with a program behind every `gives`; {the examples that had none, counted from 1: their line}."""
    out: list[str] = []
    which: dict[int, int] = {}
    place = count = 0
    while place < len(lines):
        out.append(lines[place])
        place += 1
        if not _EXAMPLE.match(out[-1]):
            continue
        line, count = place, count + 1
        program, place = _indented(lines, place)
        out += program
        gives = lines[place] if place < len(lines) else ""
        if gives.startswith("gives ") or not any(line.strip() for line in program):
            continue  # a refusal, or no program to take
        place += gives.rstrip() == "gives"
        given, place = _indented(lines, place)
        if not any(line.strip() for line in given):
            which[count] = line
            given = [AWAITED] if any(line.startswith(f"{INDENT}graph ") for line in program) else program
        out += ["gives", *given]
    return out, which


def _indented(lines: list[str], place: int) -> tuple[list[str], int]:
    """The indented lines from a place on, without the empty ones behind them, and the place behind."""
    end = place
    while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
        end += 1
    while end > place and not lines[end - 1].strip():
        end -= 1
    return lines[place:end], end


def _replaced(lines: list[str], example: s.Example, text: str) -> list[str]:
    """The lines of a file with another block behind the `gives` of an example."""
    nodes = list(walk(example.gives))
    first = min(node.span.line for node in nodes)
    while lines[first - 2].strip() != "gives":  # documentation of a unit stands above it
        first -= 1
    last = max(node.span.end_line if node.span.end_column else node.span.end_line - 1 for node in nodes)
    block = [f"{INDENT}{line}" for line in text.rstrip().splitlines()]
    return [*lines[: first - 1], *block, *lines[last:]]
