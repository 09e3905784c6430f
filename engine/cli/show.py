"""How the command line shows things: colour on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.syntax import Syntax

console = Console(highlight=False, soft_wrap=True)
_LEXERS = {"cuda": "cuda", "diff": "diff", "ir": "python", "rw": "python"}


def print_text(text: str, kind: str) -> None:
    """IR, CUDA, rule or diff text on standard output; exactly as it is when standard output is no terminal."""
    text = text if text.endswith("\n") else text + "\n"
    if sys.stdout.isatty():
        console.print(Syntax(text.rstrip("\n"), _LEXERS[kind], theme="ansi_dark", background_color="default"))
    else:
        sys.stdout.write(text)


def print_note(text: str) -> None:
    """A remark on standard error."""
    print(text, file=sys.stderr)
