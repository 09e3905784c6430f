"""Manifest of the files that dplc wrote into a folder, with their sizes and digests.

It distinguishes an artefact from any other folder, whatever the files are called, and reveals damage before anything is
parsed. It does not protect against an attacker, who can change a digest along with a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from ...codegen.arrays import memory_bytes
from ...ir.diagnostic import DplcError

MANIFEST = "dplc-artefact.json"
FORMAT = 2
CHUNK = 1 << 20
TOO_LARGE = "too large"  # in the place of a digest
LARGEST_TEXT = 64 << 20  # bytes of a plan, a kernel, a dump: more is no text of ours
OURS = re.compile(
    r"figures\.json|(rows/\d{1,3}/)?(plan\.json|constants\.safetensors|ir/[a-z]+\.ir|cuda/\w+\.cu|cubin/\w+\.cubin)",
    re.ASCII,
)


class FileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Record of a file. size: bytes; sha256: of the content."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Record of a folder. files: {path in the folder, with `/`: its record}, every file but the manifest itself."""

    format: int
    dplc: str
    files: dict[str, FileRecord]


class _Format(msgspec.Struct):
    format: int


def seal(folder: Path, version: str) -> None:
    """Write the manifest of what is in a folder. version: of dplc."""
    records = {name: _record(folder / name) for name in sorted(inside(folder)) if OURS.fullmatch(name)}
    files = {name: record for name, record in records.items() if record is not None}
    record = msgspec.json.encode(Manifest(FORMAT, version, files))
    (folder / MANIFEST).write_bytes(msgspec.json.format(record, indent=1))


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raises DplcError for a folder without one, and for another format."""
    path = folder / MANIFEST
    data = read_file(path)
    try:
        number = msgspec.json.decode(data, type=_Format).format
        if number != FORMAT:
            raise DplcError(f"{path} is of format {number}; this dplc reads {FORMAT}", hint="compile the model again")
        found = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DplcError(f"the artefact is damaged: {path} does not fit its schema: {error}") from None
    foreign = next((name for name in found.files if not OURS.fullmatch(name)), None)
    if foreign is not None:
        raise DplcError(f"the artefact is damaged: {path} lists `{foreign}`, which is no file of an artefact")
    return found


def not_ours(folder: Path) -> str | None:
    """Return why a folder is not wholly as dplc wrote it; None if all of it is.

    Links are not followed: a link is never ours. Raises DplcError for a folder that cannot be read.
    """
    names = sorted(inside(folder))
    if not names:
        return None
    try:
        files = read_manifest(folder).files
    except DplcError:
        return f"holds {names[0]} and no {MANIFEST} that says dplc wrote it"
    parents = {f"{parent.as_posix()}/" for name in files for parent in Path(name).parents}
    for name in names:
        if name == MANIFEST or name in parents:
            continue
        if name not in files:
            return f"holds {name}, which dplc did not write"
        found = _record(folder / name)
        if found != files[name] or found.sha256 == TOO_LARGE:
            return f"holds {name}, which was changed since dplc wrote it"
    return None


def inside(folder: Path) -> Iterator[str]:
    """Yield everything in a folder by its path there, folders with a `/` at the end. Links are not followed."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            raise DplcError(f"cannot read {here}: {error.strerror}") from None
        for entry in entries:
            name = Path(entry.path).relative_to(folder).as_posix()
            if entry.is_dir(follow_symlinks=False):
                yield f"{name}/"
                pending.append(Path(entry.path))
            else:
                yield name


def remove(folder: Path) -> None:
    """Remove the files that dplc wrote into a folder, and the folder if it is empty then: never anything else."""
    names = sorted(inside(folder), key=len, reverse=True)
    if not_ours(folder) is None:
        for name in names:
            if not name.endswith("/"):
                (folder / name).unlink(missing_ok=True)
    for name in names:
        if name.endswith("/"):
            _remove_empty(folder / name)
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    """Remove a folder unless something is in it."""
    if not any(os.scandir(folder)):
        folder.rmdir()


def read_file(path: Path, limit: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file of an artefact. Raises DplcError if it is not a plain file, or over `limit` bytes.

    Neither a link nor a pipe is opened: reading one might give another file, or never end.
    """
    try:
        file = _plain(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DplcError(f"the artefact is damaged: cannot read {path}: {why}") from None
    if file is None:
        raise DplcError(f"the artefact is damaged: {path} is no plain file")
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DplcError(f"the artefact is damaged: {path} has {size} bytes; {limit} are possible")
        return file.read(limit + 1)


def _plain(path: Path) -> IO[bytes] | None:
    """Open a plain file; None for a folder, a pipe, a device. Raises OSError and ValueError, for a link too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def check_file(folder: Path, name: str, manifest: Manifest) -> None:
    """Raise DplcError unless a file is there as dplc wrote it."""
    path = folder / name
    if name not in manifest.files:
        raise DplcError(f"the artefact is damaged: {folder / MANIFEST} does not list {name}")
    found, written = _record(path), manifest.files[name]
    if found is None:
        raise DplcError(f"the artefact is damaged: cannot read {path}: no such plain file")
    if found.size != written.size:
        raise DplcError(f"the artefact is damaged: {path} has {found.size} bytes; dplc wrote {written.size}")
    if found != written or found.sha256 == TOO_LARGE:
        raise DplcError(f"the artefact is damaged: {path} is not what dplc wrote (sha256)")


def _record(path: Path) -> FileRecord | None:
    """Return the size and digest of a file; None if it is not a plain file.

    A file that is too large to be ours is not read through.
    """
    try:
        file = _plain(path)
    except (OSError, ValueError):
        file = None
    if file is None:
        return None
    state, size = hashlib.sha256(), 0
    with file:
        length = os.fstat(file.fileno()).st_size
        if length > (memory_bytes() if path.suffix == ".safetensors" else LARGEST_TEXT):
            return FileRecord(length, TOO_LARGE)
        while chunk := file.read(CHUNK):
            state.update(chunk)
            size += len(chunk)
    return FileRecord(size, state.hexdigest())


# ---- Write the folder whole or not at all, and only in the place of an artefact.


RENAME_EXCHANGE = 2  # of Linux's renameat2
HERE = -100  # AT_FDCWD


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Return a folder to write in, which replaces the named one on success and is removed on failure.

    Raises DplcError for a folder that dplc did not write, before and after the block.
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
    """Raise DplcError unless the path is free, an empty folder, or an artefact as dplc wrote it."""
    if not os.path.lexists(place):
        return
    why = not_ours(place) if place.is_dir() else "is no folder"
    if why is not None:
        raise DplcError(f"{folder} {why}: it is not overwritten", hint="name another folder, or move this one away")


def _put(workshop: Path, place: Path) -> None:
    """Rename a folder to its final path; the folder that dplc wrote there is removed once the new one is there."""
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
    """Exchange the names of two folders in one step; return whether the system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(HERE, os.fsencode(one), HERE, os.fsencode(other), RENAME_EXCHANGE) == 0)
