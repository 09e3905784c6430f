"""An open rule file, as it is typed: cut at its declarations, so that one that is half written hides no other.

What has not changed is not read again: a declaration is parsed once for its text and its place, a rule checked once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...ir.diagnostic import Diagnostics, DplcError, Source
from ...ir.text.parse import parse
from ..language import core as s
from ..language.check import check_rule, load_facts, unread_numbers
from ..language.elaboration import elaborated
from ..language.findings import NOTE, Finding
from ..language.lint import lint_rule
from ..language.pipeline import pipelines
from ..language.rule import (
    BUILT_IN,
    Rule,
    RuleFile,
    RuleSet,
    built_in_files,
    further_of,
    parse_rules,
    place_of,
    read_rules,
)

_HEAD = re.compile(
    r"(?:override +)?(?:rule|number) |fact +\w+ *\(|pipeline |form +\w+ *\(|examples +\w+ *$|without "
    r"|(?:kernel|graph) +\w+ *\(|guards +\w+ *\([^\n]*\) *:"
)
_ABOVE = re.compile(r"##|@\w+")


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
        if _HEAD.match(line):
            starts.append(number if above is None else above)
            above = None
        elif _ABOVE.match(line):
            above = number if above is None else above
        elif line.strip() and not line.startswith("#"):
            above = None
    starts = sorted({0, *starts}) if lines else []
    ends = [*starts[1:], len(lines)]
    return [Chunk(start, "\n".join(lines[start:end])) for start, end in zip(starts, ends, strict=True)]


@functools.lru_cache(maxsize=4096)
def _parsed(name: str, chunk: Chunk) -> tuple[s.Syntax, ...] | DplcError:
    """The declarations of a chunk, at its place in the file; else what is wrong with it."""
    source = Source(name, "\n" * chunk.start + chunk.text + "\n")
    try:
        return parse(source)
    except DplcError as error:
        return error


@functools.lru_cache(maxsize=8)
def _others(place: int) -> RuleSet:
    """The built-in rules but those of one file."""
    files = built_in_files()
    return RuleSet((*files[:place], *files[place + 1 :]))


class Document:
    """A rule file with the built-in ones around it. path: where it is, or will be, saved."""

    def __init__(self, path: Path, text: str = ""):
        load_facts()
        self.path, self.text = path, text
        self.name = self._name()
        self.declarations: tuple[s.Syntax, ...] = ()
        self.file: RuleFile | None = None
        self.rules = RuleSet(built_in_files())
        self._further = further_of(path, self.name)  # examples beside it
        self._checked: dict[tuple[str, int, str], list[Finding]] = {}

    def _name(self) -> str:
        beside = BUILT_IN.parent
        return str(self.path.relative_to(beside)) if self.path.is_relative_to(beside) else str(self.path)

    def problems(self, text: str | None = None) -> list[DplcError]:
        """Everything that is wrong with the text: of every declaration that does not parse its error, of every other
        rule what static checks say."""
        self.text = self.text if text is None else text
        found: list[DplcError] = []
        kept: list[s.Syntax] = []
        for chunk in chunks(self.text.replace("\t", "    ")):
            parsed = _parsed(self.name, chunk)
            if isinstance(parsed, DplcError):
                found.append(parsed)
            else:
                kept += parsed
        self.declarations = tuple(kept)
        try:
            found += self._checks(tuple(kept))
        except Diagnostics as errors:
            found += errors.errors
        except DplcError as error:
            found.append(error)
        return found

    def _checks(self, kept: tuple[s.Syntax, ...]) -> Iterable[DplcError]:
        if self.name.endswith(".examples.rw"):
            return []
        source = Source(self.name, self.text)
        file = read_rules(source, lambda read: elaborated(kept) if read is source else parse_rules(read), self._further)
        ours = built_in_files()
        named = [place for place, known in enumerate(ours) if known.source.name == self.name]
        place = named[0] if named else place_of(file, ours, copies=True)
        self.rules = _others(place).extended(file)
        self.file = file
        found: list[DplcError] = [*unread_numbers(self.rules, {self.name})]
        for rule in file.rules:
            found += self._check(self.rules.rules[rule.name])
        pipelines(self.rules)
        told = {
            (error.span, error.what): error for error in found if getattr(error, "severity", None) != NOTE
        }  # members of a family share their text; notes are for who asks
        return told.values()

    def _check(self, rule: Rule) -> list[Finding]:
        """What is wrong with a rule; remembered for its text and its place."""
        chunk = next((c for c in reversed(chunks(self.text)) if c.start < rule.span.line), None)
        key = (rule.name, chunk.start if chunk else 0, chunk.text if chunk else "")
        if key not in self._checked:
            if len(self._checked) > 2000:
                self._checked.clear()
            self._checked[key] = [*check_rule(rule, self.rules), *lint_rule(rule, self.rules)]
        return self._checked[key]
