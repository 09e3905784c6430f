"""The tables of the store, and how a store of an earlier version becomes one of this version.

entries: the best schedule of a kernel, a row for each basis: what was predicted and what was measured never share one.
used_rules: digests of the rules that the schedule depends on (`digests.py`), and `used` a digest of them; own_rules:
the rules of users that the search was offered; rules: the digest of all rules then. updated: seconds since 1970.
ranges: of the lengths that are known at a call, none for a kernel of numbers. attempts: everything that searches tried.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

APPLICATION = 0x64706C63  # "dplc", in the header of the file

# A step for each version, first to last. Steps are never changed once released: a new version adds one.
STEPS = (
    """
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        kernel TEXT NOT NULL, family TEXT NOT NULL, extents TEXT NOT NULL, device TEXT NOT NULL, arch TEXT NOT NULL,
        tools TEXT NOT NULL, rules TEXT NOT NULL,
        used TEXT NOT NULL, used_rules TEXT NOT NULL, own_rules TEXT NOT NULL,
        basis TEXT NOT NULL CHECK (basis IN ('predicted', 'measured')),
        seconds REAL NOT NULL CHECK (seconds > 0), default_seconds REAL NOT NULL,
        schedule TEXT NOT NULL, search TEXT NOT NULL, seed INTEGER NOT NULL, tries INTEGER NOT NULL,
        checked TEXT NOT NULL, details TEXT NOT NULL, updated INTEGER NOT NULL,
        UNIQUE (kernel, device, arch, basis, used, tools)
    );
    CREATE INDEX entries_by_family ON entries (family, device, arch);
    """,
    """
    CREATE TABLE attempts (
        id INTEGER PRIMARY KEY,
        kernel TEXT NOT NULL, device TEXT NOT NULL, arch TEXT NOT NULL, tools TEXT NOT NULL, rules TEXT NOT NULL,
        program TEXT NOT NULL, basis TEXT NOT NULL CHECK (basis IN ('predicted', 'measured')),
        status TEXT NOT NULL, seconds REAL, detail TEXT NOT NULL, details TEXT NOT NULL, schedule TEXT NOT NULL,
        search TEXT NOT NULL, seed INTEGER NOT NULL, number INTEGER NOT NULL, updated INTEGER NOT NULL
    );
    CREATE INDEX attempts_by_kernel ON attempts (kernel, device, arch);
    """,
    "ALTER TABLE entries ADD COLUMN ranges TEXT NOT NULL DEFAULT '[]'",
)
VERSION = len(STEPS)


class NewerStoreError(Exception):
    """The store was written by a later version of dplc."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a store to this version, in one transaction. Raises NewerStoreError, sqlite3.Error.

    Two processes may come here together: the second to get the lock finds it done.
    """
    if version_of(connection) == VERSION:
        return
    with transaction(connection):
        for step in STEPS[version_of(connection) :]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Within: all of it or nothing. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back itself where the disk is full
            connection.execute("ROLLBACK")
        raise


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a store, 0 for a new file. Raises NewerStoreError, and sqlite3.DatabaseError for another's
    database."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    foreign = application != APPLICATION and (version or connection.execute("SELECT 1 FROM sqlite_master").fetchone())
    if foreign:
        raise sqlite3.DatabaseError("it is a database of something else")
    if version > VERSION:
        raise NewerStoreError(f"it has version {version}, this dplc knows {VERSION}")
    return version
