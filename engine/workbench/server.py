"""`dplc lsp`: the language server of rule files, over standard input and output. It runs nothing."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from ...ir.diagnostic import DplcError, Source
from ...version import __version__
from ..language.findings import WARNING, Finding
from ..language.layout import formatted
from . import answers
from .document import Document

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
MEANT = re.compile(r"did you mean `([^`]+)`\?")


class Server(LanguageServer):
    """Holds the open documents."""

    def __init__(self) -> None:
        super().__init__("dplc", __version__)
        self.open: dict[str, Document] = {}

    def document(self, uri: str) -> Document:
        """The document of a URI, read again if its text has changed."""
        text = self.workspace.get_text_document(uri).source
        found = self.open.get(uri)
        if found is None:
            found = self.open[uri] = Document(path_of(uri))
        if found.text != text:
            found.problems(text)
        return found


def path_of(uri: str) -> Path:
    """The file of a URI."""
    return Path(unquote(urlparse(uri).path)) if uri.startswith("file:") else Path(uri)


def diagnostic(error: DplcError) -> lsp.Diagnostic:
    """An error as editors show it: notes and help below what is wrong."""
    span = error.span
    lines = [error.what, *(f"note: {note}" for note in error.notes), *([f"help: {error.hint}"] if error.hint else [])]
    severity = SEVERITIES.get(getattr(error, "severity", ""), lsp.DiagnosticSeverity.Error)
    place = (span.line - 1, span.column, span.end_line - 1, span.end_column) if span is not None else (0, 0, 0, 1)
    code = error.check if isinstance(error, Finding) and error.check else None
    return lsp.Diagnostic(_range(*place), "\n".join(lines), severity, code, source="dplc")


def _range(line: int, column: int, end_line: int, end_column: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line, column), lsp.Position(end_line, end_column))


def _location(place: answers.FilePlace) -> lsp.Location:
    return lsp.Location(place.path.as_uri(), _range(place.line, place.column, place.line, place.end))


def server() -> Server:
    """A server with everything that it answers."""
    answers.warm()
    made = Server()
    _follow_texts(made)
    _answer_places(made)
    _change_texts(made)
    return made


def _follow_texts(made: Server) -> None:
    def publish(uri: str) -> None:
        document = made.open.setdefault(uri, Document(path_of(uri)))
        problems = document.problems(made.workspace.get_text_document(uri).source)
        made.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, [diagnostic(p) for p in problems]))

    @made.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(given: lsp.DidOpenTextDocumentParams) -> None:
        publish(given.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(given: lsp.DidChangeTextDocumentParams) -> None:
        publish(given.text_document.uri)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(given: lsp.DidCloseTextDocumentParams) -> None:
        made.open.pop(given.text_document.uri, None)


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
        return list(map(_location, answers.definition(made.document(given.text_document.uri), at.line, at.character)))

    @made.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(given: lsp.ReferenceParams) -> list[lsp.Location]:
        at = given.position
        return list(map(_location, answers.references(made.document(given.text_document.uri), at.line, at.character)))

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
        if not answers.WORD.fullmatch(given.new_name):
            return None
        at = given.position
        edits: dict[str, list[lsp.TextEdit]] = {}
        for place in answers.references(made.document(given.text_document.uri), at.line, at.character):
            edit = lsp.TextEdit(_location(place).range, given.new_name)
            edits.setdefault(place.path.as_uri(), []).append(edit)
        return lsp.WorkspaceEdit(changes=edits)

    @made.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    def actions(given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri, listed = given.text_document.uri, []
        for found in given.context.diagnostics:
            meant = MEANT.search(found.message)
            wrong = re.search(r"`([^`]+)`[^`]*$", found.message.split("\n")[0])
            if meant and wrong:
                lines = made.document(uri).text.splitlines()
                place = found.range.start
                column = lines[place.line].find(wrong[1], place.character)
                if column >= 0:
                    where = _range(place.line, column, place.line, column + len(wrong[1]))
                    edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(where, meant[1])]})
                    title = f"Change it to `{meant[1]}`"
                    listed.append(lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, [found], edit=edit))
        return listed
