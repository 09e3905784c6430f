"""The lenses of an editor: what is run for them, in processes of their own, and what is kept of it.

A result is about a text: when the text changes, it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from ..language.rule import BUILT_IN
from .document import Document
from .lenses import Lens, lenses, rules_file
from .places import path_of

OURS = BUILT_IN.parent / "examples" / "suites" / "kernels_84.json"
COMMANDS = {"examples": "dplc.runExamples", "check": "dplc.checkRule", "firings": "dplc.countFirings"}
Key = tuple[str, str | None, str | None]  # what ran: `examples`, a rule, an example


@dataclass
class Results:
    """What ran on a text. told: a word for each lens; shown: what is wrong, by the file that it stands in."""

    text: str
    told: dict[Key, str] = field(default_factory=dict)
    shown: dict[Key, list[tuple[str, lsp.Diagnostic]]] = field(default_factory=dict)


class Runs:
    """Everything that ran for the documents of an editor. suite: where firings are counted, None for nowhere."""

    def __init__(self) -> None:
        self.suite: Path | None = OURS if OURS.is_file() else None
        self._results: dict[str, Results] = {}
        self._counted: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {}
        self._going: set[tuple[str, Key]] = set()

    # ---- what is known
    def results(self, uri: str, text: str) -> Results:
        """What ran on a text; nothing for one that has changed."""
        known = self._results.get(uri)
        if known is None or known.text != text:
            known = self._results[uri] = Results(text)
        return known

    def diagnostics(self, uri: str, text: str) -> list[lsp.Diagnostic]:
        """What examples and checks found wrong in a document, told by itself or by the file beside it."""
        self.results(uri, text)
        every = (told for results in self._results.values() for found in results.shown.values() for told in found)
        return list({told.message: told for where, told in every if where == uri}.values())

    def lenses(self, uri: str, document: Document) -> Iterator[lsp.CodeLens]:
        """What stands above the rules and examples of a document."""
        text, counts = self._counted.get(uri, ("", None))
        told = self.results(uri, document.text).told
        for lens in lenses(document, self.suite, counts, text != document.text):
            said = told.get((lens.run, lens.rule, lens.example))
            yield _code_lens(lens, uri, f"{said}: {lens.title} again" if said else lens.title)

    # ---- running
    async def run(self, uri: str, key: Key, request: dict[str, Any], tell: Callable[[str, int, int], None]) -> str:
        """Run something, keep what came of it, and say it in a line; "" where the same is running already."""
        if (uri, key) in self._going:
            return ""
        self._going.add((uri, key))
        try:
            answer = await _asked({"run": key[0], "rule": key[1], "title": key[2], **request}, tell)
        finally:
            self._going.discard((uri, key))
        if "error" in answer:
            return str(answer["error"])
        results = self.results(uri, request["typed"])
        return _KEPT[key[0]](self, uri, key, results, answer["result"])

    def _examples(self, uri: str, key: Key, results: Results, found: dict[str, Any]) -> str:
        failed = [_diagnostic(one) for one in found["failures"]]
        results.shown[key] = failed
        held = found["count"] - len(failed)
        results.told[key] = ("holds" if held else "fails") if key[2] else f"{held} of {found['count']} hold"
        what = f'example "{key[2]}" of `{key[1]}`' if key[2] else f"{found['count']} examples"
        what += f" of `{key[1]}`" if key[1] and not key[2] else ""
        return f"{what}: {results.told[key]}"

    def _check(self, uri: str, key: Key, results: Results, found: dict[str, Any]) -> str:
        verdicts = found["verdicts"]
        results.shown[key] = [_diagnostic(one["wrong"]) for one in verdicts if "wrong" in one]
        said = [f"{one['result']}, fired on {one['reached']} programs" for one in verdicts]
        results.told[key] = said[0] if len(said) == 1 else f"{sum(one['result'] == 'ok' for one in verdicts)} ok"
        lines = (f"rule `{one['rule']}`: {text}" for one, text in zip(verdicts, said, strict=True))
        return "\n".join(lines)

    def _firings(self, uri: str, key: Key, results: Results, found: dict[str, Any]) -> str:
        counts = {name: (times, cases) for name, (times, cases) in found["counts"].items()}
        self._counted[uri] = results.text, counts
        return f"{len(counts)} rules fire in {found['suite']}"


_KEPT: dict[str, Callable[[Runs, str, Key, Results, dict[str, Any]], str]] = {
    "examples": Runs._examples,
    "check": Runs._check,
    "firings": Runs._firings,
}


def request_for(document: Document, texts: Callable[[Path], str | None], suite: Path | None) -> dict[str, Any]:
    """What a process has to know: the rule file and the examples beside it, as they stand in the editor."""
    rules = rules_file(document.path)
    beside = document.text if rules != document.path else _beside(rules, texts)
    text = document.text
    if rules != document.path:
        text = texts(rules) or rules.read_text(encoding="utf-8")
    suite_path = str(suite) if suite is not None else None
    return {"path": str(rules), "text": text, "beside": beside, "suite": suite_path, "typed": document.text}


def _beside(rules: Path, texts: Callable[[Path], str | None]) -> str | None:
    return texts(rules.with_name(f"{rules.stem}.examples.rw"))


def _code_lens(lens: Lens, uri: str, title: str) -> lsp.CodeLens:
    place = lsp.Position(lens.line, 0)
    command = lsp.Command(title, COMMANDS[lens.run], arguments=[uri, lens.rule, lens.example])
    return lsp.CodeLens(lsp.Range(place, place), command)


def _diagnostic(told: dict[str, Any]) -> tuple[str, lsp.Diagnostic]:
    """The URI of the file where something stands, and what is shown there."""
    hint = [f"help: {told['hint']}"] if told["hint"] else []
    line, column, end_line, end_column = told["place"] or (1, 0, 1, 1)
    where = lsp.Range(lsp.Position(line - 1, column), lsp.Position(end_line - 1, end_column))
    message = "\n".join([told["what"], *told["notes"], *hint])
    return path_of(told["file"]).as_uri(), lsp.Diagnostic(
        where, message, lsp.DiagnosticSeverity.Error, source="dplc run"
    )


async def _asked(request: dict[str, Any], tell: Callable[[str, int, int], None]) -> dict[str, Any]:
    """What a process of its own answers. tell: of what it is at."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"{__package__}.runs",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        limit=1 << 26, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    complaints = asyncio.ensure_future(process.stderr.read())
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.close()
        answer: dict[str, Any] = {}
        async for line in process.stdout:
            answer = json.loads(line)
            if "progress" in answer:
                tell(*answer["progress"])
        await process.wait()
    finally:
        if process.returncode is None:  # the editor went away
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if "result" in answer or "error" in answer:
        return answer
    last = (await complaints).decode(errors="replace").strip().splitlines()[-1:]
    return {"error": f"it ended without an answer{': ' + last[0] if last else ''}"}


def token() -> str:
    """A name for what is going on."""
    return f"dplc-{uuid.uuid4()}"
