"""Open rule file during editing, split into declarations so that an incomplete one does not hide the others; queries.

Unchanged declarations are parsed once, and unchanged rules are checked once. Both are moved when the number of lines
above them changes.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...codegen.target import target
from ...ir import schemas
from ...ir.diagnostic import DplcError, Source, Span
from ...ir.node import immutable
from ...ir.text.parse import parse
from ...ir.text.read_statements import CLOSED, CONSTANTS
from ..kernels.examples import run_examples
from ..language import core as s
from ..language.check import check_declarations, check_rule, lint_rule, load_facts, rules_in_force
from ..language.elaborate import elaborated, located
from ..language.format import format_file
from ..language.pipeline import pipelines
from ..language.rule import (
    ATTRIBUTES,
    BUILT_IN,
    LEVELS,
    Rule,
    RuleSet,
    built_in_files,
    place_of,
    read_rules,
)
from ..language.rule_files import FURTHER, further_of, parse_rules
from ..language.rule_scope import CheckedRule
from ..language.sorts import TARGET_FIELDS, Advice
from ..language.typed_slots import every, plain
from ..rewrite.statements.driver import Engine
from . import reference
from .reference import ROOT, Word, WordField

# ---- Declarations of a rule file: each text is parsed once, and moved when lines above it change.


_DECLARATION = re.compile(  # its documentation and attributes, with remarks and empty lines between them, and its head
    r"^(?:(?:##|@\w).*\n(?:(?:#|@\w).*\n|[^\S\n]*\n)*)?"
    r"(?:(?:override +)?(?:rule|number) |(?:override +)?fact +\w+ *\(|pipeline |form +\w+ *\(|examples +\w+ *$|without "
    r"|(?:kernel|graph) +\w+ *\(|guards +\w+ *\([^\n]*\) *:)",
    re.MULTILINE,
)
_NAMES = re.compile(r"^(?:override +)?(?:rule|number|fact|form|guards) +(\w+)", re.MULTILINE)


@immutable
class Chunk:
    """Declaration with its documentation. start: its first line, from 0; text: its lines."""

    start: int
    text: str


@lru_cache(maxsize=512)
def chunks(text: str) -> list[Chunk]:
    """Split a text into its declarations, each with the documentation above it."""
    text = "\n".join(text.splitlines())
    starts = sorted({0, *(found.start() for found in _DECLARATION.finditer(text))})
    parts = itertools.pairwise([*starts, len(text)])
    return [Chunk(text.count("\n", 0, start), text[start:end].rstrip("\n")) for start, end in parts]


def chunk_at(text: str, line: int) -> Chunk:
    """Return the declaration at a line, or the last one above it. Lines count from 0."""
    return next(chunk for chunk in reversed(chunks(text)) if chunk.start <= line)


@lru_cache(maxsize=4096)
def _parsed(name: str, text: str) -> tuple[s.Syntax, ...]:
    return parse(Source(name, text + "\n"))


@lru_cache(maxsize=4096)
def _placed(name: str, text: str, lines: int) -> tuple[s.Syntax, ...]:
    """Return the declarations of a text that is moved down by a number of lines. Raises the error in it.

    The same arguments give the same objects. Their source holds only this text, so that the cache keeps no whole file.
    """
    source = Source(name, "\n" * lines + text)
    try:
        return located(_parsed(name, text), lambda span: _span_moved(span, source, lines))
    except DplcError:
        return _parsed(name, source.text)  # raises the error with the lines of the file, in its notes too


def _moved(error: DplcError, source: Source, lines: int) -> DplcError:
    """Return an error, moved down by a number of lines; an error in another file as it is."""
    if error.span is None or error.span.source.name != source.name:
        return error
    moved = copy.copy(error)
    moved.span = _span_moved(error.span, source, lines)
    return moved


def _span_moved(span: Span, source: Source, lines: int) -> Span:
    return Span(source, span.line + lines, span.column, span.end_line + lines, span.end_column)


_examples_of = lru_cache(maxsize=8)(parse_rules)


@lru_cache(maxsize=8)
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
        self.file = read_rules(Source(self.name, ""))
        self.rules = RuleSet(built_in_files())
        # findings by the rule, its text and the other declarations, with the line where the text began
        self._checked: dict[Any, tuple[int, list[DplcError]]] = {}

    @property
    def keywords(self) -> set[tuple[int, int]]:
        """Lines and columns, from 0, of the names of fields: `depth` of `Stage(depth=N)`, outside of examples."""
        parts = tuple(getattr(one, "clauses", one) for one in self.declarations)
        return {(one.span.line - 1, one.span.column) for one in every(parts, s.Keyword)}

    def read(self, path: Path) -> str:
        """Return the text of a file: that of this document, else the unsaved one, else the saved one."""
        text = self.text if path == self.path else self.texts(path)
        return path.read_text(encoding="utf-8", errors="replace") if text is None else text

    def forget(self) -> None:
        """Drop all cached findings, because they do not depend on other rules that changed."""
        self._checked.clear()

    def problems(self, text: str) -> list[DplcError]:
        """Return all errors of the text.

        They are the parse errors of declarations, and the findings of static checks in the other rules. A declaration
        that invalidates the whole file is reported and left out. A reference to a declaration with an error is none.
        """
        self.text = text.removeprefix("\ufeff")
        self.declarations = ()
        found, missing = dict[Any, DplcError](), set[str]()
        for chunk in chunks(self.text.replace("\t", "    ")):
            try:
                self.declarations += _placed(self.name, chunk.text, chunk.start)
            except DplcError as error:
                found[error.what, error.span] = error
                missing.update(_NAMES.findall(chunk.text))
        while True:
            wrong: list[s.Syntax] = []
            try:
                errors = self._checks()
            except DplcError as error:
                errors = [error]
                if (at := error.span) is not None:
                    wrong = [one for one in self.declarations if one.span.line <= at.line <= one.span.end_line]
            # members of a family share their text
            found |= {(error.what, error.span): error for error in errors if not _misses(error, missing)}
            if not wrong:
                return [*found.values()]
            missing |= {getattr(one, "name", "") for one in wrong}
            self.declarations = tuple(one for one in self.declarations if one not in wrong)

    def _checks(self) -> list[DplcError]:
        """Return the findings of checks. Raises DplcError for an error that invalidates the file."""
        if self.name.endswith(FURTHER):
            return []
        source, files = Source(self.name, self.text), built_in_files()
        further, beside = further_of(self.path, self.name), self.name.removesuffix(".rw") + FURTHER
        unsaved = self.texts(self.path.with_name(self.path.stem + FURTHER))
        if unsaved is not None:
            further = (Source(beside, unsaved), *(one for one in further if one.name != beside))
        file = self.file = read_rules(
            source, lambda asked: elaborated(self.declarations) if asked is source else _examples_of(asked), further
        )
        names = [known.source.name for known in files]
        place = names.index(self.name) if self.name in names else place_of(file, files, copies=True)
        self.rules = _others(place).extended(file)
        found = list[DplcError]()
        shared = plain(tuple(one for one in self.declarations if not isinstance(one, s.Rule)))
        checked, self._checked = self._checked, {}
        for rules, own in rules_in_force(self.rules, {self.name}):
            found += check_declarations(rules, {self.name})
            for rule in own:
                chunk = chunk_at(self.text, rule.span.line - 1)
                key = (rule.name, chunk.text, shared)
                known = checked.get(key) or (chunk.start, [*check_rule(rule, rules), *lint_rule(rule, rules)])
                if all(chunk_at(self.text, one.span.line - 1) == chunk for one in known[1] if one.span is not None):
                    self._checked[key] = known  # a finding in what rules share would not move with the rule
                found += [_moved(one, source, chunk.start - known[0]) for one in known[1]]
        pipelines(self.rules)
        return found


def _misses(error: DplcError, names: set[str]) -> bool:
    """Return whether an error is at one of these names."""
    at = error.span
    return at is not None and re.split(r"\W", at.source.line(at.line)[at.column :])[0] in names


# ---- Queries about a position in a rule file: meaning, completions, definition, references.

WORD = re.compile(r"[A-Za-z_]\w*")
# Words that begin a line.
BEGINNINGS = """
    rule number fact pipeline form guards without override match require prefer let decreases pick split rewrite example
    gives else because
"""
LOOP = "For"


class At:
    """Position in a document.

    chunk: the declaration there; word: the word there, "" for none; leading, before: the text of the line up to the
    word and up to the position; following: the text after the word; level: read from the head of the rule, which may
    have errors below.
    """

    def __init__(self, document: Document, line: int, column: int):
        text = "".join(document.text.splitlines()[line : line + 1])
        words = (match.span() for match in WORD.finditer(text) if match.start() <= column <= match.end())
        start, end = next(words, (column, column))
        self.document, self.chunk = document, chunk_at(document.text, line)
        self.line, self.before = line, text[:column]
        self.leading, self.word, self.following = text[:start], text[start:end], text[end:]
        head = rf"^(?:override +)?rule .*\bon +({'|'.join(LEVELS)})(?: +for +\w+)?[^\S\n]*(?:#.*)?$"
        level = re.search(head, self.chunk.text, re.MULTILINE)
        self.level = level[1] if level else None

    @cached_property
    def subject(self) -> CheckedRule | None:
        """The rule at the position as it last parsed, None above all rules."""
        rules = self.document.rules
        for rule in reversed(self.document.file.rules):
            if rule.span.line <= self.line + 1:
                return CheckedRule(rules.rules.get(rule.name, rule) if rule.device is None else rule, rules)
        return None

    @property
    def variable(self) -> CheckedRule | None:
        """Rule in which the word is a variable, None if rule files share the word or nothing declares it."""
        rules, subject = self.document.rules, self.subject
        if subject is None or (self.line, len(self.leading)) in self.document.keywords:
            return None
        variables = subject.scope.keys() - {subject.rule.name, *rules.numbers, *rules.facts}
        return subject if self.word in variables else None

    @property
    def words(self) -> list[Word]:
        """The facts, functions, nodes and constants on the level."""
        rules = self.document.rules
        constants = (Word(name, "number", format_file([of.declared]).strip()) for name, of in rules.numbers.items())
        words = (*reference.known(), *reference.declared_facts(rules), *constants)
        return [word for word in words if self.level in (None, *word.levels)]

    def known(self, name: str) -> list[Word]:
        """Return the facts, functions, nodes and ops of a name on the level."""
        ops = filter(None, [reference.op(name) if self.level in (None, "torch") else None])
        return [*(word for word in self.words if word.name == name), *ops]

    def fields(self, owner: str) -> list[WordField]:
        """Return the fields of a statement or an op."""
        return [field for entry in self.known(owner) if entry.kind in ("statement", "op") for field in entry.fields]


def warm() -> None:
    """Fill the caches, so that the first answer is as fast as the others."""
    Document(BUILT_IN / "new.rw").problems("rule new on tile\nmatch\n    pass\nrewrite\n    pass\n")
    reference.known()
    schemas.names()


# ---- completion


def completions(at: At) -> list[Word]:
    """Return the completions at a position, by the text before it, with the text of each as its signature."""
    before, rules = at.before, at.document.rules
    offers: list[tuple[str, str, Mapping[str, object]]] = [
        (r".*\btarget\.\w*", "field", TARGET_FIELDS),
        (r"@\w*", "keyword", ATTRIBUTES),
        (r"(?:override +)?rule .*\bon +\w*", "keyword", LEVELS),
        (r"(?:\s+(?:pass|one of)\b|\s*without ).*", "rule", dict.fromkeys((*rules.passes, *rules.rules), "")),
        (r"\w*", "keyword", dict.fromkeys(BEGINNINGS.split(), "")),
        (r".*:\s*\w+=\w*", "constant", dict.fromkeys(filter(str.isupper, CLOSED["Role"]), "role")),  # `i:32=THREAD`
        *(
            (rf".*\b{field}=\w*", "constant", dict.fromkeys(CLOSED[kind], field))
            for field, kind in (("via", "Via"), ("fn", "Fn"), ("atom", "AtomName"), ("dtype", "Dtype"))
        ),
    ]
    for pattern, kind, names in offers:
        if re.fullmatch(pattern, before):
            return [Word(name, kind, str(text)) for name, text in names.items()]
    owner = "" if re.search(r"=\w*$", before) else owner_of(before)
    found = [  # a loop offers only the fields that its head has no syntax for
        Word(field.name, "field", field.text)
        for field in at.fields(owner)
        if owner != LOOP or (field.default and field.name != "role")
    ]
    if (subject := at.subject) is not None:
        for name, sort in subject.scope.items():
            found.append(Word(name, "parameter" if name in subject.given else "variable", str(sort)))
    found += at.words
    found += [Word(name, "constant") for name in itertools.chain(*CLOSED.values(), CONSTANTS)]
    return found + [Word(name, "op") for name in sorted(schemas.names()) if at.level == "torch"]


def owner_of(before: str) -> str:
    """Return the statement whose fields may follow a text: the open call, else a loop, else ""."""
    return open_call(before) or (LOOP if re.match(r"\s*for\b.*\bin\b.*\s", before) else "")


def open_call(before: str) -> str:
    """Return the name of the innermost call that is open at the end of a line, "" for none."""
    while (left := re.sub(r"[(\[{][^()\[\]{}]*[)\]}]", "", before)) != before:
        before = left
    word = re.search(r"(\w+)\([^(\[{]*$", before)
    return word[1] if word else ""


def signatures(at: At) -> list[Word]:
    """Return the signatures of the call that is open at a position."""
    return at.known(open_call(at.before))


# ---- hover


def meaning(at: At) -> str:
    """Describe the word at a position in Markdown; "" for an unknown word."""
    word, rules = at.word, at.document.rules
    if at.leading.endswith("target.") and word in TARGET_FIELDS:
        return f"`target.{word}`: {TARGET_FIELDS[word]}"
    if re.match(r" *=(?!=)", at.following):
        owner = owner_of(at.leading)
        for field in at.fields(owner):
            if field.name == word:
                return f"field `{word}` of `{owner}`: {field.text}"
    found = []
    for entry in at.known(word):
        levels = f"{entry.kind} on {', '.join(entry.levels)}"
        found.append(f"```\n{entry.signature}\n```\n{levels}\n\n{entry.says}\n\n{entry.field_list}".strip())
    if named := rules.rules.get(word):
        found.append(f"rule **{word}** on {named.level}, {named.location}\n\n" + "\n".join(named.docs))
    return "\n\n---\n\n".join(found) or _about_variable(at) or _about_constant(word)


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


def _about_constant(word: str) -> str:
    if said := (LEVELS | ATTRIBUTES).get(word):
        return f"**{word}**: {said}"
    return next((f"`{word}`, of {', '.join(names[:12])}" for names in CLOSED.values() if word in names), "")


# ---- Definitions and references.


@immutable
class FilePlace:
    """Range in a file, with the text before it on its line. Lines and columns count from 0."""

    path: Path
    line: int
    column: int
    end: int
    leading: str = ""


def definition(at: At) -> list[FilePlace]:
    """Return the declarations of the word at a position; none for a name that no rule file declares."""
    word, rules, subject = at.word, at.document.rules, at.variable
    if subject is not None:  # the pattern, a clause or the template binds it first, below the head of the rule
        bound = [place for place in references(at) if word in subject.given or place.line >= subject.rule.span.line]
        return bound[:1]
    number = rules.numbers.get(word)
    spans = [one.span for one in (rules.rules.get(word), rules.facts.get(word), number and number.declared) if one]
    spans = spans or [rule.span for rule in rules.passes.get(word, ())[:1]]
    # the names of built-in sources are relative to the root, those of others are absolute
    places = [FilePlace(ROOT / one.source.name, one.line - 1, one.column, one.end_column) for one in spans]
    return places or [
        next(_occurrences(path, chunk, word))
        for path, chunk in _chunks_with(at.document, word)
        if word in _NAMES.findall(chunk.text)
    ]


def references(at: At) -> list[FilePlace]:
    """Return the declarations and uses of the word at a position.

    Those of a variable are in its rule, those of a parameter also in examples and pipelines that set it, and all others
    in all rule files and their examples. A field that has the name of a variable is not a use of it.
    """
    document, word, subject = at.document, at.word, at.variable
    everywhere = (
        (chunk, place) for path, chunk in _chunks_with(document, word) for place in _occurrences(path, chunk, word)
    )
    if subject is None:
        named = _names_rule(at.leading)
        return [place for chunk, place in everywhere if not named or _names_rule(place.leading)]
    clauses = Chunk(at.chunk.start, at.chunk.text.partition("\nexample ")[0])
    uses = _occurrences(document.path, clauses, word)
    found = [place for place in uses if (place.line, place.column) not in document.keywords]
    if word in subject.given:
        found += [place for chunk, place in everywhere if _sets(subject.rule, chunk, place.leading)]
    return found


def _chunks_with(document: Document, word: str) -> Iterator[tuple[Path, Chunk]]:
    """Yield the declarations with a word in the built-in rule files, in those of the folder, and in their examples."""
    for path in sorted({*BUILT_IN.rglob("*.rw"), *document.path.parent.glob("*.rw"), document.path}):
        text = document.read(path)
        if word and word in text:
            yield from ((path, chunk) for chunk in chunks(text) if word in chunk.text)


def _sets(rule: Rule, chunk: Chunk, leading: str) -> bool:
    """Return whether a word after a text of its line sets a parameter of a rule.

    An example of the rule sets it, `example "title" (N=2)`, and a pipeline, `pass rule(N=2)`.
    """
    head = re.search(r"^(?:(?:override +)?rule|examples) +(\w+)", chunk.text, re.MULTILINE)
    of_rule = head if leading.startswith("example ") else re.match(r"\s+pass +(\w+)", leading)
    return of_rule is not None and of_rule[1] in (rule.name, rule.family, rule.file) and leading.rstrip()[-1] in "(,"


def _occurrences(path: Path, chunk: Chunk, word: str) -> Iterator[FilePlace]:
    """Yield the whole words outside of quoted texts, comments and attributes, less the fields in `x.field`."""
    pattern = re.compile(rf'"[^"\n]*"|#.*|(?<![\w@])(?<![^.]\.)({word})(?!\w)')
    for number, line in enumerate(chunk.text.splitlines(), chunk.start):
        for found in pattern.finditer(line):
            if found[1]:
                yield FilePlace(path, number, *found.span(1), line[: found.start()])


def _names_rule(leading: str) -> bool:
    """Return whether a word after a text of its line names a rule or a pass. Elsewhere the word is a variable."""
    words = "rule|examples|without|pass|as|after|before|one of"
    return re.search(rf"^(?:[^#]*[\s,(])?(?:{words}) +$|^\s+one of\b[^#]*, *$", leading) is not None


# ---- Runs for an editor: examples, a check of a rule by meaning, a count of its firings in a suite.
#
# They run in a separate process, so that typing is never blocked. The process sends any number of progress reports,
# then an answer. Rules are data and are never executed. A suite is Python, like `-c`: the user of the editor names it,
# else it is a built-in one.

Tell = Callable[[str, int, int], None]
Chosen = list[tuple[RuleSet, list[Rule]]]  # rules to run, each with the rule set in force for its device
Counts = dict[str, dict[str, int]]  # of each rule: its firings in each case of a suite in which it fires


@immutable
class Request:
    """Run of a rule file as it is in the editor.

    kind: examples, check or firings; rule, title: of an example, None for all; texts: of the rule file and of all open
    files; suite: for firings.
    """

    kind: str
    rule: str | None
    title: str | None
    path: Path
    texts: Mapping[Path, str]
    suite: Path | None

    def answer(self, tell: Tell) -> Answer:
        """Run it. Raises the first error of the rule file."""
        document = Document(self.path, self.texts.get)
        for wrong in document.problems(self.texts[self.path]):
            if not isinstance(wrong, Advice):
                raise wrong
        if self.kind == "firings":
            return self._firings(document, tell)
        chosen = [
            (rules, [rule for rule in own if self.rule in (None, rule.name, rule.family)])
            for rules, own in rules_in_force(document.rules, {document.name})
        ]
        if not any(own for _, own in chosen):
            raise document.rules.missing(self.rule or "")
        return self._examples(chosen) if self.kind == "examples" else _check(chosen, tell)

    def _examples(self, chosen: Chosen) -> Answer:
        """Run the examples of a rule, one of them, or all of the file."""
        rule, title = self.rule, self.title
        runs = [run_examples(Engine(rules, check=True), own, only=title) for rules, own in chosen]
        count, failures = sum(ran for ran, _ in runs), [one for _, failed in runs for one in failed]
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


@immutable
class Answer:
    """Result of a run: a label for the lens, a message for the user, and the errors to show."""

    message: str
    label: str = ""
    wrong: Sequence[DplcError] = ()
    counts: Counts | None = None


def _check(chosen: Chosen, tell: Tell) -> Answer:
    """Check rules on programs drawn from their own patterns, as `dplc check` does."""
    from ..verify.run import CheckOptions, check_rules

    count = sum(len(own) for _, own in chosen)
    verdicts = [
        (one, rules.rules[one.rule].span)
        for rules, own in chosen
        for one in check_rules(rules, own, CheckOptions(), lambda done: tell(done.rule, 0, count))
    ]
    results = [f"{one.result}, fired on {one.reached} programs" for one, _ in verdicts]
    ok = sum(one.result == "ok" for one, _ in verdicts)
    wrong = [
        DplcError(
            f"rule `{one.rule}` is wrong: {found.problem}",
            span,
            notes=("on this program:", *(f"  {line}" for line in found.subject.text.splitlines()), *found.details),
        )
        for one, span in verdicts
        if (found := one.wrong) is not None
    ]
    message = "\n".join(f"rule `{one.rule}`: {result}" for (one, _), result in zip(verdicts, results, strict=True))
    return Answer(message, results[0] if len(results) == 1 else f"{ok} ok", wrong)


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
        while isinstance(received := await asyncio.to_thread(ours.recv), tuple):
            tell(*received)
        answer: Answer = received
        return answer
    except EOFError:
        return Answer("it ended without an answer")
    finally:
        process.kill()  # the editor may have gone away
