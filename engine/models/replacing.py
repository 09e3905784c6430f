"""Writing an artefact's folder: whole or not at all, in the place of an artefact, never in that of anything else.

It is written beside its place. Where the system can, the two are exchanged in one step; else the old one is renamed
away first. Whatever ends the process, the old artefact or the new one is there, and no file is lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...ir.diagnostic import DplcError
from .manifest import not_ours, remove

RENAME_EXCHANGE = 2  # of Linux's renameat2
HERE = -100  # AT_FDCWD


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A folder to write in, which goes to its place when all is well, and is gone when anything is not.

    Raises DplcError where something is that dplc did not write, before and after what is done inside.
    """
    place = Path(os.path.realpath(folder))  # a link stays, and what it points to is replaced
    _check(place, folder)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror}") from None
    try:
        yield workshop
    except OSError as error:
        shutil.rmtree(workshop, ignore_errors=True)
        raise DplcError(f"cannot write {folder}: {error.strerror or error}") from None
    except BaseException:
        shutil.rmtree(workshop, ignore_errors=True)
        raise
    try:
        workshop.chmod(0o755)
        _check(place, folder)
        _put(workshop, place)
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        if workshop.exists():  # under this name may be the old one: what is whole and ours goes, nothing else
            remove(workshop)


def _check(place: Path, folder: Path) -> None:
    """Raises DplcError unless nothing is at a place, or an empty folder, or an artefact as dplc wrote it."""
    if not os.path.lexists(place):
        return
    why = not_ours(place) if place.is_dir() else "is no folder"
    if why is not None:
        raise DplcError(f"{folder} {why}: it is not overwritten", hint="name another folder, or move this one away")


def _put(workshop: Path, place: Path) -> None:
    """Rename a folder to its place; what dplc wrote there before is removed once the new one is there."""
    if not place.exists() or not any(place.iterdir()):
        workshop.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}.old.", dir=place.parent)) / place.name
    if _exchange(workshop, place):
        workshop.rename(old)
    else:
        place.rename(old)
        try:
            workshop.rename(place)
        except OSError:
            old.rename(place)
            raise
    remove(old)  # looks again: what was put there meanwhile stays, in a folder beside
    with contextlib.suppress(OSError):
        old.parent.rmdir()


def _exchange(one: Path, other: Path) -> bool:
    """Give each of two folders the other's name in one step. Whether the system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(HERE, os.fsencode(one), HERE, os.fsencode(other), RENAME_EXCHANGE) == 0)
