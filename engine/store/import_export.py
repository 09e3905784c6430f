"""Exports of a store: text that can be read, compared, committed and shared. A line of JSON for each entry, sorted.

The first line says what it is. The same entries give the same bytes; when they were made and where is not told.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...ir.diagnostic import DplcError, UsageError
from .entry import Entry, Measurement

VERSION = 2  # since 2 an entry may say `ranges`


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line."""

    dplc_schedules: int


def export_lines(entries: Iterable[Entry]) -> str:
    """The text of an export."""
    ordered = sorted(entries, key=lambda entry: entry.sort_key)
    lines = [msgspec.json.encode(value, order="deterministic") for value in (Head(VERSION), *ordered)]
    return b"\n".join(lines).decode() + "\n"


def export_attempts(measurements: Iterable[Measurement]) -> str:
    """What was measured, with the features that a model computes with: a line of JSON each, sorted."""
    return "".join(sorted(f"{msgspec.json.encode(one, order='deterministic').decode()}\n" for one in measurements))


def import_lines(path: Path) -> list[Entry]:
    """The entries of an export. Raises UsageError for a file that cannot be read, DplcError with the line that is
    wrong."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        head = msgspec.json.decode(lines[0] if lines else b"", type=Head)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise DplcError(f"{path} is no export of schedules", hint="`dplc db export` writes one") from None
    if head.dplc_schedules > VERSION:
        raise DplcError(f"{path} was written by a later dplc: version {head.dplc_schedules}, this one knows {VERSION}")
    entries = []
    for number, line in enumerate(lines[1:], 2):
        try:
            entries.append(msgspec.json.decode(line, type=Entry))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise DplcError(f"{path}:{number}: {error}", notes=("nothing was imported",)) from None
    return entries
