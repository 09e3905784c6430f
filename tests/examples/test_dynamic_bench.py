"""The bench of sizes: one compile with rows stays near a compile for each length, predicted."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from dplc.codegen.target import target

BENCH: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "benches" / "dynamic.py"))
LENGTHS = (1, 33, 500, 2047, 4096)


@pytest.mark.parametrize("number", range(len(BENCH["CASES"]) - 1))  # attention: CHANGELOG says what it lacks
def test_rows_are_near_a_compile_for_each_length(number: int) -> None:
    found = BENCH["compared"](BENCH["CASES"][number], "f32", target("h200"), LENGTHS)
    assert BENCH["geomean"](found.rows.times.values()) <= 1.05
    assert found.rows.worst[0] <= 1.15
