"""`dplc lsp`, asked and clicked on by a real client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls")
pytest.importorskip("pytest_lsp", reason="the client of the tests needs pytest-lsp")

import pytest_lsp
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.workspace import Workspace
from pytest_lsp import ClientServerConfig, LanguageClient

from dplc.engine.workbench.document import Document
from dplc.engine.workbench.language_server import Server

pytestmark = pytest.mark.asyncio
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


Place = tuple[int, int, int]  # a line, and columns of it


def places(found: Iterable[Any]) -> list[Place]:
    """Where answers begin, and the column where each ends."""
    return [(one.range.start.line, one.range.start.character, one.range.end.character) for one in found]


class Editor:
    """An editor that shows one file of a folder. It asks at the end of a text, where that stands first."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client, self.folder = client, folder

    async def open(self, text: str, name: str = "mine.rw") -> tuple[lsp.Diagnostic, ...]:
        self.text, self.uri = text, name if name.startswith("untitled:") else (self.folder / name).as_uri()
        item = lsp.TextDocumentItem(self.uri, "dplc-rule", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.published()

    async def type(self, text: str) -> tuple[lsp.Diagnostic, ...]:
        self.text = text
        given = lsp.VersionedTextDocumentIdentifier(version=2, uri=self.uri)
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(given, [whole]))
        return await self.published()

    async def published(self) -> tuple[lsp.Diagnostic, ...]:
        """The next diagnostics."""
        await self.client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        return self.diagnostics

    @property
    def diagnostics(self) -> tuple[lsp.Diagnostic, ...]:
        return tuple(self.client.diagnostics[self.uri])

    async def ask(self, request: str, at: str = "", **given: Any) -> Any:
        """What the server answers to a request of the protocol."""
        if at:
            before = self.text[: self.text.index(at) + len(at)]
            given["position"] = lsp.Position(before.count("\n"), len(before.rpartition("\n")[2]))
        method = f"textDocument/{request}"
        params = lsp.METHOD_TO_TYPES[method][2]
        given["text_document"] = lsp.TextDocumentIdentifier(self.uri)
        return await self.client.protocol.send_request_async(method, params(**given))

    async def renamed(self, at: str, new: str) -> dict[str, list[Place]]:
        """What a new name replaces, by file."""
        changes = (await self.ask("rename", at, new_name=new)).changes
        assert {edit.new_text for edits in changes.values() for edit in edits} == {new}
        return {uri.rpartition("/")[2]: places(edits) for uri, edits in changes.items()}

    async def lenses(self) -> dict[tuple[int, str], lsp.Command]:
        """Lenses by line and title."""
        return {(lens.range.start.line, lens.command.title): lens.command for lens in await self.ask("codeLens") or ()}

    async def click(self, line: int, title: str) -> None:
        command = (await self.lenses())[line, title]
        await self.client.workspace_execute_command_async(lsp.ExecuteCommandParams(command.command, command.arguments))


@pytest.fixture
def editor(server: LanguageClient, tmp_path: Path) -> Editor:
    """One client of one server for all tests; a test sees its own messages only."""
    server.messages.clear()
    return Editor(server, tmp_path)


MINE = """\
## First rule.
rule first on tensor
match
    y = multiply(exp(x), 2.0)
let n = size(axes(x))
require n > 0 and exten(x) > 1                   else "a number"
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
require widest(body, [k]) > N else "narrow"
rewrite
    Tile(axes..):
        body..
"""


async def test_every_broken_rule_is_told_and_a_slip_is_mended(editor: Editor) -> None:
    diagnostics = await editor.open(MINE)
    wrong = [one for one in diagnostics if one.severity == lsp.DiagnosticSeverity.Error]
    assert [(one.range.start.line, one.message) for one in wrong] == [
        (12, "`(` is never closed\nnote: line 14 goes on inside of it: rewrite\nhelp: write `)`"),
        (5, "rule `first`: unknown fact or function `exten`\nhelp: did you mean `extent`?"),
        (20, "rule `third`: unbound variable `k`\nhelp: name it in the pattern, or define it by `let`"),
    ]
    slip = wrong[1]
    (action,) = await editor.ask("codeAction", range=slip.range, context=lsp.CodeActionContext([slip]))
    (edit,) = action.edit.changes[editor.uri]
    assert (places([edit]), edit.new_text) == ([(5, 18, 23)], "extent")


async def test_words_are_explained_and_completed(editor: Editor) -> None:
    await editor.open(MINE)
    hover = await editor.ask("hover", "require wid")
    assert hover.contents.value.startswith("```\nwidest(run, [name]) -> int\n```\nfact on module, loop, tile")
    names = {item.label: item.kind for item in await editor.ask("completion", "require wid")}
    assert {"widest", "axes", "body", "N", "Stage", "block_threads"} <= names.keys() and "Softmax" not in names
    assert names["N"] == lsp.CompletionItemKind.TypeParameter
    called = await editor.ask("signatureHelp", "s: Stage(")
    assert called.signatures[0].label.startswith("Stage(dst")


@pytest.mark.parametrize("name", ["mine.rw", "untitled:Untitled-1"])
async def test_a_name_is_found_and_changed_in_its_file(editor: Editor, name: str) -> None:
    assert await editor.open(MINE, name)
    (found,) = await editor.ask("definition", "rule third(N")
    assert (found.uri, places([found])) == (editor.uri, [(16, 11, 12)])
    uses = await editor.ask("references", "rule third(N", context=lsp.ReferenceContext(include_declaration=False))
    assert places(uses) == [(20, 28, 29)]
    assert await editor.renamed("rule third(N", "M") == {name: [(16, 11, 12), (20, 28, 29)]}
    assert await editor.renamed("rule third", "fourth") == {name: [(16, 5, 10)]}
    with pytest.raises(JsonRpcException, match="`not a name` is not a name"):
        await editor.renamed("rule third", "not a name")
    with pytest.raises(JsonRpcException, match="not declared in a rule file"):
        await editor.renamed("require wid", "broadest")


SHARES = """\
## A rule whose name others use for values.
rule one on tensor
match
    y = multiply(exp(a), exp(b))
require my_limit > 3                             else "few"
rewrite
    y = exp(add(a, b))

pipeline tensor
    pass one after exact                         because "so"
    one of multiply_one, one                     because "in this order"
"""
READS = """\
number my_limit = 4                              because "so"

rule two on tensor
match
    one = add(a, zero)
require known(zero) and my_limit > 2             else "unknown"
rewrite
    one = a

without one
"""


async def test_names_are_changed_in_all_files(editor: Editor) -> None:
    """A rule gets another name where rules are named; values of its name, in any file, keep theirs."""
    (editor.folder / "reads.rw").write_text(READS)
    await editor.open(SHARES, "shares.rw")
    (found,) = await editor.ask("definition", "my_limit")
    assert (found.uri, places([found])) == ((editor.folder / "reads.rw").as_uri(), [(0, 7, 15)])
    limits = {"reads.rw": [(0, 7, 15), (5, 24, 32)], "shares.rw": [(4, 8, 16)]}
    assert await editor.renamed("my_limit", "our_limit") == limits
    for at in ("rule one", "pass one"):
        rules = {"reads.rw": [(9, 8, 11)], "shares.rw": [(1, 5, 8), (9, 9, 12), (10, 25, 28)]}
        assert await editor.renamed(at, "uno") == rules


async def test_formatting_and_outline(editor: Editor) -> None:
    options = lsp.FormattingOptions(4, True)
    await editor.open(MINE)
    assert await editor.ask("formatting", options=options) is None  # its errors are shown already
    await editor.open(MINE.replace("Stage(depth=1", "Stage(depth=1)"))
    (edit,) = await editor.ask("formatting", options=options)
    assert 'require widest(body, [k]) > N                    else "narrow"' in edit.new_text
    assert [symbol.name for symbol in await editor.ask("documentSymbol")] == ["first", "second", "third"]


async def test_an_error_of_ours_is_a_diagnostic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits for an answer to a text that is opened: without diagnostics, an editor would show old ones."""
    server, published = Server(), list[lsp.PublishDiagnosticsParams]()
    server.protocol._workspace = Workspace(None)
    monkeypatch.setattr(server, "text_document_publish_diagnostics", published.append)
    uri = (tmp_path / "mine.rw").as_uri()
    server.workspace.put_text_document(lsp.TextDocumentItem(uri, "dplc-rule", 1, MINE))
    with monkeypatch.context() as broken:
        broken.setattr(Document, "problems", lambda *_: 1 // 0)
        server.check(uri)
    (one,) = published[0].diagnostics
    assert one.message.startswith("internal error: ZeroDivisionError: integer division or modulo by zero\n")
    assert "Traceback" in capsys.readouterr().err
    server.check(uri)
    assert any("exten" in one.message for one in published[1].diagnostics)


# ---- Lenses: what they say, run and leave behind.

RULES = """\
## A sum with itself is a double.
rule twice on tensor
match
    y = add(x, x)
rewrite
    y = multiply(x, 2.0)
example "one value"
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = add(x[i], x[i])
gives
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = multiply(x[i], 2.0)
example "another one"
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = add(exp(x[i]), exp(x[i]))
gives
    graph f(x: f32[i:8]) -> y: f32[8]:
        y[i] = multiply(exp(x[i]), 3.0)
"""
RIGHT = RULES.split('example "another')[0]
BESIDE = """\
examples twice
example "beside"
    graph f(x: f32[i:9]) -> y: f32[9]:
        y[i] = add(x[i], x[i])
gives no "the pattern matches nowhere"
"""


async def test_an_example_runs_where_it_stands(editor: Editor) -> None:
    assert await editor.open(RULES) == ()
    assert sorted(await editor.lenses()) == [
        (1, "check this rule"),
        (1, "count its firings in sums.json"),
        (1, "run 2 examples"),
        (6, "run this example"),
        (12, "run this example"),
    ]
    await editor.click(6, "run this example")
    assert editor.diagnostics == ()
    await editor.click(12, "run this example")
    (wrong,) = editor.diagnostics
    assert wrong.range.start.line == 12 and "gives something else" in wrong.message
    assert "+    y[i] = multiply(v1, 2.0)" in wrong.message
    assert {(6, "holds: run this example again"), (12, "fails: run this example again")} <= (
        await editor.lenses()
    ).keys()
    assert await editor.type(RULES.replace("3.0", "2.0")) == ()  # what was found was about another text
    assert (12, "run this example") in await editor.lenses()
    await editor.click(1, "run 2 examples")
    assert [one.message for one in editor.client.messages] == [
        'example "one value" of `twice`: holds',
        'example "another one" of `twice`: fails',
        "2 examples of `twice`: 2 of 2 hold",
    ]


async def test_a_check_finds_a_wrong_rule_while_one_types(editor: Editor) -> None:
    await editor.open(RIGHT.replace("multiply(x, 2.0)", "multiply(x, 3.0)"))
    going = asyncio.ensure_future(editor.click(1, "check this rule"))
    await asyncio.sleep(0)
    assert await editor.ask("hover", "y = a") is not None and not going.done()
    await going
    (found,) = editor.diagnostics
    assert found.range.start.line == 1 and "rule `twice` is wrong" in found.message
    assert "graph" in found.message  # the program that shows it


async def test_examples_beside_a_rule_run_with_texts_that_are_not_saved(editor: Editor) -> None:
    (editor.folder / "mine.rw").write_text(RIGHT.replace("add", "subtract"))
    (editor.folder / "mine.examples.rw").write_text(BESIDE.replace('"beside"', '"saved"'))
    assert await editor.open(RIGHT) == ()
    rules = editor.uri
    (found,) = await editor.open(BESIDE.replace("the pattern matches nowhere", "nothing"), "mine.examples.rw")
    assert 'no guard gives the reason "nothing"' in found.message and found.range.start.line == 1
    assert await editor.type(BESIDE) == ()
    assert list(await editor.lenses()) == [(1, "run this example")]
    await editor.click(1, "run this example")
    (found,) = editor.diagnostics
    assert found.range.start.line == 1 and "fires, but should refuse" in found.message
    assert not any("fires, but" in one.message for one in editor.client.diagnostics[rules])


async def test_examples_show_what_is_their_own(editor: Editor) -> None:
    assert await editor.open(BESIDE, "mine.examples.rw") == ()
    assert await editor.lenses() == {}  # there is no rule to run
    wrong = RIGHT.replace("multiply(x, 2.0)", "multiplied(x, 2.0)")
    (editor.folder / "mine.rw").write_text(wrong)
    assert await editor.type(BESIDE) == ()
    assert list(await editor.lenses()) == [(1, "run this example")]
    assert await editor.open(wrong)
    await editor.open(RULES.replace("rule twice", "rule double"))
    assert (1, "run 2 examples") in await editor.lenses()  # those of a rule that has another name are not its own


async def test_saving_runs_the_examples_of_a_file(editor: Editor) -> None:
    assert await editor.open(RULES) == ()
    editor.client.text_document_did_save(lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(editor.uri)))
    while not await editor.published():  # of the file by itself, then of what ran
        pass
    (wrong,) = editor.diagnostics
    assert wrong.range.start.line == 12 and "gives something else" in wrong.message
    assert editor.client.messages == []  # nobody asked


async def test_firings_are_counted_in_the_suite_of_the_user(editor: Editor) -> None:
    await editor.open(RULES)
    await editor.click(1, "count its firings in sums.json")
    counted = "fired 2 times in 2 cases of sums.json"
    assert (1, counted) in await editor.lenses()
    await editor.type(RULES + "\n")
    assert (1, f"{counted}, before this edit") in await editor.lenses()
