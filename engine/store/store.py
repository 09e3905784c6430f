"""The store of what tuning found: one SQLite file of a user, shared by every process that tunes or compiles.

    $DPLC_CACHE_DIR/tuning.sqlite, else in the user's cache directory for dplc; `--db FILE` names another

It runs in WAL mode and every result is a transaction of its own, so that a process may be killed at any moment, readers
never wait, and two tuners take turns. Where it cannot be written (a full disk, a file that is damaged or of a later
version) the search goes on: one line says so, results stay in memory, are tried again with each later one, and are
written to a file beside the store at the end, which `dplc db import` reads. A store is never deleted or overwritten
because it cannot be read.

An entry is found by the kernel's structural hash (structure, shape and dtypes) and the device. It holds as long as the
rules that the schedule depends on say the same, with the numbers that they read (`digests.py`): a schedule is data, and
a replay checks every step of it again. The tools (the version of dplc, the constants of the model, the assembler) do
not decide whether an entry holds: they only order entries, those of today's tools first. Predicted and measured entries
are never compared.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...codegen.cache import cache_directory
from ...ir.diagnostic import InternalError
from ..language.rule import RuleSet
from .digests import digests_of
from .entry import ATTEMPT_COLUMNS, COLUMNS, Entry, Measurement, attempt_row, entry_of, from_row, to_row
from .import_export import export_lines
from .protocol import PROGRAM, Attempt, Tuned, TuningKey
from .schema import NewerStoreError, migrate, transaction, version_of

FILE = "tuning.sqlite"
UNFINISHED = "unfinished"  # in the details of an entry: tries of a search that has not ended
PATIENCE = 30.0  # seconds that a tuner waits for another one
T = TypeVar("T")
# UnicodeDecodeError: what SQLite says of a damaged file quotes it, and that may be no text.
Failure = (sqlite3.Error, NewerStoreError, OSError, msgspec.MsgspecError, UnicodeDecodeError)


def default_path() -> Path:
    """Where the store is by default. Not necessarily there yet."""
    return cache_directory() / FILE


def open_store(path: Path | None = None, rules: RuleSet | None = None) -> SqliteStore:
    """The store for writing, made if it is not there. path None: the default place. Never raises: see above.

    rules: the rules in force, by which entries are kept; without, only entries of the very same rules are found.
    """
    return SqliteStore(path or default_path(), rules)


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class SqliteStore:
    """The store as searches use it (`protocol.TuningStore`). say: where to tell what is wrong, a line each, once."""

    def __init__(
        self, path: Path, rules: RuleSet | None = None, say: Callable[[str], None] = say_on_stderr,
        patience: float = PATIENCE,
    ):  # fmt: skip
        self.path, self.say, self.patience = path, say, patience
        self.digests = digests_of(rules) if rules is not None else None
        self.unsaved: list[Entry] = []
        self.unsaved_attempts: list[tuple[Any, ...]] = []
        self._said: set[str] = set()
        self._connection: sqlite3.Connection | None = None
        self._attempt(lambda db: None)

    # ---- what searches ask for
    def get(self, key: TuningKey) -> Tuned | None:
        """The best schedule that holds under the rules in force: a measured one before any predicted one."""
        found = self.valid(self.exact(key), key)
        return found[0].tuned if found else None

    def put(self, key: TuningKey, tuned: Tuned) -> bool:
        """Keep it if it is better than what holds on its own basis. Whether it was kept (if only in memory so far)."""
        if not 0 < tuned.seconds < math.inf:
            raise InternalError(f"{tuned.seconds} seconds is no time of a kernel")
        used = self.digests.used(tuned.schedule) if self.digests is not None else {}
        own = tuple(sorted(self.digests.offered(key.family == PROGRAM))) if self.digests is not None else ()
        entry = entry_of(key, tuned, used, own)
        mine = [
            one for one in self.unsaved if (one.kernel, one.device, one.basis) == (key.kernel, key.device, tuned.basis)
        ]
        if any(_as_good(one, entry) for one in mine):
            return False
        kept = self._attempt(lambda db: self._replace(db, entry))
        if kept is None:
            self.unsaved = [one for one in self.unsaved if one not in mine] + [entry]
            return True
        return kept

    def record(self, key: TuningKey, attempts: Sequence[Attempt]) -> None:
        """Remember attempts, good and bad, in one transaction."""
        now = int(time.time())
        rows = [attempt_row(key, attempt, now) for attempt in attempts]
        if self._attempt(lambda db: _insert_attempts(db, rows)) is None:
            self.unsaved_attempts += rows

    def close(self) -> None:
        """Save what could not be saved so far, here or in a file beside the store. The store may be used again."""
        if self.unsaved or self.unsaved_attempts:
            self._attempt(lambda db: None)
        if self.unsaved:
            self._rescue()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- entries
    def exact(self, key: TuningKey) -> list[Entry]:
        """Every entry of this kernel on this device, whatever the rules and tools."""
        where = "kernel = ? AND device = ? AND arch = ?"
        kept = [one for one in self.unsaved if (one.kernel, one.device) == (key.kernel, key.device)]
        return [*kept, *self.select(where, (key.kernel, key.device, key.arch))]

    def shapes(self, key: TuningKey) -> list[tuple[int, ...]]:
        """The extents at which this kernel's family was tuned for this device."""
        command = "SELECT DISTINCT extents FROM entries WHERE family = ? AND device = ? AND arch = ?"
        values = (key.family, key.device, key.arch)
        rows = self._attempt(lambda db: [row[0] for row in db.execute(command, values)])
        return [found for row in rows or () if (found := _decoded(row, tuple[int, ...])) is not None]

    def has_family(self, family: str, device: str, arch: str) -> bool:
        """Whether there is any entry of a family for a device."""
        command = "SELECT 1 FROM entries WHERE family = ? AND device = ? AND arch = ? LIMIT 1"
        known = any(one.family == family for one in self.unsaved)
        return known or bool(self._attempt(lambda db: db.execute(command, (family, device, arch)).fetchone()))

    def at(self, key: TuningKey, extents: Sequence[int]) -> list[Entry]:
        """Every entry of this kernel's family at other extents."""
        written = msgspec.json.encode(extents).decode()
        where = "family = ? AND device = ? AND arch = ? AND extents = ?"
        return self.select(where, (key.family, key.device, key.arch, written))

    def valid(self, entries: Iterable[Entry], key: TuningKey) -> list[Entry]:
        """The entries that hold under the rules in force, best first: measured, today's tools, fastest."""
        held = [entry for entry in entries if self.holds(entry, key)]
        return sorted(held, key=lambda one: (one.basis == "predicted", not one.current(key), one.seconds))

    def holds(self, entry: Entry, key: TuningKey) -> bool:
        """Whether the rules still say what they said when the entry was made, and no rule of a user's is new to it."""
        if self.digests is None or entry.rules == key.rules or not entry.used_rules:
            return entry.rules == key.rules
        offered = self.digests.offered(entry.family == PROGRAM)
        return offered <= set(entry.own_rules) and self.digests.hold(entry.used_rules)

    def select(self, where: str = "1", values: Sequence[Any] = ()) -> list[Entry]:
        """Entries by a condition on their columns; none where the store cannot be read."""
        found = self._attempt(lambda db: list(_rows(db, where, values, self._skipped)))
        return [] if found is None else found

    def _skipped(self, row: int, error: Exception) -> None:
        """One damaged row does not make the others useless."""
        self.say_once(f"note: entry {row} of the tuning store {self.path} is damaged and left out: {error}")

    def counts(self) -> dict[str, int]:
        """Rows: entries, attempts, and kernels that have an entry."""
        asked = {
            "entries": "SELECT COUNT(*) FROM entries", "attempts": "SELECT COUNT(*) FROM attempts",
            "kernels": "SELECT COUNT(DISTINCT kernel) FROM entries",
        }  # fmt: skip
        found = self._attempt(lambda db: {name: int(db.execute(sql).fetchone()[0]) for name, sql in asked.items()})
        return dict.fromkeys(asked, 0) if found is None else found

    def measurements(self) -> list[Measurement]:
        """Every attempt that was measured and kept the features of its kernels."""
        command = "SELECT kernel, program, device, seconds, tools, details FROM attempts WHERE basis = 'measured'"
        rows = self._attempt(lambda db: list(db.execute(f"{command} AND status = 'ok' ORDER BY id")))
        out = []
        for row in rows or ():
            details = _decoded(row["details"], dict[str, Any]) or {}
            if details.get("launches"):
                values = {name: row[name] for name in ("kernel", "program", "device", "seconds")}
                with contextlib.suppress(msgspec.ValidationError):
                    values |= {"launches": details["launches"], "about": row["tools"]}
                    out.append(msgspec.convert(values, Measurement))
        return out

    def prune(self, attempts: bool, dry_run: bool = False) -> dict[str, int]:
        """Remove entries that do not hold under the rules in force; and all attempts if wished. How many went."""
        assert self.digests is not None
        rules = self.digests.rules.digest
        entries = [one for one in self.select() if not self.holds(one, msgspec.structs.replace(one.key, rules=rules))]
        gone = {"entries": len(entries), "attempts": self.counts()["attempts"] if attempts else 0}
        if not dry_run:
            self._attempt(lambda db: _remove(db, entries, attempts))
        return gone

    def add(self, entries: Iterable[Entry]) -> int:
        """Merge entries of another store, all or none: how many were new or better than what is there.

        Raises sqlite3.Error and NewerStoreError.
        """
        connection = self._open()
        with transaction(connection):
            return sum(_merge(connection, entry) for entry in entries)

    def _replace(self, db: sqlite3.Connection, entry: Entry) -> bool:
        """Put an entry in the place of the slower ones of its basis that hold."""
        with transaction(db):
            where = "kernel = ? AND device = ? AND arch = ? AND basis = ? AND tools = ?"
            values = (entry.kernel, entry.device, entry.arch, entry.basis, entry.tools)
            there = [one for one in _rows(db, where, values) if self.holds(one, entry.key)]
            if any(_as_good(one, entry) for one in there):
                return False
            for one in there:
                db.execute(f"DELETE FROM entries WHERE {where} AND used = ?", (*values, one.used))
            _insert(db, entry)
            return True

    # ---- the file, and what may be wrong with it
    def _attempt(self, act: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do something with the file, after what was left undone. None, and a line, where it cannot be done."""
        try:
            connection = self._open()
            self._save(connection)
            return act(connection)
        except Failure as error:
            self._complain(error)
            return None

    def _save(self, connection: sqlite3.Connection) -> None:
        while self.unsaved:
            self._replace(connection, self.unsaved[0])
            self.unsaved.pop(0)
        if self.unsaved_attempts:
            _insert_attempts(connection, self.unsaved_attempts)
            self.unsaved_attempts = []

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = connect(self.path, self.patience)
        return self._connection

    def _complain(self, error: BaseException) -> None:
        self.say_once(f"warning: the tuning store {self.path} cannot be used: {reason(error)}; going on without it")

    def say_once(self, line: str) -> None:
        """Tell a line, unless it was told before."""
        if line not in self._said:
            self._said.add(line)
            self.say(line)

    def _rescue(self) -> None:
        """Write what could not be saved to a file: beside the store, else where temporary files go."""
        text = export_lines(self.unsaved)
        for folder in (self.path.parent, Path(tempfile.gettempdir())):
            with contextlib.suppress(OSError):
                # a new file that only we have: a name that can be guessed may be a link to another file
                descriptor, name = tempfile.mkstemp(".jsonl", f"{self.path.stem}.unsaved-", folder)
                try:
                    with os.fdopen(descriptor, "w") as file:
                        file.write(text)
                except OSError:
                    Path(name).unlink()
                    raise
                self.say(f"note: {len(self.unsaved)} schedules are in {name}: `dplc db import` reads it")
                self.unsaved = []
                return
        self.say(f"warning: {len(self.unsaved)} schedules could not be saved anywhere")


def reason(error: BaseException) -> str:
    """What is wrong with a store, for people."""
    text = str(error) or type(error).__name__
    known = {
        "file is not a database": "the file is damaged, or no database: move it away",
        "malformed": "the file is damaged: move it away",
        "codec can't decode": "the file is damaged: move it away",
        "full": "the disk is full",
        "disk I/O error": "the disk is full or broken",
        "locked": "another process holds it",
        "readonly": "it cannot be written",
    }
    return next((told for part, told in known.items() if part in text), text)


def connect(path: Path, patience: float) -> sqlite3.Connection:
    """A connection to the store, made or migrated if need be. Raises sqlite3.Error and NewerStoreError."""
    writable = os.access(path if path.exists() else path.parent, os.W_OK)
    address = path.absolute().as_uri() + ("" if writable else "?mode=ro&immutable=1")
    connection = sqlite3.connect(address, timeout=patience, isolation_level=None, check_same_thread=False, uri=True)
    connection.row_factory = sqlite3.Row
    if not writable:
        return connection
    try:
        version_of(connection)  # before anything is written: the file may be none of ours
        until = time.monotonic() + patience
        while True:  # who turns a new file into a WAL one needs it alone, and SQLite does not wait for that
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)
        connection.execute("PRAGMA synchronous = NORMAL")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _rows(
    connection: sqlite3.Connection, where: str, values: Sequence[Any],
    skipped: Callable[[int, Exception], None] | None = None,
) -> Iterator[Entry]:  # fmt: skip
    """Entries by a condition; `where` is a text of ours. skipped: told of the rows that hold none."""
    for row in connection.execute(f"SELECT id, {', '.join(COLUMNS)} FROM entries WHERE {where} ORDER BY id", values):
        try:
            yield from_row(row)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            if skipped is not None:
                skipped(row["id"], error)


def _decoded(text: Any, kind: Any) -> Any:
    """The JSON in a column; None where it holds something else."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, TypeError):
        return None


def _as_good(there: Entry, entry: Entry) -> bool:
    """Whether an entry need not take the place of another one: its search has ended, and found nothing faster."""
    return there.seconds < entry.seconds or (there.seconds == entry.seconds and UNFINISHED not in there.details)


SAME = "kernel = ? AND device = ? AND arch = ? AND basis = ? AND used = ? AND tools = ?"


def _same(one: Entry) -> tuple[Any, ...]:
    """What SAME asks for: the entries that an entry takes the place of."""
    return one.kernel, one.device, one.arch, one.basis, one.used, one.tools


def _remove(connection: sqlite3.Connection, entries: Iterable[Entry], attempts: bool) -> None:
    with transaction(connection):
        for one in entries:
            connection.execute(f"DELETE FROM entries WHERE {SAME}", _same(one))
        if attempts:
            connection.execute("DELETE FROM attempts")
    connection.execute("VACUUM")


def _insert(connection: sqlite3.Connection, entry: Entry) -> None:
    marks = ", ".join("?" * len(COLUMNS))
    command = f"INSERT OR REPLACE INTO entries ({', '.join(COLUMNS)}) VALUES ({marks})"
    connection.execute(command, to_row(entry, int(time.time())))


def _merge(connection: sqlite3.Connection, entry: Entry) -> bool:
    if any(one.seconds <= entry.seconds for one in _rows(connection, SAME, _same(entry))):
        return False
    _insert(connection, entry)
    return True


def _insert_attempts(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> bool:
    marks = ", ".join("?" * len(ATTEMPT_COLUMNS))
    with transaction(connection):
        connection.executemany(f"INSERT INTO attempts ({', '.join(ATTEMPT_COLUMNS)}) VALUES ({marks})", rows)
    return True
