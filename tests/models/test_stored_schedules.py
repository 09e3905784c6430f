"""Whenever a store decides the schedules of a model, a line of its commands says so."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_models import CONFIGS

from dplc.engine.cli import programs
from dplc.engine.cli.app import main
from dplc.engine.schedule.scheduling import Origin

COMMANDS = (
    "compile {} --layers 1",
    "compile {} --layers 1 --json",
    "bench {} --layers 1 --no-run --no-assemble",
    "generate {} --layers 1 --ids 1,2 --max-new-tokens 1 --device emulator",
)


class Everything:
    """A store that knows every kernel (`scheduling.Schedules`)."""

    store = SimpleNamespace(has_family=lambda *_: False, select=lambda *_: (), valid=lambda *_: ())

    def __call__(self, kernel: Any, scheduler: Any, shaped: Any) -> Any:
        return scheduler.by_default((kernel,), shaped), Origin(kernel.name, "store", "from the store, 1 us")


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.sampled(2)
def test_a_store_that_decides_is_told(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama"]))
    monkeypatch.setattr(programs, "stored_schedules", lambda *_: Everything())
    with pytest.raises(SystemExit) as stop:
        main(line.format(tmp_path).split())
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    assert "note: schedule of `" in printed.err and "from the store, 1 us" in printed.err
    assert "--json" not in line or json.loads(printed.out)["kernels"]
