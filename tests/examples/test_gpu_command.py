"""The command for a machine with a GPU, as far as it goes without one."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import ended_by

from dplc.engine.cli.app import main

PROGRAM = Path(__file__).parents[2] / "examples" / "benches" / "gpu.py"
SUITE = {
    "operations": {
        "norm": {"expression": "F.rms_norm(x, (x.shape[-1],), w, 1e-6)", "inputs": {"x": "rows in", "w": "in"}}
    },
    "cases": [{"name": "norm.small", "operation": "norm", "sizes": {"rows": 4, "in": 64}}],
}


RUN = subprocess.run


def run_here(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of dplc in this process, where torch and the rules are loaded."""
    if command[1:3] != ["-m", "dplc"]:
        return RUN(command, **how)
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(how["stdout"]), contextlib.redirect_stderr(said), contextlib.chdir(how["cwd"]):
        try:
            main(command[3:])
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(command, code, None, said.getvalue())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(PROGRAM) == (1, "")
    assert capsys.readouterr().err.startswith("no GPU here, or no PyCUDA;")


def test_a_dry_run_writes_what_a_run_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step, a process of its own, is run here."""
    monkeypatch.setattr(subprocess, "run", run_here)
    suite, broken, out = tmp_path / "tiny.json", tmp_path / "broken.json", tmp_path / "out"
    suite.write_text(json.dumps(SUITE))
    broken.write_text(json.dumps({**SUITE, "operations": {}}))
    files = (
        "--suite",
        str(suite),
        "--suite",
        str(broken),
        *("--only", "tiny", "--only", "broken", "--only", "readme 1"),
    )
    code, printed = ended_by(PROGRAM, "--dry-run", "--out", str(out), *files)
    assert code == 1  # one suite is broken, and the others have been done all the same
    told = [line.split(",")[0] for line in printed.splitlines()[1::2]]
    assert told == ["readme 1: ok", "tiny: ok", "broken: FAILED"]
    record = json.loads((out / "tiny.json").read_text())
    assert record["cases"][0]["name"] == "norm.small" and record["date"] and record["versions"]["dplc"]
    assert (out / "tiny.md").exists()
    page = (out / "README.md").read_text()
    for part in (
        "A dry run: nothing here was measured.",
        "python -m dplc bench",
        "| FAILED (",
        "rules ",
        "\nbroken:\n",
        "| readme 1 | ok |",
    ):
        assert part in page, page
    assert "__global__" in (out / "readme_1.txt").read_text()


def test_the_readme_comes_first_line_by_line(tmp_path: Path) -> None:
    """All of its commands and its Python."""
    from test_example_programs import ROOT, commands

    spec = importlib.util.spec_from_file_location("gpu_bench", PROGRAM)
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    sys.modules["gpu_bench"] = bench
    spec.loader.exec_module(bench)
    names = [step.name for step in bench.steps(tmp_path, "sm_90a", [], [])]
    own = [line for line in dict.fromkeys(commands()) if line in (ROOT / "README.md").read_text()]
    assert names[: names.index("doctor")] == [*(f"readme {n}" for n in range(1, len(own) + 1)), "readme python"]
