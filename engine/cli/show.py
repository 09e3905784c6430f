"""How the command line shows things: colour on a terminal, plain text in a pipe, and a pipe may close early."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...ir.diagnostic import DplcError
from ...version import __version__

_LEXERS = {"cuda": "cuda", "diff": "diff", "ir": "python", "rw": "python"}


def write(text: str, error: bool = False) -> None:
    """Text on standard output (or error), now: who reads it may have enough (`| head`), for `main` no error."""
    stream = sys.stderr if error else sys.stdout
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as failed:
        raise DplcError(f"cannot write the output: {failed.strerror}") from None


def print_text(text: str, kind: str, error: bool = False) -> None:
    """IR, CUDA, rule or diff text on standard output (or error); exactly as it is where that is not a terminal."""
    if text and not text.endswith("\n"):
        text += "\n"
    if text and (sys.stderr if error else sys.stdout).isatty():
        from rich.console import Console
        from rich.syntax import Syntax

        code = Syntax(text.rstrip("\n"), _LEXERS[kind], theme="ansi_dark", background_color="default")
        Console(highlight=False, soft_wrap=True, stderr=error).print(code, soft_wrap=True)
    else:
        write(text, error)


def print_json(record: Any) -> None:
    """A record on standard output, with our version. Infinities and NaNs, which JSON has no words for, as null."""
    if isinstance(record, dict):
        record = {"dplc": __version__, **record}
    write(json.dumps(_finite(record), indent=2, allow_nan=False) + "\n")


def print_note(text: str) -> None:
    """A remark on standard error."""
    print(text, file=sys.stderr)


def print_remark(text: str) -> None:
    """A remark that says that it is one."""
    print_note(f"note: {text}")


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Say what is going on while it does, to a person at a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextlib.contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """Progress for a person at a terminal: a function to be told (what is done, how much of it, of how much)."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("starting", total=None)
        yield lambda what, done, total: shown.update(bar, description=what, completed=done, total=total)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) != float("inf") and value == value else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
