"""`dplc lsp`: the language server of rule files, over standard input and output. Other processes run the rules."""

from __future__ import annotations

import contextlib
import gc
import re
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ...ir.diagnostic import DplcError, Source, Span
from ...version import __version__
from ..language import core as s
from ..language.format import formatted
from ..language.rule import BUILT_IN
from ..language.rule_files import FURTHER
from ..language.sorts import Advice
from ..language.spelling import block
from . import document as queries
from .document import Answer, At, Counts, Document, Request, ask, chunk_at

Key = tuple[str, str | None, str | None]  # a run: `examples`, `check` or `firings`; a rule; an example
SUITE = BUILT_IN.parent / "examples" / "suites" / "kernels_84.json"
COMMANDS = {"examples": "dplc.runExamples", "check": "dplc.checkRule", "firings": "dplc.countFirings"}


# ---- The open files of an editor, with what is wrong in them.


@dataclass
class OpenFile:
    """Open document. uri: its name in the editor; problems: the errors of its text.

    The other fields belong to runs: the answer of each with the text that it ran on, the last count of firings with its
    text, and the runs in progress.
    """

    uri: str
    document: Document
    problems: list[DplcError] = field(default_factory=list)
    answers: dict[Key, tuple[str, Answer]] = field(default_factory=dict)
    counted: tuple[str, Counts] | None = None
    running: set[Key] = field(default_factory=set)

    def lenses(self, suite: Path) -> Iterator[lsp.CodeLens]:
        """Yield the code lenses. suite: where firings are counted, if it exists."""
        rules = self.document.file.rules
        for declared in self.document.declarations:
            if isinstance(declared, s.Rule):
                line, name = declared.span.line - 1, declared.name
                members = [rule for rule in rules if name in (rule.name, rule.family)]
                count = len(declared.examples)
                # an error in the file of further examples is reported there
                with contextlib.suppress(DplcError, IndexError):
                    count = len(members[0].examples)
                if count:
                    yield self._lens(line, f"run {_count(count, 'example')}", "examples", name)
                yield self._lens(line, "check this rule", "check", name)
                if suite.is_file():
                    fires = self._firings([rule.name for rule in members], suite.name)
                    yield self._lens(line, fires, "firings", name)
            elif isinstance(declared, s.ExamplesOf) and rules_file(self.document.path).is_file():
                name = declared.rule
            else:
                continue
            for example in declared.examples:
                yield self._lens(example.span.line - 1, "run this example", "examples", name, example.title)

    def _lens(self, line: int, title: str, kind: str, rule: str, example: str | None = None) -> lsp.CodeLens:
        """Return a lens on a line, from 0. Its title begins with the label of its last run on this text."""
        text, answer = self.answers.get((kind, rule, example), ("", None))
        if answer is not None and answer.label and text == self.document.text:
            title = f"{answer.label}: {title} again"
        command = lsp.Command(title, COMMANDS[kind], arguments=[self.uri, kind, rule, example])
        return lsp.CodeLens(text_range(line, 0, 0), command)

    def _firings(self, rules: list[str], suite: str) -> str:
        if self.counted is None:
            return f"count its firings in {suite}"
        text, counts = self.counted
        fired = [counts.get(rule, {}) for rule in rules]
        times, cases = sum(sum(one.values()) for one in fired), len(set().union(*fired))
        effect = f"fired {_count(times, 'time')} in {_count(cases, 'case')} of" if times else "never fires in"
        return f"{effect} {suite}" + (", before this edit" if text != self.document.text else "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def rules_file(path: Path) -> Path:
    """Return the rule file of a file of examples, or any other file itself."""
    return path.with_name(path.name.replace(FURTHER, ".rw"))


def path_at(uri: str) -> Path:
    """Return the path of a document. A document that was never saved has its URI as a name in this folder."""
    return Path(to_fs_path(uri) or uri).absolute()


class Server(LanguageServer):
    """Language server with its open files. suite: where firings are counted, if it exists."""

    def __init__(self) -> None:
        super().__init__("dplc", __version__)
        self.files: dict[Path, OpenFile] = {}
        self.suite = SUITE

    def file(self, given: Any) -> OpenFile:
        """Return the file of a request."""
        uri = given.text_document.uri
        return self.files.get(path_at(uri)) or self.check(uri)

    def here(self, given: Any) -> At:
        """Return the position of a request."""
        return At(self.file(given).document, given.position.line, given.position.character)

    def check(self, uri: str) -> OpenFile:
        """Check the text of a document, and publish its diagnostics."""
        path = path_at(uri)
        if path not in self.files:
            self.files[path] = OpenFile(uri, Document(path, self.text_of))
        file = self.files[path]
        try:
            file.problems = self._problems(file.document, self.workspace.get_text_document(uri).source)
        except Exception as error:  # nobody waits for an answer to a text, so that its diagnostics must tell
            traceback.print_exc()
            what = f"internal error: {type(error).__name__}: {error}"
            file.problems = [DplcError(what, hint="this is a defect of dplc; report it with the log of the server")]
        self.publish(file)
        return file

    def publish(self, file: OpenFile) -> None:
        """Send the diagnostics of a document to the editor: its own, and those of runs in it or beside it."""
        name = file.document.name
        wrong = (
            error
            for other in self.files.values()
            for text, answer in other.answers.values()
            if text == other.document.text
            for error in answer.wrong
            if error.span is not None and error.span.source.name == name
        )
        ran = (diagnostic(error, name, "", "dplc run") for error in wrong)
        unique = {one.message: one for one in ran}
        diagnostics = [*(diagnostic(one, name) for one in file.problems), *unique.values()]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(file.uri, diagnostics))

    def _problems(self, document: Document, text: str) -> list[DplcError]:
        """Return the errors of a document. Examples are checked with their rules."""
        problems = document.problems(text)
        rules = rules_file(document.path)
        if rules == document.path or problems or not rules.is_file():
            return problems
        problems = Document(rules, self.text_of).problems(document.read(rules))
        return [one for one in problems if one.span is not None and one.span.source.name == document.name]

    def text_of(self, path: Path) -> str | None:
        """Return the text of a file if it is open in the editor, else None."""
        return self.files[path].document.text if path in self.files else None

    async def run(self, file: OpenFile, key: Key, aloud: bool = True) -> None:
        """Run something for a document with progress, then show a message, the diagnostics and new lenses.

        Nothing happens if the same run is in progress.
        """
        if key in file.running:
            return
        text, rules = file.document.text, rules_file(file.document.path)
        texts = {path: known.document.text for path, known in self.files.items()}
        texts[rules] = file.document.read(rules)
        file.running.add(key)
        try:
            answer = await self._ask(Request(*key, rules, texts, self.suite))
        finally:
            file.running.discard(key)
        file.answers[key] = text, answer
        if answer.counts is not None:
            file.counted = text, answer.counts
        for known in self.files.values():
            self.publish(known)
        if aloud:
            self.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, answer.message))
        if get_capability(self.client_capabilities, "workspace.code_lens.refresh_support"):
            await self.workspace_code_lens_refresh_async(None)

    async def _ask(self, request: Request) -> Answer:
        """Return the answer to a request. Show its progress if the editor supports that."""
        if not get_capability(self.client_capabilities, "window.work_done_progress"):
            return await ask(request, lambda what, number, of: None)
        token, shown = str(uuid.uuid4()), self.work_done_progress
        title = f"dplc: {request.kind}{f' of {request.rule}' if request.rule else ''}"
        await shown.create_async(token)
        shown.begin(token, lsp.WorkDoneProgressBegin(title, percentage=0))
        try:
            return await ask(
                request,
                lambda what, number, of: shown.report(
                    token, lsp.WorkDoneProgressReport(message=what, percentage=100 * number // of)
                ),
            )
        finally:
            shown.end(token, lsp.WorkDoneProgressEnd())


def diagnostic(error: DplcError, name: str, lead: str = "note: ", source: str = "dplc") -> lsp.Diagnostic:
    """Convert an error to a diagnostic, with notes and help below the message.

    name: the name of the source; lead: the start of each note. The first line names the location of an error in another
    file.
    """
    span = error.span
    elsewhere = f"{span.location}: " if span is not None and span.source.name != name else ""
    lines = [elsewhere + error.what, *(lead + note for note in error.notes)]
    lines += [f"help: {error.hint}"] if error.hint else []
    severity = lsp.DiagnosticSeverity[error.severity.title()]
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
    return list(SERVER.file(given).lenses(SERVER.suite))


async def clicked(uri: str, kind: str, rule: str | None, example: str | None) -> None:
    """Run what a lens is about."""
    await SERVER.run(SERVER.files[path_at(uri)], (kind, rule, example))


for command in COMMANDS.values():
    SERVER.command(command)(clicked)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
async def saved(given: lsp.DidSaveTextDocumentParams) -> None:
    """Check the whole document again and run its examples."""
    SERVER.file(given).document.forget()
    file = SERVER.check(given.text_document.uri)
    right = all(isinstance(problem, Advice) for problem in file.problems)
    if right and any(rule.examples for rule in file.document.file.rules):
        await SERVER.run(file, ("examples", None, None), aloud=False)


# ---- Code actions: the help line of a diagnostic as an edit.


Fix = tuple[str, lsp.TextEdit]  # what it does, and the edit


def fixes(document: Document, message: str, line: int, column: int) -> Iterator[Fix]:
    """Yield the edits that fix a finding with this message at this position."""
    text = "".join(document.text.splitlines()[line : line + 1])
    if meant := re.search(r"(?:never used\nhelp: write|did you mean) `([^`]+)`", message):
        for word in re.findall(r"`([^`]+)`", message[: meant.start()].split("\n")[0])[-1:]:
            if found := re.compile(rf"(?<!\w){re.escape(word)}(?!\w)").search(text, column):
                yield f"Change it to `{meant[1]}`", lsp.TextEdit(text_range(line, *found.span()), meant[1])
    if "a guard without a reason" in message and text:
        end = len(text.rstrip())
        yield "Say what is wrong when it fails", lsp.TextEdit(text_range(line, end, end), ' else ""')
    refusal = re.search(r"help: add an example that `gives no \"(.*)\"`", message)
    if refusal or "no example shows it fire" in message:
        yield from _example(document, line, refusal[1] if refusal else None)


def _example(document: Document, line: int, reason: str | None) -> Iterator[Fix]:
    """Yield an example to insert below a rule, with the program of its first example, else with its pattern."""
    rules = [node for node in document.declarations if isinstance(node, s.Rule) and node.span.line <= line + 1]
    if not rules:
        return
    rule = rules[-1]
    chunk = chunk_at(document.text, rule.span.line - 1)
    end = chunk.start + len(re.sub(r"(?:\n(?:#.*|[^\S\n]*))*\Z", "", chunk.text).splitlines())
    programs = [one.before for one in rule.examples if isinstance(one, s.Example)]
    programs += [clause.body for clause in rule.clauses if isinstance(clause, s.Match)]
    program = "\n".join(block(programs[0]))
    if reason is None:
        title = "Add an example: `dplc rules test --accept` writes what it gives"
        text = f'example "it fires"\n{program}\ngives\n    pass\n'
    else:
        title = "Add a refusal example: edit it until the guard fails"
        text = f'example "{reason}"\n{program}\ngives no "{reason}"\n'
    yield title, lsp.TextEdit(text_range(end, 0, 0), text)


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
    match given.initialization_options:
        case {"suite": str(suite)} if suite:
            SERVER.suite = Path(suite)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def changed(given: lsp.DidOpenTextDocumentParams | lsp.DidChangeTextDocumentParams) -> None:
    SERVER.check(given.text_document.uri)


@SERVER.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
def closed(given: lsp.DidCloseTextDocumentParams) -> None:
    SERVER.files.pop(path_at(given.text_document.uri), None)


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
    for node in SERVER.file(given).document.declarations:
        if name := getattr(node, "name", ""):
            where = _range_of(node.span)
            listed.append(lsp.DocumentSymbol(name, lsp.SymbolKind.Function, where, where, type(node).__name__))
    return listed


def _location(place: queries.FilePlace) -> lsp.Location:
    file = SERVER.files.get(place.path)
    uri = file.uri if file is not None else place.path.as_uri()
    return lsp.Location(uri, text_range(place.line, place.column, place.end))


@SERVER.feature(lsp.TEXT_DOCUMENT_FORMATTING)
def layout(given: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
    document = SERVER.file(given).document
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
    document, listed = SERVER.file(given).document, []
    for found in given.context.diagnostics:
        start = found.range.start
        for title, change in fixes(document, found.message, start.line, start.character):
            edit = lsp.WorkspaceEdit(changes={given.text_document.uri: [change]})
            listed.append(lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, [found], edit=edit))
    return listed
