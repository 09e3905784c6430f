"""The line of a `choose` that was weighed: as many alternatives as fit, and how many more there were."""

from __future__ import annotations

import pytest

from dplc.engine.rewrite.trace import ALTERNATIVES, WeighedChoice


@pytest.mark.parametrize(
    ("count", "more"),
    [(ALTERNATIVES - 1, None), (ALTERNATIVES, None), (ALTERNATIVES + 1, "1 more"), (ALTERNATIVES + 9, "9 more")],
)
def test_what_is_left_out_is_counted(count: int, more: str | None) -> None:
    line = WeighedChoice(
        "N", "cost(n)", False, None, tuple({"value": str(n), "cost": str(n * n)} for n in range(count))
    ).line()
    assert line.startswith("N = 0 costs 0, 1 costs 1, ") and line.endswith("(minimising cost(n))")
    assert (f", {more} (" in line) if more else "more" not in line
