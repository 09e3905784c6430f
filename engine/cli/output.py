"""Output of the command line: coloured on a terminal, plain in a pipe. A reader may close the pipe early."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from ...ir.diagnostic import DplcError
from ...version import __version__

WIDEST = 10_000  # columns of a table: a terminal wraps its lines, and nothing is cut


def write(text: str, error: bool = False) -> None:
    """Write text to standard output or error and flush it. Raises BrokenPipeError if the reader has closed the pipe."""
    stream = sys.stderr if error else sys.stdout
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as failed:
        raise DplcError(f"cannot write the output: {failed.strerror}") from None


def write_lines(*lines: str) -> None:
    """Write lines to standard output."""
    write("".join(f"{line}\n" for line in lines))


def print_text(text: str, kind: str, error: bool = False) -> None:
    """Print IR, CUDA, rule or diff text to standard output or error: coloured on a terminal, unchanged elsewhere."""
    if text and (sys.stderr if error else sys.stdout).isatty():
        from rich.console import Console
        from rich.syntax import Syntax

        lexer = kind if kind in ("cuda", "diff") else "python"  # IR and rules read like Python
        code = Syntax(text.rstrip("\n"), lexer, theme="ansi_dark", background_color="default")
        Console(highlight=False, stderr=error).print(code, soft_wrap=True)
    else:
        write(text if text.endswith("\n") or not text else f"{text}\n", error)


def print_rows(titles: Sequence[str], rows: Iterable[Sequence[object]], left: Sequence[str] = ()) -> None:
    """Print a table without rules to standard output, or nothing without rows.

    left: titles of the columns that are aligned to the left. All columns of a table without titles are.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    titled = any(titles)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=titled)
    for title in titles:
        table.add_column(title, justify="right" if titled and title not in left else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console = Console(highlight=False, width=WIDEST)
    with console.capture() as text:
        console.print(table)
    if table.rows:
        write_lines(*map(str.rstrip, text.get().splitlines()))


Record = dict[str, object]  # data that becomes JSON


def print_json(record: object) -> None:
    """Print a record with the version of dplc as JSON. Infinities and NaNs, which JSON cannot express, become null."""
    if isinstance(record, dict):
        record = {"dplc": __version__, **record}
    plain = json.loads(msgspec.json.encode(record, enc_hook=float))  # floats of numpy are floats
    write(json.dumps(plain, indent=2) + "\n")


def print_note(text: str) -> None:
    """Print a remark to standard error."""
    print(text, file=sys.stderr)


def print_remark(text: str) -> None:
    """Print a remark that begins with `note:` to standard error."""
    print_note(f"note: {text}")


def command_line() -> str:
    """Return the typed command, for the pages that it writes."""
    return shlex.join(["dplc", *sys.argv[1:]])


@contextlib.contextmanager
def bars(activity: str = "starting") -> Iterator[Callable[..., None]]:
    """Show an activity while it runs, only on a terminal.

    Yields a function that shows the next activity, and if known the amount done and the total amount.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not sys.stderr.isatty()
    console = Console(stderr=True, quiet=hidden)  # a progress of rich 13 ends with an empty line where it is disabled
    with Progress(*columns, console=console, transient=True, disable=hidden) as shown:
        bar = shown.add_task(activity, total=None)
        yield lambda what, done=0, total=0: shown.update(bar, description=what, completed=done, total=total or None)


# ---- files


PAGE = re.compile(rb'<meta name="generator" content="dplc">')
TABLE = re.compile(rb"Made by `dplc[^\n]*Do not edit: run it again\.")
DEVICE = re.compile(rb"\A# Fitted by `dplc model fit` on ")
ARRAYS = re.compile(rb"\APK\x03\x04.{26}out0\.npy", re.DOTALL)
COUNTEREXAMPLE = re.compile(rb"^# rule \w+: .*\n# from ", re.MULTILINE)
LOOKED_AT = 1 << 16  # bytes of a file in which its make shows


def write_file(path: Path, text: str, make: re.Pattern[bytes]) -> None:
    """Write a text. make: a pattern in each file that may be replaced. Raises DplcError."""
    with writing(path, make) as file:
        file.write(text.encode())


@contextlib.contextmanager
def writing(path: Path, make: re.Pattern[bytes]) -> Iterator[IO[bytes]]:
    """Open a file for writing, and move it to its path once everything is written. Links are followed.

    Missing folders are created. A pipe is written directly. Raises DplcError if the path cannot be written, or if its
    file does not match `make`.
    """
    try:
        place = Path(os.path.realpath(path))
        exists = os.path.lexists(place)
        if exists and not place.is_file():
            with place.open("wb") as file:
                yield file
            return
        if exists:
            with place.open("rb") as file:
                start = file.read(LOOKED_AT)
            if start and not make.search(start):
                what = f"{path} is there, and dplc did not write it: it is not overwritten"
                raise DplcError(what, hint="name another file, or remove this one")
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        try:
            with unfinished.open("xb") as file:
                yield file
            if exists:
                shutil.copymode(place, unfinished)
            unfinished.replace(place)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise DplcError(f"cannot write {path}: {error.strerror or error}") from None
