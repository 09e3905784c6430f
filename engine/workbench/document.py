"""Open rule file during editing, split into its declarations, so that an incomplete one does not hide the others.

Unchanged declarations are parsed once, and unchanged rules are checked once. Both are moved when the number of lines
above them changes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...ir.diagnostic import Diagnostics, DplcError, Source, Span
from ...ir.text.parse import parse
from ..language import core as s
from ..language.check import check_rule, kinds_of_facts, lint_rule, load_facts, unread_numbers
from ..language.elaborate import elaborated
from ..language.pipeline import pipelines
from ..language.rule import BUILT_IN, Rule, RuleFile, RuleSet, built_in_files, parse_rules, place_of, read_rules
from ..language.rule_files import FURTHER, further_of
from ..language.rule_scope import Finding
from ..language.typed_slots import parts

# ---- Declarations of a rule file: each text is parsed once, and moved when lines above it change.


HEAD = re.compile(
    r"(?:override +)?(?:rule|number) |(?:override +)?fact +\w+ *\(|pipeline |form +\w+ *\(|examples +\w+ *$|without "
    r"|(?:kernel|graph) +\w+ *\(|guards +\w+ *\([^\n]*\) *:"
)
_ABOVE = re.compile(r"##|@\w+")


E = TypeVar("E", bound=DplcError)


@dataclass(frozen=True)
class Chunk:
    """Declaration with its documentation. start: its first line, from 0; text: its lines."""

    start: int
    text: str


def chunks(text: str) -> list[Chunk]:
    """Split a text into its declarations, each with the documentation above it."""
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
    """Return the declarations of a chunk with their location in a source, or the error in it."""
    lead = len(chunk.text) - len(chunk.text.lstrip("\n"))  # empty lines around it are not part of it
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
    """Return the declarations of a text, moved down by a number of lines.

    The same arguments give the same objects. Their source holds only this text, so that the cache keeps no whole file.
    """
    return _moved(_parsed(name, text), Source(name, "\n" * lines + text), lines)  # type: ignore[no-any-return]


def error_moved(error: E, source: Source, lines: int) -> E:
    """Return an error moved down by a number of lines."""
    if error.span is None:
        return error
    out = error.__class__.__new__(error.__class__)
    out.__dict__.update(error.__dict__, span=_span(error.span, source, lines))
    out.args = error.args
    return out


def _moved(value: Any, source: Source, lines: int) -> Any:
    """Return syntax, moved down by a number of lines."""
    if value.__class__ is tuple:
        return tuple([_moved(item, source, lines) for item in value])
    if not isinstance(value, s.Syntax):
        return value
    cls = value.__class__
    fields = [_moved(getattr(value, name), source, lines) for name in parts(cls)]
    return cls(_span(value.span, source, lines), *fields)


def _span(span: Span, source: Source, lines: int) -> Span:
    return Span(source, span.line + lines, span.column, span.end_line + lines, span.end_column)


_RULE = re.compile(r"^(?:override +)?rule ", re.MULTILINE)
_NAMES = re.compile(r"^(?:override +)?(?:rule|number|fact|form|guards) +(\w+)", re.MULTILINE)


@functools.lru_cache(maxsize=8)
def _read_examples(source: Source) -> tuple[s.Syntax, ...]:
    return parse_rules(source)


@functools.lru_cache(maxsize=8)
def _others(place: int) -> RuleSet:
    """Return the built-in rules except those of one file."""
    files = built_in_files()
    return RuleSet((*files[:place], *files[place + 1 :]))


class Document:
    """Rule file together with the built-in ones. path: the file where it is, or will be, saved."""

    def __init__(self, path: Path, text: str = ""):
        load_facts()
        self.path, self.text = path, text
        self.name = self._name()
        self.declarations: tuple[s.Syntax, ...] = ()
        self.file: RuleFile | None = None
        self.rules = RuleSet(built_in_files())
        self.set_examples(None)
        self._checked: dict[tuple[str, str, str], tuple[int, list[Finding]]] = {}  # with the line where its text began
        self._ordered: object = None

    def _name(self) -> str:
        root = BUILT_IN.parent
        return str(self.path.relative_to(root)) if self.path.is_relative_to(root) else str(self.path)

    def set_examples(self, text: str | None) -> None:
        """Set the text of the file of examples as in the editor. None selects the saved file."""
        if text is None:
            self.further = further_of(self.path, self.name)
        else:
            self.further = Source(self.name.removesuffix(".rw") + FURTHER, text)

    def forget(self) -> None:
        """Drop all cached findings, because they do not depend on other rules that changed."""
        self._checked.clear()

    def problems(self, text: str | None = None) -> list[DplcError]:
        """Return all errors of the text.

        They are the parse errors of declarations, and the findings of static checks in the other rules.
        """
        self.text = self.text if text is None else text.removeprefix("\ufeff")
        found: list[DplcError] = []
        kept: list[s.Syntax] = []
        unread: set[str] = set()
        source = Source(self.name, self.text)
        for chunk in chunks(self.text.replace("\t", "    ")):
            read = parsed(source, chunk)
            if isinstance(read, DplcError):
                found.append(read)
                unread.update(_NAMES.findall(chunk.text))
            else:
                kept += read
        self.declarations = tuple(kept)
        return [*found, *self._judged(source, unread)]

    def _judged(self, source: Source, unread: set[str]) -> list[DplcError]:
        """Return the findings of checks. A declaration that invalidates the whole file is reported and left out.

        unread: names of declarations with parse errors. A reference to one of them is not an error.
        """
        found: list[DplcError] = []
        while True:
            try:
                return [*found, *(error for error in self._checks(source) if not _misses(error, unread))]
            except DplcError as error:
                told = error.errors if isinstance(error, Diagnostics) else [error]
            new = [one for one in told if all((one.what, one.span) != (e.what, e.span) for e in found)]
            found += [one for one in new if not _misses(one, unread)]
            right = tuple(one for one in self.declarations if not any(_stands_in(error, one) for error in told))
            if len(right) == len(self.declarations):
                return found
            unread |= {getattr(one, "name", "") for one in self.declarations if one not in right}
            self.declarations = right

    def _checks(self, source: Source) -> Iterable[DplcError]:
        if self.name.endswith(FURTHER):
            return []
        read = functools.partial(self._read, source)
        file = self.file = read_rules(source, read, self.further)
        ours = built_in_files()
        named = [place for place, known in enumerate(ours) if known.source.name == self.name]
        place = named[0] if named else place_of(file, ours, copies=True)
        self.rules = _others(place).extended(file)
        found: list[DplcError] = [
            *unread_numbers(self.rules, {self.name}),
            *kinds_of_facts(self.rules, {self.name}),
        ]
        texts = chunks(self.text)
        others = [chunk.text.splitlines() for chunk in texts if not _RULE.search(chunk.text)]
        context = "\n".join(line for lines in others for line in lines if line.strip() and not line.startswith("#"))
        for rule in file.rules:
            chunk = next(chunk for chunk in reversed(texts) if chunk.start < rule.span.line)
            found += self._check(self.rules.rules[rule.name], chunk, context)
        self._order()
        told = {(error.span, error.what): error for error in found}  # members of a family share their text
        return told.values()

    def _read(self, source: Source, asked: Source) -> tuple[s.Syntax, ...]:
        """Return the declarations of the rule file, or those of the file of its examples."""
        return elaborated(self.declarations) if asked is source else _read_examples(asked)

    def _check(self, rule: Rule, chunk: Chunk, context: str) -> list[Finding]:
        """Return the findings about a rule, cached by its text and by the other declarations except rules."""
        key = (rule.name, chunk.text.strip("\n"), context)
        known = self._checked.get(key)
        if known is None:
            if len(self._checked) > 2000:
                self._checked.clear()
            known = self._checked[key] = chunk.start, [*check_rule(rule, self.rules), *lint_rule(rule, self.rules)]
        start, found = known
        source = rule.span.source
        return [error_moved(one, source, chunk.start - start) if _own(one, source) else one for one in found]

    def _order(self) -> None:
        """Check that the passes can be ordered, again after a relevant declaration changed. Raises DplcError."""
        assert self.file is not None
        says = (
            self.file.pipelines,
            self.file.without,
            [(rule.name, rule.level, rule.attributes) for rule in self.file.rules],
        )
        if says != self._ordered:
            self._ordered = None
            pipelines(self.rules)
            self._ordered = says


def _stands_in(error: DplcError, declared: s.Syntax) -> bool:
    """Return whether an error is in a declaration."""
    return error.span is not None and declared.span.line <= error.span.line <= declared.span.end_line


def _misses(error: DplcError, names: set[str]) -> bool:
    """Return whether an error is at one of these names."""
    at = error.span
    if at is None:
        return False
    word = re.match(r"\w*", at.source.line(at.line)[at.column :])
    return word is not None and word[0] in names


def _own(error: Finding, source: Source) -> bool:
    """Return whether a finding is in the file itself, not in the file of its examples."""
    return error.span is not None and error.span.source.name == source.name
