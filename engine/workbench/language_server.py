"""`dplc lsp`: the language server of rule files, over standard input and output. Other processes run the rules."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams, PyglsError
from pygls.lsp.server import LanguageServer

from ...ir.diagnostic import DplcError, Source, Span
from ...version import __version__
from ..language import core as s
from ..language.format import formatted
from ..language.rule import BUILT_IN
from ..language.rule_files import FURTHER
from ..language.rule_scope import WARNING
from ..language.spelling import block
from . import queries
from .document import HEAD, Document
from .queries import path_of

# ---- Runs in separate processes. A result is valid for one text.


OURS = BUILT_IN.parent / "examples" / "suites" / "kernels_84.json"
COMMANDS = {"examples": "dplc.runExamples", "check": "dplc.checkRule", "firings": "dplc.countFirings"}
Key = tuple[str, str | None, str | None]  # what is run: `examples`, `check` or `firings`; a rule; an example
Counts = dict[str, tuple[int, int]]  # of each rule: its firings, and the cases of a suite in which it fires


def lenses(
    document: Document, suite: Path | None, counts: Counts | None, stale: bool
) -> Iterator[tuple[int, str, Key]]:
    """Yield the code lenses of a document: line from 0, title, key.

    Args:
        suite: the suite in which firings are counted.
        counts: the known firings; stale: whether they are those of an earlier text.
    """
    rules = document.file.rules if document.file is not None else ()
    for declared in document.declarations:
        if isinstance(declared, s.Rule):
            line, name = declared.span.line - 1, declared.name
            members = [rule for rule in rules if name in (rule.name, rule.family)]
            if count := len(members[0].examples if members else declared.examples):
                yield line, f"run {_count(count, 'example')}", ("examples", name, None)
            yield line, "check this rule", ("check", name, None)
            if suite is not None:
                title = f"count its firings in {suite.name}"
                if counts is not None:
                    known = [counts.get(rule.name, (0, 0)) for rule in members]
                    title = _fired(known, suite) + (", before this edit" if stale else "")
                yield line, title, ("firings", name, None)
        if isinstance(declared, s.Rule | s.ExamplesOf):
            name = declared.name if isinstance(declared, s.Rule) else declared.rule
            for example in declared.examples:
                yield example.span.line - 1, "run this example", ("examples", name, example.title)


def _fired(known: list[tuple[int, int]], suite: Path) -> str:
    times = sum(count for count, _ in known)
    if not times:
        return f"never fires in {suite.name}"
    cases = max(cases for _, cases in known)  # members of a family may share cases
    least = "at least " if len(known) > 1 else ""
    return f"fired {_count(times, 'time')} in {least}{_count(cases, 'case')} of {suite.name}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def rules_file(path: Path) -> Path:
    """Return the rule file of a file of examples, or any other file itself."""
    return path.with_name(path.name.removesuffix(FURTHER) + ".rw") if path.name.endswith(FURTHER) else path


@dataclass
class Results:
    """Results of the runs on a text: a label for each lens. shown: URI of a file, with a diagnostic."""

    text: str
    told: dict[Key, str] = field(default_factory=dict)
    shown: dict[Key, list[tuple[str, lsp.Diagnostic]]] = field(default_factory=dict)


class Runs:
    """Results of all runs for the documents of an editor. suite: where firings are counted, None for nowhere."""

    def __init__(self) -> None:
        self.suite: Path | None = OURS if OURS.is_file() else None
        self._results: dict[str, Results] = {}
        self._counted: dict[str, tuple[str, Counts]] = {}
        self._going: set[tuple[str, Key]] = set()

    def results(self, uri: str, text: str) -> Results:
        """Return the results for a text, empty if the text has changed."""
        known = self._results.get(uri)
        if known is None or known.text != text:
            known = self._results[uri] = Results(text)
        return known

    def diagnostics(self, uri: str, text: str) -> list[lsp.Diagnostic]:
        """Return the errors of examples and checks in a document or in the file of its examples."""
        self.results(uri, text)
        every = (told for results in self._results.values() for found in results.shown.values() for told in found)
        return list({told.message: told for where, told in every if where == uri}.values())

    def lenses(self, uri: str, document: Document) -> Iterator[lsp.CodeLens]:
        """Yield the lenses above the rules and examples of a document."""
        text, counts = self._counted.get(uri, ("", None))
        told = self.results(uri, document.text).told
        for line, title, key in lenses(document, self.suite, counts, text != document.text):
            said = f"{told[key]}: {title} again" if told.get(key) else title
            command = lsp.Command(said, COMMANDS[key[0]], arguments=[uri, *key[1:]])
            yield lsp.CodeLens(text_range(line, 0, line, 0), command)

    async def run(self, uri: str, key: Key, request: dict[str, Any], tell: Callable[[str, int, int], None]) -> str:
        """Run something, store its results, and return one line about them, or "" if the same run is in progress."""
        if (uri, key) in self._going:
            return ""
        self._going.add((uri, key))
        try:
            answer = await _asked({"run": key[0], "rule": key[1], "title": key[2], **request}, tell)
        finally:
            self._going.discard((uri, key))
        if "error" in answer:
            return str(answer["error"])
        found, results = answer["result"], self.results(uri, request["typed"])
        results.told[key] = found["told"]
        results.shown[key] = [_diagnostic(one) for one in found["wrong"]]
        if "counts" in found:
            self._counted[uri] = results.text, {name: tuple(counts) for name, counts in found["counts"].items()}
        return str(found["said"])


def request_for(document: Document, texts: Callable[[Path], str | None], suite: Path | None) -> dict[str, Any]:
    """Return the request for a process: the rule file and its examples, as they are in the editor."""
    rules, text = rules_file(document.path), document.text
    beside = document.text
    if rules == document.path:
        beside = texts(rules.with_name(rules.stem + FURTHER))  # type: ignore[assignment]
    else:
        text = texts(rules) or rules.read_text(encoding="utf-8")
    suite_path = str(suite) if suite is not None else None
    return {"path": str(rules), "text": text, "beside": beside, "suite": suite_path, "typed": document.text}


def _diagnostic(told: dict[str, Any]) -> tuple[str, lsp.Diagnostic]:
    """Return the URI of the file that has an error, and the diagnostic for it."""
    hint = [f"help: {told['hint']}"] if told["hint"] else []
    line, column, end_line, end_column = told["place"] or (1, 0, 1, 1)
    where = text_range(line - 1, column, end_line - 1, end_column)
    message = "\n".join([told["what"], *told["notes"], *hint])
    shown = lsp.Diagnostic(where, message, lsp.DiagnosticSeverity.Error, source="dplc run")
    return path_of(told["file"]).as_uri(), shown


async def _asked(request: dict[str, Any], tell: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Return the answer of a separate process. tell: called with its progress."""
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


# ---- The open documents of an editor and their diagnostics.


SEVERITIES = {WARNING: lsp.DiagnosticSeverity.Warning}


class Server(LanguageServer):
    """Language server with its open documents."""

    def __init__(self) -> None:
        super().__init__("dplc", __version__)
        self.open: dict[str, Document] = {}
        self.runs = Runs()
        self._static: dict[str, tuple[str, list[lsp.Diagnostic]]] = {}  # of each document: its text, what is wrong

    def document(self, uri: str) -> Document:
        """Return the document of a URI, parsed again if its text has changed."""
        text = self.workspace.get_text_document(uri).source
        found = self.open.get(uri)
        if found is None:
            found = self.open[uri] = Document(path_of_uri(uri))
        if found.text != text:
            found.problems(text)
        return found

    def here(self, given: Any) -> tuple[Document, int, int]:
        """Return the document and the position of a request."""
        return self.document(given.text_document.uri), given.position.line, given.position.character

    def publish(self, uri: str) -> None:
        """Send the diagnostics of a document to the editor: its own errors and those of runs."""
        text = self.workspace.get_text_document(uri).source
        if uri not in self._static or self._static[uri][0] != text:
            document = self.open.setdefault(uri, Document(path_of_uri(uri)))
            self._static[uri] = text, [diagnostic(*told) for told in self._problems(document, text)]
        shown = [*self._static[uri][1], *self.runs.diagnostics(uri, text)]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, shown))

    def _problems(self, document: Document, text: str) -> Iterator[tuple[DplcError, str]]:
        """Yield the errors of a document with the name of its source. Examples are checked with their rules."""
        document.beside(self.text_of(document.path.with_name(document.path.stem + FURTHER)))
        told = document.problems(text)
        rules = rules_file(document.path)
        if rules != document.path and not told and rules.is_file():
            whole = Document(rules)
            whole.beside(text)
            told = whole.problems(self.text_of(rules) or rules.read_text(encoding="utf-8", errors="replace"))
            told = [one for one in told if one.span is not None and one.span.source.name == document.name]
        return ((one, document.name) for one in told)

    def wrong(self, uri: str) -> bool:
        """Return whether a document has errors of its own."""
        return any(told.severity == lsp.DiagnosticSeverity.Error for told in self._static.get(uri, ("", []))[1])

    def text_of(self, path: Path) -> str | None:
        """Return the text of a file if it is open in the editor, else None."""
        found = next((document for document in self.open.values() if document.path == path), None)
        return None if found is None else found.text

    def saved(self, uri: str) -> None:
        """Check the whole document again. During typing, a rule is checked again only if its own text changed."""
        self.open[uri].forget()
        self._static.pop(uri, None)
        self.publish(uri)

    def closed(self, uri: str) -> None:
        """Forget a document."""
        self.open.pop(uri, None)
        self._static.pop(uri, None)


def path_of_uri(uri: str) -> Path:
    """Return the path of a URI."""
    return Path(unquote(urlparse(uri).path)) if uri.startswith("file:") else Path(uri)


def diagnostic(error: DplcError, name: str) -> lsp.Diagnostic:
    """Convert an error to a diagnostic, with notes and help below the message.

    name: the name of the source. The first line names the location of an error in another file.
    """
    span = error.span
    elsewhere = f"{span.location}: " if span is not None and span.source.name != name else ""
    lines = [elsewhere + error.what, *(f"note: {note}" for note in error.notes)]
    lines += [f"help: {error.hint}"] if error.hint else []
    severity = SEVERITIES.get(getattr(error, "severity", ""), lsp.DiagnosticSeverity.Error)
    where = text_range(0, 0, 0, 1) if span is None or elsewhere else _range_of(span)
    return lsp.Diagnostic(where, "\n".join(lines), severity, getattr(error, "check", None) or None, source="dplc")


def _range_of(span: Span) -> lsp.Range:
    return text_range(span.line - 1, span.column, span.end_line - 1, span.end_column)


def text_range(line: int, column: int, end_line: int, end_column: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line, column), lsp.Position(end_line, end_column))


# ---- Commands of the code lenses.


def _answer_lenses(made: Server) -> None:
    """Register the handlers of lenses, of their commands, and of saving, which runs the examples."""

    @made.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def shown(given: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = given.text_document.uri
        return list(made.runs.lenses(uri, made.document(uri)))

    def answer(kind: str) -> None:
        async def clicked(uri: str, rule: str | None = None, example: str | None = None) -> None:
            await run(made, uri, (kind, rule, example))

        made.command(COMMANDS[kind])(clicked)

    for kind in COMMANDS:
        answer(kind)

    @made.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(given: lsp.DidSaveTextDocumentParams) -> None:
        uri = given.text_document.uri
        document = made.document(uri)
        made.saved(uri)
        if not made.wrong(uri) and document.file is not None and any(rule.examples for rule in document.file.rules):
            await run(made, uri, ("examples", None, None), aloud=False)


async def run(made: Server, uri: str, key: Key, aloud: bool = True) -> None:
    """Run something for a document with progress, then show a message, the diagnostics and new lenses."""
    document = made.document(uri)
    request = request_for(document, made.text_of, made.runs.suite)
    async with _progress(made, f"dplc: {key[0]}{f' of {key[1]}' if key[1] else ''}") as tell:
        said = await made.runs.run(uri, key, request, tell)
    if not said:
        return
    for known in list(made.open):
        made.publish(known)
    if aloud:
        made.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, said))
    asked = made.client_capabilities.workspace
    if asked is not None and asked.code_lens is not None and asked.code_lens.refresh_support:
        await made.workspace_code_lens_refresh_async(None)


@contextlib.asynccontextmanager
async def _progress(made: Server, title: str) -> Any:
    """Show progress in the editor if it supports that."""
    window = made.client_capabilities.window
    if window is None or not window.work_done_progress:
        yield lambda what, number, of: None
        return
    name = f"dplc-{uuid.uuid4()}"
    with contextlib.suppress(PyglsError):
        await made.work_done_progress.create_async(name)
    made.work_done_progress.begin(name, lsp.WorkDoneProgressBegin(title, percentage=0))

    def tell(what: str, number: int, of: int) -> None:
        made.work_done_progress.report(name, lsp.WorkDoneProgressReport(message=what, percentage=100 * number // of))

    try:
        yield tell
    finally:
        made.work_done_progress.end(name, lsp.WorkDoneProgressEnd())


# ---- Code actions: the help line of a diagnostic as an edit.


_MEANT = re.compile(r"did you mean `([^`]+)`\?")
_REFUSAL = re.compile(r"help: add an example that `gives no \"(.*)\"`")
_FIRES = re.compile(r"no example shows it fire")
_UNUSED = re.compile(r"`(\w+)` is bound but never used; write `_`")
_REASON = re.compile(r"a guard without a reason")


@dataclass(frozen=True)
class Fix:
    """Change of a text: columns from `column` to `end` of a line, both from 0, are replaced."""

    title: str
    line: int
    column: int
    end: int
    text: str


def fixes(document: Document, message: str, line: int, column: int) -> Iterator[Fix]:
    """Yield the edits that fix a finding with this message at this position."""
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
        yield Fix("Say what is wrong when it fails", line, end, end, ' else ""')
    refusal = _REFUSAL.search(message)
    if refusal or _FIRES.search(message):
        yield from _example(document, line, refusal[1] if refusal else None)


def _example(document: Document, line: int, reason: str | None) -> Iterator[Fix]:
    """Yield an example to insert below a rule, with the program of its first example, else with its pattern."""
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


KINDS = {
    "statement": "Class", "value": "Class", "op": "Class", "fact": "Function", "function": "Function", "field": "Field",
    "variable": "Variable", "parameter": "TypeParameter", "keyword": "Keyword", "constant": "EnumMember",
    "number": "Constant",
}  # fmt: skip


def server() -> Server:
    """Return a server with all its handlers registered."""
    queries.warm()
    gc.collect()
    gc.freeze()  # what is known by now stays: looking at it again would take longer than an answer may
    made = Server()
    _follow_texts(made)
    _answer_places(made)
    _change_texts(made)
    _answer_lenses(made)
    return made


def _follow_texts(made: Server) -> None:
    @made.feature(lsp.INITIALIZE)
    def initialize(given: lsp.InitializeParams) -> None:
        options = given.initialization_options
        suite = options.get("suite") if isinstance(options, dict) else None
        if isinstance(suite, str) and suite:
            made.runs.suite = Path(suite) if Path(suite).is_file() else None

    @made.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(given: lsp.DidOpenTextDocumentParams) -> None:
        made.publish(given.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(given: lsp.DidChangeTextDocumentParams) -> None:
        made.publish(given.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(given: lsp.DidCloseTextDocumentParams) -> None:
        made.closed(given.text_document.uri)


def _answer_places(made: Server) -> None:
    here = made.here

    @made.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "@", "="]))
    def complete(given: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        unique = {(choice.name, choice.kind): choice for choice in queries.completions(*here(given))}
        kinds = {choice.kind: KINDS.get(choice.kind) for choice in unique.values()}
        icons = {kind: lsp.CompletionItemKind[name] for kind, name in kinds.items() if name}
        return [
            lsp.CompletionItem(c.name, kind=icons.get(c.kind), detail=c.detail or None, documentation=c.says or None)
            for c in unique.values()
        ]

    @made.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(given: lsp.HoverParams) -> lsp.Hover | None:
        text = queries.meaning(*here(given))
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None

    @made.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
    def signature(given: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        found = queries.signatures(*here(given))
        listed = [lsp.SignatureInformation(entry.signature, entry.sentence) for entry in found]
        return lsp.SignatureHelp(listed) if listed else None

    @made.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(given: lsp.DefinitionParams) -> list[lsp.Location]:
        return list(map(_location, queries.definition(*here(given), made.text_of)))

    @made.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(given: lsp.ReferenceParams) -> list[lsp.Location]:
        found = queries.references(*here(given), made.text_of)
        if not given.context.include_declaration:
            declares = queries.definition(*here(given), made.text_of)
            declared = {(place.path, place.line) for place in declares}
            found = [place for place in found if (place.path, place.line) not in declared]
        return list(map(_location, found))

    @made.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(given: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        listed = []
        for node in made.document(given.text_document.uri).declarations:
            if name := str(getattr(node, "name", None) or ""):
                where = _range_of(node.span)
                listed.append(lsp.DocumentSymbol(name, lsp.SymbolKind.Function, where, where, type(node).__name__))
        return listed


def _location(place: queries.FilePlace) -> lsp.Location:
    return lsp.Location(place.path.as_uri(), text_range(place.line, place.column, place.line, place.end))


def _change_texts(made: Server) -> None:
    @made.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def layout(given: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        document = made.document(given.text_document.uri)
        try:
            text = formatted(Source(document.name, document.text))
        except DplcError:
            return None  # its errors are shown already
        return [lsp.TextEdit(text_range(0, 0, len(document.text.splitlines()) + 1, 0), text)]

    @made.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(given: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        if not queries.WORD.fullmatch(given.new_name):
            raise JsonRpcInvalidParams(f"`{given.new_name}` is no name")
        if not queries.ours(*made.here(given), made.text_of):
            raise JsonRpcInvalidParams("this name is not declared in a rule file: Python, or the language, has it")
        edits: dict[str, list[lsp.TextEdit]] = {}
        for place in map(_location, queries.references(*made.here(given), made.text_of)):
            edits.setdefault(place.uri, []).append(lsp.TextEdit(place.range, given.new_name))
        return lsp.WorkspaceEdit(changes=edits)

    @made.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    def actions_of(given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri, listed = given.text_document.uri, []
        for found in given.context.diagnostics:
            start = found.range.start
            for fix in fixes(made.document(uri), found.message, start.line, start.character):
                where = text_range(fix.line, fix.column, fix.line, fix.end)
                edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(where, fix.text)]})
                listed.append(lsp.CodeAction(fix.title, lsp.CodeActionKind.QuickFix, [found], edit=edit))
        return listed
