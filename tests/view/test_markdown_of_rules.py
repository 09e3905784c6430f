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
from dplc.engine.language.rule import RuleSet, load, read_rules
from dplc.engine.view.lexer import RuleLexer
from dplc.engine.view.records import fired_in, suite_record
from dplc.engine.workbench.reference import pages
from dplc.ir.diagnostic import Source

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def written() -> dict[str, str]:
    return pages(load())


def anchors(page: str) -> set[str]:
    return {heading.casefold() for heading in re.findall(r"^#+ (\S+)$", page, re.MULTILINE)}


def test_every_link_leads_somewhere() -> None:
    broken, count = [], 0
    for path, text in written().items():
        for link in re.findall(r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            to, _, anchor = link.partition("#")
            page = posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
            count += 1
            if page not in written() or anchor.casefold() not in anchors(written()[page]):
                broken.append(f"{path}: {link}")
    assert broken == [] and count > 1000


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


def test_a_case_of_a_suite_has_its_own_rules(tmp_path: Path) -> None:
    sizes = {"rows": 64, "in": 64, "out": 64}
    suite = {
        "operations": {"product": {"expression": "x @ w", "inputs": {"x": "rows in", "w": "in out"}}},
        "cases": [
            {"name": "staged", "operation": "product", "sizes": sizes},
            {"name": "plain", "operation": "product", "sizes": sizes, "rules": ["plain.rw"]},
        ],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    (tmp_path / "plain.rw").write_text("without stage_inputs\n")
    fired = fired_in(tmp_path / "suite.json", compiler_with(target()), lambda *_: None)
    assert [case for case, *_ in fired["stage_inputs"]] == ["staged"]
    assert [case for case, *_ in fired["blockify_launch"]] == ["staged", "plain"]


def test_gains_of_a_suite_are_those_of_its_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.view.records.SECONDS", math.inf)  # a busy machine would price fewer firings
    suite = {
        "about": "one case",
        "operations": {"sum": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
        "cases": [{"name": "large", "operation": "sum", "sizes": {"rows": 512, "in": 512, "out": 512}}],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    asked = (tmp_path / "suite.json", compiler_with(target()))
    found = fired_in(*asked, lambda *_: None, priced=True)
    heat = suite_record(*asked, lambda *_: None)["heat"]
    assert {name: (count, times) for name, ((_, count, times),) in found.items()} == heat["cases"][0]["fired"]
    assert {rule["name"] for rule in heat["rules"]} < found.keys()  # without those of torch
    assert max(times for ((_, _, times),) in found.values()) > 2 and "matmul_matmul" in found
    unpriced = fired_in(*asked, lambda *_: None)
    assert {times for cases in unpriced.values() for *_, times in cases} == {1.0}


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
    outside = re.sub(r"```.*?```", "", made["groups/yours.md"] + made["index.md"], flags=re.DOTALL)
    assert "<script>alert" not in outside and "<img" not in outside and "&lt;script&gt;alert" in outside


@pytest.mark.parametrize("file", ["rules/tile/memory/stage_inputs.rw", "rules/tensor/online.rw", "rules/pipeline.rw"])
def test_the_lexer_knows_every_word(file: str) -> None:
    text = (ROOT / file).read_text()
    tokens = list(RuleLexer().get_tokens(text))
    assert "".join(value for _, value in tokens) == text
    assert not [value for kind, value in tokens if kind is Error]
    assert any(kind in Keyword for kind, _ in tokens) and any(kind in String.Doc for kind, _ in tokens)
