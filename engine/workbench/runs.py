"""Runs for an editor: examples, a check of a rule by meaning, a count of its firings in a suite.

They run in a separate process, so that typing is never blocked. The process reads one request, a line of JSON, from
standard input, and writes lines of JSON: any number of {"progress": [what, number, of]}, then {"result": ..} or
{"error": text}. A result has a label for the lens, a line for the user (`said`), and the errors to show (`wrong`).

    {"run": "examples", "path": FILE, "text": TEXT, .., "rule": NAME or null, "title": NAME or null}
    {"run": "check", "path": FILE, "text": TEXT, .., "rule": NAME}
    {"run": "firings", "path": FILE, "text": TEXT, .., "suite": FILE}

text: the rule file as it is in the editor. A further field (see `request_for` in `language_server`) holds the text of
the file of examples, or null for the saved file. Rules are data and are never executed. A suite is Python, like `-c`:
the user of the editor names it, else it is a built-in one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...codegen.target import target
from ...ir.diagnostic import DplcError, Span
from ..kernels.examples import run_examples
from ..language.check import errors
from ..language.rule import Rule
from ..rewrite.statements.driver import Engine
from .document import Document

Tell = Callable[[str, int, int], None]


def examples(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Run the examples of a rule, one of them, or all of the file."""
    document, rule, title = _document(asked), asked.get("rule"), asked.get("title")
    count, failures = run_examples(Engine(document.rules, check=True), _rules(document, rule), only=title)
    if not count and title is not None:
        raise DplcError(f'`{rule}` has no example "{title}"')
    held = count - len(failures)
    told = f"{held} of {count} hold" if title is None else "holds" if held else "fails"
    what = f'example "{title}"' if title is not None else f"{count} examples"
    said = f"{what}{f' of `{rule}`' if rule else ''}: {told}"
    return {"told": told, "said": said, "wrong": [_place(failure.error()) for failure in failures]}


def check(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Check a rule on programs drawn from its own pattern, as `dplc check` does."""
    from ..verify.run import CheckOptions, check_rules

    document = _document(asked)
    chosen = _rules(document, asked["rule"])
    verdicts = check_rules(document.rules, chosen, CheckOptions(), lambda done: tell(done.rule, 0, len(chosen)))
    said = [f"{one.result}, fired on {one.reached} programs" for one in verdicts]
    told = said[0] if len(said) == 1 else f"{sum(one.result == 'ok' for one in verdicts)} ok"
    lines = (f"rule `{one.rule}`: {text}" for one, text in zip(verdicts, said, strict=True))
    wrong = [_wrong(one, document.rules.rules[one.rule]) for one in verdicts if one.wrong is not None]
    return {"told": told, "said": "\n".join(lines), "wrong": wrong}


def firings(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Count where rules fire in a suite: {rule: [firings, cases]}."""
    from ..ruleset import toolchain
    from ..view.records import fired_in

    path = Path(asked["suite"])
    found = fired_in(path, toolchain(_document(asked).rules), target(), tell)
    counts = {name: [sum(count for _, count, _ in cases), len(cases)] for name, cases in found.items()}
    return {"told": "", "said": f"{len(counts)} rules fire in {path.name}", "wrong": [], "counts": counts}


RUNS = {"examples": examples, "check": check, "firings": firings}


def _document(asked: dict[str, Any]) -> Document:
    """Return the document as it is in the editor. Raises its first error."""
    document = Document(Path(asked["path"]))
    document.beside(asked.get("beside"))
    for wrong in errors(document.problems(asked["text"])):  # type: ignore[arg-type]
        raise wrong
    return document


def _rules(document: Document, name: str | None) -> list[Rule]:
    """Return the rule of a name, the members of a family, or all rules of the file. Raises DplcError."""
    assert document.file is not None
    listed = [document.rules.rules[rule.name] for rule in document.file.rules]
    chosen = [rule for rule in listed if name is None or name in (rule.name, rule.family)]
    if not chosen:
        raise document.rules.missing(name or "")
    return chosen


def _wrong(verdict: Any, rule: Rule) -> dict[str, Any]:
    wrong = verdict.wrong
    shown = ["on this program:", *(f"  {line}" for line in wrong.subject.text.splitlines()), *wrong.details]
    return _place(DplcError(f"rule `{verdict.rule}` is wrong: {wrong.problem}", rule.span, shown))


def _place(error: DplcError) -> dict[str, Any]:
    """Return an error as data. Its file is named as its source."""
    span: Span | None = error.span
    place = [span.line, span.column, span.end_line, span.end_column] if span is not None else None
    file = span.source.name if span is not None else ""
    return {"what": error.what, "notes": list(error.notes), "hint": error.hint, "file": file, "place": place}


def answer(asked: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """Execute a request and write its result."""
    try:
        result = RUNS[asked["run"]](asked, lambda *progress: write({"progress": list(progress)}))
    except DplcError as error:
        write({"error": error.render()})
    else:
        write({"result": result})


def main() -> None:
    """Answer one request of the language server, as `python -m dplc.engine.workbench.runs`."""
    out, sys.stdout = sys.stdout, sys.stderr  # what is printed on the way is none of the answer

    def write(record: dict[str, Any]) -> None:
        out.write(json.dumps(record) + "\n")
        out.flush()

    answer(json.loads(sys.stdin.readline()), write)


if __name__ == "__main__":
    main()
