"""What may happen to a store: killed writers and searches, several at once, a full disk, damage, other versions. Nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from entries import key, tuned
from forked import MOST, started

from dplc.engine.cli.app import main
from dplc.engine.store.store import UNFINISHED, VERSION, Entry, SqliteStore


def opened(path: Path, patience: float = 0.2) -> tuple[SqliteStore, list[str]]:
    lines: list[str] = []
    return SqliteStore(path, None, lines.append, patience), lines


def whole(path: Path) -> list[Entry]:
    """Return the entries of a store. Fails where its file is damaged, or where opening it prints a line."""
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store, lines = opened(path)
    found = store.select()
    assert not lines
    return found


def write(path: Path, first: int, last: int) -> None:
    with SqliteStore(path) as store:
        for number in range(first, last):
            assert store.put(key(number), tuned())
            print(f"kernel{number}")


def test_writers_take_turns_and_lose_nothing_if_they_are_killed(tmp_path: Path) -> None:
    """Three writers on one store: two of them are killed at random moments, the third one ends by itself."""
    path, dice = tmp_path / "t.sqlite", random.Random(0)
    ranges = (0, 150), (100_000, 200_000), (200_000, 300_000)
    logs = [tmp_path / str(first) for first, _ in ranges]
    writers = [started(log, write, path, *numbers) for log, numbers in zip(logs, ranges, strict=True)]
    while not all(log.exists() and log.read_text() for log in logs):
        time.sleep(0.01)
    for one in writers[1:]:
        time.sleep(dice.random() * 0.1)
        one.kill()
    for one in writers:
        one.join()
    assert [one.exitcode for one in writers] == [0, -signal.SIGKILL, -signal.SIGKILL], logs[0].read_text()
    printed = {name for log in logs for name in log.read_text().split()}
    assert {entry.key.kernel for entry in whole(path)} >= printed and len(printed) > 150
    write(path, 7_000_000, 7_000_001)


def tune(path: Path) -> None:
    """A search without an end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as in a process of a shell
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    line = f"tune --target sm_90a --top 1 --tries 1000000 --db {path} -c"
    main([*line.split(), "torch.relu(torch.randn(64, 32) @ torch.randn(32, 48))"])


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_a_search_that_a_signal_ends_keeps_what_it_found(path: Path, number: signal.Signals) -> None:
    log, killed = path.with_name("printed"), number == signal.SIGKILL
    process = started(log, tune, path)
    with SqliteStore(path) as store:
        while not store.select():
            assert process.is_alive()
            time.sleep(0.05)
    os.kill(process.pid or 0, number)
    process.join(MOST)
    out = log.read_text()
    assert process.exitcode == (-number if killed else 130), out
    assert killed or ("interrupted" in out and "checked: emulator, whole; kept" in out), out
    (entry,) = whole(path)
    found = entry.tuned
    assert found.checked == "emulator, whole" and (UNFINISHED in found.details) == killed
    assert killed or found.seconds < found.default_seconds


def test_a_full_disk(path: Path) -> None:
    """The search goes on, and one line says why its results are not stored. With room again, they are."""
    store, lines = opened(path)
    assert store.put(key(0), tuned()) and store._connection is not None
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big: Any = {"filler": "x" * 20_000}
    for number in range(1, 6):
        assert not store.put(key(number), tuned(details=big))
    (line,) = lines
    assert "the disk is full" in line and str(path) in line
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert store.put(key(2), tuned(details=big))
    store.close()
    assert {entry.key.kernel for entry in SqliteStore(path).select()} == {"kernel0", "kernel2"} and lines == [line]


def test_a_disk_that_is_full_when_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite rolls back by itself; the line is about the disk."""
    made = sqlite3.connect

    def small(*given: Any, **options: Any) -> sqlite3.Connection:
        connection = made(*given, **options)
        connection.execute("PRAGMA max_page_count = 2")
        return connection

    monkeypatch.setattr("dplc.engine.store.store.sqlite3.connect", small)
    store, (line,) = opened(tmp_path / "t.sqlite")
    assert "the disk is full" in line and not store.put(key(), tuned())


def cut_off(path: Path) -> None:
    write(path, 0, 40)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))


def not_utf8(path: Path) -> None:
    """What SQLite says of it is not a text: it quotes the bytes."""
    changed(path, "PRAGMA journal_mode = DELETE")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE T\xe1BLE"))


def of_something_else(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE songs (title TEXT)")


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


def changed(path: Path, command: str) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute(command)
    db.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(b"this is not a database " * 500), "damaged"),
        (cut_off, "damaged"),
        (not_utf8, "damaged"),
        (of_something_else, "something else"),
        (lambda path: changed(path, f"PRAGMA user_version = {VERSION + 1}"), f"version {VERSION + 1}"),
        (Path.mkdir, "unable to open"),
        (below_a_file, "File exists"),
    ],
)
def test_a_store_that_cannot_be_read_is_left_alone(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    path = tmp_path / "folder" / "t.sqlite"
    path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    store, lines = opened(path)
    assert store.get(key(99)) is None and not store.put(key(99), tuned())
    store.close()
    (line,) = lines
    assert said in line and "going on without it" in line
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("""json_set(entry, '$.tuned.schedule', json('[{"step": 3}]'))""", "Expected `str`, got `int`"),
        ("""replace(entry, '{}', '{"x":' || replace(hex(zeroblob(50000)), '0', '['))""", "recursion"),
        ("x'ff'", "JSON is malformed"),
        ("json_set(entry, '$.tuned.default_seconds', -1.0)", "> 0.0"),
        ("json_set(entry, '$.used_rules', 7)", "Expected `object`"),
        ("json_set(entry, '$.key.extents', 'x')", "Expected `array`"),
        ("json_set(entry, '$.tuned.details', 7)", "Expected `object`"),
    ],
)
def test_one_bad_row_leaves_the_others(path: Path, damage: str, why: str) -> None:
    """Data, never code: a row that does not decode is left out."""
    write(path, 0, 3)
    changed(path, f"UPDATE entries SET entry = {damage} WHERE id = 2")
    store, lines = opened(path)
    assert [store.get(key(number)) for number in range(3)] == [tuned(), None, tuned()]
    assert len(store.select()) == len(store.family(key(0))) == 2
    (line,) = lines
    assert "entry 2 of" in line and "left out" in line and why in line


def test_a_writer_that_holds_the_store_is_waited_for(path: Path) -> None:
    SqliteStore(path).close()
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN EXCLUSIVE")
    store, lines = opened(path)
    assert not store.put(key(), tuned()) and "another process holds it" in lines[0]
    release = threading.Timer(0.3, writer.close)
    release.start()
    store, lines = opened(path, 60.0)
    assert store.put(key(), tuned()) and not lines
    release.join()
