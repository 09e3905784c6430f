"""The bench of sizes: one compile with rows stays near a compile for each length, predicted."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from dplc.codegen.target import target

BENCH: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "benches" / "dynamic.py"))
LENGTHS = (1, 33, 500, 2047, 4096)
CASES = {case.name: case for case in BENCH["CASES"]}
ALL = [(name, dtype) for name in CASES for dtype in BENCH["DTYPES"]]
SAMPLE = [*((name, "f32") for name in CASES), ("causal attention [8, s, 64]", "bf16")]


def check(name: str, dtype: str, lengths: tuple[int, ...]) -> None:
    found = BENCH["compared"](CASES[name], dtype, target("h200"), lengths)
    assert BENCH["geomean"](found.rows.times.values()) <= 1.05
    assert found.rows.worst[0] <= 1.15
    assert BENCH["geomean"](found.rows.instructions.values()) <= 1.2


@pytest.mark.parametrize(("name", "dtype"), SAMPLE)
def test_rows_are_near_a_compile_for_each_length(name: str, dtype: str) -> None:
    check(name, dtype, LENGTHS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), ALL)
def test_rows_are_near_at_seventeen_lengths(name: str, dtype: str) -> None:
    check(name, dtype, BENCH["LENGTHS"])


def test_programs_without_sizes_hardly_pay_for_them() -> None:
    """Of a profile, which makes such short functions dear; the bar of a warm compile is 2%."""
    calls, seconds = BENCH["static_share"](target("h200"))
    assert calls > 0.001 and 0 < seconds <= 0.02
