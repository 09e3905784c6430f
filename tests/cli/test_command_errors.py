"""Help where nothing is asked, and our own mistakes. `tests/language/mistakes.md` has the mistakes of users."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from command_line import Command

from dplc.engine.cli import programs


@pytest.mark.parametrize(
    ("line", "code", "said"), [("", 2, "Usage: dplc"), ("rules", 2, "Usage: dplc rules"), ("--version", 0, "dplc ")]
)
def test_nothing_asked_is_the_help(dplc: Command, line: str, code: int, said: str) -> None:
    dplc(line, code=code).shows(said)


@pytest.mark.parametrize("line", ["compile -c 1", "--traceback compile -c 1", "compile -c 1 --traceback"])
def test_our_own_mistake_shows_a_traceback_on_demand(dplc: Command, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(programs, "compile_program", Mock(side_effect=ZeroDivisionError("by nothing")))
    err = dplc(line, code=3).err
    assert "internal error: ZeroDivisionError: by nothing\n  help: this is a defect of dplc" in err
