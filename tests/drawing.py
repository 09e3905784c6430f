"""How much the tests draw: `make test` draws little, `make test-long` ten times as much from the same tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

BUDGET = int(os.environ.get("DPLC_TEST_BUDGET", "1"))
Item = TypeVar("Item")


def draws(few: int) -> int:
    """Return how many examples a test draws if `make test` draws `few`."""
    return few * BUDGET


def some(items: Sequence[Item], few: int) -> list[Item]:
    """Return `draws(few)` of the items, spread evenly over the sequence; all of them if there are no more."""
    step = max(len(items) / draws(few), 1)
    return [items[int(n * step)] for n in range(min(draws(few), len(items)))]
