"""Open rule file during editing, split into declarations so that an incomplete one does not hide the others; queries.

Unchanged declarations are parsed once, and unchanged rules are checked once. Both are moved when the number of lines
above them changes.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from ...codegen.target import target
from ...ir import schemas
from ...ir.diagnostic import Diagnostics, DplcError, Source, Span
from ...ir.text.parse import parse
from ...ir.text.read_statements import CLOSED, CONSTANTS
from ..kernels.examples import run_examples
from ..language import core as s
from ..language.check import check_rule, errors, kinds_of_facts, lint_rule, load_facts, unread_numbers
from ..language.elaborate import elaborated
from ..language.format import format_number
from ..language.pipeline import pipelines
from ..language.rule import (
    ATTRIBUTES,
    BUILT_IN,
    LEVELS,
    Rule,
    RuleFile,
    RuleSet,
    built_in_files,
    parse_rules,
    place_of,
    read_rules,
)
from ..language.rule_files import FURTHER, further_of
from ..language.rule_scope import CheckedRule, Finding
from ..language.sorts import TARGET_FIELDS
from ..language.typed_slots import children
from ..rewrite.statements.driver import Engine
from . import reference
from .reference import Word

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
    fields = [_moved(part, source, lines) for part in children(value)]
    return value.__class__(_span(value.span, source, lines), *fields)


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

    def __init__(self, path: Path):
        load_facts()
        self.path, self.text = path, ""
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
                raised = error.errors if isinstance(error, Diagnostics) else [error]
            new = [one for one in raised if all((one.what, one.span) != (e.what, e.span) for e in found)]
            found += [one for one in new if not _misses(one, unread)]
            right = tuple(one for one in self.declarations if not any(_stands_in(error, one) for error in raised))
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
        distinct = {(error.span, error.what): error for error in found}  # members of a family share their text
        return distinct.values()

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


# ---- Queries about a position in a rule file: meaning, completions, definition, references.

WORD = re.compile(r"[A-Za-z_]\w*")
CLAUSES = (
    "match",
    "require",
    "prefer",
    "let",
    "pick",
    "split",
    "join",
    "rewrite",
    "example",
    "gives",
    "else",
    "because",
)
LOOP = "For"
TOP = ("rule", "number", "fact", "pipeline", "form", "guards", "without", "override")


class At:
    """Position in a document.

    word: the word there, "" for none; leading, before: the text of the line up to the word and up to the position;
    rule: the rule there as it last parsed; level: read from the head of the rule, which may have errors below.
    """

    def __init__(self, document: Document, line: int, column: int) -> None:
        lines = document.text.splitlines()
        self.document, self.line = document, line
        self.text = lines[line] if line < len(lines) else ""
        self.before = self.text[:column]
        found = (match for match in WORD.finditer(self.text) if match.start() <= column <= match.end())
        match = next(found, None)
        self.word, start = (match[0], match.start()) if match else ("", column)
        self.leading, self.following = self.text[:start], self.text[start + len(self.word) :]
        rules = document.file.rules if document.file is not None else ()
        above = [rule for rule in rules if rule.span.line <= line + 1]
        self.rule = max(above, key=lambda rule: rule.span.line, default=None)
        heads = (re.match(r"(?:override +)?rule .*\bon +(\w+)(?: +for +\w+)?\s*(?:#.*)?$", text) for text in
                 reversed(lines[: line + 1]))  # fmt: skip
        head = next(filter(None, heads), None)
        self.level = head[1] if head and head[1] in LEVELS else None

    @property
    def subject(self) -> CheckedRule | None:
        """Rule as it was checked, None outside of a rule."""
        return None if self.rule is None else subject_of(self.rule, self.document)

    @property
    def variable(self) -> CheckedRule | None:
        """Rule in which the word is a variable, None if rule files share the word or nothing declares it."""
        subject = self.subject
        if self.rule is None or subject is None or shared(self.document, self.word, self.rule):
            return None
        return subject if self.word in subject.scope | subject.made else None

    def known(self) -> list[Word]:
        """Return the facts, functions and nodes with the word as their name."""
        return reference.find(_entries(self.level), self.word, self.level) if self.word else []


@functools.lru_cache(maxsize=64)
def subject_of(rule: Rule, document: Document) -> CheckedRule:
    of_every_device = document.rules.rules.get(rule.name, rule)
    return CheckedRule(of_every_device if rule.device is None else rule, document.rules)


@functools.lru_cache(maxsize=16)
def _entries(level: str | None) -> tuple[Word, ...]:
    return tuple(entry for entry in reference.known() if level is None or level in entry.levels)


def warm() -> None:
    """Fill the caches, so that the first answer is as fast as the others."""
    document = Document(BUILT_IN / "new.rw")
    document.problems("rule new on tile\nmatch\n    pass\nrewrite\n    pass\n")
    for level in (None, *LEVELS):
        _entries(level)
    schemas.names()


# ---- completion


def completions(document: Document, line: int, column: int) -> list[Word]:
    """Return the completions at a position, by the text before it, with the text of each as its signature."""
    at = At(document, line, column)
    before, level = at.before, at.level
    if re.search(r"\btarget\.\w*$", before):
        return [Word(name, "field", str(sort)) for name, sort in TARGET_FIELDS.items()]
    if re.match(r"@\w*$", before):
        return [Word(name, "keyword", says) for name, says in ATTRIBUTES.items()]
    if re.match(r"(?:override +)?rule .*\bon +\w*$", before):
        return [Word(name, "keyword", says) for name, says in LEVELS.items()]
    if re.match(r"\s+(?:pass|one of)\b|\s*without ", before):
        return [Word(name, "rule") for name in (*document.rules.passes, *document.rules.rules)]
    if re.match(r"\w*$", before):
        return [Word(word, "keyword") for word in (*TOP, *CLAUSES)]
    value = re.search(r"=\w*$", before) is not None
    if value and (closed := _closed(before)):
        return closed
    return [*([] if value else _fields(before, level)), *_bound(at), *_known(document, level)]


def _closed(before: str) -> list[Word]:
    """Return the names that a field with a fixed list, such as `via=`, `role` or `fn=`, accepts."""
    field = re.search(r"(\w+)=\w*$", before)
    kinds = {"via": "Via", "fn": "Fn", "atom": "AtomName", "dtype": "Dtype"}
    name = field[1] if field else ""
    if re.search(r":\s*\w+=\w*$", before):  # `i:32=THREAD`
        return [Word(word, "constant", "role") for word in CLOSED["Role"] if word.isupper()]
    return [Word(word, "constant", name) for word in CLOSED[kinds[name]]] if name in kinds else []


def _fields(before: str, level: str | None) -> list[Word]:
    """Return the fields of the open call, or of the loop whose head this is.

    A loop offers only the fields that its head has no syntax for.
    """
    owner = owner_of(before)
    return [
        Word(name, "field", reference.field_text(sort, default))
        for name, sort, default in _fields_of(owner, level)
        if owner != LOOP or (default and name != "role")
    ]


def _fields_of(owner: str, level: str | None) -> list[tuple[str, str, str]]:
    """Return (name, sort, default) of each field of a statement or an op."""
    found = reference.find(_entries(level), owner, level) if owner else []
    return [field for entry in found if entry.kind in ("statement", "op") for field in entry.fields]


def owner_of(before: str) -> str:
    """Return the statement whose fields may follow a text: the open call, else a loop, else ""."""
    return open_call(before) or (LOOP if re.match(r"\s*for\b.*\bin\b.*\s", before) else "")


def open_call(before: str) -> str:
    """Return the name of the innermost call that is open at the end of a line, "" for none."""
    depth = 0
    for place in range(len(before) - 1, -1, -1):
        depth += (before[place] in ")]}") - (before[place] in "([{")
        if depth < 0:
            word = re.search(r"(\w+)$", before[:place])
            return word[1] if word and before[place] == "(" else ""
    return ""


def signatures(document: Document, line: int, column: int) -> list[Word]:
    """Return the signatures of the call that is open at a position."""
    at = At(document, line, column)
    name = open_call(at.before)
    return reference.find(_entries(at.level), name, at.level) if name else []


def _bound(at: At) -> Iterator[Word]:
    if at.rule is None or at.subject is None:
        return
    parameters = {parameter.name: parameter.sort or "" for parameter in at.rule.parameters}
    for name, sort in at.subject.scope.items():
        if name not in parameters:
            yield Word(name, "variable", str(sort))
    yield from (Word(name, "parameter", sort) for name, sort in parameters.items())


def _known(document: Document, level: str | None) -> Iterator[Word]:
    yield from _entries(level)
    for name, number in document.rules.numbers.items():
        yield Word(name, "number", format_number(number.declared).strip())
    for fact in document.rules.facts.values():
        yield Word(fact.name, "fact", "", "\n".join(fact.docs))
    yield from (Word(name, "constant") for names in CLOSED.values() for name in names)
    yield from (Word(name, "constant") for name in CONSTANTS)
    if level == "torch":
        yield from (Word(name, "op") for name in sorted(schemas.names()))


# ---- hover


def meaning(document: Document, line: int, column: int) -> str:
    """Describe the word at a position in Markdown; "" for an unknown word."""
    at = At(document, line, column)
    word, rules = at.word, document.rules
    if at.leading.endswith("target.") and word in TARGET_FIELDS:
        return f"`target.{word}`: {TARGET_FIELDS[word]}"
    if word and re.match(r" *=(?!=)", at.following):
        owner = owner_of(at.leading)
        for name, sort, default in _fields_of(owner, at.level):
            if name == word:
                return f"field `{word}` of `{owner}`: {reference.field_text(sort, default)}"
    found = []
    for entry in at.known():
        fields = "\n".join(f"- `{name}`: {reference.field_text(sort, default)}" for name, sort, default in entry.fields)
        text = f"```\n{entry.signature}\n```\n{entry.kind} on {', '.join(entry.levels)}\n\n{entry.says}\n\n{fields}"
        found.append(text.strip())
    if word in rules.numbers:
        found.append(f"```\n{format_number(rules.numbers[word].declared).strip()}\n```")
    if word in rules.facts and not found:
        found.append(f"**{word}**: {' '.join(rules.facts[word].docs)}")
    if word in rules.rules:
        named = rules.rules[word]
        found.append(f"rule **{word}** on {named.level}, {named.location}\n\n" + "\n".join(named.docs))
    found = found or _about_variable(at)
    if not found and word in (*LEVELS, *ATTRIBUTES):
        found.append(f"**{word}**: {LEVELS.get(word) or ATTRIBUTES[word]}")
    if not found:
        found += [f"`{word}`, of {', '.join(names[:12])}" for names in CLOSED.values() if word in names][:1]
    return "\n\n---\n\n".join(found)


def _about_variable(at: At) -> list[str]:
    word, rule, subject = at.word, at.rule, at.subject
    if rule is None or subject is None:
        return []
    for parameter in rule.parameters:
        if parameter.name == word:
            text = rule.span.source.line(parameter.span.line)
            return [f"parameter `{word}` of `{rule.name}`\n\n```\n{text.strip()}\n```"]
    if word in subject.lets:
        return [f"`{word}` is {subject.scope.get(word)}, by `let`, line {subject.lets[word].span.line}"]
    sort = subject.scope.get(word) or subject.made.get(word)
    return [f"`{word}` is {sort}" + ("" if word in subject.scope else ", made by the template")] if sort else []


# ---- Definitions and references.


ROOT = BUILT_IN.parent
Texts = Callable[[Path], str | None]
_BEFORE_A_RULE = re.compile(r"(?:^|[\s,(])(?:rule|examples|without) +$")
_BEFORE_A_PASS = re.compile(r"\s(?:pass|as|after|before|without|one of) +$|^\s+one of\b.*, *$")


@dataclass(frozen=True)
class FilePlace:
    """Range in a file. Lines and columns count from 0."""

    path: Path
    line: int
    column: int
    end: int


def nothing_open(path: Path) -> None:
    """Return None, as for an editor that has no other file open."""


# ---- declared


def definition(document: Document, line: int, column: int, texts: Texts = nothing_open) -> list[FilePlace]:
    """Return the declarations of the word at a position. texts: see `references`."""
    at, rules = At(document, line, column), document.rules
    word, rule, subject = at.word, at.rule, at.variable
    if rule is not None and subject is not None and word in subject.scope:
        places = [p.span for p in rule.parameters if p.name == word]
        places += [c.span for c in rule.clauses if getattr(c, "name", None) == word]
        places += [name.span for name, _ in subject.occurrences if name.text == word]
        if places:
            return [_of_span(min(places, key=lambda span: (span.line, span.column)))]
    spans = [found.span for found in (rules.rules.get(word), rules.facts.get(word)) if found]
    if word in rules.numbers:
        spans.append(rules.numbers[word].declared.span)
    if word in rules.passes and not spans:
        spans.append(rules.passes[word][0].span)
    return list(map(_of_span, spans)) or [*_declared_in_folder(document, word, texts)]


def _declared_in_folder(document: Document, word: str, texts: Texts) -> Iterator[FilePlace]:
    """Yield the locations at which another rule file of the folder declares a name."""
    declared = re.compile(rf"(?:override +)?(?:rule|number|fact|form) +({re.escape(word)})\b")
    for path, text in _rule_texts(document, texts) if word else ():
        for number, line in enumerate(text.splitlines()):
            if found := declared.match(line):
                yield FilePlace(path, number, *found.span(1))


# ---- read


def references(document: Document, line: int, column: int, texts: Texts = nothing_open) -> list[FilePlace]:
    """Return the declarations and uses of the word at a position.

    Those of a variable are in its rule, those of a parameter also in examples and pipelines that set it, and all others
    in all rule files and their examples. texts: the unsaved texts of files that are open in the editor.
    """
    at = At(document, line, column)
    word, rule = at.word, at.rule
    if not word:
        return []
    if rule is not None and at.variable is not None:
        named = any(parameter.name == word for parameter in rule.parameters)
        return [*_words_of(document, rule, word), *(_settings_of(document, rule, word, texts) if named else ())]
    names = any(n == line and start <= column <= end for n, start, end in _names_of_rules(document.text, word))
    find = _names_of_rules if names else _occurrences
    return [FilePlace(path, *place) for path, text in _rule_texts(document, texts) for place in find(text, word)]


def shared(document: Document, word: str, rule: Rule | None = None) -> bool:
    """Return whether all rule files share a name: a number, a fact, a rule, a pass.

    rule: the rule that contains the name. There, names of other rules and passes may be variables.
    """
    rules = document.rules
    known = (rules.numbers, rules.facts) if rule is not None and word != rule.name else (
        rules.numbers, rules.facts, rules.rules, rules.passes,
    )  # fmt: skip
    return any(word in names for names in known)


def ours(document: Document, line: int, column: int, texts: Texts = nothing_open) -> bool:
    """Return whether rule files declare the word at a position, so that it can be renamed."""
    at = At(document, line, column)
    if shared(document, at.word) or at.variable is not None:
        return True
    return any(_declared_in_folder(document, at.word, texts))


def _rule_texts(document: Document, texts: Texts) -> Iterator[tuple[Path, str]]:
    """Yield every rule file and file of examples: the built-in ones, and those in the folder of the document."""
    known: dict[Path, str] = {}
    for file in built_in_files():
        known[path_of(file.source.name)] = file.source.text
        if file.further is not None:
            known[path_of(file.further.name)] = file.further.text
    folder = document.path.parent
    for path in sorted(folder.glob("*.rw")) if folder.is_dir() else ():
        if path not in known:
            known[path] = path.read_text(encoding="utf-8", errors="replace")
    known[document.path] = document.text
    for path, text in known.items():
        open_text = texts(path)
        yield path, text if open_text is None else open_text


def _words_of(document: Document, rule: Rule, word: str) -> Iterator[FilePlace]:
    """Yield the occurrences of a word in a rule, from its head to its examples, or to the next declaration."""
    lines = document.text.splitlines()
    first = rule.span.line - 1
    last = first + 1
    while last < len(lines) and not (HEAD.match(lines[last]) or lines[last].startswith(("example ", "##", "@"))):
        last += 1
    for number, start, end in _occurrences("\n".join(lines[first:last]), word):
        yield FilePlace(path_of(document.name), first + number, start, end)


def _settings_of(document: Document, rule: Rule, word: str, texts: Texts) -> Iterator[FilePlace]:
    """Yield the locations that set a parameter: `example "title" (N=2)` of its rule, `pass rule(N=2)` of a pipeline."""
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
                unquoted = re.sub(r'"[^"\n]*"', lambda quoted: " " * len(quoted[0]), line)
                for found in set_to.finditer(unquoted):
                    yield FilePlace(path, number, *found.span(1))


def _occurrences(text: str, word: str) -> Iterator[tuple[int, int, int]]:
    """Yield (line, column, end) of whole words outside of quoted texts, comments and documentation."""
    pattern = re.compile(rf'"[^"\n]*"|#.*|(?<![\w.])({re.escape(word)})(?!\w)')
    for number, line in enumerate(text.splitlines()):
        for match in pattern.finditer(line):
            if match[1]:
                yield number, *match.span(1)


def _names_of_rules(text: str, word: str) -> Iterator[tuple[int, int, int]]:
    """Yield the occurrences of a word that name a rule or a pass. Elsewhere the word is a variable."""
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
    """Return the file of a source. The names of built-in sources are relative to the root."""
    path = Path(name)
    return path if path.is_absolute() else ROOT / path


def _of_span(span: Span) -> FilePlace:
    return FilePlace(path_of(span.source.name), span.line - 1, span.column, span.end_column)


# ---- Runs for an editor: examples, a check of a rule by meaning, a count of its firings in a suite.
#
# They run in a separate process, so that typing is never blocked. The process sends any number of progress reports,
# then an answer. Rules are data and are never executed. A suite is Python, like `-c`: the user of the editor names it,
# else it is a built-in one.

Tell = Callable[[str, int, int], None]
Counts = dict[str, tuple[int, int]]  # of each rule: its firings, and the cases of a suite in which it fires


@dataclass(frozen=True)
class Request:
    """Run of a rule file as it is in the editor.

    kind: examples, check or firings; rule, title: of an example, None for all; examples: the text of the file of
    examples, None for the saved file; suite: for firings.
    """

    kind: str
    rule: str | None
    title: str | None
    path: Path
    text: str
    examples: str | None
    suite: Path | None

    def document(self) -> Document:
        """Return the document. Raises its first error."""
        document = Document(self.path)
        document.set_examples(self.examples)
        for wrong in errors(document.problems(self.text)):  # type: ignore[arg-type]
            raise wrong
        return document


@dataclass(frozen=True)
class Answer:
    """Result of a run: a label for the lens, a message for the user, and the errors to show."""

    message: str
    label: str = ""
    wrong: tuple[DplcError, ...] = ()
    counts: Counts | None = None


def examples(request: Request, document: Document, tell: Tell) -> Answer:
    """Run the examples of a rule, one of them, or all of the file."""
    rule, title = request.rule, request.title
    count, failures = run_examples(Engine(document.rules, check=True), _rules(document, rule), only=title)
    if not count and title is not None:
        raise DplcError(f'`{rule}` has no example "{title}"')
    held = count - len(failures)
    label = f"{held} of {count} hold" if title is None else "holds" if held else "fails"
    what = f'example "{title}"' if title is not None else f"{count} examples"
    return Answer(f"{what}{f' of `{rule}`' if rule else ''}: {label}", label, tuple(one.error() for one in failures))


def check(request: Request, document: Document, tell: Tell) -> Answer:
    """Check a rule on programs drawn from its own pattern, as `dplc check` does."""
    from ..verify.run import CheckOptions, check_rules

    chosen = _rules(document, request.rule)
    verdicts = check_rules(document.rules, chosen, CheckOptions(), lambda done: tell(done.rule, 0, len(chosen)))
    said = [f"{one.result}, fired on {one.reached} programs" for one in verdicts]
    label = said[0] if len(said) == 1 else f"{sum(one.result == 'ok' for one in verdicts)} ok"
    wrong = []
    for wrong_one, name in ((one.wrong, one.rule) for one in verdicts if one.wrong is not None):
        program = (f"  {line}" for line in wrong_one.subject.text.splitlines())
        notes = ("on this program:", *program, *wrong_one.details)
        span = document.rules.rules[name].span
        wrong.append(DplcError(f"rule `{name}` is wrong: {wrong_one.problem}", span, notes))
    lines = (f"rule `{one.rule}`: {text}" for one, text in zip(verdicts, said, strict=True))
    return Answer("\n".join(lines), label, tuple(wrong))


def firings(request: Request, document: Document, tell: Tell) -> Answer:
    """Count where rules fire in a suite."""
    from ..compiler import compiler_with
    from ..view.records import fired_in

    assert request.suite is not None
    found = fired_in(request.suite, compiler_with(target(), document.rules), tell)
    counts = {name: (sum(count for _, count, _ in cases), len(cases)) for name, cases in found.items()}
    return Answer(f"{len(counts)} rules fire in {request.suite.name}", counts=counts)


RUNS = {"examples": examples, "check": check, "firings": firings}


def _rules(document: Document, name: str | None) -> list[Rule]:
    """Return the rule of a name, the members of a family, or all rules of the file. Raises DplcError."""
    assert document.file is not None
    listed = [document.rules.rules[rule.name] for rule in document.file.rules]
    chosen = [rule for rule in listed if name is None or name in (rule.name, rule.family)]
    if not chosen:
        raise document.rules.missing(name or "")
    return chosen


def serve(request: Request, pipe: Connection) -> None:
    """Execute a request in a process of its own. Send its progress, then the answer, or an error as text."""
    os.dup2(sys.stderr.fileno(), 1)  # the editor reads standard output
    try:
        pipe.send(RUNS[request.kind](request, request.document(), lambda *progress: pipe.send(progress)))
    except DplcError as error:
        pipe.send(error.render())


async def ask(request: Request, tell: Tell) -> Answer | str:
    """Return the answer of a separate process, or an error as text. tell: called with its progress."""
    from ..ruleset import here, processes

    context = processes()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=here(serve), args=(request, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        while isinstance(answer := await asyncio.to_thread(ours.recv), tuple):
            tell(*answer)
        return answer  # type: ignore[no-any-return]
    except EOFError:
        return "it ended without an answer"
    finally:
        process.kill()  # the editor may have gone away
