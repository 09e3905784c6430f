"""What an editor asks about a place in a rule file: what stands there, what may stand there, where it comes from."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...ir import schemas
from ...ir.diagnostic import Span
from ...ir.text.read_statements import CLOSED, CONSTANTS
from ..language.format import format_number
from ..language.rule import ATTRIBUTES, BUILT_IN, LEVELS, Rule
from ..language.rule_scope import CheckedRule
from ..language.sorts import TARGET_FIELDS
from . import reference
from .document import Document

WORD = re.compile(r"[A-Za-z_]\w*")
CLAUSES = ("match", "where", "prefer", "let", "pick", "split", "join", "rewrite", "example", "gives", "because")
LOOP = "For"
TOP = ("rule", "number", "fact", "pipeline", "form", "guards", "without", "override")


@dataclass(frozen=True)
class Suggestion:
    """Something that may be written. kind: a word for editors; says: its documentation."""

    name: str
    kind: str
    detail: str = ""
    says: str = ""


def word_at(text: str, line: int, column: int) -> tuple[str, int]:
    """The word at a place and the column where it begins; "" for none."""
    lines = text.splitlines()
    for match in WORD.finditer(lines[line]) if line < len(lines) else ():
        if match.start() <= column <= match.end():
            return match[0], match.start()
    return "", column


def rule_at(document: Document, line: int) -> Rule | None:
    """The rule that a line (from 0) is in, as it was when it last parsed."""
    rules = document.file.rules if document.file is not None else ()
    above = [rule for rule in rules if rule.span.line <= line + 1]
    return max(above, key=lambda rule: rule.span.line, default=None)


@functools.lru_cache(maxsize=64)
def subject_of(rule: Rule, document: Document) -> CheckedRule:
    of_every_device = document.rules.rules.get(rule.name, rule)
    return CheckedRule(of_every_device if rule.device is None else rule, document.rules)


def level_at(document: Document, line: int) -> str | None:
    """The level of the rule that a line is in, read off its head: it need not parse."""
    for text in reversed(document.text.splitlines()[: line + 1]):
        head = re.match(r"(?:override +)?rule .*\bon +(\w+)(?: +for +\w+)?\s*(?:#.*)?$", text)
        if head:
            return head[1] if head[1] in LEVELS else None
    return None


@functools.lru_cache(maxsize=16)
def _entries(level: str | None) -> tuple[reference.Word, ...]:
    return tuple(entry for entry in reference.known() if level is None or level in entry.levels)


def warm() -> None:
    """Look everything up once, so that the first answer is as quick as the others."""
    document = Document(BUILT_IN / "new.rw")
    document.problems("rule new on tile\nmatch\n    pass\nrewrite\n    pass\n")
    for level in (None, *LEVELS):
        _entries(level)
    schemas.names()


# ---- completion


def completions(document: Document, line: int, column: int) -> list[Suggestion]:
    """What may be written at a place, by what stands before it."""
    lines = document.text.splitlines()
    before = lines[line][:column] if line < len(lines) else ""
    level = level_at(document, line)
    if re.search(r"\btarget\.\w*$", before):
        return [Suggestion(name, "field", str(sort)) for name, sort in TARGET_FIELDS.items()]
    if re.match(r"@\w*$", before):
        return [Suggestion(name, "keyword", says) for name, says in ATTRIBUTES.items()]
    if re.match(r"(?:override +)?rule .*\bon +\w*$", before):
        return [Suggestion(name, "keyword", says) for name, says in LEVELS.items()]
    if re.match(r"\s+(?:pass|one of)\b|\s*without ", before):
        return [Suggestion(name, "rule") for name in (*document.rules.passes, *document.rules.rules)]
    if re.match(r"\w*$", before):
        return [Suggestion(word, "keyword") for word in (*TOP, *CLAUSES)]
    if re.search(r"=\w*$", before) and (closed := _closed(before)):
        return closed
    value = re.search(r"=\w*$", before) is not None
    return [*([] if value else _fields(before, level)), *_bound(document, line), *_known(document, level)]


def _closed(before: str) -> list[Suggestion]:
    """`via=`, `role`, `fn=`: names of a fixed list."""
    field = re.search(r"(\w+)=\w*$", before)
    kinds = {"via": "Via", "fn": "Fn", "atom": "AtomName", "dtype": "Dtype"}
    name = field[1] if field else ""
    if re.search(r":\s*\w+=\w*$", before):  # `i:32=THREAD`
        return [Suggestion(word, "constant", "role") for word in CLOSED["Role"] if word.isupper()]
    return [Suggestion(word, "constant", name) for word in CLOSED[kinds[name]]] if name in kinds else []


def _fields(before: str, level: str | None) -> list[Suggestion]:
    """The fields of the call that is open, or of the loop whose head this is: those of a loop that have no place of
    their own in it."""
    owner = owner_of(before)
    return [
        Suggestion(name, "field", _sorted(sort, default))
        for name, sort, default in _fields_of(owner, level)
        if owner != LOOP or (default and name != "role")
    ]


def _fields_of(owner: str, level: str | None) -> list[tuple[str, str, str]]:
    """(name, sort, default) of each field of a statement or an op."""
    found = reference.find(_entries(level), owner, level) if owner else []
    return [field for entry in found if entry.kind in ("statement", "op") for field in entry.fields]


def _sorted(sort: str, default: str) -> str:
    return f"{sort}{f', else {default}' if default else ''}"


def owner_of(before: str) -> str:
    """The statement whose fields stand behind a text: of the call that is open, else of a loop."""
    return open_call(before) or (LOOP if re.match(r"\s*for\b.*\bin\b.*\s", before) else "")


def open_call(before: str) -> str:
    """The name of the innermost call that is open at the end of a line; "" for none."""
    depth = 0
    for place in range(len(before) - 1, -1, -1):
        depth += (before[place] in ")]}") - (before[place] in "([{")
        if depth < 0:
            word = re.search(r"(\w+)$", before[:place])
            return word[1] if word and before[place] == "(" else ""
    return ""


def signatures(document: Document, line: int, column: int) -> list[reference.Word]:
    """What the call takes that is open at a place."""
    lines = document.text.splitlines()
    name = open_call(lines[line][:column]) if line < len(lines) else ""
    level = level_at(document, line)
    return reference.find(_entries(level), name, level) if name else []


def _bound(document: Document, line: int) -> Iterator[Suggestion]:
    rule = rule_at(document, line)
    if rule is None:
        return
    parameters = {parameter.name: parameter.sort or "" for parameter in rule.parameters}
    for name, sort in subject_of(rule, document).scope.items():
        if name not in parameters:
            yield Suggestion(name, "variable", str(sort))
    yield from (Suggestion(name, "parameter", sort) for name, sort in parameters.items())


def _known(document: Document, level: str | None) -> Iterator[Suggestion]:
    for entry in _entries(level):
        yield Suggestion(entry.name, entry.kind, entry.signature, entry.says)
    for name, number in document.rules.numbers.items():
        yield Suggestion(name, "number", format_number(number.declared).strip())
    for fact in document.rules.facts.values():
        yield Suggestion(fact.name, "fact", "", "\n".join(fact.docs))
    yield from (Suggestion(name, "constant") for names in CLOSED.values() for name in names)
    yield from (Suggestion(name, "constant") for name in CONSTANTS)
    if level == "torch":
        yield from (Suggestion(name, "op") for name in sorted(schemas.names()))


# ---- hover


def meaning(document: Document, line: int, column: int) -> str:
    """What is to be said about the word at a place, as Markdown; "" for nothing."""
    word, start = word_at(document.text, line, column)
    lines = document.text.splitlines()
    if word and lines[line][:start].endswith("target.") and word in TARGET_FIELDS:
        return f"`target.{word}`: {TARGET_FIELDS[word]}"
    level = level_at(document, line)
    if word and re.match(r" *=(?!=)", lines[line][start + len(word) :]):
        owner = owner_of(lines[line][:start])
        fields = {name: _sorted(sort, default) for name, sort, default in _fields_of(owner, level)}
        if word in fields:
            return f"field `{word}` of `{owner}`: {fields[word]}"
    rule = rule_at(document, line)
    found = [_as_markdown(entry) for entry in reference.find(_entries(level), word, level)] if word else []
    if word in document.rules.numbers:
        found.append(f"```\n{format_number(document.rules.numbers[word].declared).strip()}\n```")
    if word in document.rules.facts and not found:
        found.append(f"**{word}**: {' '.join(document.rules.facts[word].docs)}")
    if word in document.rules.rules:
        named = document.rules.rules[word]
        found.append(f"rule **{word}** on {named.level}, {named.location}\n\n" + "\n".join(named.docs))
    if rule is not None and not found:
        found += _about_variable(rule, document, word)
    if not found and word in (*LEVELS, *ATTRIBUTES):
        found.append(f"**{word}**: {LEVELS.get(word) or ATTRIBUTES[word]}")
    if not found:
        found += [f"`{word}`, of {', '.join(names[:12])}" for names in CLOSED.values() if word in names][:1]
    return "\n\n---\n\n".join(found)


def _about_variable(rule: Rule, document: Document, word: str) -> list[str]:
    subject = subject_of(rule, document)
    for parameter in rule.parameters:
        if parameter.name == word:
            span = parameter.span
            text = rule.span.source.line(span.line)
            return [f"parameter `{word}` of `{rule.name}`\n\n```\n{text.strip()}\n```"]
    if word in subject.lets:
        return [f"`{word}` is {subject.scope.get(word)}, by `let`, line {subject.lets[word].span.line}"]
    sort = subject.scope.get(word) or subject.made.get(word)
    return [f"`{word}` is {sort}" + ("" if word in subject.scope else ", made by the template")] if sort else []


def _as_markdown(entry: reference.Word) -> str:
    fields = "\n".join(
        f"- `{name}`: {sort}{f', else {default}' if default else ''}" for name, sort, default in entry.fields
    )
    return f"```\n{entry.signature}\n```\n{entry.kind} on {', '.join(entry.levels)}\n\n{entry.says}\n\n{fields}".strip()


# ---- what a file holds


def outline(document: Document) -> list[tuple[str, str, Span]]:
    """The declarations of a file: name, kind, place."""
    return [
        (str(getattr(node, "name", "")), type(node).__name__, node.span)
        for node in document.declarations
        if getattr(node, "name", None)
    ]
