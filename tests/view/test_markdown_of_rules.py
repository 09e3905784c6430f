"""The Markdown pages of all rules: everything is there, every link leads somewhere, and markup stays text."""

from __future__ import annotations

import functools
import json
import math
import posixpath
import re
from pathlib import Path

import pytest
from pygments.token import Error, Keyword, String

from dplc.codegen.target import target
from dplc.engine.compiler import compiler_with
from dplc.engine.language.rule import BUILT_IN, RuleSet, load, read_rules
from dplc.engine.view import records
from dplc.engine.view.lexer import RuleLexer
from dplc.engine.view.records import fired_in, suite_record
from dplc.engine.workbench.reference import pages
from dplc.ir.diagnostic import Source


@functools.cache
def written() -> dict[str, str]:
    return pages(load())


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def test_every_link_leads_somewhere() -> None:
    anchors = {f"{path}#" for path in written()}
    anchors |= {f"{path}#{one}" for path, text in written().items() for one in re.findall(r"(?m)^#+ (\S+)$", text)}
    known, links = {anchor.casefold() for anchor in anchors}, set[str]()
    for path, text in written().items():
        for link in re.findall(r"\]\(([^)]+)\)", without_code(text)):
            to, _, anchor = link.partition("#")
            links.add(f"{posixpath.normpath(posixpath.join(posixpath.dirname(path), to))}#{anchor}".casefold())
    assert links - known == set() and len(links) > 500


def test_every_rule_has_its_text_and_its_reasons() -> None:
    text = "\n".join(written().values())
    for rule in load().rules.values():
        assert f"\n## {rule.name}\n" in text and f"`{rule.location}`" in text
    page = written()["groups/tile_memory.md"]
    assert "the barriers of the chunk loop would diverge" in page
    assert "[`staged_share`](../constants.md#staged_share)" in page and "[`lies_in`](../facts.md#lies_in)" in page
    assert "### Stage" in written()["statements.md"]


def test_a_suite_says_where_rules_fire() -> None:
    made = pages(load(), {"stage_inputs": [("none", 1, 1.0), ("small", 2, 8.0), ("slow", 1, 0.5)]}, "a suite")
    gain = "geometric mean of the predicted time, with over without the firing: 0.50"
    cases = "small (2, 8.00x), none (1), slow (1, 0.50x)"
    assert f"Fires in 3 cases of a suite; {gain}: {cases}." in made["groups/tile_memory.md"]
    assert "Does not fire in a suite." in made["groups/tile_memory.md"]


def test_gains_of_a_suite_are_those_of_its_map_by_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "CASE_SECONDS", math.inf)  # a busy machine would price fewer firings
    case = {"operation": "sum", "sizes": {"rows": 512, "in": 512, "out": 512}}
    suite = {
        "operations": {"sum": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
        "cases": [{"name": "staged", **case}, {"name": "plain", "rules": ["plain.rw"], **case}],
    }
    (file := tmp_path / "suite.json").write_text(json.dumps(suite))
    (tmp_path / "plain.rw").write_text("without stage_inputs\n")
    found, plain = (fired_in(file, compiler_with(target()), lambda *_: None, priced) for priced in (True, False))
    heat = suite_record(file, compiler_with(target()), lambda *_: None)["heat"]
    for one in heat["cases"]:
        credits = {rule: (n, gain) for rule, fired in found.items() for name, n, gain in fired if name == one["name"]}
        assert credits == one["fired"]
    assert [name for name, *_ in found["stage_inputs"]] == ["staged"]
    assert [name for name, *_ in found["blockify_launch"]] == ["staged", "plain"]
    assert {rule["name"] for rule in heat["rules"]} < found.keys() and "matmul_matmul" in found  # that is of torch
    assert max(gain for fired in found.values() for *_, gain in fired) > 2
    assert {gain for fired in plain.values() for *_, gain in fired} == {1.0}


def test_markup_in_a_rule_stays_text() -> None:
    text = """## <script>alert(1)</script>
rule odd on tensor
match
    y = multiply(a, 2)
require "<b>" == "<b>" else "<img src=x>"
rewrite
    y = add(a, a)
"""
    made = pages(RuleSet((*load().files, read_rules(Source("odd.rw", text)))))
    outside = without_code(made["groups/yours.md"] + made["index.md"])
    assert "<script>alert" not in outside and "<img" not in outside and "&lt;script&gt;alert" in outside


def test_the_lexer_knows_every_word() -> None:
    for file in ("tile/memory/stage_inputs.rw", "tensor/online.rw", "pipeline.rw"):
        text = (BUILT_IN / file).read_text()
        tokens = list(RuleLexer().get_tokens(text))
        assert "".join(value for _, value in tokens) == text
        kinds = {kind for kind, _ in tokens}
        assert Error not in kinds and String.Doc in kinds and any(kind in Keyword for kind in kinds)
