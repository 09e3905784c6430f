"""`dplc tune`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dplc.engine.cli.app import main
from tests.tune.subjects import SUM

COMMON = ["tune", "-c", SUM, "--target", "sm_90a"]


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([*COMMON, *arguments])
    seen = capsys.readouterr()
    return int(stop.value.code or 0), seen.out, seen.err


def test_tune_remembers_and_compile_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, page = tmp_path / "store.sqlite", tmp_path / "page.html"
    code, out, _ = called(capsys, "--tries", "20", "--json", "--db", str(store), "--html", str(page))
    (kernel,) = json.loads(out)["kernels"]
    assert code == 0 and kernel["basis"] == "predicted" and kernel["tuned_us"] <= kernel["default_us"]
    assert kernel["checked"].startswith("emulator") and kernel["kept"] and store.exists()
    text = page.read_text()
    assert "<svg" in text and "What values did" in text and "predicted" in text
    assert "http://" not in text and "https://" not in text and "<script" not in text
    with pytest.raises(SystemExit) as stop:
        main(["compile", "-c", SUM, "--target", "sm_90a", "--db", str(store), "-v", "--ir", "tile"])
    seen = capsys.readouterr()
    assert stop.value.code in (0, None) and "from the store" in seen.out + seen.err


def test_space_is_printed_and_nothing_tried(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "--space")
    assert code == 0 and "cooperative_reduce" in out and "T in {2, 4, 8" in out and "estimated" in out
    code, out, _ = called(capsys, "--space", "--json", "--free", "register_row")
    (kernel,) = json.loads(out)["kernels"]
    assert [found["pass"] for found in kernel["passes"]] == ["register_row"] and kernel["schedules"] < 10


def test_wrong_names_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "--search", "hil")
    assert code == 2 and "hill" in err
    code, _, err = called(capsys, "--free", "register_rows")
    assert code == 2 and "register_row" in err


def test_a_grid_tunes_each_distinct_kernel_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store.sqlite"
    text = ["tune", "-c", "torch.randn(M, 512).sum(-1)", "--grid", "M=4,8", "--target", "sm_90a"]
    with pytest.raises(SystemExit) as stop:
        main([*text, "--tries", "4", "--db", str(store)])
    lines = capsys.readouterr().out.splitlines()
    assert stop.value.code in (0, None) and store.exists()
    assert [line.split(":")[0] for line in lines[:2]] == ["M=4", "M=8"] and "predicted" in lines[0]


def test_a_suite_or_an_expression(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tune", "--target", "sm_90a"])
    assert stop.value.code == 2 and "-c EXPR" in capsys.readouterr().err
