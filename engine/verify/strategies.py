"""Programs drawn for a rule, as a strategy of Hypothesis: for tests of one's own, beside what `dplc check` compares.

@given(dplc.programs_of("my_rules.rw", "product_of_exponentials"))
def test_mine(text): ...
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..language.check import require
from ..language.rule import load
from .named_numbers import named_numbers
from .run import Checkers
from .search import HypothesisDice, available

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class _Drawing:
    """What dice need of Hypothesis's data."""

    def __init__(self, draw: Any):
        self.draw = draw


def programs_of(file: str | Path, rule: str) -> SearchStrategy[str]:
    """Texts of programs at a rule's level, drawn from its pattern, near its examples and from near misses: the subjects
    of `dplc check`. They shrink; the rule fires on many of them, not on all.

    file: a rule file, laid over the built-in ones; rule: one of its rules, or of ours. Raises DplcError for a file that
    does not check, a rule that is not there, or where Hypothesis is missing.
    """
    available()
    from hypothesis import assume, strategies

    rules = load([Path(file)])
    require(rules, {str(Path(file))})
    chosen = rules.rule(rule)
    checker, named = Checkers(rules).of(chosen.level), named_numbers(chosen)
    known = list(checker.examples([chosen]))

    @strategies.composite
    def drawn(draw: Any) -> str:
        subject = checker.draw(chosen, HypothesisDice(_Drawing(draw), named), known)
        assume(subject is not None)
        return str(subject.text)

    return drawn()
