"""`dplc bench SUITE --without ..` and `--number ..`: predicted times without a rule, or with another number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dplc.codegen.target import target
from dplc.engine.bench.cases import ablate, variants
from dplc.engine.cli.app import app
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import DplcError, UsageError

H200 = target("h200")
PLAIN = compiler_with(H200)


def test_a_rule_left_out_costs_as_much_as_a_file_without_it(tiny: Path, tmp_path: Path) -> None:
    record = ablate(tiny, None, PLAIN, variants(["register_row", "xor_smem"], [], toolchain()), None, print)
    (tmp_path / "mine.rw").write_text("without register_row\n")
    left_out = ablate(tiny, None, Compiler(toolchain([tmp_path / "mine.rw"]), H200), [], None, print).predicted_us
    changed = {name: us for name, us in left_out.items() if us != record.predicted_us[name]}
    assert record.effects == {"register_row": changed, "xor_smem": {}} and changed
    assert [row[0] for row in record.rows()] == ["register_row", "xor_smem"]


def test_each_leaves_out_every_rule_of_the_schedule_and_moves_every_number_both_ways() -> None:
    names = {variant.name for variant in variants(["each"], ["each"], toolchain())}
    assert {"tileify", "drop_guard", "mark_unroll", "most_unrolled=16", "most_unrolled=48"} <= names
    assert "inline" not in names


def test_a_run_goes_on_with_the_effects_that_a_file_holds(tiny: Path, tmp_path: Path) -> None:
    kept, asked = tmp_path / "kept.json", variants(["xor_smem"], [], toolchain())
    ablate(tiny, "norm.*", PLAIN, asked, kept, print)
    data = json.loads(kept.read_text())
    data["effects"]["xor_smem"] = {"norm.small": "kept"}
    kept.write_text(json.dumps(data))
    record = ablate(tiny, "norm.*", PLAIN, asked, kept, print)
    assert record.effects == {"xor_smem": {"norm.small": "kept"}}
    with pytest.raises(UsageError, match="another suite, other rules or another target"):
        ablate(tiny, "norm.*", compiler_with(target("a100")), asked, kept, print)


def test_a_file_that_cannot_keep_effects_is_an_error(tiny: Path, tmp_path: Path) -> None:
    mine, asked = tmp_path / "mine.json", variants(["xor_smem"], [], toolchain())
    mine.write_text("mine")
    for kept, said in ((mine, "mine.json holds no results"), (tmp_path / "absent" / "kept.json", "cannot write")):
        with pytest.raises(DplcError, match=said):
            ablate(tiny, "norm.*", PLAIN, asked, kept, print)
    assert mine.read_text() == "mine"


def test_unknown_names_are_errors() -> None:
    with pytest.raises(UsageError, match="there is no rule `xor_smems`"):
        variants(["xor_smems"], [], toolchain())
    with pytest.raises(UsageError, match="there is no number `most_thread`"):
        variants([], ["most_thread=3"], toolchain())


def test_the_command_prints_json(tiny: Path) -> None:
    options = [
        "--only",
        "norm.*",
        "--without",
        "xor_smem",
        "--number",
        "most_unrolled=16",
        "--target",
        "h200",
        "--json",
    ]
    result = CliRunner().invoke(app, ["bench", str(tiny), *options])
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.output)["effects"]) == ["xor_smem", "most_unrolled=16"]
