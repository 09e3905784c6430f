"""`dplc rules doc`: the rules as a site."""

from __future__ import annotations

import re
from pathlib import Path

from ...ir.diagnostic import DplcError
from ..api import target_for
from ..bench.subject import subject_of
from ..bench.suite_file import read_suite
from ..compiler import compile_captured
from ..language.rule import RuleSet
from ..rewrite.trace import Trace
from ..ruleset import toolchain
from ..view.rules_site import pages
from .output_file import PAGE, write_file
from .show import bars, print_note

MAKES = {
    ".html": PAGE,
    ".css": re.compile(rb"\A:root \{ color-scheme: light dark;"),
    ".js": re.compile(rb"\Aconst WORDS = "),
}


def write_site(folder: Path, paths: list[Path], suite: Path | None) -> None:
    """The pages in a folder. Files of the site that are there are replaced; others are left alone."""
    rules = toolchain(paths).rules
    fired = None if suite is None else fired_in(suite, rules)
    made = pages(rules, fired, suite.name if suite is not None else "")
    try:
        (folder / "rules").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror}") from None
    for name, text in made.items():
        write_file(folder / name, text, MAKES[Path(name).suffix])
    print_note(f"note: {len(made)} files in {folder}: open {folder / 'index.html'}")


def fired_in(path: Path, rules: RuleSet) -> dict[str, list[tuple[str, int]]]:
    """Of every rule the cases of a suite in which it fires, and how often. Cases that do not compile are left out."""
    suite, tools, machine = read_suite(path), toolchain(rules), target_for("emulator")
    found: dict[str, list[tuple[str, int]]] = {}
    with bars() as tell:
        for number, case in enumerate(suite.cases):
            tell(case.name, number, len(suite.cases))
            trace = Trace()
            try:
                compile_captured(subject_of(suite, case).capture(), tools, tools.on(machine), trace)
            except DplcError:
                continue
            counts: dict[str, int] = {}
            for event in trace.firings:
                counts[event.rule] = counts.get(event.rule, 0) + 1
            for name, count in counts.items():
                found.setdefault(name, []).append((case.name, count))
    return found
