"""`dplc tune` over a grid and a suite: distinct kernels once, in one process and in several, remembered and replayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dplc.codegen.target import target
from dplc.engine.cli.app import main
from dplc.engine.store.store import SqliteStore

Dplc = Callable[..., tuple[int, str, str]]
GRID = (
    "-c",
    "torch.softmax(torch.randn(M, 64), -1)",
    "--grid",
    "M=4,8",
    "--target",
    "h200",
    "--predict",
    "--tries",
    "4",
)


@pytest.fixture
def dplc(capsys: pytest.CaptureFixture[str]) -> Dplc:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(stop.value.code or 0), printed.out, printed.err

    return call


def test_a_grid_is_tuned_and_replayed(dplc: Dplc, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    code, out, err = dplc("tune", *GRID, "--db", path)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("M=4:softmax: ") and lines[1].startswith("M=8:softmax: ")
    assert "predicted" in lines[0] and lines[-1].startswith("NVIDIA H200: 2 kernels; 2 predicted: ")
    with SqliteStore(path) as store:
        entries = store.select()
        assert len(entries) == 2 and store.counts()["attempts"] >= 2
    assert all(entry.tuned.checked.startswith("emulator") for entry in entries)
    assert all(entry.tuned.details["counters_by"].startswith("emulator") for entry in entries)
    for rows in (4, 8):
        text = f"torch.softmax(torch.randn({rows}, 64), -1)"
        err = dplc("compile", "-c", text, "--target", "h200", "--db", path)[2]
        assert "note: schedule of `softmax`: from the store, predicted for NVIDIA H200" in err


@pytest.mark.parametrize("device", ["h100", "h200"])
def test_jobs_are_for_the_device_that_is_asked_for(dplc: Dplc, tmp_path: Path, device: str) -> None:
    """Not for another one of its architecture."""
    path = tmp_path / "t.sqlite"
    options = ("--grid", "M=4", "--target", device, "--predict", "--tries", "1", "--db", path)
    assert dplc("tune", "-c", "torch.softmax(torch.randn(M, 64), -1)", *options)[0] == 0
    with SqliteStore(path) as store:
        assert [entry.key.device for entry in store.select()] == [target(device).name]


def test_a_suite_as_data_and_nothing_kept(dplc: Dplc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplc.engine.cli.tune.SqliteStore", None)
    suite = tmp_path / "suite.json"
    case = {"operation": "f", "sizes": {"n": 8}}
    operation = {"expression": "torch.softmax(x, -1)", "inputs": {"x": "n 32"}}
    cases = [{"name": name, **case} for name in ("a", "b", "other")]
    suite.write_text(json.dumps({"operations": {"f": operation}, "cases": cases}))
    options = ("--target", "h200", "--predict", "--tries", "3", "--json", "--no-db")
    code, out, err = dplc("tune", suite, "--only", "[ab]", *options)
    assert code == 0, err
    (kernel,) = json.loads(out)["kernels"]
    assert kernel["names"] == ["a:softmax", "b:softmax"]
    assert kernel["tuned"]["basis"] == "predicted"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("suite.json", *GRID), "takes one program"),
        ((*GRID, "--executor", "slurm"), "executors are"),
        ((*GRID, "--grid", "M=2"), "has its values already"),
        ((*GRID, "--search", "hil"), "no search method `hil`"),
        ((*GRID, "--free", "stage_input"), "did you mean `stage_inputs`?"),
        (("absent.json",), "cannot read the suite"),
    ],
)
def test_usage(dplc: Dplc, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = dplc("tune", *arguments)
    assert code == 2 and said in err, err


@pytest.mark.slow
def test_several_processes(dplc: Dplc, tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    code, _, err = dplc("tune", *GRID, "--db", path, "--jobs", "2")
    assert code == 0, err
    with SqliteStore(path) as store:
        assert len(store.select()) == 2


TWO_LAYERS = "torch.relu(torch.randn({}, 32) @ torch.randn(32, 48)) @ torch.randn(48, 16)"


def test_candidates_of_fusion_are_tuned_for_every_point(dplc: Dplc, tmp_path: Path) -> None:
    """One kernel is faster than the two of the rules: the program remembers it, and a compile proves it again."""
    pytest.importorskip("egglog")
    path = tmp_path / "t.sqlite"
    options = ("--target", "h200", "--predict", "--tries", "3", "--db", path)
    code, out, err = dplc("tune", "-c", TWO_LAYERS.format("M"), "--grid", "M=16,64", *options)
    assert code == 0, err
    chosen = [line for line in out.splitlines() if " us as the rules fuse it, " in line]
    assert [line.split(":")[0] for line in chosen] == ["M=16", "M=64"]
    assert all("us as candidate " in line and "emulator, the program whole" in line for line in chosen), out
    code, out, err = dplc("run", "-c", TWO_LAYERS.format(64), "--target", "h200", "--db", path, "--device", "emulator")
    assert code == 0 and "note: candidate of fusion from the store: " in err and ": ok" in out, err
    assert out.count("kernel ") == 1
    code, out, _ = dplc("tune", "-c", TWO_LAYERS.format("M"), "--grid", "M=64", *options, "--top", "1", "--json")
    assert code == 0 and json.loads(out)["programs"] == []
