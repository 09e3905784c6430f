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
from ..language.sorts import WARNING
from ..language.spelling import block
from . import document as queries
from .document import At, Counts, Document, Request, ask, chunk_at, chunks, path_of

Key = tuple[str, str | None, str | None]  # a run: `examples`, `check` or `firings`; a rule; an example
SUITE = BUILT_IN.parent / "examples" / "suites" / "kernels_84.json"
COMMANDS = {"examples": "dplc.runExamples", "check": "dplc.checkRule", "firings": "dplc.countFirings"}


# ---- The open files of an editor, with what is wrong in them.


@dataclass
class OpenFile:
    """Open document. problems: its own diagnostics.

    The other fields hold the results of runs on its text: a label for each lens, diagnostics by URI, and the firings,
    which stay when the text changes (`stale`).
    """

    document: Document
    problems: list[lsp.Diagnostic] = field(default_factory=list)
    labels: dict[Key, str] = field(default_factory=dict)
    wrong: dict[Key, list[tuple[str, lsp.Diagnostic]]] = field(default_factory=dict)
    counts: Counts | None = None
    stale: bool = False

    def lenses(self, suite: Path | None) -> Iterator[tuple[int, str, Key]]:
        """Yield the code lenses: line from 0, title, key. suite: where firings are counted."""
        rules = self.document.file.rules
        for declared in self.document.declarations:
            if isinstance(declared, s.Rule):
                line, name = declared.span.line - 1, declared.name
                members = [rule for rule in rules if name in (rule.name, rule.family)]
                count = len(declared.examples)
                with contextlib.suppress(DplcError):  # an error in the file of further examples is reported there
                    count = len(members[0].examples) if members else count
                if count:
                    yield line, f"run {_count(count, 'example')}", ("examples", name, None)
                yield line, "check this rule", ("check", name, None)
                if suite is not None:
                    yield line, self._firings([rule.name for rule in members], suite.name), ("firings", name, None)
            elif isinstance(declared, s.ExamplesOf):
                name = declared.rule
            else:
                continue
            for example in declared.examples:
                yield example.span.line - 1, "run this example", ("examples", name, example.title)

    def _firings(self, rules: list[str], suite: str) -> str:
        if self.counts is None:
            return f"count its firings in {suite}"
        known = [self.counts.get(rule, (0, 0)) for rule in rules]
        times, cases = sum(n for n, _ in known), max((cases for _, cases in known), default=0)
        least = "at least " if len(known) > 1 else ""  # members of a family may share cases
        fired = f"fired {_count(times, 'time')} in {least}{_count(cases, 'case')} of {suite}"
        return (fired if times else f"never fires in {suite}") + (", before this edit" if self.stale else "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def rules_file(path: Path) -> Path:
    """Return the rule file of a file of examples, or any other file itself."""
    return path.with_name(path.name.removesuffix(FURTHER) + ".rw") if path.name.endswith(FURTHER) else path


class Server(LanguageServer):
    """Language server with its open files. suite: where firings are counted, None for nowhere."""

    def __init__(self) -> None:
        super().__init__("dplc", __version__)
        self.files: dict[str, OpenFile] = {}
        self.suite: Path | None = SUITE if SUITE.is_file() else None
        self.running: set[tuple[str, Key]] = set()

    def document(self, given: Any) -> Document:
        """Return the document of a request."""
        uri = given.text_document.uri
        if uri not in self.files:
            self.check(uri)
        return self.files[uri].document

    def here(self, given: Any) -> At:
        """Return the position of a request."""
        return At(self.document(given), given.position.line, given.position.character)

    def check(self, uri: str) -> None:
        """Check the text of a document, and publish its diagnostics."""
        text = self.workspace.get_text_document(uri).source
        if uri not in self.files:
            path = unquote(urlparse(uri).path) if uri.startswith("file:") else uri
            self.files[uri] = OpenFile(Document(Path(path), self.text_of))
        file = self.files[uri]
        if text != file.document.text:
            file.labels, file.wrong, file.stale = {}, {}, True
        file.problems = [diagnostic(one, file.document.name) for one in self._problems(file.document, text)]
        self.publish(uri)

    def publish(self, uri: str) -> None:
        """Send the diagnostics of a document to the editor: its own, and those of runs in it or beside it."""
        ran = (one for file in self.files.values() for found in file.wrong.values() for one in found)
        shown = {one.message: one for where, one in ran if where == uri}
        diagnostics = [*self.files[uri].problems, *shown.values()]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics))

    def _problems(self, document: Document, text: str) -> list[DplcError]:
        """Return the errors of a document. Examples are checked with their rules."""
        problems = document.problems(text)
        rules = rules_file(document.path)
        if rules == document.path or problems or not rules.is_file():
            return problems
        problems = Document(rules, self.text_of).problems(self._read(rules))
        return [one for one in problems if one.span is not None and one.span.source.name == document.name]

    def text_of(self, path: Path) -> str | None:
        """Return the text of a file if it is open in the editor, else None."""
        return next((file.document.text for file in self.files.values() if file.document.path == path), None)

    def _read(self, path: Path) -> str:
        return self.text_of(path) or path.read_text(encoding="utf-8", errors="replace")

    async def run(self, uri: str, key: Key, aloud: bool = True) -> None:
        """Run something for a document with progress, then show a message, the diagnostics and new lenses.

        Nothing happens if the same run is in progress.
        """
        if (uri, key) in self.running:
            return
        file, text = self.files[uri], self.files[uri].document.text
        rules = rules_file(file.document.path)
        examples = self.text_of(rules.with_name(rules.stem + FURTHER))
        request = Request(*key, rules, self._read(rules), examples, self.suite)
        self.running.add((uri, key))
        try:
            async with _progress(f"dplc: {key[0]}{f' of {key[1]}' if key[1] else ''}") as tell:
                answer = await ask(request, tell)
        finally:
            self.running.discard((uri, key))
        same = file.document.text == text
        if same:
            file.labels[key] = answer.label
            file.wrong[key] = [
                (path_of(span.source.name).as_uri(), diagnostic(one, span.source.name, "", "dplc run"))
                for one in answer.wrong
                if (span := one.span) is not None
            ]
        if answer.counts is not None:
            file.counts, file.stale = answer.counts, not same
        for known in self.files:
            self.publish(known)
        if aloud:
            self.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, answer.message))
        asked = self.client_capabilities.workspace
        if asked is not None and asked.code_lens is not None and asked.code_lens.refresh_support:
            await self.workspace_code_lens_refresh_async(None)


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
    where = text_range(0, 0, 1) if span is None or elsewhere else _range_of(span)
    return lsp.Diagnostic(where, "\n".join(lines), severity, getattr(error, "check", None) or None, source=source)


def _range_of(span: Span) -> lsp.Range:
    return text_range(span.line - 1, span.column, span.end_column, span.end_line - 1)


def text_range(line: int, column: int, end: int, end_line: int | None = None) -> lsp.Range:
    """Return a range on a line, or up to a column of another line. All count from 0."""
    return lsp.Range(lsp.Position(line, column), lsp.Position(line if end_line is None else end_line, end))


SERVER = Server()


# ---- Code lenses and their commands.


@SERVER.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
def shown(given: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    uri, listed = given.text_document.uri, []
    file = SERVER.files[uri]
    for line, title, key in file.lenses(SERVER.suite):
        title = f"{file.labels[key]}: {title} again" if file.labels.get(key) else title
        command = lsp.Command(title, COMMANDS[key[0]], arguments=[uri, *key[1:]])
        listed.append(lsp.CodeLens(text_range(line, 0, 0), command))
    return listed


def _answer_clicks(kind: str) -> None:
    async def clicked(uri: str, rule: str | None = None, example: str | None = None) -> None:
        await SERVER.run(uri, (kind, rule, example))

    SERVER.command(COMMANDS[kind])(clicked)


for kind in COMMANDS:
    _answer_clicks(kind)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
async def saved(given: lsp.DidSaveTextDocumentParams) -> None:
    """Check the whole document again and run its examples."""
    uri = given.text_document.uri
    document = SERVER.document(given)
    document.forget()
    SERVER.check(uri)
    right = all(problem.severity != lsp.DiagnosticSeverity.Error for problem in SERVER.files[uri].problems)
    if right and any(rule.examples for rule in document.file.rules):
        await SERVER.run(uri, ("examples", None, None), aloud=False)


@contextlib.asynccontextmanager
async def _progress(title: str) -> Any:
    """Show progress in the editor if it supports that."""
    window, shown = SERVER.client_capabilities.window, SERVER.work_done_progress
    if window is None or not window.work_done_progress:
        yield lambda what, number, of: None
        return
    name = f"dplc-{uuid.uuid4()}"
    with contextlib.suppress(PyglsError):
        await shown.create_async(name)
    shown.begin(name, lsp.WorkDoneProgressBegin(title, percentage=0))
    try:
        yield lambda what, number, of: shown.report(
            name, lsp.WorkDoneProgressReport(message=what, percentage=100 * number // of)
        )
    finally:
        shown.end(name, lsp.WorkDoneProgressEnd())


# ---- Code actions: the help line of a diagnostic as an edit.


Fix = tuple[str, lsp.TextEdit]  # what it does, and the edit


def fixes(document: Document, message: str, line: int, column: int) -> Iterator[Fix]:
    """Yield the edits that fix a finding with this message at this position."""
    text = "".join(document.text.splitlines()[line : line + 1])
    meant = re.search(r"did you mean `([^`]+)`\?", message)
    wrong = re.search(r"`([^`]+)`[^`]*$", message.split("\n")[0])
    if meant and wrong and (at := text.find(wrong[1], column)) >= 0:
        yield f"Change it to `{meant[1]}`", _edit(line, at, at + len(wrong[1]), meant[1])
    unused = re.search(r"`(\w+)` is bound but never used; write `_`", message)
    if unused and text.startswith(unused[1], column):
        yield "Change it to `_`", _edit(line, column, column + len(unused[1]), "_")
    if "a guard without a reason" in message and text:
        end = len(text.rstrip())
        yield "Say what is wrong when it fails", _edit(line, end, end, ' else ""')
    refusal = re.search(r"help: add an example that `gives no \"(.*)\"`", message)
    if refusal or "no example shows it fire" in message:
        yield from _example(document, line, refusal[1] if refusal else None)


def _edit(line: int, column: int, end: int, text: str) -> lsp.TextEdit:
    return lsp.TextEdit(text_range(line, column, end), text)


def _example(document: Document, line: int, reason: str | None) -> Iterator[Fix]:
    """Yield an example to insert below a rule, with the program of its first example, else with its pattern."""
    rules = [node for node in document.declarations if isinstance(node, s.Rule) and node.span.line <= line + 1]
    if not rules:
        return
    rule = rules[-1]
    chunk = chunk_at(chunks(document.text), rule.span.line - 1)
    end = chunk.start + len(re.sub(r"(?:\n(?:#.*|[^\S\n]*))*\Z", "", chunk.text).splitlines())
    programs = [one.before for one in rule.examples if isinstance(one, s.Example)]
    programs += [clause.body for clause in rule.clauses if isinstance(clause, s.Match)]
    program = "".join(f"{line}\n" for line in block(programs[0]))
    if reason is None:
        title = "Add an example: `dplc rules test --accept` writes what it gives"
        text = f'example "it fires"\n{program}gives\n    pass\n'
    else:
        title = "Add a refusal example: edit it until the guard fails"
        text = f'example "{reason}"\n{program}gives no "{reason}"\n'
    yield title, _edit(end, 0, 0, text)


# ---- Answers.


ICONS = {  # of completions
    kind: lsp.CompletionItemKind[name]
    for kind, name in {
        "statement": "Class", "value": "Class", "op": "Class", "fact": "Function", "function": "Function",
        "field": "Field", "variable": "Variable", "parameter": "TypeParameter", "keyword": "Keyword",
        "constant": "EnumMember", "number": "Constant",
    }.items()
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
        SERVER.suite = Path(suite) if Path(suite).is_file() else None


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def changed(given: lsp.DidOpenTextDocumentParams | lsp.DidChangeTextDocumentParams) -> None:
    SERVER.check(given.text_document.uri)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
def closed(given: lsp.DidCloseTextDocumentParams) -> None:
    SERVER.files.pop(given.text_document.uri, None)


@SERVER.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "@", "="]))
def complete(given: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    unique = {(choice.name, choice.kind): choice for choice in queries.completions(SERVER.here(given))}
    return [
        lsp.CompletionItem(name, kind=ICONS.get(kind), detail=one.signature or None, documentation=one.says or None)
        for (name, kind), one in unique.items()
    ]


@SERVER.feature(lsp.TEXT_DOCUMENT_HOVER)
def hover(given: lsp.HoverParams) -> lsp.Hover | None:
    text = queries.meaning(SERVER.here(given))
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None


@SERVER.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
def signature(given: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
    found = queries.signatures(SERVER.here(given))
    listed = [lsp.SignatureInformation(entry.signature, entry.sentence) for entry in found]
    return lsp.SignatureHelp(listed) if listed else None


@SERVER.feature(lsp.TEXT_DOCUMENT_DEFINITION)
def definition(given: lsp.DefinitionParams) -> list[lsp.Location]:
    return list(map(_location, queries.definition(SERVER.here(given))))


@SERVER.feature(lsp.TEXT_DOCUMENT_REFERENCES)
def references(given: lsp.ReferenceParams) -> list[lsp.Location]:
    declares = () if given.context.include_declaration else queries.definition(SERVER.here(given))
    declared = {(place.path, place.line) for place in declares}
    found = queries.references(SERVER.here(given))
    return [_location(place) for place in found if (place.path, place.line) not in declared]


@SERVER.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def symbols(given: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    listed = []
    for node in SERVER.document(given).declarations:
        if name := str(getattr(node, "name", None) or ""):
            where = _range_of(node.span)
            listed.append(lsp.DocumentSymbol(name, lsp.SymbolKind.Function, where, where, type(node).__name__))
    return listed


def _location(place: queries.FilePlace) -> lsp.Location:
    return lsp.Location(place.path.as_uri(), text_range(place.line, place.column, place.end))


@SERVER.feature(lsp.TEXT_DOCUMENT_FORMATTING)
def layout(given: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
    document = SERVER.document(given)
    try:
        text = formatted(Source(document.name, document.text))
    except DplcError:
        return None  # its errors are shown already
    return [lsp.TextEdit(text_range(0, 0, 0, len(document.text.splitlines()) + 1), text)]


@SERVER.feature(lsp.TEXT_DOCUMENT_RENAME)
def rename(given: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    if not queries.WORD.fullmatch(given.new_name):
        raise JsonRpcInvalidParams(f"`{given.new_name}` is not a name")
    if not queries.definition(SERVER.here(given)):
        raise JsonRpcInvalidParams("this name is not declared in a rule file: Python, or the language, has it")
    edits: dict[str, list[lsp.TextEdit]] = {}
    for place in map(_location, queries.references(SERVER.here(given))):
        edits.setdefault(place.uri, []).append(lsp.TextEdit(place.range, given.new_name))
    return lsp.WorkspaceEdit(changes=edits)


@SERVER.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
def actions_of(given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    document, listed = SERVER.document(given), []
    for found in given.context.diagnostics:
        start = found.range.start
        for title, change in fixes(document, found.message, start.line, start.character):
            edit = lsp.WorkspaceEdit(changes={given.text_document.uri: [change]})
            listed.append(lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, [found], edit=edit))
    return listed
