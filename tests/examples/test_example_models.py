"""The models of examples/: the script runs, the README's commands work, the bench gives a row."""

from __future__ import annotations

import re
import runpy
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from dplc.engine.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "examples" / "models" / "README.md").read_text()


def test_three_lines_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "models" / "compile_tinyllama.py"))
    printed = capsys.readouterr().out
    assert "launches of" in printed and "kernel linear" in printed


def test_generating(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "models" / "generate.py"))
    printed = capsys.readouterr().out
    assert "peak memory" in printed and "transformers says the same: True" in printed


@pytest.mark.slow
def test_the_commands_of_the_readme(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).splitlines()
    assert len(lines) == 5
    for line in lines:
        with pytest.raises(SystemExit) as stop:
            main(shlex.split(line.replace("/tmp/tinyllama", str(tmp_path / "made")))[1:])
        printed = capsys.readouterr()
        assert stop.value.code == 0, printed.err
        assert printed.out


def test_a_row_of_the_bench() -> None:
    bench = runpy.run_path(str(ROOT / "examples" / "benches" / "models.py"))
    row = asdict(bench["measure"](bench["CASES"][0]))
    assert row["launches"] == row["per_block"] <= 17  # the down projection is split too
    assert 0 < row["cpu"]["warm"] <= row["cpu"]["compile"] * 2
    assert f"| {row['name']} |" in README
