"""The command line called in this process, and a store, for the folders whose conftest names these fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Dplc = Callable[..., tuple[int, str, str]]
Ok = Callable[..., tuple[str, str]]


@pytest.fixture
def dplc(capsys: pytest.CaptureFixture[str]) -> Dplc:
    """`dplc("db show kernel0 --db", path)`: words, and further arguments as they are. Exit code, output, errors."""
    from dplc.engine.cli.app import main

    def call(line: str, *arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([*line.split(), *map(str, arguments)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(stop.value.code or 0), printed.out, printed.err

    return call


@pytest.fixture
def ok(dplc: Dplc) -> Ok:
    """The same for a command that must succeed: output, errors."""

    def call(*arguments: object) -> tuple[str, str]:
        code, out, err = dplc(*arguments)
        assert code == 0, err
        return out, err

    return call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that is not there yet."""
    return tmp_path / "t.sqlite"
