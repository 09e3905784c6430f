"""The wheel holds all that dplc needs: built from the tree, installed elsewhere, run from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import dplc
from dplc.engine.cli.app import main
print(dplc.__file__)
main()
"""


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DPLC_")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_an_installed_wheel_runs_an_expression_from_an_empty_folder(tmp_path: Path) -> None:
    sources, installed, empty = tmp_path / "sources", tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in listed:  # a build writes into the folder of its sources
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, sources / name)
    python = sys.executable
    built = run([python, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)], sources)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("dplc-*.whl")
    shutil.unpack_archive(wheel, installed, "zip")
    done = run([python, "-c", PROGRAM, str(installed), "run", "-c", "torch.softmax(torch.randn(4, 37), -1)"], empty)
    assert done.returncode == 0, done.stdout + done.stderr
    where, *rest = done.stdout.splitlines()
    assert Path(where).is_relative_to(installed) and "float64" in "\n".join(rest)
    assert list(empty.iterdir()) == []
