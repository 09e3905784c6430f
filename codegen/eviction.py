"""The build cache stays below a size: what was not used for longest goes first.

Only files that the cache itself names are looked at (KIND/xx/DIGEST.suffix): other things may be in the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

LIMIT = 4 << 30  # bytes, unless $DPLC_CACHE_BYTES says otherwise
KEPT = 0.8  # of the limit, once it is reached
FRESH = 3600.0  # seconds in which an entry counts as in use
EVERY = 64  # entries that a process builds between two looks
ENTRY = re.compile(r"[0-9a-f]{38}\.[a-z]+")
FOLDER = re.compile(r"[0-9a-f]{2}")

_built = 0


def used(entry: Path) -> None:
    """Note that an entry was used just now; once in an hour is enough."""
    with contextlib.suppress(OSError):
        if time.time() - entry.stat().st_mtime > FRESH:
            os.utime(entry)


def built(root: Path) -> None:
    """Note that an entry was built; now and then the cache is trimmed."""
    global _built
    if _built % EVERY == 0:
        trim(root, limit())
    _built += 1


def limit() -> int:
    """The bytes that the cache may hold."""
    given = os.environ.get("DPLC_CACHE_BYTES", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else LIMIT


def trim(root: Path, most: int) -> int:
    """Remove what was not used for longest, until a good part of the limit is free; how many entries went."""
    found = sorted(_entries(root))
    total = sum(size for _, size, _ in found)
    gone = 0
    for when, size, path in found if total > most else ():
        if total <= KEPT * most or time.time() - when < FRESH:
            break
        with contextlib.suppress(OSError):
            Path(path).unlink()
            total -= size
            gone += 1
    return gone


def _entries(root: Path) -> list[tuple[float, int, str]]:
    """(when it was used, bytes, path) of every entry."""
    found = []
    for folder in root.glob("*/??"):
        if not FOLDER.fullmatch(folder.name):
            continue
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if ENTRY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, entry.path))
    return found
