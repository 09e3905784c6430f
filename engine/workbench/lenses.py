"""What stands above a rule or an example in an editor: what may be run there, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..language import core as s
from ..language.rule_files import FURTHER
from .document import Document

Counts = Mapping[str, tuple[int, int]]  # of each rule: its firings, and the cases of a suite in which it fires


@dataclass(frozen=True)
class Lens:
    """line: from 0; run: `examples`, `check` or `firings`; rule, example: what is run, as far as it says."""

    line: int
    title: str
    run: str
    rule: str
    example: str | None = None


def lenses(document: Document, suite: Path | None, counts: Counts | None, stale: bool = False) -> Iterator[Lens]:
    """What may be run in a document. suite: where firings are counted; counts: those that are known; stale: of an
    earlier text."""
    for declared in document.declarations:
        if isinstance(declared, s.Rule):
            yield from _of_rule(declared, document)
            if suite is not None and counts is None:
                title = f"count its firings in {suite.name}"
                yield Lens(_line(declared), title, "firings", declared.name)
            elif suite is not None and counts is not None:
                title = _fired(_members(declared, document), counts, suite) + (", before this edit" if stale else "")
                yield Lens(_line(declared), title, "firings", declared.name)
        if isinstance(declared, s.Rule | s.ExamplesOf):
            name = declared.name if isinstance(declared, s.Rule) else declared.rule
            for example in declared.examples:
                yield Lens(example.span.line - 1, "run this example", "examples", name, example.title)


def _of_rule(declared: s.Rule, document: Document) -> Iterator[Lens]:
    rules = document.file.rules if document.file is not None else ()
    found = next((rule for rule in rules if declared.name in (rule.name, rule.family)), None)
    count = len(found.examples) if found is not None else len(declared.examples)
    if count:
        yield Lens(_line(declared), f"run {_count(count, 'example')}", "examples", declared.name)
    yield Lens(_line(declared), "check this rule", "check", declared.name)


def _line(declared: s.Rule) -> int:
    return declared.span.line - 1


def _members(declared: s.Rule, document: Document) -> list[str]:
    rules = document.file.rules if document.file is not None else ()
    return [rule.name for rule in rules if declared.name in (rule.name, rule.family)]


def _fired(names: list[str], counts: Counts, suite: Path) -> str:
    times = sum(counts.get(name, (0, 0))[0] for name in names)
    if not times:
        return f"never fires in {suite.name}"
    cases = max(counts.get(name, (0, 0))[1] for name in names)  # members of a family may share cases
    least = "at least " if len(names) > 1 else ""
    return f"fired {_count(times, 'time')} in {least}{_count(cases, 'case')} of {suite.name}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def rules_file(path: Path) -> Path:
    """The rule file that examples belong to; any other file itself."""
    return path.with_name(path.name.removesuffix(FURTHER) + ".rw") if path.name.endswith(FURTHER) else path
