"""A content-addressed store of built files, shared by every process of a user.

A file's name is the digest of everything that decided its content, so entries are never invalid and never overwritten
with something else. Writers build next to the entry and rename the result to it: readers see a whole file or none,
and two processes that build the same entry at once both succeed. Beyond a size, entries not used are removed.

Names can be computed by anyone, and some entries are code that is loaded. So folders here are their owner's alone to
change, and a file counts only if it is ours (or root's) and no other user can write to it; others are built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import platformdirs

from .compiler import BuildError

# ---- eviction: beyond a size, the entries that were unused for longest are removed
#
# Only files that the cache itself names (KIND/xx/DIGEST.suffix) are looked at: the folder may hold others.


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
    """Return the bytes that the cache may hold."""
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
    """Return (when it was used, bytes, path) of every entry."""
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


BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_directory() -> Path:
    """Return the root of the store, which may not exist yet.

    It is $DPLC_CACHE_DIR, else the user's cache directory for dplc.
    """
    override = os.environ.get("DPLC_CACHE_DIR")
    return Path(override) if override else Path(platformdirs.user_cache_dir("dplc"))


def forget_oldest(kept: dict[Any, Any], most: int) -> None:
    """Remove the entry that was put in first, if there are more than `most`."""
    if len(kept) > most:
        del kept[next(iter(kept))]


def digest(parts: Iterable[str | bytes]) -> str:
    """Return a hexadecimal digest that differs whenever any part, or the boundary between two parts, differs."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:40]


def cached(kind: str, parts: Iterable[str | bytes], suffix: str, build: Callable[[Path], None]) -> Path:
    """Return the file built from `parts`, building it first if need be.

    `build` writes its result to the path that it receives. The directory of this path is its own and is deleted
    afterwards, so it may leave sources and objects there. Its BuildErrors pass through, and the store stays as it
    was.
    Raises BuildError if the store cannot be written.
    """
    root, key = cache_directory(), digest([kind, *parts])
    entry = root / kind / key[:2] / f"{key[2:]}{suffix}"
    try:
        for folder in (root, root / kind, entry.parent):
            own(folder, shared=folder == root)
        if is_ours(entry):
            used(entry)
            return entry
        with tempfile.TemporaryDirectory(prefix="building-", dir=entry.parent) as workshop:
            product = Path(workshop) / f"product{suffix}"
            build(product)
            product.chmod(product.stat().st_mode & ~BY_OTHERS)
            product.replace(entry)
    except OSError as error:
        fix = "set DPLC_CACHE_DIR to a directory with space that you can write to"
        raise BuildError(f"could not write to the build cache {root}", str(error), fix) from error
    built(root)
    return entry


def own(folder: Path, shared: bool) -> None:
    """Create a folder that no other user can change, or check that a folder is one. Raises BuildError for others'.

    shared: others may also create files in it, as in the temporary folder, if it keeps them from removing ours.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat() if shared else folder.lstat()
    if not owned(status):
        raise _unsafe(folder, f"it belongs to user {status.st_uid}, who could put code there that dplc would run")
    if shared:
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise _unsafe(folder, "every user can write to it, and could put code there that dplc would run")
    elif status.st_mode & BY_OTHERS:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~BY_OTHERS)


def is_ours(entry: Path) -> bool:
    """Return whether a file is there that only its owner, this user or root, can have written."""
    try:
        status = entry.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and owned(status) and not status.st_mode & BY_OTHERS


def owned(status: os.stat_result) -> bool:
    """Return whether something is this user's, or root's, which must be trusted."""
    return status.st_uid in (os.getuid(), 0)


def _unsafe(folder: Path, why: str) -> BuildError:
    return BuildError(f"{folder} is no place for the build cache", why, "set DPLC_CACHE_DIR to a directory of your own")
