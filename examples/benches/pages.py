"""Print the tables and figures on pages by their commands, so that none is stale: `make pages`.

    python examples/benches/pages.py [--all] [--check] [PAGE]...

A page marks a table by comments, which readers do not see:

    <!-- printed by: COMMAND -->            output of a command that takes seconds and is the same everywhere
    ..
    <!-- end -->
    <!-- long run: COMMAND -->              output of a command that measures or takes minutes: only with --all, dated
    ..
    <!-- end -->

A figure in a sentence has a name, and `python examples/benches/measured.py figures` prints its value:

    <!-- figure: NAME -->..<!-- end -->

With --all, the command in "Made by `COMMAND`" writes its whole page. --check writes nothing, and fails if the output of
a command differs from the page. A test does that.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONG = "long run"
BLOCK = re.compile(rf"<!-- (?P<how>printed by|{LONG}): (?P<command>.+?) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
FIGURE = re.compile(r"<!-- figure: (?P<name>\S+) -->(?P<value>[^\n]*?)<!-- end -->")
FIGURES = "python examples/benches/measured.py figures"
MEASUREMENT = re.compile(
    r"(?<![-\w.])(?<!Python )(?:\d[\d.,]* (?:[µmn]?s|us|seconds?|minutes?|times|%)(?!\w)|\d+\.\d+)"
)
WHOLE = re.compile(r"\bMade by `([^`]+)`", re.IGNORECASE)
Run = Callable[[str], str]
RECORDS = {  # what commands print while they write their pages
    "dplc bench examples/suites/kernels_84.json --target sm_90a --json --markdown examples/suites/README.md": (
        "examples/suites/results/predicted/kernels_84.json"
    ),
}


def pages() -> list[Path]:
    """Return the pages that have marks."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(path for path in found if marked(path.read_text()))


def marked(text: str) -> bool:
    """Return whether a page has marks, or a command writes it."""
    return any(mark.search(text) for mark in (BLOCK, FIGURE, WHOLE))


def unprinted(text: str) -> list[str]:
    """Return the measurements of a page that no command prints: times, shares and ratios outside of marks and code."""
    text = re.sub(r"```.*?```|`[^`]*`", "", FIGURE.sub("", BLOCK.sub("", text)), flags=re.DOTALL)
    return [found[0] for found in MEASUREMENT.finditer(text)]


def words_of(command: str) -> list[str]:
    """A command of a page, with this Python. Raises ValueError for what is neither ours nor Python's."""
    program, *rest = shlex.split(command)
    if program == "python":
        return [sys.executable, *rest]
    if program == "dplc":
        return [sys.executable, "-m", "dplc", *rest]
    raise ValueError(f"a page names `{command}`: commands begin with `python` or `dplc`")


@functools.cache
def run(command: str) -> str:
    """What a command prints. Raises CalledProcessError."""
    print(f"  {command}", file=sys.stderr, flush=True)
    return subprocess.run(words_of(command), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def with_blocks(text: str, run: Run, every: bool = False) -> str:
    """A page with what commands print. every: the long runs, too."""

    def block(found: re.Match[str]) -> str:
        how, command, body = found["how"], found["command"], found["body"]
        if how == LONG and not every:
            return found[0]
        printed = run(command).rstrip("\n")
        if body.startswith("```"):
            printed = f"```\n{printed}\n```"
        if how == LONG:
            printed += f"\n\nRun on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}."
        return f"<!-- {how}: {command} -->\n{printed}\n<!-- end -->"

    return with_figures(BLOCK.sub(block, text), run)


def with_figures(text: str, run: Run) -> str:
    """A page with the figures of its sentences. Raises ValueError for a name that the command does not print."""
    if not FIGURE.search(text):
        return text
    values = dict(line.split(" ", 1) for line in run(FIGURES).splitlines())
    unknown = [found["name"] for found in FIGURE.finditer(text) if found["name"] not in values]
    if unknown:
        raise ValueError(f"`{FIGURES}` prints no figure `{unknown[0]}`")
    return FIGURE.sub(lambda found: f"<!-- figure: {found['name']} -->{values[found['name']]}<!-- end -->", text)


def differences(path: Path, before: str, after: str) -> Iterator[str]:
    """The lines of a page that are stale."""
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    yield from difflib.unified_diff(before.splitlines(), after.splitlines(), name, "as it is printed", "", "", 0, "")


def write_whole(paths: list[Path]) -> None:
    """Run the commands that write pages whole, each once; a record that one prints meanwhile is kept."""
    for command in whole(paths):
        printed = run(command)
        if command in RECORDS:
            (ROOT / RECORDS[command]).write_text(printed)


def whole(paths: list[Path]) -> list[str]:
    """The commands that write pages whole, each once."""
    return list(dict.fromkeys(found for path in paths for found in WHOLE.findall(path.read_text())))


def main() -> int:
    """Return the exit code: 1 if --check finds a stale table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="instead of all")
    parser.add_argument("--all", action="store_true", help="run what measures or takes minutes, too")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is stale")
    given = parser.parse_args()
    chosen = [path.resolve() for path in given.pages] or pages()
    if given.all and not given.check:
        write_whole(chosen)
    before = {path: path.read_text() for path in chosen}
    after = {path: with_blocks(text, run, given.all) for path, text in before.items()}
    if not given.check:
        save(before, after)
    lines = [line for path in chosen for line in differences(path, before[path], after[path])]
    print("\n".join(lines) or "every table and figure is what its command prints")
    return int(given.check and bool(lines))


def save(before: dict[Path, str], after: dict[Path, str]) -> None:
    for path, text in after.items():
        if text != before[path]:
            path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
