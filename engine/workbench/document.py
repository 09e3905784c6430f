"""Open rule file during editing, split into declarations so that an incomplete one does not hide the others; queries.

Unchanged declarations are parsed once, and unchanged rules are checked once. Both are moved when the number of lines
above them changes.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...codegen.target import target
from ...ir import schemas
from ...ir.diagnostic import Diagnostics, DplcError, Source, Span
from ...ir.text.parse import parse
from ...ir.text.read_statements import CLOSED, CONSTANTS
from ..kernels.examples import run_examples
from ..language import core as s
from ..language.check import check_declarations, check_rule, errors, lint_rule, load_facts
from ..language.elaborate import elaborated
from ..language.format import format_file
from ..language.pipeline import pipelines
from ..language.rule import (
    ATTRIBUTES,
    BUILT_IN,
    LEVELS,
    Rule,
    RuleFile,
    RuleSet,
    built_in_files,
    place_of,
    read_rules,
)
from ..language.rule_files import FURTHER, further_of, parse_rules
from ..language.rule_scope import CheckedRule
from ..language.sorts import TARGET_FIELDS
from ..rewrite.statements.driver import Engine
from . import reference
from .reference import Word, WordField

ROOT = BUILT_IN.parent

# ---- Declarations of a rule file: each text is parsed once, and moved when lines above it change.


_DECLARATION = re.compile(  # its documentation and attributes, with remarks and empty lines between them, and its head
    r"^(?:(?:##|@\w).*\n(?:(?:#|@\w).*\n|[^\S\n]*\n)*)?"
    r"(?:(?:override +)?(?:rule|number) |(?:override +)?fact +\w+ *\(|pipeline |form +\w+ *\(|examples +\w+ *$|without "
    r"|(?:kernel|graph) +\w+ *\(|guards +\w+ *\([^\n]*\) *:)",
    re.MULTILINE,
)
_NAMES = re.compile(r"^(?:override +)?(?:rule|number|fact|form|guards) +(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Chunk:
    """Declaration with its documentation. start: its first line, from 0; text: its lines."""

    start: int
    text: str

    def declares(self, kind: str) -> bool:
        """Return whether it is a declaration of a kind, such as `rule`."""
        return re.search(rf"^(?:override +)?{kind} ", self.text, re.MULTILINE) is not None


@functools.lru_cache(maxsize=512)
def chunks(text: str) -> list[Chunk]:
    """Split a text into its declarations, each with the documentation above it."""
    text = "\n".join(text.splitlines())
    starts = sorted({0, *(found.start() for found in _DECLARATION.finditer(text))})
    parts = itertools.pairwise([*starts, len(text)])
    return [Chunk(text.count("\n", 0, start), text[start:end].rstrip("\n")) for start, end in parts]


def chunk_at(parts: Sequence[Chunk], line: int) -> Chunk:
    """Return the declaration at a line, or the last one above it. Lines count from 0."""
    return next(chunk for chunk in reversed(parts) if chunk.start <= line)


@functools.lru_cache(maxsize=4096)
def _parsed(name: str, text: str) -> tuple[s.Syntax, ...] | DplcError:
    try:
        return parse(Source(name, text + "\n"))
    except DplcError as error:
        return error


@functools.lru_cache(maxsize=4096)
def _placed(name: str, text: str, lines: int) -> tuple[s.Syntax, ...] | DplcError:
    """Return the declarations of a text that is moved down by a number of lines, or the error in it.

    The same arguments give the same objects. Their source holds only this text, so that the cache keeps no whole file.
    """
    found, source = _parsed(name, text), Source(name, "\n" * lines + text)
    if isinstance(found, DplcError):
        return _error_moved(found, source, lines)
    return _moved(found, source, lines)  # type: ignore[no-any-return]


def _error_moved(error: DplcError, source: Source, lines: int) -> DplcError:
    """Return an error moved down by a number of lines; itself if it is in another file."""
    if error.span is None or error.span.source.name != source.name:
        return error
    moved = error.__class__.__new__(error.__class__, *error.args)
    moved.__dict__.update(error.__dict__, span=_span_moved(error.span, source, lines))
    return moved


def _moved(value: Any, source: Source, lines: int) -> Any:
    """Return syntax, moved down by a number of lines."""
    if value.__class__ is tuple:
        return tuple([_moved(item, source, lines) for item in value])
    if not isinstance(value, s.Syntax):
        return value
    fields = [_moved(part, source, lines) for part in s.children(value)]
    return value.__class__(_span_moved(value.span, source, lines), *fields)


def _span_moved(span: Span, source: Source, lines: int) -> Span:
    return Span(source, span.line + lines, span.column, span.end_line + lines, span.end_column)


_examples_of = functools.lru_cache(maxsize=8)(parse_rules)


@functools.lru_cache(maxsize=8)
def _others(place: int) -> RuleSet:
    """Return the built-in rules except those of one file."""
    files = built_in_files()
    return RuleSet((*files[:place], *files[place + 1 :]))


class Document:
    """Rule file together with the built-in ones.

    path: the file where it is, or will be, saved. texts: unsaved texts of the other files that are open in the editor.
    """

    def __init__(self, path: Path, texts: Callable[[Path], str | None] = lambda path: None):
        load_facts()
        self.path, self.texts, self.text = path, texts, ""
        self.name = str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
        self.declarations: tuple[s.Syntax, ...] = ()
        self.file: RuleFile | None = None
        self.rules = RuleSet(built_in_files())
        # findings by the rule, its text and the other declarations, with the line where the text began
        self._checked: dict[tuple[str, str, str], tuple[int, list[DplcError]]] = {}
        self._ordered: object = None

    def forget(self) -> None:
        """Drop all cached findings, because they do not depend on other rules that changed."""
        self._checked.clear()

    def problems(self, text: str) -> list[DplcError]:
        """Return all errors of the text.

        They are the parse errors of declarations, and the findings of static checks in the other rules. A declaration
        that invalidates the whole file is reported and left out. A reference to a declaration with an error is none.
        """
        self.text = text.removeprefix("\ufeff")
        found: dict[Any, DplcError] = {}
        kept: list[s.Syntax] = []
        missing: set[str] = set()
        texts = chunks(self.text.replace("\t", "    "))
        for chunk in texts:
            read = _placed(self.name, chunk.text, chunk.start)
            if isinstance(read, DplcError):
                found[read.what, read.span] = read
                missing.update(_NAMES.findall(chunk.text))
            else:
                kept += read
        self.declarations = tuple(kept)
        while True:
            raised: tuple[DplcError, ...] = ()
            try:
                told = self._checks(texts)
            except DplcError as error:
                told = raised = error.errors if isinstance(error, Diagnostics) else (error,)
            # members of a family share their text
            found |= {(error.what, error.span): error for error in told if not _misses(error, missing)}
            wrong = [one for one in self.declarations if any(_stands_in(error, one) for error in raised)]
            if not wrong:
                return [*found.values()]
            missing |= {getattr(one, "name", "") for one in wrong}
            self.declarations = tuple(one for one in self.declarations if one not in wrong)

    def _checks(self, texts: list[Chunk]) -> tuple[DplcError, ...]:
        """Return the findings of checks. Raises DplcError for an error that invalidates the file."""
        if self.name.endswith(FURTHER):
            return ()
        source, files = Source(self.name, self.text), built_in_files()
        saved, unsaved = further_of(self.path, self.name), self.texts(self.path.with_name(self.path.stem + FURTHER))
        further = saved if unsaved is None else Source(self.name.removesuffix(".rw") + FURTHER, unsaved)
        file = self.file = read_rules(
            source, lambda asked: elaborated(self.declarations) if asked is source else _examples_of(asked), further
        )
        place = next((place for place, known in enumerate(files) if known.source.name == self.name), None)
        self.rules = _others(place_of(file, files, copies=True) if place is None else place).extended(file)
        found = [*check_declarations(self.rules, {self.name})]
        others = (line for chunk in texts if not chunk.declares("rule") for line in chunk.text.splitlines())
        context = "\n".join(line for line in others if line.strip() and not line.startswith("#"))
        checked, self._checked = self._checked, {}
        moved: list[DplcError] = []
        for rule in (self.rules.rules[rule.name] for rule in file.rules):
            chunk = chunk_at(texts, rule.span.line - 1)
            key = (rule.name, chunk.text, context)
            known = checked.get(key) or (chunk.start, [*check_rule(rule, self.rules), *lint_rule(rule, self.rules)])
            self._checked[key] = known
            moved += [_error_moved(one, rule.span.source, chunk.start - known[0]) for one in known[1]]
        order = (file.pipelines, file.without, [(rule.name, rule.level, rule.attributes) for rule in file.rules])
        if order != self._ordered:
            pipelines(self.rules)
            self._ordered = order
        return (*found, *moved)


def _stands_in(error: DplcError, declared: s.Syntax) -> bool:
    """Return whether an error is in a declaration."""
    return error.span is not None and declared.span.line <= error.span.line <= declared.span.end_line


def _misses(error: DplcError, names: set[str]) -> bool:
    """Return whether an error is at one of these names."""
    at = error.span
    return at is not None and re.split(r"\W", at.source.line(at.line)[at.column :])[0] in names


# ---- Queries about a position in a rule file: meaning, completions, definition, references.

WORD = re.compile(r"[A-Za-z_]\w*")
# words that begin a line
DECLARATIONS = ("rule", "number", "fact", "pipeline", "form", "guards", "without", "override")
CLAUSES = (
    "match", "require", "prefer", "let", "pick", "split", "join", "rewrite", "example", "gives", "else", "because",
)  # fmt: skip
LOOP = "For"


class At:
    """Position in a document.

    word: the word there, "" for none; leading, before: the text of the line up to the word and up to the position;
    following: the text after the word; level: read from the head of the rule, which may have errors below.
    """

    def __init__(self, document: Document, line: int, column: int) -> None:
        lines = document.text.splitlines()[: line + 1]
        text = lines[line] if line < len(lines) else ""
        words = (match.span() for match in WORD.finditer(text) if match.start() <= column <= match.end())
        start, end = next(words, (column, column))
        self.document, self.line, self.before = document, line, text[:column]
        self.leading, self.word, self.following = text[:start], text[start:end], text[end:]
        head = r"^(?:override +)?rule .*\bon +(\w+)(?: +for +\w+)?[^\S\n]*(?:#.*)?$"
        level = re.findall(head, "\n".join(lines), re.MULTILINE)[-1:]
        self.level = level[0] if level and level[0] in LEVELS else None

    @functools.cached_property
    def subject(self) -> CheckedRule | None:
        """The rule at the position as it last parsed, None above all rules."""
        file, rules = self.document.file, self.document.rules
        above = [rule for rule in (file.rules if file is not None else ()) if rule.span.line <= self.line + 1]
        if not above:
            return None
        rule = max(above, key=lambda rule: rule.span.line)
        return CheckedRule(rules.rules.get(rule.name, rule) if rule.device is None else rule, rules)

    @property
    def variable(self) -> CheckedRule | None:
        """Rule in which the word is a variable, None if rule files share the word or nothing declares it."""
        rules, subject = self.document.rules, self.subject
        if subject is None or self.word in (subject.rule.name, *rules.numbers, *rules.facts):
            return None
        return subject if self.word in subject.scope | subject.made else None

    def known(self, name: str) -> list[Word]:
        """Return the facts, functions, nodes and ops of a name on the level."""
        return reference.find(reference.known(), name, self.level)

    def fields(self, owner: str) -> list[WordField]:
        """Return the fields of a statement or an op."""
        return [field for entry in self.known(owner) if entry.kind in ("statement", "op") for field in entry.fields]


def warm() -> None:
    """Fill the caches, so that the first answer is as fast as the others."""
    Document(BUILT_IN / "new.rw").problems("rule new on tile\nmatch\n    pass\nrewrite\n    pass\n")
    reference.known()
    schemas.names()


# ---- completion


def completions(document: Document, line: int, column: int) -> list[Word]:
    """Return the completions at a position, by the text before it, with the text of each as its signature."""
    at, rules = At(document, line, column), document.rules
    before, level = at.before, at.level
    offers: list[tuple[str, str, Mapping[str, object]]] = [
        (r".*\btarget\.\w*", "field", TARGET_FIELDS),
        (r"@\w*", "keyword", ATTRIBUTES),
        (r"(?:override +)?rule .*\bon +\w*", "keyword", LEVELS),
        (r"(?:\s+(?:pass|one of)\b|\s*without ).*", "rule", dict.fromkeys((*rules.passes, *rules.rules), "")),
        (r"\w*", "keyword", dict.fromkeys((*DECLARATIONS, *CLAUSES), "")),
        (r".*:\s*\w+=\w*", "constant", dict.fromkeys(filter(str.isupper, CLOSED["Role"]), "role")),  # `i:32=THREAD`
    ]
    for field, kind in (("via", "Via"), ("fn", "Fn"), ("atom", "AtomName"), ("dtype", "Dtype")):
        offers.append((rf".*\b{field}=\w*", "constant", dict.fromkeys(CLOSED[kind], field)))
    for pattern, kind, names in offers:
        if re.fullmatch(pattern, before):
            return [Word(name, kind, str(text)) for name, text in names.items()]
    owner = "" if re.search(r"=\w*$", before) else owner_of(before)
    found = [  # a loop offers only the fields that its head has no syntax for
        Word(field.name, "field", field.text)
        for field in at.fields(owner)
        if owner != LOOP or (field.default and field.name != "role")
    ]
    if at.subject is not None:
        parameters = {parameter.name: parameter.sort or "" for parameter in at.subject.rule.parameters}
        scope = {name: str(sort) for name, sort in at.subject.scope.items() if name not in parameters}
        found += [Word(name, "variable", sort) for name, sort in scope.items()]
        found += [Word(name, "parameter", sort) for name, sort in parameters.items()]
    found += [entry for entry in reference.known() if level is None or level in entry.levels]
    found += [Word(name, "number", format_file([of.declared]).strip()) for name, of in rules.numbers.items()]
    found += [Word(fact.name, "fact", "", "\n".join(fact.docs)) for fact in rules.facts.values()]
    found += [Word(name, "constant") for name in itertools.chain(*CLOSED.values(), CONSTANTS)]
    return found + [Word(name, "op") for name in sorted(schemas.names()) if level == "torch"]


def owner_of(before: str) -> str:
    """Return the statement whose fields may follow a text: the open call, else a loop, else ""."""
    return open_call(before) or (LOOP if re.match(r"\s*for\b.*\bin\b.*\s", before) else "")


def open_call(before: str) -> str:
    """Return the name of the innermost call that is open at the end of a line, "" for none."""
    depth = 0
    for place in range(len(before) - 1, -1, -1):
        depth += (before[place] in ")]}") - (before[place] in "([{")
        if depth < 0:
            word = re.search(r"(\w+)\($", before[: place + 1])
            return word[1] if word else ""
    return ""


def signatures(document: Document, line: int, column: int) -> list[Word]:
    """Return the signatures of the call that is open at a position."""
    at = At(document, line, column)
    return at.known(open_call(at.before))


# ---- hover


def meaning(document: Document, line: int, column: int) -> str:
    """Describe the word at a position in Markdown; "" for an unknown word."""
    at = At(document, line, column)
    word, rules = at.word, document.rules
    if at.leading.endswith("target.") and word in TARGET_FIELDS:
        return f"`target.{word}`: {TARGET_FIELDS[word]}"
    if word and re.match(r" *=(?!=)", at.following):
        owner = owner_of(at.leading)
        for field in at.fields(owner):
            if field.name == word:
                return f"field `{word}` of `{owner}`: {field.text}"
    found = []
    for entry in at.known(word):
        levels = f"{entry.kind} on {', '.join(entry.levels)}"
        found.append(f"```\n{entry.signature}\n```\n{levels}\n\n{entry.says}\n\n{entry.field_list}".strip())
    if word in rules.numbers:
        found.append(f"```\n{format_file([rules.numbers[word].declared]).strip()}\n```")
    if word in rules.facts and not found:
        found.append(f"**{word}**: {' '.join(rules.facts[word].docs)}")
    if word in rules.rules:
        named = rules.rules[word]
        found.append(f"rule **{word}** on {named.level}, {named.location}\n\n" + "\n".join(named.docs))
    if not found and (variable := _about_variable(at)):
        found.append(variable)
    if not found and word in (*LEVELS, *ATTRIBUTES):
        found.append(f"**{word}**: {LEVELS.get(word) or ATTRIBUTES[word]}")
    if not found:
        found += [f"`{word}`, of {', '.join(names[:12])}" for names in CLOSED.values() if word in names][:1]
    return "\n\n---\n\n".join(found)


def _about_variable(at: At) -> str:
    word, subject = at.word, at.variable
    if subject is None:
        return ""
    for parameter in subject.rule.parameters:
        if parameter.name == word:
            text = parameter.span.source.line(parameter.span.line)
            return f"parameter `{word}` of `{subject.rule.name}`\n\n```\n{text.strip()}\n```"
    if word in subject.made:
        return f"`{word}` is {subject.made[word]}, made by the template"
    by_let = f", by `let`, line {subject.lets[word].span.line}" if word in subject.lets else ""
    return f"`{word}` is {subject.scope[word]}{by_let}"


# ---- Definitions and references.


@dataclass(frozen=True)
class FilePlace:
    """Range in a file, with the text before it on its line. Lines and columns count from 0."""

    path: Path
    line: int
    column: int
    end: int
    leading: str = ""


def definition(document: Document, line: int, column: int) -> list[FilePlace]:
    """Return the declarations of the word at a position."""
    at, rules = At(document, line, column), document.rules
    word, subject, spans = at.word, at.variable, list[Span]()
    if subject is not None:
        spans = [one.span for one in subject.binders if one.name == word]
        spans += [name.span for name, _ in subject.occurrences if name.text == word]
        spans = sorted(spans, key=lambda span: (span.line, span.column))[:1]
    if not spans:
        number = rules.numbers[word].declared if word in rules.numbers else None
        spans = [one.span for one in (rules.rules.get(word), rules.facts.get(word), number) if one]
    spans = spans or [rule.span for rule in rules.passes.get(word, ())[:1]]
    places = [FilePlace(path_of(one.source.name), one.line - 1, one.column, one.end_column) for one in spans]
    return places or [*_declared_in_folder(document, word)]


def _declared_in_folder(document: Document, word: str) -> Iterator[FilePlace]:
    """Yield the locations at which a rule file declares a name."""
    for path, chunk in _chunks_with(document, word):
        if word in _NAMES.findall(chunk.text):
            yield next(_occurrences(path, chunk, word))


def references(document: Document, line: int, column: int) -> list[FilePlace]:
    """Return the declarations and uses of the word at a position.

    Those of a variable are in its rule, those of a parameter also in examples and pipelines that set it, and all others
    in all rule files and their examples.
    """
    at = At(document, line, column)
    word, subject = at.word, at.variable
    here = chunk_at(chunks(document.text), line)
    if subject is not None:
        without_examples = Chunk(here.start, here.text.partition("\nexample ")[0])
        settings = _settings_of(document, subject.rule, word) if word in subject.given else ()
        return [*_occurrences(document.path, without_examples, word), *settings]
    names = _names_rule(here, at.leading)
    return [
        place
        for path, chunk in _chunks_with(document, word)
        for place in _occurrences(path, chunk, word)
        if not names or _names_rule(chunk, place.leading)
    ]


def ours(document: Document, line: int, column: int) -> bool:
    """Return whether rule files declare the word at a position, so that it can be renamed."""
    return At(document, line, column).variable is not None or bool(definition(document, line, column))


def _chunks_with(document: Document, word: str) -> Iterator[tuple[Path, Chunk]]:
    """Yield the declarations with a word in the built-in rule files, in those of the folder, and in their examples."""
    sources = (source for file in built_in_files() for source in (file.source, file.further) if source is not None)
    known = {path_of(source.name): source.text for source in sources}
    for path in sorted(document.path.parent.glob("*.rw")):
        if path not in known:
            known[path] = path.read_text(encoding="utf-8", errors="replace")
    known[document.path] = document.text
    for path, saved in known.items():
        text = document.texts(path)
        text = saved if text is None else text
        if word and word in text:
            yield from ((path, chunk) for chunk in chunks(text) if word in chunk.text)


def _settings_of(document: Document, rule: Rule, word: str) -> Iterator[FilePlace]:
    """Yield the locations that set a parameter: `example "title" (N=2)` of its rule, `pass rule(N=2)` of a pipeline."""
    names = {rule.name, rule.family, rule.file}
    for path, chunk in _chunks_with(document, word):
        head = re.search(r"^(?:(?:override +)?rule|examples) +(\w+)", chunk.text, re.MULTILINE)
        for place in _occurrences(path, chunk, word, r"(?=\s*=(?!=))"):
            entry = re.match(r"\s+(?:pass +|one of .*?\b(?=\w+\())(\w+)", place.leading)
            of_rule = head if place.leading.startswith("example ") else entry
            if of_rule and of_rule[1] in names and place.leading.rstrip().endswith(("(", ",")):
                yield place


def _occurrences(path: Path, chunk: Chunk, word: str, following: str = "") -> Iterator[FilePlace]:
    """Yield the whole words outside of quoted texts, comments and attributes. following: a pattern after the word."""
    pattern = re.compile(rf'"[^"\n]*"|#.*|(?<![\w.@])({word})(?!\w){following}')
    for number, line in enumerate(chunk.text.splitlines(), chunk.start):
        for found in pattern.finditer(line):
            if found[1]:
                yield FilePlace(path, number, *found.span(1), line[: found.start()])


def _names_rule(chunk: Chunk, leading: str) -> bool:
    """Return whether a word after a text of its line names a rule or a pass. Elsewhere the word is a variable."""
    if chunk.declares("pipeline"):
        before = r"^[^#]*\s(?:pass|as|after|before|without|one of) +$|^\s+one of\b[^#]*, *$"
    else:
        before = r"^(?:[^#]*[\s,(])?(?:rule|examples|without) +$"
    return re.search(before, leading) is not None


def path_of(name: str) -> Path:
    """Return the file of a source. The names of built-in sources are relative to the root."""
    return ROOT / name


# ---- Runs for an editor: examples, a check of a rule by meaning, a count of its firings in a suite.
#
# They run in a separate process, so that typing is never blocked. The process sends any number of progress reports,
# then an answer. Rules are data and are never executed. A suite is Python, like `-c`: the user of the editor names it,
# else it is a built-in one.

Tell = Callable[[str, int, int], None]
Counts = dict[str, dict[str, int]]  # of each rule: its firings in each case of a suite in which it fires


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

    def answer(self, tell: Tell) -> Answer:
        """Run it. Raises the first error of the rule file."""
        document = Document(self.path, lambda path: self.examples)
        for wrong in errors(document.problems(self.text)):  # type: ignore[arg-type]
            raise wrong
        if self.kind == "firings":
            return self._firings(document, tell)
        assert document.file is not None
        listed = [document.rules.rules[rule.name] for rule in document.file.rules]
        chosen = [rule for rule in listed if self.rule in (None, rule.name, rule.family)]
        if not chosen:
            raise document.rules.missing(self.rule or "")
        return self._examples(document, chosen) if self.kind == "examples" else _check(document, chosen, tell)

    def _examples(self, document: Document, chosen: list[Rule]) -> Answer:
        """Run the examples of a rule, one of them, or all of the file."""
        rule, title = self.rule, self.title
        count, failures = run_examples(Engine(document.rules, check=True), chosen, only=title)
        if not count and title is not None:
            raise DplcError(f'`{rule}` has no example "{title}"')
        held = count - len(failures)
        label = f"{held} of {count} hold" if title is None else "holds" if held else "fails"
        what = f'example "{title}"' if title is not None else f"{count} examples"
        return Answer(f"{what}{f' of `{rule}`' if rule else ''}: {label}", label, [one.error() for one in failures])

    def _firings(self, document: Document, tell: Tell) -> Answer:
        """Count where rules fire in the suite."""
        from ..compiler import compiler_with
        from ..view.records import fired_in

        assert self.suite is not None
        found = fired_in(self.suite, compiler_with(target(), document.rules), tell)
        counts = {name: {case: count for case, count, _ in cases} for name, cases in found.items()}
        return Answer(f"{len(counts)} rules fire in {self.suite.name}", counts=counts)


@dataclass(frozen=True)
class Answer:
    """Result of a run: a label for the lens, a message for the user, and the errors to show."""

    message: str
    label: str = ""
    wrong: Sequence[DplcError] = ()
    counts: Counts | None = None


def _check(document: Document, chosen: list[Rule], tell: Tell) -> Answer:
    """Check rules on programs drawn from their own patterns, as `dplc check` does."""
    from ..verify.run import CheckOptions, check_rules

    verdicts = check_rules(document.rules, chosen, CheckOptions(), lambda done: tell(done.rule, 0, len(chosen)))
    said = {one.rule: f"{one.result}, fired on {one.reached} programs" for one in verdicts}
    ok = sum(one.result == "ok" for one in verdicts)
    wrong = []
    for verdict in verdicts:
        if (found := verdict.wrong) is not None:
            program = (f"  {line}" for line in found.subject.text.splitlines())
            what, span = f"rule `{verdict.rule}` is wrong: {found.problem}", document.rules.rules[verdict.rule].span
            wrong.append(DplcError(what, span, ("on this program:", *program, *found.details)))
    message = "\n".join(f"rule `{rule}`: {text}" for rule, text in said.items())
    return Answer(message, f"{ok} ok" if len(said) != 1 else next(iter(said.values())), wrong)


def serve(request: Request, pipe: Connection) -> None:
    """Execute a request in a process of its own. Send its progress, then the answer."""
    os.dup2(sys.stderr.fileno(), 1)  # the editor reads standard output
    try:
        pipe.send(request.answer(lambda *progress: pipe.send(progress)))
    except DplcError as error:
        pipe.send(Answer(error.render()))


async def ask(request: Request, tell: Tell) -> Answer:
    """Return the answer of a separate process; an error is its message. tell: called with the progress."""
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
        return Answer("it ended without an answer")
    finally:
        process.kill()  # the editor may have gone away
