"""`dplc check` finds what is wrong with a rule, on a program that it makes itself, and the program shows it again."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from broken import AHEAD, BROKEN, RING, Broken
from drawing import draws

from dplc.engine.language.rule import RuleSet, load
from dplc.engine.verify.outcome import RuleVerdict, Wrong, counterexample_text
from dplc.engine.verify.run import Checkers, CheckOptions, check_rule, check_subject


@functools.cache
def checkers() -> Checkers:
    """What built-in rules' examples are and mean, once for all tests."""
    return Checkers(load())


def loaded(folder: Path, text: str) -> RuleSet:
    path = folder / "mine.rw"
    path.write_text(text)
    return load([path])


def verdict_of(folder: Path, text: str, name: str, examples: int = 120) -> tuple[RuleSet, RuleVerdict]:
    rules = loaded(folder, text)
    return rules, check_rule(
        rules.rule(name), Checkers(rules, checkers()), CheckOptions(examples=examples, borrow=False)
    )


@pytest.mark.parametrize("broken", BROKEN, ids=[broken.what for broken in BROKEN])
@pytest.mark.sampled(4)
def test_a_broken_rule_is_found(broken: Broken, tmp_path: Path, record_property: Any) -> None:
    rules, verdict = verdict_of(tmp_path, broken.text, broken.rule)
    record_property("mutant", "a drawn program" if verdict.result == "wrong" else "nobody")
    assert verdict.result == "wrong", f"{verdict.subjects} subjects, {verdict.firings} firings"
    with pytest.raises(Wrong):
        check_subject(rules, rules.rule(broken.rule), counterexample_text(verdict), "again.ir")


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [(RING, "ring", {"N=2", "N=3"}), (AHEAD, "ring_ahead", set())],
    ids=["ring", "ahead"],
)
@pytest.mark.sampled(1)
def test_a_rule_without_a_mistake_passes(text: str, name: str, parameters: set[str], tmp_path: Path) -> None:
    _, verdict = verdict_of(tmp_path, text, name, draws(1))
    assert verdict.result == "ok", verdict.wrong
    assert verdict.firings > 3
    assert verdict.parameters == parameters


def test_a_rule_that_nothing_reaches_fails(tmp_path: Path) -> None:
    text = """
rule never on tile
match
    for k in 0..K serial:
        body..
require K < 0                                    else "a loop turns"
rewrite
    for k in 0..K free:
        body..
"""
    _, verdict = verdict_of(tmp_path, text, "never", 30)
    assert verdict.result == "vacuous"


def test_a_counterexample_is_small(tmp_path: Path) -> None:
    _, verdict = verdict_of(tmp_path, RING.replace("Sync()\n        rest.. with", "rest.. with"), "ring")
    assert verdict.wrong is not None
    assert len(verdict.wrong.subject.text.splitlines()) <= 14, verdict.wrong.subject.text


def test_the_seed_decides(tmp_path: Path) -> None:
    found = [verdict_of(tmp_path, BROKEN[0].text, "ring", 30)[1].record() for _ in range(2)]
    for record in found:
        record.pop("seconds")
    assert found[0] == found[1]
