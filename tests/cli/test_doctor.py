"""`dplc doctor` and every other command where torch is missing or broken, and where extras are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dplc.engine.cli import doctor

BROKEN = "raise OSError('libtorch_global_deps.so: cannot open shared object file')"
MISSING = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"


def dplc(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process where `import torch` runs this text."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(text)
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "dplc", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, timeout=300, check=False
    )


def test_the_doctor_survives_a_torch_that_is_not_well(tmp_path: Path) -> None:
    done = dplc(tmp_path, BROKEN, "doctor", "--json")
    found = {one["what"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 1 and not done.stderr
    assert found["torch"]["state"] == "broken" and "libtorch_global_deps.so" in found["torch"]["detail"]
    assert "torch cannot be imported" in found["GPU"]["detail"] and found["rules"]["state"] == "ok"


@pytest.mark.parametrize(("text", "said"), [(BROKEN, "torch cannot be imported"), (MISSING, "torch is not installed")])
def test_other_commands_say_so_plainly(tmp_path: Path, text: str, said: str) -> None:
    done = dplc(tmp_path, text, "compile", "-c", "torch.randn(3).relu()")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {said}") and "internal error" not in done.stderr


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(distribution: str) -> str:
        raise doctor.importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    found = {one.what: one for one in doctor.examine()}
    for name, _, extra, _ in doctor.OPTIONAL:
        one = found[name]
        assert one.state == "missing" and one.remedy == f"pip install 'dplc[{extra}]'"


def test_whatever_goes_wrong_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> doctor.ReportLine:
        raise RuntimeError("something\nelse")

    for name in ("_python", "_host_compiler", "_emulator", "_device_compiler", "_gpu", "_rules", "_cache"):
        monkeypatch.setattr(doctor, name, fails)
    found = doctor.examine()
    assert sum(one.detail == "RuntimeError: something" for one in found) == 7
