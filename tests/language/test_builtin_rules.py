"""Our own rules, facts and pages hold to what the checks ask of everybody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dplc.engine.language import check as checks
from dplc.engine.language.evaluate import FACTS
from dplc.engine.language.pipeline import pipelines
from dplc.engine.language.rule import BUILT_IN, RuleSet, load, read_rules
from dplc.engine.language.sorts import READABLE, Finding
from dplc.ir.diagnostic import DplcError, Source

ROOT = BUILT_IN.parent


@pytest.fixture(scope="module")
def findings() -> list[DplcError]:
    return checks.check(load())


def test_our_rules_have_no_errors(findings: list[DplcError]) -> None:
    assert [finding.render() for finding in checks.errors(findings)] == []


def test_our_rules_have_no_warnings_but_missing_examples(findings: list[DplcError]) -> None:
    shown = [f for f in findings if isinstance(f, Finding) and f.check != "examples_enough"]
    assert [finding.render() for finding in shown] == []


def test_every_file_of_rules_has_its_line_in_a_pipeline() -> None:
    steps = [step for listed in pipelines(load()).values() for step in listed]
    assert [step.name for step in steps if not step.location.startswith("rules/pipeline.rw")] == []


def test_facts_are_loaded_from_every_module_that_registers_some() -> None:
    checks.load_facts()
    registering = {path for path in (ROOT / "engine").rglob("*.py") if re.search(r"^@fact\(", path.read_text(), re.M)}
    loaded = {Path(fact.ask.__code__.co_filename).resolve() for fact in FACTS.values()}
    assert registering <= loaded


def test_signatures_of_facts_say_sorts_that_exist() -> None:
    checks.load_facts()
    for fact in FACTS.values():
        for sort in (*fact.arguments, fact.result):
            bare = sort.rstrip("*?").replace("[", "").replace("]", "")
            assert bare in READABLE or bare == "run", f"{fact.name}: unknown sort `{sort}`"


def test_the_rules_of_the_page_are_sound() -> None:
    pages = ("rule_language.md", "rules_on_tensors.md")
    snippets = [
        snippet
        for page in pages
        for snippet in re.findall(r"```rw\n(.*?)```", (ROOT / "docs" / "reference" / page).read_text(), re.S)
    ]
    assert len(snippets) == 2
    for number, snippet in enumerate(snippets):
        policy = read_rules(Source("policy.rw", (BUILT_IN / "policy.rw").read_text()))
        found = checks.check(RuleSet([policy, read_rules(Source(f"README{number}.rw", snippet))]))
        assert [finding.render() for finding in checks.errors(found)] == []


@pytest.mark.parametrize(
    "folder",
    [
        "torch",
        "tensor",
        "fusion",
        "tile",
    ],
)
def test_every_rule_has_an_example_and_every_guard_a_refusal(folder: str, findings: list[DplcError]) -> None:
    missing = [f for f in findings if isinstance(f, Finding) and f.check == "examples_enough"]
    assert [f.render() for f in missing if f.span and f.span.source.name.startswith(f"rules/{folder}/")] == []
