"""`dplc lsp`: the language server of rule files, over standard input and output. What is run, other processes run."""

from __future__ import annotations

import gc
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from ...ir.diagnostic import DplcError, Source
from ..language.format import formatted
from . import actions, answers, places
from .commands import answer_lenses
from .editor import Server, text_range

KINDS = {
    "statement": lsp.CompletionItemKind.Class, "value": lsp.CompletionItemKind.Class,
    "op": lsp.CompletionItemKind.Class,
    "fact": lsp.CompletionItemKind.Function, "function": lsp.CompletionItemKind.Function,
    "field": lsp.CompletionItemKind.Field, "variable": lsp.CompletionItemKind.Variable,
    "parameter": lsp.CompletionItemKind.TypeParameter, "keyword": lsp.CompletionItemKind.Keyword,
    "constant": lsp.CompletionItemKind.EnumMember, "number": lsp.CompletionItemKind.Constant,
}  # fmt: skip


def _location(place: places.FilePlace) -> lsp.Location:
    return lsp.Location(place.path.as_uri(), text_range(place.line, place.column, place.line, place.end))


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
        document = made.document(given.text_document.uri)
        return list(map(_location, places.definition(document, at.line, at.character, made.text_of)))

    @made.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(given: lsp.ReferenceParams) -> list[lsp.Location]:
        document, at = made.document(given.text_document.uri), given.position
        found = places.references(document, at.line, at.character, made.text_of)
        if not given.context.include_declaration:
            declares = places.definition(document, at.line, at.character, made.text_of)
            declared = {(place.path, place.line) for place in declares}
            found = [place for place in found if (place.path, place.line) not in declared]
        return list(map(_location, found))

    @made.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(given: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        listed = []
        for name, kind, span in answers.outline(made.document(given.text_document.uri)):
            where = text_range(span.line - 1, span.column, span.end_line - 1, span.end_column)
            listed.append(lsp.DocumentSymbol(name, lsp.SymbolKind.Function, where, where, kind))
        return listed


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
        document, at = made.document(given.text_document.uri), given.position
        if not answers.WORD.fullmatch(given.new_name):
            raise JsonRpcInvalidParams(f"`{given.new_name}` is no name")
        if not places.ours(document, at.line, at.character, made.text_of):
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
                where = text_range(fix.line, fix.column, fix.line, fix.end)
                edit = lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(where, fix.text)]})
                listed.append(lsp.CodeAction(fix.title, lsp.CodeActionKind.QuickFix, [found], edit=edit))
        return listed
