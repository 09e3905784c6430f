"""`dplc rules fmt`: rule files in one layout."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ...ir.diagnostic import Diagnostics, DplcError, Source, UsageError
from ..language.layout import formatted
from ..language.rule_texts import read_text
from .output_file import write_file
from .show import print_note, print_text, write

ANYTHING = re.compile(b"")  # the file is given to be written


def format_files(paths: list[Path], check: bool, diff: bool) -> None:
    """Lay out files, or say which are not (check), or what would change (diff). `-` is standard input."""
    if [str(path) for path in paths] == ["-"]:
        if check or diff:
            raise UsageError("`-` prints standard input in its layout", hint="--check and --diff take files")
        write(formatted(Source("standard input", sys.stdin.read())))
        return
    wrong, broken, count = [], [], 0
    for path in files_of(paths):
        count += 1
        try:
            before = read_text(path)
            after = formatted(Source(str(path), before))
        except DplcError as error:
            broken.append(error)
            continue
        if before != after:
            wrong.append(path)
            if diff:
                print_text(_diff(path, before, after), "diff")
            elif not check:
                write_file(path, after, ANYTHING)
    _report(wrong, count, check, diff)
    if broken:
        raise broken[0] if len(broken) == 1 else Diagnostics(broken)
    if check and wrong:
        raise DplcError(
            f"{len(wrong)} of {count} files are not laid out", hint=f"dplc rules fmt {' '.join(map(str, paths))}"
        )


def files_of(paths: list[Path]) -> Iterator[Path]:
    """The rule files of some files and folders, those of examples among them. Raises UsageError for a missing one."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"no such file or folder: {path}")
        yield from sorted(path.rglob("*.rw")) if path.is_dir() else (path,)


def _report(wrong: list[Path], count: int, check: bool, diff: bool) -> None:
    if check:
        for path in wrong:
            print_note(f"{path}: not laid out")
    elif not diff:
        write(f"{len(wrong)} of {count} files changed\n")


def _diff(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(path), f"{path}, laid out"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline\n" for line in lines)
