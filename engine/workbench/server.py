"""`dplc lsp`: the language server of rule files, over standard input and output. What is run, other processes run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from ...ir.diagnostic import DplcError, Source
from ...version import __version__
from ..language.findings import WARNING, Finding
from ..language.further import FURTHER
from ..language.layout import formatted
from . import actions, answers, lenses, places
from .commands import answer_lenses
from .document import Document
from .running import Runs

KINDS = {
    "statement": lsp.CompletionItemKind.Class, "value": lsp.CompletionItemKind.Class,
    "op": lsp.CompletionItemKind.Class,
    "fact": lsp.CompletionItemKind.Function, "function": lsp.CompletionItemKind.Function,
    "field": lsp.CompletionItemKind.Field, "variable": lsp.CompletionItemKind.Variable,
    "parameter": lsp.CompletionItemKind.TypeParameter, "keyword": lsp.CompletionItemKind.Keyword,
    "constant": lsp.CompletionItemKind.EnumMember, "number": lsp.CompletionItemKind.Constant,
}  # fmt: skip
SEVERITIES = {WARNING: lsp.DiagnosticSeverity.Warning}
TOKENS = ("function", "type", "variable", "enumMember", "macro")


class Server(LanguageServer):
    """Holds the open documents."""

    def __init__(self) -> None:
        super().__init__("dplc", __version__)
        self.open: dict[str, Document] = {}
        self.runs = Runs()
        self._static: dict[str, tuple[str, list[lsp.Diagnostic]]] = {}  # of each document: its text, what is wrong

    def document(self, uri: str) -> Document:
        """The document of a URI, read again if its text has changed."""
        text = self.workspace.get_text_document(uri).source
        found = self.open.get(uri)
        if found is None:
            found = self.open[uri] = Document(path_of(uri))
        if found.text != text:
            found.problems(text)
        return found

    def publish(self, uri: str) -> None:
        """Tell the editor what is wrong with a document: by itself, and by what ran."""
        text = self.workspace.get_text_document(uri).source
        if uri not in self._static or self._static[uri][0] != text:
            document = self.open.setdefault(uri, Document(path_of(uri)))
            self._static[uri] = text, [diagnostic(*told) for told in self._problems(document, text)]
        shown = [*self._static[uri][1], *self.runs.diagnostics(uri, text)]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, shown))

    def _problems(self, document: Document, text: str) -> Iterator[tuple[DplcError, str]]:
        """What is wrong with a document, and the name of its source. Examples are judged with the rules beside them."""
        document.beside(self.text_of(document.path.with_name(document.path.stem + FURTHER)))
        told = document.problems(text)
        rules = lenses.rules_file(document.path)
        if rules != document.path and not told and rules.is_file():
            whole = Document(rules)
            whole.beside(text)
            told = whole.problems(self.text_of(rules) or rules.read_text(encoding="utf-8", errors="replace"))
            told = [one for one in told if one.span is not None and one.span.source.name == document.name]
        return ((one, document.name) for one in told)

    def wrong(self, uri: str) -> bool:
        """Whether a document has errors by itself."""
        return any(told.severity == lsp.DiagnosticSeverity.Error for told in self._static.get(uri, ("", []))[1])

    def text_of(self, path: Path) -> str | None:
        """The text of a file that the editor has open."""
        found = next((document for document in self.open.values() if document.path == path), None)
        return None if found is None else found.text

    def closed(self, uri: str) -> None:
        """Forget a document."""
        self.open.pop(uri, None)
        self._static.pop(uri, None)


def path_of(uri: str) -> Path:
    """The file of a URI."""
    return Path(unquote(urlparse(uri).path)) if uri.startswith("file:") else Path(uri)


def diagnostic(error: DplcError, name: str) -> lsp.Diagnostic:
    """An error as editors show it: notes and help below what is wrong. name: of the source; what stands in another file
    is told in the first line."""
    span = error.span
    elsewhere = f"{span.location}: " if span is not None and span.source.name != name else ""
    span = None if elsewhere else span
    lines = [
        elsewhere + error.what,
        *(f"note: {note}" for note in error.notes),
        *([f"help: {error.hint}"] if error.hint else []),
    ]
    severity = SEVERITIES.get(getattr(error, "severity", ""), lsp.DiagnosticSeverity.Error)
    place = (span.line - 1, span.column, span.end_line - 1, span.end_column) if span is not None else (0, 0, 0, 1)
    code = error.check if isinstance(error, Finding) and error.check else None
    return lsp.Diagnostic(_range(*place), "\n".join(lines), severity, code, source="dplc")


def _range(line: int, column: int, end_line: int, end_column: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line, column), lsp.Position(end_line, end_column))


def _location(place: places.FilePlace) -> lsp.Location:
    return lsp.Location(place.path.as_uri(), _range(place.line, place.column, place.line, place.end))


def server() -> Server:
    """A server with everything that it answers."""
    answers.warm()
    gc.collect()
    gc.freeze()  # what is known by now stays: looking at it again would take longer than an answer may
    made = Server()
    _follow_texts(made)
    _answer_places(made)
    _change_texts(made)
    answer_lenses(made)
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
    @made.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "@", "="]))
    def complete(given: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        at = given.position
        found = answers.completions(made.document(given.text_document.uri), at.line, at.character)
        unique = {(choice.name, choice.kind): choice for choice in found}
        return [
            lsp.CompletionItem(c.name, kind=KINDS.get(c.kind), detail=c.detail or None, documentation=c.says or None)
            for c in unique.values()
        ]

    @made.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(given: lsp.HoverParams) -> lsp.Hover | None:
        at = given.position
        text = answers.meaning(made.document(given.text_document.uri), at.line, at.character)
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None

    @made.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
    def signature(given: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        document, at = made.document(given.text_document.uri), given.position
        found = answers.signatures(document, at.line, at.character)
        listed = [lsp.SignatureInformation(entry.signature, entry.sentence) for entry in found]
        return lsp.SignatureHelp(listed) if listed else None

    @made.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(given: lsp.DefinitionParams) -> list[lsp.Location]:
        at = given.position
        return list(map(_location, places.definition(made.document(given.text_document.uri), at.line, at.character)))

    @made.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(given: lsp.ReferenceParams) -> list[lsp.Location]:
        document, at = made.document(given.text_document.uri), given.position
        found = places.references(document, at.line, at.character, made.text_of)
        if not given.context.include_declaration:
            declared = {(place.path, place.line) for place in places.definition(document, at.line, at.character)}
            found = [place for place in found if (place.path, place.line) not in declared]
        return list(map(_location, found))

    @made.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(given: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        listed = []
        for name, kind, span in answers.outline(made.document(given.text_document.uri)):
            where = _range(span.line - 1, span.column, span.end_line - 1, span.end_column)
            listed.append(lsp.DocumentSymbol(name, lsp.SymbolKind.Function, where, where, kind))
        return listed

    @made.feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, lsp.SemanticTokensLegend(list(TOKENS), []))
    def tokens(given: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        return lsp.SemanticTokens(_encoded(made.document(given.text_document.uri)))


def _encoded(document: Document) -> list[int]:
    """Names as editors want them: five numbers each, relative to the one before."""
    lines = document.text.splitlines()
    found = set()
    for span, kind in answers.variables(document):
        word = answers.WORD.match(lines[span.line - 1], span.column) if span.line <= len(lines) else None
        if word is not None:
            found.add((span.line - 1, span.column, len(word[0]), TOKENS.index(kind)))
    data: list[int] = []
    line = column = 0
    for at, start, length, kind_number in sorted(found):
        data += [at - line, start - column if at == line else start, length, kind_number, 0]
        line, column = at, start
    return data


def _change_texts(made: Server) -> None:
    @made.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def layout(given: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        document = made.document(given.text_document.uri)
        try:
            text = formatted(Source(document.name, document.text))
        except DplcError:
            return None  # its errors are shown already
        return [lsp.TextEdit(_range(0, 0, len(document.text.splitlines()) + 1, 0), text)]

    @made.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(given: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        document, at = made.document(given.text_document.uri), given.position
        if not answers.WORD.fullmatch(given.new_name):
            raise JsonRpcInvalidParams(f"`{given.new_name}` is no name")
        if not places.ours(document, at.line, at.character):
            raise JsonRpcInvalidParams("this name is not declared in a rule file: Python, or the language, has it")
        edits: dict[str, list[lsp.TextEdit]] = {}
        for place in places.references(document, at.line, at.character, made.text_of):
            edit = lsp.TextEdit(_location(place).range, given.new_name)
            edits.setdefault(place.path.as_uri(), []).append(edit)
        return lsp.WorkspaceEdit(changes=edits)

    @made.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    def actions_of(given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri, listed = given.text_document.uri, []
        for found in given.context.diagnostics:
            start = found.range.start
            for fix in actions.fixes(made.document(uri), found.message, start.line, start.character):
                where = _range(fix.line, fix.column, fix.line, fix.end)
                edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(where, fix.text)]})
                listed.append(lsp.CodeAction(fix.title, lsp.CodeActionKind.QuickFix, [found], edit=edit))
        return listed
