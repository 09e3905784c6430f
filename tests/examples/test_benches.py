"""The benches start, and that of fusion says of a program what can be said without it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from scripts import printed_by

BENCHES = Path(__file__).resolve().parents[2] / "examples" / "benches"
SCRIPT = '\nif __name__ == "__main__":'


def printed(*arguments: str) -> str:
    return printed_by(BENCHES / "fusion.py", *arguments)


@pytest.mark.parametrize(
    "path", [p for p in sorted(BENCHES.glob("*.py")) if SCRIPT in p.read_text()], ids=lambda p: p.stem
)
def test_what_a_bench_imports_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs are seldom made: a name that moved is found here."""
    monkeypatch.syspath_prepend(str(BENCHES))
    assert callable(runpy.run_path(str(path), run_name="imported").get("main"))


def test_the_bench_of_fusion() -> None:
    pytest.importorskip("egglog")
    (line,) = printed("--only", "mean and variance", "--target", "h200").splitlines()
    name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
    unfused, rules, explored = (tuple(float(cell) for cell in cells[at : at + 3]) for at in (0, 3, 6))
    assert name == "mean and variance"
    assert unfused[0] > 4 and rules[0] == explored[0] == 1  # kernels
    x, rows = 4096 * 4096 * 4, 4096 * 4
    assert rules[1] == explored[1] == round((x + 2 * rows) / 1e6)  # megabytes: x is read once
    assert unfused[2] > 3 * rules[2] >= 3 * explored[2] > 0  # microseconds


def test_how_long_exploring_takes() -> None:
    pytest.importorskip("egglog")
    name, operations, regions, solved, seconds, peak = printed("--speed", "one region").strip("| \n").split(" | ")
    assert name == "one region" and 20 < int(operations) < 40 and regions == solved == "1"
    assert float(seconds) > 0 and float(peak) > 100
