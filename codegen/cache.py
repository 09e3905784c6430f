"""A content-addressed store of built files, shared by every process of a user.

A file's name is the digest of everything that decided its content, so entries are never invalid and never overwritten
with something else. Writers build beside the entry and rename it into place: readers see a whole file or none, and two
processes that build the same entry at once both succeed. Beyond a size what is not used goes (eviction.py).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs

from .compiler import BuildError
from .eviction import built, used


def cache_directory() -> Path:
    """The root of the store: $DPLC_CACHE_DIR, else the user's cache directory for dplc. Not necessarily there yet."""
    override = os.environ.get("DPLC_CACHE_DIR")
    return Path(override) if override else Path(platformdirs.user_cache_dir("dplc"))


def digest(parts: Iterable[str | bytes]) -> str:
    """A hexadecimal digest that differs whenever any part, or the boundary between two parts, differs."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:40]


def cached(kind: str, parts: Iterable[str | bytes], suffix: str, build: Callable[[Path], None]) -> Path:
    """The file built from `parts`, building it first if need be.

    `build` writes its result to the path it is given, in a directory that is its own and is deleted afterwards (so it
    may leave sources and objects beside it). Its BuildErrors pass through, and the store stays as it was.
    Raises BuildError if the store cannot be written.
    """
    key = digest([kind, *parts])
    entry = cache_directory() / kind / key[:2] / f"{key[2:]}{suffix}"
    if entry.exists():
        used(entry)
        return entry
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=entry.parent) as workshop:
            product = Path(workshop) / f"product{suffix}"
            build(product)
            product.replace(entry)
    except OSError as error:
        fix = "set DPLC_CACHE_DIR to a directory with space that you can write to"
        raise BuildError(f"could not write to the build cache {cache_directory()}", str(error), fix) from error
    built(cache_directory())
    return entry
