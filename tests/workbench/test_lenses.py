"""Lenses of `dplc lsp`, clicked on by a real client: what they say, run and leave behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls")
pytest.importorskip("pytest_lsp", reason="the client of the tests needs pytest-lsp")

from editor import document, opened
from lsprotocol import types as lsp
from pytest_lsp import LanguageClient

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


async def lenses(client: LanguageClient, uri: str) -> dict[tuple[int, str], lsp.CodeLens]:
    found = await client.text_document_code_lens_async(lsp.CodeLensParams(document(uri)))
    return {(lens.range.start.line, lens.command.command): lens for lens in found or ()}


async def click(client: LanguageClient, lens: lsp.CodeLens) -> None:
    given = lsp.ExecuteCommandParams(lens.command.command, lens.command.arguments)
    await client.workspace_execute_command_async(given)


def typed(client: LanguageClient, uri: str, text: str) -> None:
    whole = lsp.TextDocumentContentChangeWholeDocument(text)
    given = lsp.VersionedTextDocumentIdentifier(version=2, uri=uri)
    client.text_document_did_change(lsp.DidChangeTextDocumentParams(given, [whole]))


@pytest.mark.asyncio
async def test_an_example_runs_where_it_stands(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", RULES)
    listed = await lenses(client, uri)
    assert [(line, lens.command.title) for (line, _), lens in sorted(listed.items())] == [
        (1, "check this rule"),
        (1, "count its firings in sums.json"),
        (1, "run 2 examples"),
        (6, "run this example"),
        (12, "run this example"),
    ]
    assert client.diagnostics[uri] == ()
    await click(client, listed[6, "dplc.runExamples"])
    assert client.diagnostics[uri] == ()
    await click(client, listed[12, "dplc.runExamples"])
    (wrong,) = client.diagnostics[uri]
    assert wrong.range.start.line == 12 and "gives something else" in wrong.message
    assert "+    y[i] = multiply(v1, 2.0)" in wrong.message
    assert [told.message for told in client.messages] == [
        'example "one value" of `twice`: holds',
        'example "another one" of `twice`: fails',
    ]
    listed = await lenses(client, uri)
    assert listed[6, "dplc.runExamples"].command.title == "holds: run this example again"
    typed(client, uri, RULES.replace("3.0", "2.0"))
    await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert client.diagnostics[uri] == ()  # what was found was about another text
    listed = await lenses(client, uri)
    assert listed[12, "dplc.runExamples"].command.title == "run this example"
    await click(client, listed[1, "dplc.runExamples"])
    assert client.messages[-1].message == "2 examples of `twice`: 2 of 2 hold"


@pytest.mark.asyncio
async def test_a_check_finds_a_wrong_rule_while_one_types(client: LanguageClient, tmp_path: Path) -> None:
    wrong = RULES.replace("multiply(x, 2.0)", "multiply(x, 3.0)").split('example "another')[0]
    uri = await opened(client, tmp_path / "mine.rw", wrong)
    going = asyncio.ensure_future(click(client, (await lenses(client, uri))[1, "dplc.checkRule"]))
    await asyncio.sleep(0)
    given = lsp.HoverParams(document(uri), lsp.Position(3, 10))
    assert await client.text_document_hover_async(given) is not None
    assert not going.done()
    await going
    (found,) = client.diagnostics[uri]
    assert found.range.start.line == 1 and "rule `twice` is wrong" in found.message
    assert "graph" in found.message  # the program that shows it


@pytest.mark.asyncio
async def test_examples_beside_a_rule_run_with_texts_that_are_not_saved(
    client: LanguageClient,
    tmp_path: Path,
) -> None:
    rules, beside = RULES.split('example "another')[0], tmp_path / "mine.examples.rw"
    more = 'examples twice\nexample "beside" as "one value"\n    "i:8" => "i:9"\n    "f32[8]" => "f32[9]"\ngives no "the pattern matches nowhere"\n'
    (tmp_path / "mine.rw").write_text(rules.replace("add", "subtract"))
    beside.write_text(more.replace('"beside"', '"saved"'))
    first = await opened(client, tmp_path / "mine.rw", rules)
    uri = await opened(client, beside, more.replace("the pattern matches nowhere", "nothing"))
    (found,) = client.diagnostics[uri]
    assert 'no guard gives the reason "nothing"' in found.message and found.range.start.line == 1
    typed(client, uri, more)
    await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert client.diagnostics[uri] == ()
    listed = await lenses(client, uri)
    assert list(listed) == [(1, "dplc.runExamples")]
    await click(client, listed[1, "dplc.runExamples"])
    (found,) = client.diagnostics[uri]
    assert found.range.start.line == 1 and "fires, but should refuse" in found.message
    assert not any("fires, but" in told.message for told in client.diagnostics[first])


@pytest.mark.asyncio
async def test_examples_without_a_rule_file_have_no_lens(client: LanguageClient, tmp_path: Path) -> None:
    more = (
        'examples twice\nexample "beside" as "one value"\n    "i:8" => "i:9"\ngives no "the pattern matches nowhere"\n'
    )
    uri = await opened(client, tmp_path / "mine.examples.rw", more)
    assert await lenses(client, uri) == {}
    await opened(client, tmp_path / "mine.rw", RULES)
    (tmp_path / "mine.rw").write_text(RULES)
    assert list(await lenses(client, uri)) == [(1, "dplc.runExamples")]


@pytest.mark.asyncio
async def test_what_is_wrong_with_a_rule_is_not_told_of_its_examples(client: LanguageClient, tmp_path: Path) -> None:
    rules = RULES.split('example "another')[0].replace("multiply(x, 2.0)", "multiplied(x, 2.0)")
    (tmp_path / "mine.rw").write_text(rules)
    more = 'examples twice\nexample "beside" as "one value"\n    "i:8" => "i:9"\n    "f32[8]" => "f32[9]"\ngives no "the pattern matches nowhere"\n'
    uri = await opened(client, tmp_path / "mine.examples.rw", more)
    assert client.diagnostics[uri] == ()
    assert client.diagnostics[await opened(client, tmp_path / "mine.rw", rules)] != ()


@pytest.mark.asyncio
async def test_saving_runs_the_examples_of_a_file(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", RULES)
    assert client.diagnostics[uri] == ()
    client.text_document_did_save(lsp.DidSaveTextDocumentParams(document(uri)))
    while not client.diagnostics[uri]:  # of the file by itself, then of what ran
        await client.wait_for_notification(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    (wrong,) = client.diagnostics[uri]
    assert wrong.range.start.line == 12 and "gives something else" in wrong.message
    assert client.messages == []  # nobody asked


@pytest.mark.asyncio
async def test_firings_are_counted_in_the_suite_of_the_user(client: LanguageClient, tmp_path: Path) -> None:
    uri = await opened(client, tmp_path / "mine.rw", RULES)
    lens = (await lenses(client, uri))[1, "dplc.countFirings"]
    await click(client, lens)
    lens = (await lenses(client, uri))[1, "dplc.countFirings"]
    assert lens.command.title == "fired 2 times in 2 cases of sums.json"
    typed(client, uri, RULES + "\n")
    lens = (await lenses(client, uri))[1, "dplc.countFirings"]
    assert lens.command.title == "fired 2 times in 2 cases of sums.json, before this edit"


@pytest.mark.asyncio
async def test_a_renamed_rule_keeps_its_lenses(client: LanguageClient, tmp_path: Path) -> None:
    beside = tmp_path / "mine.examples.rw"
    beside.write_text(
        'examples twice\nexample "beside" as "one value"\n    "i:8" => "i:9"\ngives no "the pattern matches nowhere"\n'
    )
    uri = await opened(client, tmp_path / "mine.rw", RULES.replace("rule twice", "rule double"))
    listed = await lenses(client, uri)
    assert sorted(line for line, _ in listed) == [1, 1, 1, 6, 12]
    assert listed[1, "dplc.runExamples"].command.title == "run 2 examples"
