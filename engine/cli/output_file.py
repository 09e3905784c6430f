"""Files that users ask for (`-o FILE`, `--markdown FILE`): whole or not at all, and never over a file of the user's.

A file that is there is replaced only where it is of the same make: by what is in it, not by its name.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ...ir.diagnostic import DplcError

PAGE = re.compile(rb'<meta name="generator" content="dplc">')
TABLE = re.compile(rb"Made by `dplc[^\n]*Do not edit: run it again\.")
DEVICE = re.compile(rb"\A# (Measured by `dplc calibrate`|Fitted by `dplc model fit`) on ")
EXPORT = re.compile(rb'\A\{"dplc_schedules":|\A\{"about":[^\n]*"launches":')
ARRAYS = re.compile(rb"\APK\x03\x04.{26}out0\.npy", re.DOTALL)
COUNTEREXAMPLE = re.compile(rb"^# rule \w+: .*\n# from ", re.MULTILINE)
LOOKED_AT = 1 << 16  # bytes of a file in which its make shows


def write_file(path: Path, text: str, make: re.Pattern[bytes]) -> None:
    """Write a text. make: what is found in a file that this may replace. Raises DplcError."""
    with writing(path, make) as file:
        file.write(text.encode())


@contextlib.contextmanager
def writing(path: Path, make: re.Pattern[bytes]) -> Iterator[IO[bytes]]:
    """A file to write to, which goes to its place when all is well. Links are followed, pipes written to.

    Raises DplcError for a place that cannot be written, and for a file of another make.
    """
    try:
        place = Path(os.path.realpath(path))
        there = place.stat() if os.path.lexists(place) else None
        if there is not None and not stat.S_ISREG(there.st_mode):
            with place.open("wb") as file:
                yield file
            return
        if there is not None:
            _check(place, path, make)
        with _beside(place, 0o666 if there is None else stat.S_IMODE(there.st_mode), there is None) as file:
            yield file
    except OSError as error:
        raise DplcError(f"cannot write {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def _beside(place: Path, mode: int, new: bool) -> Iterator[IO[bytes]]:
    """A file beside a place, renamed to it when all is well, gone when anything is not."""
    descriptor, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        Path(name).chmod(mode & ~_umask() if new else mode)
        os.replace(name, place)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _check(place: Path, path: Path, make: re.Pattern[bytes]) -> None:
    with place.open("rb") as file:
        start = file.read(LOOKED_AT)
    if start and not make.search(start):
        raise DplcError(
            f"{path} is there, and dplc did not write it: it is not overwritten",
            hint="name another file, or remove this one",
        )


def _umask() -> int:
    """What the user keeps new files from being; the system tells only who sets it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
