"""The bench of sizes: one compile with rows stays near a compile for each length, predicted."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dplc.codegen.target import target

BENCH: dict[str, Any] = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "benches" / "dynamic.py"))
LENGTHS = (1, 33, 500, 2047, 4096)
CASES = {case.name: case for case in BENCH["CASES"]}
ALL = [(name, dtype) for name in CASES for dtype in BENCH["DTYPES"]]
SAMPLE = [*((name, "f32") for name in CASES), ("causal attention [8, s, 64]", "bf16")]


def check(name: str, dtype: str, lengths: tuple[int, ...]) -> None:
    found = BENCH["compared"](CASES[name], dtype, target("h200"), lengths)
    assert BENCH["geomean"](found.rows.times.values()) <= 1.05
    assert found.rows.worst[0] <= 1.16  # 33 rows of a Linear in f32 have the tile of 64
    assert BENCH["geomean"](found.rows.instructions.values()) <= 1.2


@pytest.mark.parametrize(("name", "dtype"), SAMPLE)
@pytest.mark.sampled(4)
def test_rows_are_near_a_compile_for_each_length(name: str, dtype: str) -> None:
    check(name, dtype, LENGTHS)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), ALL)
def test_rows_are_near_at_seventeen_lengths(name: str, dtype: str) -> None:
    check(name, dtype, BENCH["LENGTHS"])


def test_programs_without_sizes_hardly_pay_for_them() -> None:
    """Calls of functions, which do not depend on the machine: 1.8 % of a warm compile when this was written."""
    calls, _ = BENCH["static_share"](target("h200"))
    assert 0.001 < calls <= 0.025


class Counting:
    """Every run takes two microseconds, and is run."""

    def __init__(self) -> None:
        self.runs = 0

    def prepare(self) -> None: ...

    def seconds(self, run: Callable[[], Any]) -> float:
        run()
        self.runs += 1
        return 2e-6

    def graph(self, run: Callable[[], Any]) -> None:
        return None


def test_what_is_right_is_measured_beside_a_compile_for_its_length() -> None:
    clock = Counting()
    line = BENCH["measured"](CASES["softmax [64, s]"], "f32", clock, "emulator", (1, 7))
    assert line.startswith("| softmax [64, s] | f32 | 1.000 | 1.00 at ") and clock.runs >= 4 * 30


def test_what_is_wrong_is_not_measured() -> None:
    class Wrong(torch.nn.Module):  # type: ignore[misc]
        """What is exported adds another number."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + (2.0 if torch.compiler.is_exporting() else 1.0)

    clock = Counting()
    case = BENCH["Case"]("wrong", Wrong, (0, 4))
    with pytest.raises(SystemExit, match="wrong f32, with rows, at 7: wrong, not timed"):
        BENCH["measured"](case, "f32", clock, "emulator", (7,))
    assert clock.runs == 0
