"""`dplc lsp`, asked by a real client over standard input and output."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls")
pytest.importorskip("pytest_lsp", reason="the client of the tests needs pytest-lsp")

from counting import at_most_calls
from editor import document, opened, place
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.workspace import Workspace
from pytest_lsp import LanguageClient

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
    assert {"widest", "axes", "body", "N", "Stage", "block_threads"} <= names and "Softmax" not in names
    at = lsp.Position(12, len("        s: Stage("))
    listed = await client.text_document_completion_async(lsp.CompletionParams(document(uri), at))
    assert {"depth", "via", "box"} <= {item.label for item in listed}
    help_ = await client.text_document_signature_help_async(lsp.SignatureHelpParams(document(uri), at))
    assert help_.signatures[0].label.startswith("Stage(dst")


@pytest.mark.parametrize("text", ["without ", "without til", "pipeline tile\n    without ", "pipeline tile\n    pass "])
def test_rules_are_completed_where_a_rule_stands(tmp_path: Path, text: str) -> None:
    from dplc.engine.workbench import document as queries

    half = queries.Document(tmp_path / "mine.rw")
    half.problems(text)
    lines = text.split("\n")
    listed = queries.completions(queries.At(half, len(lines) - 1, len(lines[-1])))
    assert {("tileify", "rule"), ("stage_inputs", "rule")} <= {(one.name, one.kind) for one in listed}


@pytest.mark.asyncio
async def test_definitions_references_and_renaming(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", MINE)
    asked = lsp.DefinitionParams(document(uri), place(MINE, "widest"))  # a fact in Python
    assert not await client.text_document_definition_async(asked)
    (found,) = await client.text_document_definition_async(lsp.DefinitionParams(document(uri), place(MINE, "n > 0")))
    assert (found.uri, found.range.start.line) == (uri, 4)
    given = lsp.RenameParams(document(uri), place(MINE, "N: int in"), "M")
    edits = (await client.text_document_rename_async(given)).changes[uri]
    assert sorted(edit.range.start.line for edit in edits) == [16, 20]
    assert {edit.new_text for edit in edits} == {"M"}


@pytest.mark.asyncio
async def test_references_go_into_examples_and_pipelines(client: LanguageClient, tmp_path: Path) -> None:
    from dplc.engine.language.rule import BUILT_IN

    async def asked(path: Path, line_with: str, word: str) -> set[tuple[str, int]]:
        text = path.read_text()
        uri = await opened(client, path, text)
        line = next(n for n, one in enumerate(text.splitlines()) if line_with in one)
        at = lsp.Position(line, text.splitlines()[line].index(word))
        given = lsp.ReferenceParams(lsp.ReferenceContext(False), document(uri), at)
        found = await client.text_document_references_async(given)
        for one in found:
            source = Path(one.uri.removeprefix("file://")).read_text().splitlines()[one.range.start.line]
            assert source[one.range.start.character : one.range.end.character] == word
        return {("/".join(one.uri.rsplit("/", 2)[1:]), one.range.start.line) for one in found}

    files = {
        file
        for file, _ in await asked(BUILT_IN / "tile/pipelines/rings.rw", "rule pipeline_pred", "pipeline_predicated")
    }
    assert files == {"rules/pipeline.rw", "pipelines/rings.examples.rw"}
    files = {file for file, _ in await asked(BUILT_IN / "policy.rw", "number block_threads", "block_threads")}
    assert {"blocks/slice_matmul_k.rw", "attention/one_pass.rw"} <= files
    path = BUILT_IN / "tile/registers/permute_register_tile.rw"
    files = {file for file, _ in await asked(path, "rule permute", "V")}
    named = ("registers/permute_register_tile.rw", "registers/permute_register_tile.examples.rw", "rules/pipeline.rw")
    assert files == set(named)
    files = {file for file, _ in await asked(BUILT_IN / "tile/memory/stage_inputs.rw", "footprints(body", "footprints")}
    assert "memory/stage_inputs.rw" in files and not any(file.endswith("policy.rw") for file in files)


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


@pytest.mark.asyncio
async def test_the_name_of_a_rule_is_no_variable(client: LanguageClient, tmp_path: Path) -> None:
    """A rule gets another name where rules are named; values of its name, in any file, keep theirs."""
    (tmp_path / "reads.rw").write_text(READS)
    uri = await opened(client, tmp_path / "shares.rw", SHARES)
    edits: dict[str, list[int]] = {}
    for word in ("rule one", "pass one"):
        at = place(SHARES, word)
        at.character += len("rule ")
        changes = (await client.text_document_rename_async(lsp.RenameParams(document(uri), at, "uno"))).changes
        edits = {path.rsplit("/", 1)[1]: [edit.range.start.line for edit in found] for path, found in changes.items()}
        assert edits == {"shares.rw": [1, 9, 10], "reads.rw": [9]}


@pytest.mark.asyncio
async def test_what_a_file_beside_declares_is_found_and_renamed(client: LanguageClient, tmp_path: Path) -> None:
    (tmp_path / "reads.rw").write_text(READS)
    uri = await opened(client, tmp_path / "shares.rw", SHARES)
    at = place(SHARES, "my_limit")
    (found,) = await client.text_document_definition_async(lsp.DefinitionParams(document(uri), at))
    assert (found.uri, found.range.start.line) == ((tmp_path / "reads.rw").as_uri(), 0)
    changes = (await client.text_document_rename_async(lsp.RenameParams(document(uri), at, "our_limit"))).changes
    assert {path.rsplit("/", 1)[1]: len(found) for path, found in changes.items()} == {"shares.rw": 1, "reads.rw": 2}


def test_a_declaration_that_makes_a_file_wrong_hides_no_rule(tmp_path: Path) -> None:
    from dplc.engine.workbench.document import Document

    wrong = MINE[MINE.index("rule third") :].replace("widest", "wiedst")
    told = [one.what for one in Document(tmp_path / "mine.rw").problems('number wide = 4 because "so"\n\n' + wrong)]
    assert len(told) == len(set(told)) and any("`wide` is not a name of a number" in what for what in told)
    assert any("unknown fact or function `wiedst`" in what for what in told)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    from dplc.engine.workbench.document import Document

    rule = MINE[MINE.index("rule third") :]
    told = [one.what for one in Document(tmp_path / "mine.rw").problems("\ufeff" + rule)]
    assert told == [one.what for one in Document(tmp_path / "mine.rw").problems(rule)]


@pytest.mark.asyncio
async def test_what_python_declares_has_its_name(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", MINE)
    for name, new in (("widest", "broadest"), ("third", "not a name")):
        given = lsp.RenameParams(document(uri), place(MINE, name), new)
        with pytest.raises(JsonRpcException, match=r"not a name|not declared in a rule file"):
            await client.text_document_rename_async(given)
    given = lsp.RenameParams(document(uri), place(MINE, "third"), "fourth")
    edits = (await client.text_document_rename_async(given)).changes
    assert [(one, len(found)) for one, found in edits.items()] == [(uri, 1)]


@pytest.mark.asyncio
async def test_a_document_without_a_file_has_answers(client: LanguageClient) -> None:
    uri = "untitled:Untitled-1"
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "dplc-rule", 1, MINE)))
    await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert any("exten" in one.message for one in client.diagnostics[uri])
    at = place(MINE, "N: int in")
    (found,) = await client.text_document_definition_async(lsp.DefinitionParams(document(uri), at))
    assert (found.uri, found.range.start.line) == (uri, 16)
    edits = (await client.text_document_rename_async(lsp.RenameParams(document(uri), at, "M"))).changes
    assert {name: len(found) for name, found in edits.items()} == {uri: 2}


def test_an_error_of_ours_is_a_diagnostic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits for an answer to a text that is opened: without diagnostics, an editor would show old ones."""
    from dplc.engine.workbench.document import Document
    from dplc.engine.workbench.language_server import Server

    server, told = Server(), list[lsp.PublishDiagnosticsParams]()
    server.protocol._workspace = Workspace(None)
    monkeypatch.setattr(server, "text_document_publish_diagnostics", told.append)
    uri = (tmp_path / "mine.rw").as_uri()
    server.workspace.put_text_document(lsp.TextDocumentItem(uri, "dplc-rule", 1, MINE))
    with monkeypatch.context() as broken:
        broken.setattr(Document, "problems", lambda *_: 1 // 0)
        server.check(uri)
    assert [one.message.split("\n")[0] for one in told[0].diagnostics] == [
        "internal error: ZeroDivisionError: integer division or modulo by zero"
    ]
    assert "Traceback" in capsys.readouterr().err
    server.check(uri)
    assert any("exten" in one.message for one in told[1].diagnostics)


@pytest.mark.asyncio
async def test_a_help_line_can_be_carried_out(client: LanguageClient, tmp_path: Path) -> None:
    rule = (
        'rule mine on tensor\nmatch\n    y = exp(x)\nrequire dtype(x) == f32 else "no float"\nrewrite\n    y = exp(x)\n'
    )
    text = rule + "\n## Another.\n" + rule.replace("mine", "other")
    path = tmp_path / "mine.rw"
    uri = await opened(client, path, text)
    for fix, expected in (("Add an example", "no example shows it fire"), ("Add a refusal", "is refused because")):
        wrong = next(one for one in client.diagnostics[uri] if expected in one.message and "`mine`" in one.message)
        given = lsp.CodeActionParams(document(uri), wrong.range, lsp.CodeActionContext([wrong]))
        (action,) = await client.text_document_code_action_async(given)
        assert action.title.startswith(fix)
        (edit,) = action.edit.changes[uri]
        assert (edit.range.start.line, edit.range.start.character) == (6, 0)
        lines = text.splitlines(keepends=True)
        changed = "".join([*lines[:6], edit.new_text, *lines[6:]])
        await opened(client, tmp_path / f"{len(fix)}.rw", changed)
        told = client.diagnostics[(tmp_path / f"{len(fix)}.rw").as_uri()]
        assert not any(expected in one.message and "`mine`" in one.message for one in told)


def test_a_saved_file_is_judged_as_a_whole() -> None:
    """While one types, a rule is judged again where it changed itself: that another
    shadows it now is told on saving."""
    from dplc.engine.workbench.document import Document

    rule = "rule {} on tensor\nmatch\n    y = multiply(exp(x), 2.0)\n{}rewrite\n    y = {}(x)\n\n"
    guard = 'require size(axes(x)) > 1 else "flat"\n'
    typing = Document(Path("mine.rw").resolve())
    assert not any("can never fire" in one.what for one in typing.problems(rule.format("first", guard, "exp")))
    text = rule.format("first", guard, "exp") + rule.format("second", "", "tanh")
    assert not any("can never fire" in one.what for one in typing.problems(text))
    changed = text.replace(guard, "")
    typing.problems(changed)
    typing.forget()
    assert any("`second`: can never fire" in one.what for one in typing.problems(changed))


def test_what_moves_stands_where_it_would_have_been_read() -> None:
    """Declarations are parsed once for their text and moved: places are those of a reader that knows nothing."""
    from dplc.engine.language.rule import BUILT_IN
    from dplc.engine.workbench import document
    from dplc.engine.workbench.document import Document

    def told(document_: Document, text: str) -> tuple[object, ...]:
        errors = [(one.what, one.span, one.notes, one.hint) for one in document_.problems(text)]
        return errors, document_.declarations

    for path, text in ((Path("mine.rw").resolve(), MINE), (BUILT_IN / "tensor/reassociate.rw", None)):
        text = text or path.read_text()
        typing = Document(path)
        typing.problems(text)
        for changed in ("\n\n" + text, text.replace("\nrule", "\n\n# new\n\nrule").replace("match", "match  ")):
            moved = told(typing, changed)
            document._parsed.cache_clear()
            assert moved == told(Document(path), changed)


def test_no_rule_is_judged_again_where_lines_and_remarks_move(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dplc.engine.workbench import document as judged

    asked: list[str] = []
    check = judged.check_rule
    monkeypatch.setattr(judged, "check_rule", lambda rule, rules: asked.append(rule.name) or check(rule, rules))
    text = "# A remark above all rules.\noverride number most_unrolled = 4\n\n" + MINE[MINE.index("rule third") :]
    typing = judged.Document(tmp_path / "mine.rw")
    typing.problems(text)
    assert asked
    asked.clear()
    typing.problems("\n\n" + text)
    typing.problems(text.replace("above all", "before all"))
    assert not asked
    typing.problems(text.replace("unrolled = 4", "unrolled = 8"))
    assert asked  # what the rules of a file share may matter to each


@pytest.mark.asyncio
async def test_formatting_and_outline(client: LanguageClient, tmp_path: Path) -> None:
    whole = MINE.replace("Stage(depth=1", "Stage(depth=1)")
    uri = await opened(client, tmp_path / "whole.rw", whole)
    given = lsp.DocumentFormattingParams(document(uri), lsp.FormattingOptions(4, True))
    (edit,) = await client.text_document_formatting_async(given)
    assert 'require widest(body, [k]) > N                    else "narrow"' in edit.new_text
    symbols = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document(uri)))
    assert [symbol.name for symbol in symbols] == ["first", "second", "third"]
    broken = await opened(client, tmp_path / "mine.rw", MINE)
    given = lsp.DocumentFormattingParams(document(broken), lsp.FormattingOptions(4, True))
    assert await client.text_document_formatting_async(given) is None


@pytest.mark.asyncio
async def test_files_of_ours_have_no_problems(client: LanguageClient) -> None:
    from dplc.engine.language.rule import BUILT_IN

    for name in ("torch/reductions.rw", "tile/registers/mma.rw", "policy.rw", "pipeline.rw", "tensor/online.rw"):
        uri = await opened(client, BUILT_IN / name, (BUILT_IN / name).read_text())
        assert not client.diagnostics[uri], name


def test_what_is_remembered_follows_every_key(tmp_path: Path) -> None:
    """A number, a fact that reads it, one that asks that one and a rule: none stays as it was where another changes."""
    from dplc.engine.workbench.document import Document

    text = (
        'number most_parts = 8 because "enough"\n'
        "## Few.\nfact is_few(n: int) -> bool = n <= most_parts\n"
        "## One.\nfact few_of_each(n: int) -> bool = is_few(n) and n > 0\n"
        "## Mine.\nrule mine on tile\nmatch\n    for k in 0..K reduce unroll=1:\n        body..\n"
        'require few_of_each(K) else "few"\nrewrite\n    for k in 0..K reduce unroll=2:\n        body..\n'
    )
    typed = Document(tmp_path / "mine.rw")
    changes = [("= 8", "= 4"), ("n <= most", "n < most"), ("n > 0", "n > 1"), ("few_of_each(K)", "few_of_each(K+1)")]
    for before, after in [("", ""), *changes, ("number", "\n\nnumber"), ("most_parts = 4", "most_parts = 3 + 2")]:
        text = text.replace(before, after, 1)
        fresh = Document(tmp_path / "mine.rw")
        assert [e.what for e in typed.problems(text)] == [e.what for e in fresh.problems(text)], after
        ours, anew = typed.rules.rules["mine"], fresh.rules.rules["mine"]
        assert (ours.clauses, ours.span) == (anew.clauses, anew.span), after


def test_diagnostics_and_answers_are_quick() -> None:
    """Typing in the longest file, and asking in it: what was not typed in is not read again."""
    from dplc.engine.language.rule import BUILT_IN
    from dplc.engine.workbench import document as queries

    files = sorted((p for p in BUILT_IN.rglob("*.rw") if ".examples" not in p.name), key=lambda p: len(p.read_text()))
    of_rules = next(file for file in reversed(files) if "\nrequire " in file.read_text())
    queries.warm()
    for longest, word in ((of_rules, "\nrequire "), (BUILT_IN / "policy.rw", "\nnumber ")):
        text = longest.read_text()
        opened_ = queries.Document(longest)
        opened_.problems(text)
        for n in range(1, 4):
            with at_most_calls(400_000):
                opened_.problems(text.replace(word, word + " " * n, 1))
            with at_most_calls(100_000):
                queries.completions(queries.At(opened_, 40, 6))
                queries.meaning(queries.At(opened_, 40, 6))
