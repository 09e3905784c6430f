"""The program that checks random schedules: every point once, and a run that was killed goes on."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from scripts import ended_by

PROGRAM = Path(__file__).parents[2] / "examples" / "benches" / "check_schedules.py"


def run(folder: Path) -> tuple[int | str | None, str]:
    """In this process: its one worker is a thread."""
    where = ["--records", str(folder / "records.jsonl"), "--write", str(folder / "result"), "--workers", "1"]
    with mock.patch("concurrent.futures.ProcessPoolExecutor", ThreadPoolExecutor), mock.patch.dict(os.environ):
        return ended_by(PROGRAM, "--points", "2", "--only", "silu_mul.*.s32", *where)


def test_a_killed_run_goes_on_and_a_fault_is_a_finding(tmp_path: Path) -> None:
    code, printed = run(tmp_path)
    assert code == 0, printed
    records, result = tmp_path / "records.jsonl", tmp_path / "result" / "kernels_84.json"
    lines = [line for line in records.read_text().splitlines() if line]
    data = json.loads(result.read_text())
    assert len(lines) == data["points"] == 4  # two shapes that are one at reduced extents
    assert (data["findings"], data["shapes"], data["shapes_at_reduced_extents"]) == (0, 2, 1)
    assert "**0 findings.**" in (tmp_path / "result" / "README.md").read_text()

    wrong = json.dumps(json.loads(lines[0]) | {"fault": "line 3: race"})
    records.write_text("\n".join([wrong, *lines[1:-1], lines[-1][:20]]))  # killed while it wrote
    code, printed = run(tmp_path)
    assert code == 1
    assert "line 3: race" in printed
    assert json.loads(result.read_text())["findings"] == 1
    whole = [json.loads(line)["digest"] for line in records.read_text().splitlines() if line.endswith("}")]
    assert sorted(whole) == sorted(json.loads(line)["digest"] for line in lines)
