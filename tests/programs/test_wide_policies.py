"""Programs under drawn policies: what is right does not depend on what is said to pay.

DPLC_TEST_BUDGET=100 DPLC_POLICIES_FIRST=300 python -m pytest tests/programs/test_wide_policies.py    # a hundred others
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from drawing import draws
from expressions import EXPRESSIONS
from wide_checks import failure
from wide_policies import policy
from wide_programs import Program, program

from dplc.engine.ruleset import toolchain

POOL = [text for group in EXPRESSIONS.values() for text in group]
PROGRAMS = 12  # for a policy: two thirds of them expressions over awkward shapes, the others drawn
EXPLORED, BUILT = 20, 10  # percent
FIRST = int(os.environ.get("DPLC_POLICIES_FIRST", "0"))


def check_policy(seed: int, folder: Path) -> None:
    """Raises AssertionError with what fails, and the policy that shows it."""
    text, settings = policy(seed)
    (folder / "my_policy.rw").write_text(text)
    tools, dice = toolchain([folder / "my_policy.rw"], settings), random.Random(seed)
    drawn = [Program((), (), (each,), dice.choice((1, 3))) for each in dice.sample(POOL, PROGRAMS * 2 // 3)]
    drawn += [program(seed * PROGRAMS + n) for n in range(PROGRAMS // 3)]
    for each in drawn:
        found = failure(each, dice.random() * 100 < EXPLORED, dice.random() * 100 < BUILT, tools)
        assert not found, f"policy {seed}: {found}\n{each.text}\n{text}--prefer {' --prefer '.join(settings)}"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + draws(1)))
@pytest.mark.filterwarnings("error::dplc.engine.explore.explore.ExplorationWarning")
def test_drawn_policies(seed: int, tmp_path: Path) -> None:
    check_policy(seed, tmp_path)
