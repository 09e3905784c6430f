"""`dplc tune` as a process: killed, interrupted, and beside another one. What it found is kept, and right."""

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
from dplc.engine.store.store import UNFINISHED, SqliteStore, Tuned

TEXT = "torch.relu(torch.randn(64, 32) @ torch.randn(32, 48))"


def tuner(path: Path, seed: int) -> BaseProcess:
    """A search without an end. What it prints is beside its store."""
    line = f"tune --target sm_90a --top 1 --tries 1000000 --seed {seed} --db {path} -c"
    return started(printed(path, seed), tune, [*line.split(), TEXT])


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


def killed(process: BaseProcess) -> None:
    process.kill()
    process.join(MOST)
    assert process.exitcode == -signal.SIGKILL


def found(path: Path) -> Tuned:
    """The only schedule of a store that is whole."""
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    said: list[str] = []
    (entry,) = SqliteStore(path, None, said.append).select()
    assert not said and entry.tuned.checked == "emulator, whole"
    return entry.tuned


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_search_that_is_asked_to_end_keeps_what_it_found(path: Path, number: signal.Signals) -> None:
    """Two on one store: kill -9 at a random moment takes one, the other one is interrupted."""
    one, other = tuner(path, 1), tuner(path, 2)
    wait_for(path, "attempts", 1, one, other)
    time.sleep(random.random())
    killed(one)
    wait_for(path, "attempts", rows(path, "attempts") + 60, other)
    os.kill(other.pid or 0, number)
    other.join(MOST)
    out = printed(path, 2).read_text()
    assert other.exitcode == 130 and "interrupted" in out and "checked: emulator, whole; kept" in out, out
    kept = found(path)
    assert kept.seconds < kept.default_seconds and UNFINISHED not in kept.details


def test_a_killed_search_has_left_its_best(path: Path) -> None:
    one = tuner(path, 1)
    wait_for(path, "entries", 1, one)
    killed(one)
    kept = found(path)
    assert UNFINISHED in kept.details and kept.seconds <= kept.default_seconds
