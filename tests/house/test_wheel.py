"""The wheel holds all that dplc needs: built from the tree, installed elsewhere, run from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from forked import done
from setuptools import build_meta

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import dplc
from dplc.engine.cli.app import main
print(dplc.__file__)
main()
"""


def built(sources: Path, folder: Path) -> None:
    os.chdir(sources)
    build_meta.build_wheel(str(folder))


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
    code, printed = done(tmp_path / "log", built, sources, tmp_path)
    assert not code, printed
    (wheel,) = tmp_path.glob("dplc-*.whl")
    shutil.unpack_archive(wheel, installed, "zip")
    words = ["run", "-c", "torch.softmax(torch.randn(4, 37), -1)"]
    command = [sys.executable, "-c", PROGRAM, str(installed), *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DPLC_")}
    ran = subprocess.run(command, cwd=empty, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    where, *rest = ran.stdout.splitlines()
    assert Path(where).is_relative_to(installed) and "float64" in "\n".join(rest)
    assert list(empty.iterdir()) == []
