"""`dplc lsp`, asked by a real client over standard input and output."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls")
pytest_lsp = pytest.importorskip("pytest_lsp", reason="the client of the tests needs pytest-lsp")

from lsprotocol import types as lsp  # noqa: E402
from pytest_lsp import ClientServerConfig, LanguageClient  # noqa: E402

MINE = """\
## First rule.
rule first on tensor
match
    y = multiply(exp(x), 2.0)
let n = size(axes(x))
where n > 0 and exten(x) > 1                     because "a number"
rewrite
    y = exp(x)

rule second on tile
match
    Tile(axes..):
        s: Stage(depth=1
rewrite
    pass

rule third(N: int in {1, 2} = 1) on tile
match
    Tile(axes..):
        body..
where widest(body, [k]) > N because "narrow"
rewrite
    Tile(axes..):
        body..
"""
START = "import sys; from dplc.engine.cli.app import main; main(['lsp'])"


@pytest_lsp.fixture(config=ClientServerConfig(server_command=[sys.executable, "-c", START]))
async def client(lsp_client: LanguageClient) -> AsyncIterator[None]:
    await lsp_client.initialize_session(
        lsp.InitializeParams(capabilities=lsp.ClientCapabilities(), root_uri="file:///")
    )
    yield
    await lsp_client.shutdown_session()


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


@pytest.mark.asyncio
async def test_every_broken_rule_is_told_and_hides_no_other(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", MINE)
    found = client.diagnostics[uri]
    told = {one.message.split("\n")[0]: one.range.start.line for one in found}
    assert any("exten" in text and line == 5 for text, line in told.items())
    assert any(9 <= line <= 14 for line in told.values()), "the rule that does not parse"
    assert any("`k`" in text and line == 20 for text, line in told.items())
    (slip,) = [one for one in found if "exten" in one.message]
    given = lsp.CodeActionParams(document(uri), slip.range, lsp.CodeActionContext([slip]))
    (action,) = await client.text_document_code_action_async(given)
    assert action.edit.changes[uri][0].new_text == "extent"


@pytest.mark.asyncio
async def test_hover_completion_and_signatures(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", MINE)
    at = place(MINE, "widest")
    hover = await client.text_document_hover_async(lsp.HoverParams(document(uri), at))
    assert "widest(run, [name]) -> int" in hover.contents.value and "tile" in hover.contents.value
    hover = await client.text_document_hover_async(lsp.HoverParams(document(uri), place(MINE, "n > 0")))
    assert "by `let`, line 5" in hover.contents.value
    listed = await client.text_document_completion_async(lsp.CompletionParams(document(uri), at))
    names = {item.label for item in listed}
    assert {"widest", "axes", "body", "N", "Stage", "most_threads"} <= names and "Softmax" not in names
    at = lsp.Position(12, len("        s: Stage("))
    listed = await client.text_document_completion_async(lsp.CompletionParams(document(uri), at))
    assert {"depth", "via", "slab"} <= {item.label for item in listed}
    help_ = await client.text_document_signature_help_async(lsp.SignatureHelpParams(document(uri), at))
    assert help_.signatures[0].label.startswith("Stage(dst")


@pytest.mark.asyncio
async def test_definitions_references_and_renaming(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", MINE)
    (found,) = await client.text_document_definition_async(lsp.DefinitionParams(document(uri), place(MINE, "widest")))
    assert found.uri.endswith("engine/facts/schedule.py")
    (found,) = await client.text_document_definition_async(lsp.DefinitionParams(document(uri), place(MINE, "n > 0")))
    assert (found.uri, found.range.start.line) == (uri, 4)
    given = lsp.RenameParams(document(uri), place(MINE, "N: int in"), "M")
    edits = (await client.text_document_rename_async(given)).changes[uri]
    assert sorted(edit.range.start.line for edit in edits) == [16, 20]
    assert {edit.new_text for edit in edits} == {"M"}


@pytest.mark.asyncio
async def test_formatting_outline_and_tokens(client: LanguageClient, tmp_path: Path) -> None:
    whole = MINE.replace("Stage(depth=1", "Stage(depth=1)")
    uri = await opened(client, tmp_path / "whole.rw", whole)
    given = lsp.DocumentFormattingParams(document(uri), lsp.FormattingOptions(4, True))
    (edit,) = await client.text_document_formatting_async(given)
    assert 'where widest(body, [k]) > N                      because "narrow"' in edit.new_text
    symbols = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document(uri)))
    assert [symbol.name for symbol in symbols] == ["first", "second", "third"]
    tokens = await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(document(uri)))
    assert len(tokens.data) % 5 == 0 and len(tokens.data) > 50
    broken = await opened(client, tmp_path / "mine.rw", MINE)
    given = lsp.DocumentFormattingParams(document(broken), lsp.FormattingOptions(4, True))
    assert await client.text_document_formatting_async(given) is None


@pytest.mark.asyncio
async def test_files_of_ours_have_no_problems(client: LanguageClient) -> None:
    from dplc.engine.language.rule import BUILT_IN

    for name in ("torch/reductions.rw", "tile/registers/mma.rw", "policy.rw", "pipeline.rw", "tensor/online.rw"):
        uri = await opened(client, BUILT_IN / name, (BUILT_IN / name).read_text())
        assert not client.diagnostics[uri], name


def test_diagnostics_and_answers_are_quick() -> None:
    """CPU time, where a machine has others to serve: typing in the longest file, and asking in it."""
    from dplc.engine.language.rule import BUILT_IN
    from dplc.engine.workbench import answers
    from dplc.engine.workbench.document import Document

    longest = max((p for p in BUILT_IN.rglob("*.rw") if ".examples" not in p.name), key=lambda p: len(p.read_text()))
    answers.warm()
    text = longest.read_text()
    opened_ = Document(longest)
    opened_.problems(text)
    typed, asked = [], []
    for n in range(1, 6):
        start = time.process_time()
        opened_.problems(text.replace("\nwhere ", "\nwhere " + " " * n, 1))
        typed.append(time.process_time() - start)
        start = time.process_time()
        answers.completions(opened_, 40, 6)
        answers.meaning(opened_, 40, 6)
        asked.append(time.process_time() - start)
    print(longest.name, sorted(typed), sorted(asked))
    assert sorted(typed)[2] < 0.150
    assert sorted(asked)[2] < 0.050
