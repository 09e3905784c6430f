"""bench."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...ir.diagnostic import DplcError
from ..output_file import PAGE, TABLE, write_file
from ..suite.bench import Wishes, bench
from ..suite.page import html as html_page
from ..suite.records import BenchRecord
from ..suite.suite_file import read_suite
from ..suite.tables import markdown as markdown_page
from ..suite.tables import print_table
from .compiling import machine_for, tools_for
from .show import write


def bench_suite(
    path: Path,
    only: str | None,
    target: str | None,
    as_json: bool,
    html: Path | None,
    markdown: Path | None,
    run: bool,
    assemble: bool,
    rules: list[Path],
    settings: list[str],
) -> None:
    """`dplc bench`"""
    suite = read_suite(path)
    cases = suite.select(only)
    wishes = Wishes(run, assemble, " ".join(["dplc", *map(shlex.quote, sys.argv[1:])]))
    record = bench(path, suite, cases, lambda: tools_for(rules, settings), machine_for(target), wishes, _teller())
    for file, page in ((html, html_page), (markdown, markdown_page)):
        if file is not None:
            save_page(file, page(record))
    if as_json:
        write(msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n")
    else:
        print_table(record, wide=not sys.stdout.isatty())
    complain(record)


def complain(record: BenchRecord) -> None:
    """Raises DplcError if a case did not compile or was wrong."""
    wrong = [case.name for case in record.cases if case.wrong]
    if wrong:
        raise DplcError(f"{len(wrong)} of {len(record.cases)} cases did not compile or were wrong", notes=wrong[:10])


def _teller() -> Callable[[str], None]:
    """Says what is being done: on one line of a terminal, nowhere else."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[K{text}", end="\r", file=sys.stderr, flush=True)


def save_page(path: Path, text: str) -> None:
    """Write a page, of HTML or Markdown. Raises DplcError."""
    write_file(path, text, PAGE if text.startswith("<") else TABLE)
