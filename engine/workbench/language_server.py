"""`dplc lsp`: the language server of rule files, over standard input and output. Other processes run the rules."""

from __future__ import annotations

import contextlib
import gc
import re
import uuid
from collections.abc import Iterator
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
from .runs import Answer, Counts, Request, Tell, ask

# ---- Runs in separate processes. A result is valid for one text.


OURS = BUILT_IN.parent / "examples" / "suites" / "kernels_84.json"
COMMANDS = {"examples": "dplc.runExamples", "check": "dplc.checkRule", "firings": "dplc.countFirings"}
Key = tuple[str, str | None, str | None]  # what is run: `examples`, `check` or `firings`; a rule; an example


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
        if not isinstance(declared, s.Rule | s.ExamplesOf):
            continue
        name = declared.name if isinstance(declared, s.Rule) else declared.rule
        if isinstance(declared, s.Rule):
            line = declared.span.line - 1
            members = [rule for rule in rules if name in (rule.name, rule.family)]
            if count := len(members[0].examples if members else declared.examples):
                yield line, f"run {_count(count, 'example')}", ("examples", name, None)
            yield line, "check this rule", ("check", name, None)
            if suite is not None:
                title = f"count its firings in {suite.name}"
                if counts is not None:
                    known = [counts.get(rule.name, (0, 0)) for rule in members]
                    times, cases = sum(n for n, _ in known), max((cases for _, cases in known), default=0)
                    least = "at least " if len(known) > 1 else ""  # members of a family may share cases
                    title = f"fired {_count(times, 'time')} in {least}{_count(cases, 'case')} of {suite.name}"
                    title = (title if times else f"never fires in {suite.name}") + (
                        ", before this edit" if stale else ""
                    )
                yield line, title, ("firings", name, None)
        for example in declared.examples:
            yield example.span.line - 1, "run this example", ("examples", name, example.title)


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

    async def run(self, uri: str, document: Document, request: Request, tell: Tell) -> str:
        """Run something, store its results, and return one line about them, or "" if the same run is in progress."""
        key, text = (request.kind, request.rule, request.title), document.text
        if (uri, key) in self._going:
            return ""
        self._going.add((uri, key))
        try:
            answer = await ask(request, tell)
        finally:
            self._going.discard((uri, key))
        if not isinstance(answer, Answer):
            return answer
        results = self.results(uri, text)
        results.told[key] = answer.told
        files = (one.span.source.name if one.span is not None else "" for one in answer.wrong)
        pairs = zip(answer.wrong, files, strict=True)
        results.shown[key] = [(path_of(file).as_uri(), diagnostic(one, file, "", "dplc run")) for one, file in pairs]
        if answer.counts is not None:
            self._counted[uri] = text, answer.counts
        return answer.said


# ---- The open documents of an editor and their diagnostics.


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


def diagnostic(error: DplcError, name: str, lead: str = "note: ", source: str = "dplc") -> lsp.Diagnostic:
    """Convert an error to a diagnostic, with notes and help below the message.

    name: the name of the source; lead: the start of each note. The first line names the location of an error in another
    file.
    """
    span = error.span
    elsewhere = f"{span.location}: " if span is not None and span.source.name != name else ""
    lines = [elsewhere + error.what, *(lead + note for note in error.notes)]
    lines += [f"help: {error.hint}"] if error.hint else []
    warns = getattr(error, "severity", "") == WARNING
    severity = lsp.DiagnosticSeverity.Warning if warns else lsp.DiagnosticSeverity.Error
    where = text_range(0, 0, 0, 1) if span is None or elsewhere else _range_of(span)
    return lsp.Diagnostic(where, "\n".join(lines), severity, getattr(error, "check", None) or None, source=source)


def _range_of(span: Span) -> lsp.Range:
    return text_range(span.line - 1, span.column, span.end_line - 1, span.end_column)


def text_range(line: int, column: int, end_line: int, end_column: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line, column), lsp.Position(end_line, end_column))


SERVER = Server()


# ---- Commands of the code lenses.


@SERVER.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
def shown(given: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    uri = given.text_document.uri
    return list(SERVER.runs.lenses(uri, SERVER.document(uri)))


def _answer_clicks(kind: str) -> None:
    async def clicked(uri: str, rule: str | None = None, example: str | None = None) -> None:
        await run(uri, (kind, rule, example))

    SERVER.command(COMMANDS[kind])(clicked)


for kind in COMMANDS:
    _answer_clicks(kind)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
async def saved(given: lsp.DidSaveTextDocumentParams) -> None:
    """Check the document again and run its examples."""
    uri = given.text_document.uri
    document = SERVER.document(uri)
    SERVER.saved(uri)
    if not SERVER.wrong(uri) and document.file is not None and any(rule.examples for rule in document.file.rules):
        await run(uri, ("examples", None, None), aloud=False)


async def run(uri: str, key: Key, aloud: bool = True) -> None:
    """Run something for a document with progress, then show a message, the diagnostics and new lenses."""
    document = SERVER.document(uri)
    rules, text, beside = rules_file(document.path), document.text, document.text
    if rules == document.path:
        beside = SERVER.text_of(rules.with_name(rules.stem + FURTHER))  # type: ignore[assignment]
    else:
        text = SERVER.text_of(rules) or rules.read_text(encoding="utf-8")
    request = Request(*key, rules, text, beside, SERVER.runs.suite)
    async with _progress(f"dplc: {key[0]}{f' of {key[1]}' if key[1] else ''}") as tell:
        said = await SERVER.runs.run(uri, document, request, tell)
    if not said:
        return
    for known in list(SERVER.open):
        SERVER.publish(known)
    if aloud:
        SERVER.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, said))
    asked = SERVER.client_capabilities.workspace
    if asked is not None and asked.code_lens is not None and asked.code_lens.refresh_support:
        await SERVER.workspace_code_lens_refresh_async(None)


@contextlib.asynccontextmanager
async def _progress(title: str) -> Any:
    """Show progress in the editor if it supports that."""
    window = SERVER.client_capabilities.window
    if window is None or not window.work_done_progress:
        yield lambda what, number, of: None
        return
    name = f"dplc-{uuid.uuid4()}"
    with contextlib.suppress(PyglsError):
        await SERVER.work_done_progress.create_async(name)
    SERVER.work_done_progress.begin(name, lsp.WorkDoneProgressBegin(title, percentage=0))

    def tell(what: str, number: int, of: int) -> None:
        SERVER.work_done_progress.report(name, lsp.WorkDoneProgressReport(message=what, percentage=100 * number // of))

    try:
        yield tell
    finally:
        SERVER.work_done_progress.end(name, lsp.WorkDoneProgressEnd())


# ---- Code actions: the help line of a diagnostic as an edit.


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
    meant = re.search(r"did you mean `([^`]+)`\?", message)
    wrong = re.search(r"`([^`]+)`[^`]*$", message.split("\n")[0])
    if meant and wrong and line < len(lines):
        at = lines[line].find(wrong[1], column)
        if at >= 0:
            yield Fix(f"Change it to `{meant[1]}`", line, at, at + len(wrong[1]), meant[1])
    unused = re.search(r"`(\w+)` is bound but never used; write `_`", message)
    if unused and line < len(lines) and lines[line][column:].startswith(unused[1]):
        yield Fix("Change it to `_`", line, column, column + len(unused[1]), "_")
    if "a guard without a reason" in message and line < len(lines):
        end = len(lines[line].rstrip())
        yield Fix("Say what is wrong when it fails", line, end, end, ' else ""')
    refusal = re.search(r"help: add an example that `gives no \"(.*)\"`", message)
    if refusal or "no example shows it fire" in message:
        yield from _example(document, line, refusal[1] if refusal else None)


def _example(document: Document, line: int, reason: str | None) -> Iterator[Fix]:
    """Yield an example to insert below a rule, with the program of its first example, else with its pattern."""
    rules = [node for node in document.declarations if isinstance(node, s.Rule) and node.span.line <= line + 1]
    if not rules:
        return
    rule = rules[-1]
    lines = document.text.splitlines()
    heads = (n for n, line in enumerate(lines) if HEAD.match(line) or line.startswith(("##", "@", "# ")))
    end = next((n for n in heads if n >= rule.span.line), len(lines))
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


KINDS = {
    "statement": "Class", "value": "Class", "op": "Class", "fact": "Function", "function": "Function", "field": "Field",
    "variable": "Variable", "parameter": "TypeParameter", "keyword": "Keyword", "constant": "EnumMember",
    "number": "Constant",
}  # fmt: skip


def server() -> Server:
    """Return the server, ready to answer."""
    queries.warm()
    gc.collect()
    gc.freeze()  # what is known by now stays: looking at it again would take longer than an answer may
    return SERVER


@SERVER.feature(lsp.INITIALIZE)
def initialize(given: lsp.InitializeParams) -> None:
    options = given.initialization_options
    suite = options.get("suite") if isinstance(options, dict) else None
    if isinstance(suite, str) and suite:
        SERVER.runs.suite = Path(suite) if Path(suite).is_file() else None


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
def opened(given: lsp.DidOpenTextDocumentParams) -> None:
    SERVER.publish(given.text_document.uri)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def changed(given: lsp.DidChangeTextDocumentParams) -> None:
    SERVER.publish(given.text_document.uri)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
def closed(given: lsp.DidCloseTextDocumentParams) -> None:
    SERVER.closed(given.text_document.uri)


@SERVER.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "@", "="]))
def complete(given: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    unique = {(choice.name, choice.kind): choice for choice in queries.completions(*SERVER.here(given))}
    kinds = {choice.kind: KINDS.get(choice.kind) for choice in unique.values()}
    icons = {kind: lsp.CompletionItemKind[name] for kind, name in kinds.items() if name}
    return [
        lsp.CompletionItem(c.name, kind=icons.get(c.kind), detail=c.detail or None, documentation=c.says or None)
        for c in unique.values()
    ]


@SERVER.feature(lsp.TEXT_DOCUMENT_HOVER)
def hover(given: lsp.HoverParams) -> lsp.Hover | None:
    text = queries.meaning(*SERVER.here(given))
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None


@SERVER.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
def signature(given: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    found = queries.signatures(*SERVER.here(given))
    listed = [lsp.SignatureInformation(entry.signature, entry.sentence) for entry in found]
    return lsp.SignatureHelp(listed) if listed else None


@SERVER.feature(lsp.TEXT_DOCUMENT_DEFINITION)
def definition(given: lsp.DefinitionParams) -> list[lsp.Location]:
    return list(map(_location, queries.definition(*SERVER.here(given), SERVER.text_of)))


@SERVER.feature(lsp.TEXT_DOCUMENT_REFERENCES)
def references(given: lsp.ReferenceParams) -> list[lsp.Location]:
    found = queries.references(*SERVER.here(given), SERVER.text_of)
    if not given.context.include_declaration:
        declares = queries.definition(*SERVER.here(given), SERVER.text_of)
        declared = {(place.path, place.line) for place in declares}
        found = [place for place in found if (place.path, place.line) not in declared]
    return list(map(_location, found))


@SERVER.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def symbols(given: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    listed = []
    for node in SERVER.document(given.text_document.uri).declarations:
        if name := str(getattr(node, "name", None) or ""):
            where = _range_of(node.span)
            listed.append(lsp.DocumentSymbol(name, lsp.SymbolKind.Function, where, where, type(node).__name__))
    return listed


def _location(place: queries.FilePlace) -> lsp.Location:
    return lsp.Location(place.path.as_uri(), text_range(place.line, place.column, place.line, place.end))


@SERVER.feature(lsp.TEXT_DOCUMENT_FORMATTING)
def layout(given: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
    document = SERVER.document(given.text_document.uri)
    try:
        text = formatted(Source(document.name, document.text))
    except DplcError:
        return None  # its errors are shown already
    return [lsp.TextEdit(text_range(0, 0, len(document.text.splitlines()) + 1, 0), text)]


@SERVER.feature(lsp.TEXT_DOCUMENT_RENAME)
def rename(given: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    if not queries.WORD.fullmatch(given.new_name):
        raise JsonRpcInvalidParams(f"`{given.new_name}` is no name")
    if not queries.ours(*SERVER.here(given), SERVER.text_of):
        raise JsonRpcInvalidParams("this name is not declared in a rule file: Python, or the language, has it")
    edits: dict[str, list[lsp.TextEdit]] = {}
    for place in map(_location, queries.references(*SERVER.here(given), SERVER.text_of)):
        edits.setdefault(place.uri, []).append(lsp.TextEdit(place.range, given.new_name))
    return lsp.WorkspaceEdit(changes=edits)


@SERVER.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
def actions_of(given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    uri, listed = given.text_document.uri, []
    for found in given.context.diagnostics:
        start = found.range.start
        for fix in fixes(SERVER.document(uri), found.message, start.line, start.character):
            where = text_range(fix.line, fix.column, fix.line, fix.end)
            edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(where, fix.text)]})
            listed.append(lsp.CodeAction(fix.title, lsp.CodeActionKind.QuickFix, [found], edit=edit))
    return listed
