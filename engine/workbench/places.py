"""Find the declaration and the uses of a name in rule files and their examples."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...ir.diagnostic import Span
from ..language.rule import BUILT_IN, Rule, built_in_files
from . import reference
from .answers import level_at, rule_at, subject_of, word_at
from .chunks import HEAD
from .document import Document

ROOT = BUILT_IN.parent
Texts = Callable[[Path], str | None]
_BEFORE_A_RULE = re.compile(r"(?:^|[\s,(])(?:rule|examples|without) +$")
_BEFORE_A_PASS = re.compile(r"\s(?:pass|as|after|before|without|one of) +$|^\s+one of\b.*, *$")


@dataclass(frozen=True)
class FilePlace:
    """Where something stands: a file, lines and columns from 0."""

    path: Path
    line: int
    column: int
    end: int


def nothing_open(path: Path) -> None:
    """The texts of an editor that has no other file open."""


# ---- declared


def definition(document: Document, line: int, column: int, texts: Texts = nothing_open) -> list[FilePlace]:
    """Where the word at a place is declared: in this file, in another, or in Python. texts: as of `references`."""
    word, _ = word_at(document.text, line, column)
    rule = rule_at(document, line)
    if rule is not None and word in (subject := subject_of(rule, document)).scope and not shared(document, word, rule):
        places = [p.span for p in rule.parameters if p.name == word]
        places += [c.span for c in rule.clauses if getattr(c, "name", None) == word]
        places += [name.span for name, _ in subject.occurrences if name.text == word]
        if places:
            return [_of_span(min(places, key=lambda span: (span.line, span.column)))]
    spans = [found.span for found in (document.rules.rules.get(word), document.rules.facts.get(word)) if found]
    if word in document.rules.numbers:
        spans.append(document.rules.numbers[word].declared.span)
    if word in document.rules.passes and not spans:
        spans.append(document.rules.passes[word][0].span)
    if spans:
        return [_of_span(span) for span in spans]
    return _in_python(word, level_at(document, line)) or [*_declared_beside(document, word, texts)]


def _declared_beside(document: Document, word: str, texts: Texts) -> Iterator[FilePlace]:
    """Where another rule file of the folder declares a name."""
    declared = re.compile(rf"(?:override +)?(?:rule|number|fact|form) +({re.escape(word)})\b")
    for path, text in _rule_texts(document, texts) if word else ():
        for number, line in enumerate(text.splitlines()):
            if found := declared.match(line):
                yield FilePlace(path, number, *found.span(1))


def _in_python(word: str, level: str | None) -> list[FilePlace]:
    """The definition of what Python declares: facts, functions, nodes."""
    entries = reference.find(reference.known(), word, level) if word else []
    return [place for entry in entries if (place := _of_text(entry.place, word)) is not None]


def _of_text(place: str, word: str) -> FilePlace | None:
    file, _, told = place.partition(":")
    if not file.endswith((".py", ".json")):
        return None
    line = int(told or 1) - 1
    text = _lines(path_of(file))[line] if file.endswith(".py") else ""
    found = re.search(rf"\b{re.escape(word)}\b", text)  # a fact is named by its signature, which may stand below
    return FilePlace(path_of(file), line, *(found.span() if found else (0, 0)))


@functools.lru_cache(maxsize=512)
def _lines(path: Path) -> list[str]:
    return [*path.read_text(encoding="utf-8").splitlines(), ""]


# ---- read


def references(document: Document, line: int, column: int, texts: Texts = nothing_open) -> list[FilePlace]:
    """Where the word at a place is declared and read. A variable: in its rule; a parameter also where examples and
    pipelines set it; anything else in all rule files and their examples.

    texts: of files that the editor has open, as they stand there.
    """
    word, _ = word_at(document.text, line, column)
    rule = rule_at(document, line)
    if not word:
        return []
    if rule is not None and not shared(document, word, rule):
        subject = subject_of(rule, document)
        if word in subject.scope | subject.made:
            found = list(_words_of(document, rule, word))
            named = any(parameter.name == word for parameter in rule.parameters)
            return [*found, *_settings_of(document, rule, word, texts)] if named else found
    names = any(n == line and start <= column <= end for n, start, end in _names_of_rules(document.text, word))
    found = []
    for path, text in _rule_texts(document, texts):
        read = _names_of_rules(text, word) if names else _occurrences(text, word)
        found += [FilePlace(path, n, start, end) for n, start, end in read]
    return found if names else [*found, *_in_python(word, level_at(document, line))]


def shared(document: Document, word: str, rule: Rule | None = None) -> bool:
    """Whether rule files declare a name for all of them: a number, a fact, a rule, a pass. rule: in which it stands,
    where rules and passes have names for themselves."""
    rules = document.rules
    known = (rules.numbers, rules.facts) if rule is not None and word != rule.name else (
        rules.numbers, rules.facts, rules.rules, rules.passes,
    )  # fmt: skip
    return any(word in names for names in known)


def ours(document: Document, line: int, column: int, texts: Texts = nothing_open) -> bool:
    """Whether the word at a place is declared in rule files, so that it can have another name."""
    word, _ = word_at(document.text, line, column)
    rule = rule_at(document, line)
    scope: Iterable[str] = ()
    if rule is not None:
        subject = subject_of(rule, document)
        scope = subject.scope | subject.made
    return shared(document, word) or word in scope or any(_declared_beside(document, word, texts))


def _rule_texts(document: Document, texts: Texts) -> Iterator[tuple[Path, str]]:
    """Every rule file and file of examples: the built-in ones, and those in the folder of the document."""
    known: dict[Path, str] = {}
    for file in built_in_files():
        known[path_of(file.source.name)] = file.source.text
        if file.further is not None:
            known[path_of(file.further.name)] = file.further.text
    beside = document.path.parent
    for path in sorted(beside.glob("*.rw")) if beside.is_dir() else ():
        if path not in known:
            known[path] = path.read_text(encoding="utf-8", errors="replace")
    known[document.path] = document.text
    for path, text in known.items():
        open_text = texts(path)
        yield path, text if open_text is None else open_text


def _words_of(document: Document, rule: Rule, word: str) -> Iterator[FilePlace]:
    """The places of a word in the text of a rule, from its head to its examples, or to the next declaration."""
    lines = document.text.splitlines()
    first = rule.span.line - 1
    last = first + 1
    while last < len(lines) and not (HEAD.match(lines[last]) or lines[last].startswith(("example ", "##", "@"))):
        last += 1
    for number, start, end in _occurrences("\n".join(lines[first:last]), word):
        yield FilePlace(path_of(document.name), first + number, start, end)


def _settings_of(document: Document, rule: Rule, word: str, texts: Texts) -> Iterator[FilePlace]:
    """Where a parameter is set: `example "title" (N=2)` of its rule, `pass rule(N=2)` of a pipeline."""
    names = {rule.name, rule.family, rule.file} - {None}
    set_to = re.compile(rf"[(,]\s*({re.escape(word)})\s*=(?!=)")
    for path, text in _rule_texts(document, texts):
        inside = None
        for number, line in enumerate(text.splitlines()):
            head = re.match(r"(?:override +)?rule +(\w+)|examples +(\w+)", line)
            if head:
                inside = head[1] or head[2]
            elif HEAD.match(line):
                inside = None
            entry = re.match(r"\s+pass +(\w+)|\s+one of .*?\b(\w+)\(", line)
            if (line.startswith("example ") and inside in names) or (entry and {entry[1], entry[2]} & names):
                for found in set_to.finditer(_masked(line)):
                    yield FilePlace(path, number, *found.span(1))


def _masked(line: str) -> str:
    """A line with spaces in the place of its quoted texts."""
    return re.sub(r'"[^"\n]*"', lambda found: " " * len(found[0]), line)


def _occurrences(text: str, word: str) -> Iterator[tuple[int, int, int]]:
    """Whole words outside of texts, comments and documentation: line, column, end."""
    pattern = re.compile(rf'"[^"\n]*"|#.*|(?<![\w.])({re.escape(word)})(?!\w)')
    for number, line in enumerate(text.splitlines()):
        for match in pattern.finditer(line):
            if match[1]:
                yield number, *match.span(1)


def _names_of_rules(text: str, word: str) -> Iterator[tuple[int, int, int]]:
    """Those of its occurrences that name a rule or a pass: elsewhere the same word is a variable."""
    lines, ordered = text.splitlines(), set()
    inside = False
    for number, line in enumerate(lines):
        inside = line.startswith("pipeline ") if HEAD.match(line) else inside
        if inside:
            ordered.add(number)
    for number, start, end in _occurrences(text, word):
        before = _BEFORE_A_PASS if number in ordered else _BEFORE_A_RULE
        if before.search(lines[number][:start]):
            yield number, start, end


# ---- files


def path_of(name: str) -> Path:
    """The file of a source: built-in ones are named from the root."""
    path = Path(name)
    return path if path.is_absolute() else ROOT / path


def _of_span(span: Span) -> FilePlace:
    return FilePlace(path_of(span.source.name), span.line - 1, span.column, span.end_column)
