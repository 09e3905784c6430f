"""`dplc tune` over a grid and a suite: distinct kernels once, in one process and in several, remembered and replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calling import Dplc, Ok

from dplc.engine.store.store import SqliteStore

GRID = ("-c", "torch.softmax(torch.randn(M, 64), -1)", "--grid", "M=4,8")
QUICK = ("--target", "h200", "--predict", "--tries", "3")


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_grid_is_tuned_and_replayed(ok: Ok, tmp_path: Path, jobs: str) -> None:
    """For the device that is asked for, not for another one of its architecture."""
    path, device = tmp_path / "t.sqlite", ("--target", "h100")
    out, _ = ok("tune --predict --tries 4", *GRID, *device, "--jobs", jobs, "--db", path)
    *kernels, last = sorted(out.splitlines())
    assert [line.split(": ")[0] for line in kernels] == ["M=4:softmax", "M=8:softmax"]
    assert "predicted" in kernels[0] and last.startswith("NVIDIA H100: 2 kernels; 2 predicted: ")
    with SqliteStore(path) as store:
        entries = store.select()
        assert len(entries) == 2 and store.counts()["attempts"] >= 2
    for entry in entries:
        assert entry.tuned.checked.startswith("emulator") and entry.tuned.details["counters_by"].startswith("emulator")
    for rows in (4, 8):
        _, err = ok("compile -c", f"torch.softmax(torch.randn({rows}, 64), -1)", *device, "--db", path)
        assert "note: schedule of `softmax`: from the store, predicted for NVIDIA H100" in err


def test_a_suite_as_data_and_nothing_kept(ok: Ok, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.cli.tune.SqliteStore", None)
    suite = tmp_path / "suite.json"
    suite.write_text(
        '{"operations": {"f": {"expression": "torch.softmax(x, -1)", "inputs": {"x": "n 32"}},'
        ' "g": {"expression": "F.softmax(y, 1)", "inputs": {"y": "n 32"}}}, "cases": ['
        '{"name": "a", "operation": "f", "sizes": {"n": 8}}, {"name": "b", "operation": "g", "sizes": {"n": 8}},'
        '{"name": "other", "operation": "f", "sizes": {"n": 8}}]}'
    )
    (kernel,) = json.loads(ok("tune", suite, "--only", "[ab]", *QUICK, "--json", "--no-db")[0])["kernels"]
    assert kernel["names"] == ["a:softmax", "b:softmax"] and kernel["tuned"]["basis"] == "predicted"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "-c EXPR"),
        (("suite.json", *GRID), "takes one program"),
        ((*GRID, "--executor", "slurm"), "executors are"),
        ((*GRID, "--grid", "M=2"), "has its values already"),
        ((*GRID, "--search", "hil"), "no search method `hil`"),
        ((*GRID, "--free", "stage_input"), "did you mean `stage_inputs`?"),
        (("absent.json",), "cannot read the suite"),
    ],
)
def test_wrong_uses_are_told(dplc: Dplc, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = dplc("tune", *arguments)
    assert code == 2 and said in err, err


def test_candidates_of_fusion_are_tuned_for_every_point(ok: Ok, tmp_path: Path) -> None:
    """One kernel is faster than the two of the rules: the program remembers it, and a compile proves it again."""
    pytest.importorskip("egglog")
    text = "torch.relu(torch.randn({}, 32) @ torch.randn(32, 48)) @ torch.randn(48, 16)"
    stored = ("--db", tmp_path / "t.sqlite")
    out, _ = ok("tune -c", text.format("M"), "--grid", "M=16,64", *QUICK, *stored)
    chosen = [line for line in out.splitlines() if " us as the rules fuse it, " in line]
    assert [line.split(":")[0] for line in chosen] == ["M=16", "M=64"]
    assert all("us as candidate " in line and "emulator, the program whole" in line for line in chosen), out
    out, err = ok("run -c", text.format(64), "--target", "h200", "--device", "emulator", *stored)
    assert "note: candidate of fusion from the store: " in err and ": ok" in out and out.count("kernel ") == 1
    out, _ = ok("tune -c", text.format("M"), "--grid", "M=64", *QUICK, *stored, "--top", "1", "--json")
    assert json.loads(out)["programs"] == []
