"""The program that predicts a suite without a rule, or with another number."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from scripts import ended_by, printed_by

from dplc.codegen.target import target
from dplc.engine.compiler import compiler_with
from dplc.engine.ruleset import toolchain

SCRIPT = Path(__file__).parents[2] / "examples" / "benches" / "ablation.py"
sys.path.insert(0, str(SCRIPT.parent))
from ablation import ablate, variants  # noqa: E402

PLAIN = compiler_with(target("h200"))
SUITE = {
    "operations": {"norm": {"expression": "F.rms_norm(x, (x.shape[-1],))", "inputs": {"x": "rows columns"}}},
    "cases": [{"name": "norm.small", "operation": "norm", "sizes": {"rows": 8, "columns": 256}}],
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(SUITE))
    return path


def test_a_rule_left_out_costs_as_much_as_a_file_without_it(suite: Path, tmp_path: Path) -> None:
    record = ablate(suite, None, PLAIN, variants(["register_row", "xor_smem"], [], toolchain()), None, print)
    mine = tmp_path / "mine.rw"
    mine.write_text("without register_row\n")
    left_out = ablate(suite, None, compiler_with(target("h200"), [mine]), [], None, print).predicted_us
    changed = {name: us for name, us in left_out.items() if us != record.predicted_us[name]}
    assert record.effects == {"register_row": changed, "xor_smem": {}} and changed
    assert [row[0] for row in record.rows()] == ["register_row", "xor_smem"]


def test_each_leaves_out_every_rule_of_the_schedule_and_moves_every_number_both_ways() -> None:
    names = {variant.name for variant in variants(["each"], ["each"], toolchain())}
    assert {"tileify", "drop_guard", "mark_unroll", "most_unrolled=16", "most_unrolled=48"} <= names
    assert "inline" not in names


def test_a_run_goes_on_with_the_effects_that_a_file_holds(suite: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    line = (str(suite), "--number", "most_unrolled=16", "--without", "xor_smem", "--target")
    printed_by(SCRIPT, *line, "h200", "-o", str(kept))
    data = json.loads(kept.read_text())
    assert list(data["effects"]) == ["xor_smem", "most_unrolled=16"]
    data["effects"]["xor_smem"] = {"norm.small": "kept"}
    kept.write_text(json.dumps(data))
    assert "1\n" in printed_by(SCRIPT, *line, "h200", "-o", str(kept))  # a program that does not compile
    assert json.loads(kept.read_text())["effects"]["xor_smem"] == {"norm.small": "kept"}
    for machine, file, said in (
        ("a100", kept, "another suite, other rules or another target"),
        ("h200", tmp_path / "absent" / "kept.json", "cannot write"),
    ):
        assert said in str(ended_by(SCRIPT, *line, machine, "-o", str(file))[0])
    for wrong, said in (
        ("--without=xor_smems", "no rule `xor_smems`"),
        ("--number=most_thread=3", "no number `most_thread`"),
    ):
        assert said in str(ended_by(SCRIPT, str(suite), wrong)[0])
