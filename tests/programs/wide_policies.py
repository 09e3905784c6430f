"""Policies drawn at random: what pays is another matter, so that small programs reach what only large ones reach otherwise.

A number of rules/policy.rw says when something pays, never whether it is right: results have to be right under any.
"""

from __future__ import annotations

import random
import re

from dplc.engine.language.rule import BUILT_IN

DRAWN = 12  # numbers of a policy that are other ones
PREFERRED = 8  # rules that fire wherever they are legal
FACTORS = (1 / 1024, 1 / 128, 1 / 16, 1 / 4, 1 / 2, 2, 4)
# of lists, the lists of policy.rw say what may be in them
NUMBER = re.compile(r"^number (\w+) = (\d+) ", re.MULTILINE)
RULE = re.compile(r"^rule (\w+)", re.MULTILINE)


def policy(seed: int) -> tuple[str, dict[str, dict[str, bool]]]:
    """(the text of a rule file that overrides numbers, settings that let some rules fire wherever they are legal)."""
    dice = random.Random(f"policy {seed}")
    numbers = [(name, int(n)) for name, n in NUMBER.findall((BUILT_IN / "policy.rw").read_text())]
    drawn = dice.sample(numbers, DRAWN)
    text = "".join(f"override number {name} = {max(1, int(n * dice.choice(FACTORS)))}\n" for name, n in drawn)
    preferring = sorted(
        rule
        for file in [
            *(BUILT_IN / "tile").rglob("*.rw"),
            *(BUILT_IN / "fusion").glob("*.rw"),
            BUILT_IN / "tensor/long_rows.rw",
        ]
        for rule in RULE.findall(file.read_text())
    )
    return text, {rule: {"prefer": False} for rule in dice.sample(preferring, PREFERRED)}
