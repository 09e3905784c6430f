"""`dplc tune` as a process: killed, interrupted, beside another one, with a store that it cannot use."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from forked import MOST, started

from dplc.engine.cli.app import main
from dplc.engine.store import store
from dplc.engine.store.store import UNFINISHED, SqliteStore

TEXT = "torch.relu(torch.randn(64, 32) @ torch.randn(32, 48))"


def tuner(path: Path, seed: int, *options: str) -> BaseProcess:
    """What it prints is beside its store."""
    asked = ["-c", TEXT, "--target", "sm_90a", "--db", str(path), "--seed", str(seed), "--tries", "1000000", *options]
    return started(printed(path, seed), tune, ["tune", *asked, "--top", "1"])


def tune(words: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as in a process of a shell
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    main(words)


def printed(path: Path, seed: int) -> Path:
    return path.with_name(f"printed{seed}")


def rows(path: Path, table: str) -> int:
    """How many, as another process sees them."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        return int(db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
    return 0


def wait_for(path: Path, table: str, count: int, *processes: BaseProcess) -> None:
    until = time.monotonic() + MOST
    while rows(path, table) < count:
        assert time.monotonic() < until and all(one.is_alive() for one in processes)
        time.sleep(0.05)


def ended(process: BaseProcess, number: signal.Signals, log: Path) -> str:
    """What an interrupted process has printed."""
    os.kill(process.pid or 0, number)
    process.join(MOST)
    assert process.exitcode == 130, log.read_text()
    return log.read_text()


@pytest.mark.slow
def test_tuners_that_are_killed_and_interrupted_leave_a_whole_store(tmp_path: Path) -> None:
    """Two on one store; kill -9 at a random moment takes one, Ctrl-C ends the other: what it found is kept, and right."""
    path, dice = tmp_path / "t.sqlite", random.Random()
    one, other = tuner(path, 1), tuner(path, 2)
    wait_for(path, "attempts", 1, one, other)
    time.sleep(dice.random())
    one.kill()
    wait_for(path, "attempts", rows(path, "attempts") + 60, other)
    out = ended(other, signal.SIGINT, printed(path, 2))
    assert "interrupted" in out and "kept" in out and "checked: emulator, whole" in out
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    said: list[str] = []
    store = SqliteStore(path, None, said.append)
    (found,) = (entry.tuned for entry in store.select())
    assert found.checked == "emulator, whole" and found.seconds < found.default_seconds and not said


def test_a_store_of_a_later_version_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.sqlite"
    SqliteStore(path).close()
    with sqlite3.connect(path) as later:
        later.execute(f"PRAGMA user_version = {store.VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(SystemExit) as stop:
        main(["tune", "-c", TEXT, "--target", "sm_90a", "--db", str(path), "--tries", "4", "--free", "candidate"])
    seen = capsys.readouterr()
    assert stop.value.code in (0, None) and seen.err.count("going on without it") == 1
    with pytest.raises(SystemExit) as stop:
        main(["compile", "-c", TEXT, "--target", "sm_90a", "--db", str(path), "--ir", "loop"])
    assert stop.value.code in (0, None) and "kernel " in capsys.readouterr().out
    assert path.read_bytes() == before


def test_a_killed_search_has_left_its_best(tmp_path: Path) -> None:
    """kill -9 while it searches: the best so far that was checked is there, and a compile replays it."""
    path = tmp_path / "t.sqlite"
    one = tuner(path, 1)
    wait_for(path, "entries", 1, one)
    one.kill()
    one.join(MOST)
    assert one.exitcode == -signal.SIGKILL
    said: list[str] = []
    (found,) = (entry.tuned for entry in SqliteStore(path, None, said.append).select())
    assert not said and found.checked == "emulator, whole" and UNFINISHED in found.details
    assert found.seconds <= found.default_seconds


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_search_that_is_asked_to_end_keeps_what_it_found(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "t.sqlite"
    one = tuner(path, 1)
    wait_for(path, "attempts", 1, one)
    out = ended(one, number, printed(path, 1))
    assert "interrupted" in out and "checked: emulator, whole" in out
    (found,) = (entry.tuned for entry in SqliteStore(path, None, lambda line: None).select())
    assert UNFINISHED not in found.details
