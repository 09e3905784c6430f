"""`dplc rules doc`: the rules as a site."""

from __future__ import annotations

import re
from pathlib import Path

from ...ir.diagnostic import DplcError
from ..api import target_for
from ..ruleset import toolchain
from ..view.rules_site import pages
from ..view.suite_map import fired_in
from .output_file import PAGE, write_file
from .show import bars, print_note

MAKES = {
    ".html": PAGE,
    ".css": re.compile(rb"\A:root \{ color-scheme: light dark;"),
    ".js": re.compile(rb"\Aconst WORDS = "),
}


def write_site(folder: Path, paths: list[Path], suite: Path | None) -> None:
    """The pages in a folder. Files of the site that are there are replaced; others are left alone."""
    tools = toolchain(paths)
    fired = None
    if suite is not None:
        with bars() as tell:
            fired = fired_in(suite, tools, target_for("emulator"), tell, priced=True)
    made = pages(tools.rules, fired, suite.name if suite is not None else "")
    try:
        (folder / "rules").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror}") from None
    for name, text in made.items():
        write_file(folder / name, text, MAKES[Path(name).suffix])
    print_note(f"note: {len(made)} files in {folder}: open {folder / 'index.html'}")
