"""Every example of our rules on tensor holds, and an example that does not hold says what it gives instead."""

from __future__ import annotations

import dataclasses

import pytest

from dplc.codegen.target import target
from dplc.engine.kernels.examples import run_example
from dplc.engine.language.check import check, load_facts
from dplc.engine.language.rule import Rule, load, read_rules
from dplc.engine.rewrite.statements.driver import Engine
from dplc.ir.diagnostic import DplcError, Source

load_facts()
RULES, ENGINE = load().at("tensor"), Engine(load())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.sampled(13)
def test_examples_hold(rule: Rule) -> None:
    assert rule.examples
    for example in rule.examples:
        failure = run_example(ENGINE, rule, example, target())
        assert failure is None, failure.render()


def test_no_findings() -> None:
    files = {rule.span.source.name for rule in RULES}
    assert [finding.render() for finding in check(load(), files)] == []


def test_a_wrong_example_shows_the_difference() -> None:
    rule = next(rule for rule in RULES if rule.name == "subtract_zero")
    other = next(rule for rule in RULES if rule.name == "relu_relu").examples[0]
    failure = run_example(ENGINE, rule, other, target())
    assert failure is not None and "did not fire" in failure.render()
    (example,) = rule.examples
    failure = run_example(ENGINE, rule, dataclasses.replace(example, gives=other.gives), target())
    assert failure is not None and "+    y[i:4] = exp(x[i])" in failure.render()


def test_a_fusion_rule_changes_nothing_but_a_mat() -> None:
    text = "rule r on tensor\nmatch\n    h = mat(v)\n    y = exp(h)\nrewrite\n    y = tanh(v)\n"
    from dplc.engine.kernels.fusion_pass import FusionRules

    with pytest.raises(DplcError, match="changes nothing but a `mat`"):
        FusionRules(read_rules(Source("r.rw", text)).rules)
