"""An editor for tests: a client of `dplc lsp` over standard input and output."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pytest_lsp import ClientServerConfig, LanguageClient

SUITE = {
    "about": "sums",
    "operations": {"sum": {"expression": "x + x", "inputs": {"x": "n"}}},
    "cases": [{"name": f"n{n}", "operation": "sum", "sizes": {"n": n}} for n in (64, 128)],
}
START = "from dplc.engine.cli.app import main; main(['lsp'])"


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[sys.executable, "-c", START]), scope="session")
async def server(lsp_client: LanguageClient, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    suite = tmp_path_factory.mktemp("suite") / "sums.json"
    suite.write_text(json.dumps(SUITE))
    capabilities = lsp.ClientCapabilities(window=lsp.WindowClientCapabilities(work_done_progress=True))
    given = lsp.InitializeParams(capabilities=capabilities, root_uri="file:///")
    given.initialization_options = {"suite": str(suite)}
    await lsp_client.initialize_session(given)
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def client(server: LanguageClient) -> LanguageClient:
    """One client of one server for all tests; a test sees its own messages only."""
    server.messages.clear()
    return server


async def opened(client: LanguageClient, path: Path, text: str) -> str:
    uri = path.as_uri()
    item = lsp.TextDocumentItem(uri, "dplc-rule", 1, text)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return uri


def place(text: str, word: str, nth: int = 0) -> lsp.Position:
    """The middle of a word, the start of several."""
    at = -1
    for _ in range(nth + 1):
        at = text.index(word, at + 1)
    return lsp.Position(
        text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1 + (0 if " " in word else len(word) // 2)
    )


def document(uri: str) -> lsp.TextDocumentIdentifier:
    return lsp.TextDocumentIdentifier(uri)
