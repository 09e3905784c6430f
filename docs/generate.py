"""Write the generated pages of the reference: rules, statements, facts, constants, mistakes and the command line.

python docs/generate.py      # into docs/reference/generated, before `mkdocs build`
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dplc.engine.cli.app import app
from dplc.engine.language.rule import load
from dplc.engine.workbench.reference import pages

FOLDER = Path(__file__).parent / "reference" / "generated"
MISTAKES = Path(__file__).parents[1] / "tests" / "language" / "mistakes.md"


def command_line(command: Any, name: str) -> Iterator[str]:
    """Yield the Markdown of a command and its subcommands."""
    children = getattr(command, "commands", {})
    yield f"\n## {name}\n\n{_text(command.help or '')}\n"
    options = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if not children and options:
        yield "| option | value | meaning |\n|---|---|---|"
        for option in options:
            names = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
            value = f"`{option.metavar}`" if option.metavar else ""
            yield f"| {names} | {value} | {_text(getattr(option, 'help', None) or '')} |"
    for child, one in children.items():
        yield from command_line(one, f"{name} {child}")


def _text(text: str) -> str:
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def main() -> None:
    """Write all pages anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    written = dict(pages(load()))
    written["command_line.md"] = (
        "# Command line\n" + "\n".join(command_line(typer.main.get_command(app), "dplc")) + "\n"
    )
    written["mistakes.md"] = re.sub(r"^```rw (\S+)$", r"`\1`:\n\n```", MISTAKES.read_text(), flags=re.MULTILINE)
    for name, text in written.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
