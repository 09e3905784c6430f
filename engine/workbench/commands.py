"""The commands behind the lenses: what an editor's user clicks on."""

from __future__ import annotations

import contextlib
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import PyglsError

from .editor import Server
from .running import COMMANDS, Key, request_for, token


def answer_lenses(made: Server) -> None:
    """Lenses, their commands, and the examples of a file that is saved."""

    @made.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    def shown(given: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = given.text_document.uri
        return list(made.runs.lenses(uri, made.document(uri)))

    async def examples(uri: str, rule: str | None = None, example: str | None = None) -> None:
        await run(made, uri, ("examples", rule, example))

    async def check(uri: str, rule: str, example: str | None = None) -> None:
        await run(made, uri, ("check", rule, None))

    async def firings(uri: str, rule: str, example: str | None = None) -> None:
        await run(made, uri, ("firings", rule, None))

    for name, handler in {"examples": examples, "check": check, "firings": firings}.items():
        made.command(COMMANDS[name])(handler)

    @made.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(given: lsp.DidSaveTextDocumentParams) -> None:
        uri = given.text_document.uri
        document = made.document(uri)
        made.saved(uri)
        if not made.wrong(uri) and document.file is not None and any(rule.examples for rule in document.file.rules):
            await run(made, uri, ("examples", None, None), aloud=False)


async def run(made: Server, uri: str, key: Key, aloud: bool = True) -> None:
    """Run something for a document: progress while it runs, then a line, what is wrong where it stands, new lenses."""
    document = made.document(uri)
    request = request_for(document, made.text_of, made.runs.suite)
    async with _progress(made, f"dplc: {key[0]}{f' of {key[1]}' if key[1] else ''}") as tell:
        said = await made.runs.run(uri, key, request, tell)
    if not said:
        return
    for known in list(made.open):
        made.publish(known)
    if aloud:
        kind = lsp.MessageType.Info
        made.window_show_message(lsp.ShowMessageParams(kind, said))
    asked = made.client_capabilities.workspace
    if asked is not None and asked.code_lens is not None and asked.code_lens.refresh_support:
        await made.workspace_code_lens_refresh_async(None)


@contextlib.asynccontextmanager
async def _progress(made: Server, title: str) -> Any:
    """Tells the editor how far something is, where it shows such."""
    window = made.client_capabilities.window
    if window is None or not window.work_done_progress:
        yield lambda what, number, of: None
        return
    name = token()
    with contextlib.suppress(PyglsError):
        await made.work_done_progress.create_async(name)
    made.work_done_progress.begin(name, lsp.WorkDoneProgressBegin(title, percentage=0))

    def tell(what: str, number: int, of: int) -> None:
        made.work_done_progress.report(name, lsp.WorkDoneProgressReport(message=what, percentage=100 * number // of))

    try:
        yield tell
    finally:
        made.work_done_progress.end(name, lsp.WorkDoneProgressEnd())
