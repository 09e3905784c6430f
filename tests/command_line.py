"""Texts and types of tests that call commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

MATMUL = "torch.relu(torch.randn(16, 64) @ torch.randn(64, 16) + torch.randn(16))"
SOFTMAX = "torch.softmax(torch.randn(64, 512), -1)"
MINE = Path("mine.rw")  # a rule file of the user, where commands run


class Done(NamedTuple):
    """What a command printed."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def shows(self, *texts: str) -> Done:
        """Check that all of these were printed, in this order."""
        printed, at = self.out + self.err, 0
        for text in texts:
            at = printed.find(text, at)
            assert at >= 0, f"{text}\nis not in\n{printed}"
        return self


Command = Callable[..., Done]


def commands(found: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(the words of a command, the command), from the program itself."""
    if found is None:
        import typer

        from dplc.engine.cli.app import app

        found = typer.main.get_command(app)
    if hasattr(found, "commands"):
        for name, inner in found.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield " ".join(path), found
