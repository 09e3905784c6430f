"""The site of all rules: everything is there, every link leads somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import functools
import json
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pygments.token import Error, Keyword, String

from dplc.codegen.target import target
from dplc.engine.language.rule import RuleSet, load, read_rules
from dplc.engine.ruleset import toolchain
from dplc.engine.view.lexer import RuleLexer
from dplc.engine.view.records import fired_in, suite_record
from dplc.engine.view.rules_site import pages
from dplc.ir.diagnostic import Source

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def site() -> dict[str, str]:
    return pages(load())


class Links(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name == "id" and value is not None:
                self.ids.append(value)


@functools.cache
def parsed() -> dict[str, Links]:
    found = {}
    for path, text in site().items():
        if path.endswith(".html"):
            found[path] = Links()
            found[path].feed(text)
    return found


def test_every_link_leads_somewhere() -> None:
    broken = []
    for path, page in parsed().items():
        assert len(page.ids) == len(set(page.ids)), f"{path}: an id twice"
        for link in page.links:
            target, _, place = link.partition("#")
            to = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            there = to in site() and (not place or place in parsed()[to].ids)
            if not there:
                broken.append(f"{path}: {link}")
    assert broken == []


def test_names_in_a_rule_lead_to_what_is_said_of_them() -> None:
    text = site()["rules/stage_inputs.html"]
    for where in ("facts.html#fitting", "nodes.html#tile.Stage", "nodes.html#tile.Sync", "policy.html#staged_share"):
        assert f'<a href="../{where}">' in text, where
    assert '<a href="../nodes.html#tensor.Reduce">' in site()["rules/reductions.html"]


def test_every_search_entry_leads_somewhere() -> None:
    words = re.findall(r'"([\w/.]+\.html#[\w.]+)"', site()["search.js"])
    assert len(words) > 600
    assert [w for w in words if w.split("#")[1] not in parsed()[w.split("#")[0]].ids] == []


def test_every_rule_has_its_text_and_its_reasons() -> None:
    for rule in load().rules.values():
        page = site()[f"rules/{rule.file}.html"]
        assert f'<section id="{rule.name}"' in page
    page = site()["rules/stage_inputs.html"]
    assert "the barriers of the chunk loop would diverge" in page
    assert '<span class="k">match</span>' in page
    assert "pass" in page and "of" in page


def test_a_suite_says_where_rules_fire() -> None:
    made = pages(load(), {"stage_inputs": [("none", 1, 1.0), ("small", 2, 8.0), ("slow", 1, 0.5)]}, "a suite")
    gain = "what it changes there takes 0.50 of its time, predicted, in the geometric mean"
    cases = "small (2, 8.00× faster), none (1), slow (1, 2.00× slower)"
    assert f"It fires in 3 cases of a suite; {gain}: {cases}" in re.sub(r"\s+", " ", made["rules/stage_inputs.html"])


def test_gains_of_a_suite_are_those_of_its_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.view.records.SECONDS", None)  # a busy machine would price fewer firings
    suite = {
        "about": "one case",
        "operations": {"sum": {"expression": "F.relu(x @ w)", "inputs": {"x": "rows in", "w": "in out"}}},
        "cases": [{"name": "large", "operation": "sum", "sizes": {"rows": 512, "in": 512, "out": 512}}],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    asked = (tmp_path / "suite.json", toolchain(), target())
    found = fired_in(*asked, lambda *_: None, priced=True)
    heat = {rule["name"]: rule["cells"]["0"] for rule in suite_record(*asked, lambda *_: None)["heat"]["rules"]}
    assert {name: [count, times] for name, ((_, count, times),) in found.items() if name in heat} == heat
    assert max(times for ((_, _, times),) in found.values()) > 2 and "matmul_matmul" in found
    unpriced = fired_in(*asked, lambda *_: None)
    assert {times for cases in unpriced.values() for *_, times in cases} == {1.0}


def test_markup_in_a_rule_stays_text() -> None:
    text = """## <script>alert(1)</script>
rule odd on tensor
match
    y = multiply(a, 2)
where "<b>" == "<b>" because "<img src=x>"
rewrite
    y = add(a, a)
"""
    made = pages(RuleSet((*load().files, read_rules(Source("odd.rw", text)))))
    written = made["rules/odd.html"] + made["index.html"]
    assert "<script>alert" not in written and "<img" not in written and "<b>" not in written
    assert "<script>" not in made["search.js"]


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path, text in site().items():
        assert not re.search(r"https?://|//cdn", text.replace("http://www.w3.org", "")), path


@pytest.mark.parametrize("file", ["rules/tile/memory/stage_inputs.rw", "rules/tensor/online.rw", "rules/pipeline.rw"])
def test_the_lexer_knows_every_word(file: str) -> None:
    text = (ROOT / file).read_text()
    tokens = list(RuleLexer().get_tokens(text))
    assert "".join(value for _, value in tokens) == text
    assert not [value for kind, value in tokens if kind is Error]
    assert any(kind in Keyword for kind, _ in tokens) and any(kind in String.Doc for kind, _ in tokens)
