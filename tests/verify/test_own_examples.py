"""A rule is reached by its own examples, run whole: no day's draw finds a rule that no program reaches."""

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


def test_own_examples_reach_the_rules_on_torch() -> None:
    """A member of a family has those of the others. A rule without examples matches most that is drawn from it."""
    checker = CHECKERS.of("torch")
    shown = {rule: [*checker.examples([rule])] for rule in RULES.rules.values() if rule.level == "torch"}
    missed = [r.name for r, own in shown.items() if own and not any(checker.check(r, one).firings for one in own)]
    assert missed == []
