"""The command line called in this process: a process of its own costs a second and a half of `import torch`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Command, Done

from dplc.engine.cli.app import main


@pytest.fixture
def dplc(capsys: pytest.CaptureFixture[str]) -> Command:
    """`dplc("run -c", "torch.ones(3) * 2")`: words, and further arguments as they are."""

    def call(line: str, *arguments: object) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([*line.split(), *map(str, arguments)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Done(int(stop.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture
def ok(dplc: Command) -> Command:
    """The same for a command that must succeed."""

    def call(*arguments: object) -> Done:
        done = dplc(*arguments)
        assert done.code == 0, done.err
        return done

    return call


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A rule file of the user, to be written."""
    return tmp_path / "mine.rw"
