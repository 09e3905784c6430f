"""What may happen to a store: killed writers, two at once, a full disk, damage, other versions. Nothing is lost."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from entries import OTHER, key, tuned

from dplc.engine.store import store
from dplc.engine.store.store import Attempt, Score, SqliteStore

HERE = Path(__file__).parent
WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from entries import key, tuned
from dplc.engine.store.store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
for number in range(int(sys.argv[3]), int(sys.argv[4])):
    assert store.put(key(number), tuned())
    print(number, flush=True)
store.close()
"""


def writer(path: Path, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(HERE), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(path: Path) -> tuple[SqliteStore, list[str]]:
    lines: list[str] = []
    return SqliteStore(path, None, lines.append, patience=0.2), lines


def test_killed_writers_lose_nothing_that_was_said_to_be_kept(tmp_path: Path) -> None:
    path, dice, kept = tmp_path / "t.sqlite", random.Random(0), []
    writers = [writer(path, n * 100_000, (n + 1) * 100_000) for n in range(3)]
    for one in writers:
        assert one.stdout is not None and one.stdout.readline()  # it writes
    for one in writers:
        time.sleep(dice.random() * 0.1)
        one.send_signal(signal.SIGKILL)
    for n, one in enumerate(writers):
        assert one.stdout is not None
        printed = one.stdout.read().splitlines()  # `communicate` would drop what the stream has read ahead
        kept += [n * 100_000, *(int(line) for line in printed if line)]
    store, lines = told(path)
    found = {entry.key.kernel for entry in store.select()}
    assert found >= {f"kernel{number}" for number in kept} and len(kept) > 3
    assert store.put(key(7_000_000), tuned()) and not lines
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_two_tuners_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    writers = [writer(path, 0, 150), writer(path, 150, 300)]
    for one in writers:
        _, err = one.communicate(timeout=60)
        assert one.returncode == 0, err
    assert len(SqliteStore(path).select()) == 300


def test_a_full_disk(tmp_path: Path) -> None:
    """The search goes on, and one line says why its results are not stored. With room again, they are."""
    path = tmp_path / "t.sqlite"
    store, lines = told(path)
    assert store.put(key(0), tuned())
    assert store._connection is not None
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big: Any = {"filler": "x" * 20_000}
    for number in range(1, 6):
        assert not store.put(key(number), tuned(details=big))
    store.record(key(), [Attempt(OTHER, "p", Score(1.0, "predicted", details=big), "hill", 0, 1)])
    assert len(lines) == 1 and "the disk is full" in lines[0] and str(path) in lines[0]
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert store.put(key(2), tuned(details=big))
    store.close()
    assert {entry.key.kernel for entry in SqliteStore(path).select()} == {"kernel0", "kernel2"}
    assert len(lines) == 1


def damaged(path: Path) -> None:
    path.write_bytes(b"this is not a database " * 500)


def cut_off(path: Path) -> None:
    with SqliteStore(path) as store:
        for number in range(40):
            store.put(key(number), tuned())
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))


def not_utf8(path: Path) -> None:
    """What SQLite says of it is not a text: it quotes the bytes."""
    SqliteStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE T\xe1BLE"))


def of_something_else(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE songs (title TEXT)")


def newer(path: Path) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as later:
        later.execute(f"PRAGMA user_version = {store.VERSION + 1}")


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (damaged, "damaged"),
        (cut_off, "damaged"),
        (not_utf8, "damaged"),
        (of_something_else, "something else"),
        (newer, f"version {store.VERSION + 1}"),
        (a_folder, "unable to open"),
    ],
)
def test_a_store_that_cannot_be_read_is_left_alone(tmp_path: Path, make: Any, said: str) -> None:
    path = tmp_path / "t.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    store, lines = told(path)
    assert store.get(key(99)) is None
    assert not store.put(key(99), tuned())
    store.record(key(99), [])
    store.close()
    assert len(lines) == 1, lines
    assert said in lines[0] and "going on without it" in lines[0]
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_row_that_somebody_wrote(tmp_path: Path) -> None:
    """Data, never code: what does not decode is an error of the store."""
    path = tmp_path / "t.sqlite"
    with SqliteStore(path) as store:
        store.put(key(), tuned())
    with sqlite3.connect(path) as other:
        other.execute("""UPDATE entries SET entry = json_set(entry, '$.tuned.schedule', json('[{"step": 3}]'))""")
    store, lines = told(path)
    assert store.get(key()) is None
    assert len(lines) == 1 and "step" in lines[0]


def test_no_place_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store, lines = told(tmp_path / "file" / "t.sqlite")
    assert not store.put(key(), tuned())
    store.close()
    assert len(lines) == 1 and "going on without it" in lines[0]


def test_one_bad_row_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with SqliteStore(path) as store:
        for number in range(3):
            store.put(key(number), tuned())
    for damage in (
        """json_set(entry, '$.tuned.schedule', json('[{"step": 3}]'))""", f"'{'[' * 100_000}'", "x'ff'", "7",
        "json_set(entry, '$.tuned.default_seconds', -1.0)", "json_set(entry, '$.used_rules', 7)",
        "json_set(entry, '$.key.extents', 'x')", "json_set(entry, '$.tuned.details', 7)",
    ):  # fmt: skip
        with sqlite3.connect(path) as other:
            (before,) = other.execute("SELECT entry FROM entries WHERE id = 2").fetchone()
            other.execute(f"UPDATE entries SET entry = {damage} WHERE id = 2")
        store, lines = told(path)
        assert store.get(key(0)) == tuned() and store.get(key(2)) == tuned() and store.get(key(1)) is None
        assert len(store.select()) == 2 and len({entry.key.extents for entry in store.family(key(0))}) == 1
        assert len(lines) == 1 and "entry 2" in lines[0] and "left out" in lines[0], lines
        store.close()
        with sqlite3.connect(path) as other:
            other.execute("UPDATE entries SET entry = ? WHERE id = 2", (before,))


def test_a_disk_that_is_full_when_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite rolls back by itself; what is told is the disk."""
    made = sqlite3.connect

    def small(*given: Any, **options: Any) -> sqlite3.Connection:
        connection = made(*given, **options)
        connection.execute("PRAGMA max_page_count = 2")
        return connection

    monkeypatch.setattr("dplc.engine.store.store.sqlite3.connect", small)
    store, lines = told(tmp_path / "t.sqlite")
    assert len(lines) == 1 and "the disk is full" in lines[0], lines
    store.put(key(), tuned())
    store.close()


def test_a_writer_that_holds_the_store_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    SqliteStore(path).close()
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN EXCLUSIVE")
    lines: list[str] = []
    store = SqliteStore(path, None, lines.append, patience=0.2)
    assert not store.put(key(), tuned()) and "another process holds it" in lines[0]
    store.close()
    release = threading.Timer(0.3, writer.close)
    release.start()
    lines.clear()
    with SqliteStore(path, None, lines.append, patience=60.0) as store:
        assert store.put(key(), tuned()) and not lines
    release.join()
