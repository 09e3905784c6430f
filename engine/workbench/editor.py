"""What an editor has open, and what it is told about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from ...ir.diagnostic import DplcError
from ...version import __version__
from ..language.rule_files import FURTHER
from ..language.rule_scope import WARNING, Finding
from . import lenses
from .document import Document
from .running import Runs

SEVERITIES = {WARNING: lsp.DiagnosticSeverity.Warning}


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

    def saved(self, uri: str) -> None:
        """Judge a document as a whole: while one types, a rule is judged again only where it changed itself."""
        self.open[uri].forget()
        self._static.pop(uri, None)
        self.publish(uri)

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
    return lsp.Diagnostic(text_range(*place), "\n".join(lines), severity, code, source="dplc")


def text_range(line: int, column: int, end_line: int, end_column: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line, column), lsp.Position(end_line, end_column))
