"""`dplc tune` as a process: killed, interrupted, beside another one, with a store that it cannot use."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dplc.engine.cli.app import main
from dplc.engine.store import store
from dplc.engine.store.store import UNFINISHED, SqliteStore, open_store

TEXT = "torch.relu(torch.randn(64, 32) @ torch.randn(32, 48))"
LONG = 300.0  # seconds that a test waits at most


def tuner(path: Path, seed: int, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dplc", "tune", "-c", TEXT, "--target", "sm_90a", "--db", str(path)]
    return subprocess.Popen(
        [*command, "--seed", str(seed), "--tries", "1000000", "--top", "1", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def attempts(path: Path) -> int:
    """As another process sees them."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        return int(db.execute("SELECT COUNT(*) FROM attempts").fetchone()[0])
    return 0


def wait_for(path: Path, count: int, *processes: subprocess.Popen[str]) -> None:
    until = time.monotonic() + LONG
    while attempts(path) < count:
        assert time.monotonic() < until and all(one.poll() is None for one in processes)
        time.sleep(0.05)


@pytest.mark.slow
def test_tuners_that_are_killed_and_interrupted_leave_a_whole_store(tmp_path: Path) -> None:
    """Two on one store; kill -9 at a random moment takes one, Ctrl-C ends the other: what it found is kept, and right."""
    path, dice = tmp_path / "t.sqlite", random.Random()
    one, other = tuner(path, 1), tuner(path, 2)
    try:
        wait_for(path, 1, one, other)
        time.sleep(dice.random())
        one.send_signal(signal.SIGKILL)
        before = attempts(path)
        wait_for(path, before + 60, other)
        other.send_signal(signal.SIGINT)
        out, err = other.communicate(timeout=LONG)
    finally:
        one.kill()
        other.kill()
        one.communicate()
    assert other.returncode == 130, err
    assert "interrupted" in out and "kept" in out and "checked: emulator, whole" in out
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    said: list[str] = []
    store = SqliteStore(path, None, said.append)
    (found,) = (entry.tuned for entry in store.select())
    assert found.checked == "emulator, whole" and found.seconds < found.default_seconds and not said


def test_a_store_of_a_later_version_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.sqlite"
    open_store(path).close()
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


def entries(path: Path) -> int:
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
    ):
        return int(db.execute("SELECT COUNT(*) FROM entries").fetchone()[0])
    return 0


def test_a_killed_search_has_left_its_best(tmp_path: Path) -> None:
    """kill -9 while it searches: the best so far that was checked is there, and a compile replays it."""
    path = tmp_path / "t.sqlite"
    one = tuner(path, 1)
    try:
        until = time.monotonic() + LONG
        while not entries(path):
            assert time.monotonic() < until and one.poll() is None
            time.sleep(0.05)
    finally:
        one.kill()
        one.communicate()
    assert one.returncode == -signal.SIGKILL
    said: list[str] = []
    (found,) = (entry.tuned for entry in SqliteStore(path, None, said.append).select())
    assert not said and found.checked == "emulator, whole" and UNFINISHED in found.details
    assert found.seconds <= found.default_seconds


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_search_that_is_asked_to_end_keeps_what_it_found(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "t.sqlite"
    one = tuner(path, 1)
    try:
        wait_for(path, 1, one)
        one.send_signal(number)
        out, err = one.communicate(timeout=LONG)
    finally:
        one.kill()
        one.communicate()
    assert one.returncode == 130, err
    assert "interrupted" in out and "checked: emulator, whole" in out
    (found,) = (entry.tuned for entry in SqliteStore(path, None, lambda line: None).select())
    assert UNFINISHED not in found.details
