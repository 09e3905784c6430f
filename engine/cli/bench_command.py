"""bench of a suite, and what every bench shares: how its record is shown."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...ir.diagnostic import DplcError
from ..api import choose_device, target_for
from ..bench.bench import BenchSteps, bench
from ..bench.packed import check_suite, note_measured, read_results
from ..bench.records import BenchRecord
from ..bench.suite_file import read_suite
from ..bench.tables import SUITE, TableLayout, print_table
from ..bench.tables import markdown as markdown_page
from .compiling import tools_for
from .options import Flags
from .output_file import TABLE, write_file
from .show import write


@dataclass(frozen=True)
class Shown:
    """How a record is shown: as a table or JSON, and as a Markdown file. profile: show utilisation."""

    as_json: bool = False
    markdown: Path | None = None
    profile: bool = False


def bench_suite(
    path: Path, only: str | None, flags: Flags, shown: Shown, steps: BenchSteps, compare: Path | None = None
) -> None:
    """`dplc bench SUITE`. compare: results of `--unpack`, whose times are shown next to the predicted ones."""
    measured = read_results(compare) if compare is not None else None
    if measured is not None:
        check_suite(path.stem, measured)
    suite = read_suite(path)
    cases = suite.select(only)
    machine = target_for(choose_device(None), flags.target)  # the rules are not read before their time counts
    record = bench(path, suite, cases, lambda: tools_for(flags), machine, steps, teller())
    if measured is not None:
        note_measured(record, path.stem, measured)
    show_bench(record, SUITE, shown)
    complain(record)


def show_bench(record: BenchRecord, layout: TableLayout, shown: Shown) -> None:
    """A record on standard output and on the pages that were asked for. Raises DplcError for one not written."""
    if shown.markdown is not None:
        write_file(shown.markdown, markdown_page(record, layout), TABLE)
    if shown.as_json:
        write(msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n")
    else:
        print_table(record, not sys.stdout.isatty(), layout)


def command_line() -> str:
    """What was typed, for the pages that it makes."""
    return " ".join(["dplc", *map(shlex.quote, sys.argv[1:])])


def complain(record: BenchRecord) -> None:
    """Raises DplcError if a case did not compile or was wrong."""
    wrong = [case.name for case in record.cases if case.wrong]
    if wrong:
        raise DplcError(f"{len(wrong)} of {len(record.cases)} cases did not compile or were wrong", notes=wrong[:10])


def teller() -> Callable[[str], None]:
    """Says what is being done: on one line of a terminal, nowhere else."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[K{text}", end="\r", file=sys.stderr, flush=True)
