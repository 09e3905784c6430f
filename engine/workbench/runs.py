"""Runs for an editor: examples, a check of a rule by meaning, a count of its firings in a suite.

They run in a separate process, so that typing is never blocked. The process sends any number of progress reports, then
an answer. Rules are data and are never executed. A suite is Python, like `-c`: the user of the editor names it, else it
is a built-in one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ...codegen.target import target
from ...ir.diagnostic import DplcError
from ..kernels.examples import run_examples
from ..language.check import errors
from ..language.rule import Rule
from ..rewrite.statements.driver import Engine
from .document import Document

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
    """Result of a run: a label for the lens, a line for the user (`said`), and the errors to show."""

    said: str
    told: str = ""
    wrong: tuple[DplcError, ...] = ()
    counts: Counts | None = None


def examples(request: Request, document: Document, tell: Tell) -> Answer:
    """Run the examples of a rule, one of them, or all of the file."""
    rule, title = request.rule, request.title
    count, failures = run_examples(Engine(document.rules, check=True), _rules(document, rule), only=title)
    if not count and title is not None:
        raise DplcError(f'`{rule}` has no example "{title}"')
    held = count - len(failures)
    told = f"{held} of {count} hold" if title is None else "holds" if held else "fails"
    what = f'example "{title}"' if title is not None else f"{count} examples"
    return Answer(f"{what}{f' of `{rule}`' if rule else ''}: {told}", told, tuple(one.error() for one in failures))


def check(request: Request, document: Document, tell: Tell) -> Answer:
    """Check a rule on programs drawn from its own pattern, as `dplc check` does."""
    from ..verify.run import CheckOptions, check_rules

    chosen = _rules(document, request.rule)
    verdicts = check_rules(document.rules, chosen, CheckOptions(), lambda done: tell(done.rule, 0, len(chosen)))
    said = [f"{one.result}, fired on {one.reached} programs" for one in verdicts]
    told = said[0] if len(said) == 1 else f"{sum(one.result == 'ok' for one in verdicts)} ok"
    wrong = []
    for wrong_one, name in ((one.wrong, one.rule) for one in verdicts if one.wrong is not None):
        program = (f"  {line}" for line in wrong_one.subject.text.splitlines())
        notes = ("on this program:", *program, *wrong_one.details)
        span = document.rules.rules[name].span
        wrong.append(DplcError(f"rule `{name}` is wrong: {wrong_one.problem}", span, notes))
    lines = (f"rule `{one.rule}`: {text}" for one, text in zip(verdicts, said, strict=True))
    return Answer("\n".join(lines), told, tuple(wrong))


def firings(request: Request, document: Document, tell: Tell) -> Answer:
    """Count where rules fire in a suite."""
    from ..compiler import Compiler
    from ..ruleset import toolchain
    from ..view.records import fired_in

    assert request.suite is not None
    found = fired_in(request.suite, Compiler(toolchain(document.rules), target()), tell)
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
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(request, theirs), daemon=True)
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
