"""A rule on statements is reached by its own examples, run whole: no day's draw finds a rule that no program reaches."""

from __future__ import annotations

import pytest

from dplc.engine.language.rule import RuleSet
from dplc.engine.ruleset import toolchain
from dplc.engine.verify.checkers import LEVELS
from dplc.engine.verify.run import Checkers

RULES: RuleSet = toolchain(None, {}).rules
CHECKERS = Checkers(RULES)
CHECKED = [rule.name for rule in RULES.rules.values() if rule.level in LEVELS and "local" not in rule.attributes]


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.sampled(4)
def test_own_examples_reach_a_rule(name: str) -> None:
    rule, checker = RULES.rules[name], CHECKERS.of("tile")
    assert any(checker.check(rule, subject).firings for subject in checker.examples([rule]))
