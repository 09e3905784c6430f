"""What an editor offers to do about what is wrong: the help line of a finding, carried out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..language import core as s
from ..language.spelling import block
from .chunks import HEAD
from .document import Document

_MEANT = re.compile(r"did you mean `([^`]+)`\?")
_REFUSAL = re.compile(r"help: add an example that `gives no \"(.*)\"`")
_FIRES = re.compile(r"no example shows it fire")
_UNUSED = re.compile(r"`(\w+)` is bound but never used; write `_`")
_REASON = re.compile(r"a guard without a reason")


@dataclass(frozen=True)
class Fix:
    """A change of a text. line, column, end: what the new text takes the place of, from 0."""

    title: str
    line: int
    column: int
    end: int
    text: str


def fixes(document: Document, message: str, line: int, column: int) -> Iterator[Fix]:
    """What can be done about a finding that says this and stands there."""
    lines = document.text.splitlines()
    meant, wrong = _MEANT.search(message), re.search(r"`([^`]+)`[^`]*$", message.split("\n")[0])
    if meant and wrong and line < len(lines):
        at = lines[line].find(wrong[1], column)
        if at >= 0:
            yield Fix(f"Change it to `{meant[1]}`", line, at, at + len(wrong[1]), meant[1])
    unused = _UNUSED.search(message)
    if unused and line < len(lines) and lines[line][column:].startswith(unused[1]):
        yield Fix("Change it to `_`", line, column, column + len(unused[1]), "_")
    if _REASON.search(message) and line < len(lines):
        end = len(lines[line].rstrip())
        yield Fix("Say what is wrong when it fails", line, end, end, ' because ""')
    refusal = _REFUSAL.search(message)
    if refusal or _FIRES.search(message):
        yield from _example(document, line, refusal[1] if refusal else None)


def _example(document: Document, line: int, reason: str | None) -> Iterator[Fix]:
    """An example below a rule, to be edited: the program of its first one, else its pattern."""
    rules = [node for node in document.declarations if isinstance(node, s.Rule) and node.span.line <= line + 1]
    if not rules:
        return
    rule = rules[-1]
    lines = document.text.splitlines()
    end = next((n for n in range(rule.span.line, len(lines)) if _begins(lines[n])), len(lines))
    while end and not lines[end - 1].strip():
        end -= 1
    own = [one for one in rule.examples if isinstance(one, s.Example)]
    match = next((clause.body for clause in rule.clauses if isinstance(clause, s.Match)), ())
    program = "\n".join(block(own[0].before if own else match, 1))
    if reason is None:
        text = f'example "it fires"\n{program}\ngives\n    pass\n'
        yield Fix("Add an example: `dplc rules test --accept` writes what it gives", end, 0, 0, text)
    else:
        text = f'example "{reason}"\n{program}\ngives no "{reason}"\n'
        yield Fix("Add a refusal example: edit it until the guard fails", end, 0, 0, text)


def _begins(line: str) -> bool:
    return bool(HEAD.match(line)) or line.startswith(("##", "@", "# "))
