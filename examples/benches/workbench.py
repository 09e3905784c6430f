"""How quick the rule author's workbench answers: the language server on the largest rule file, the page of `dplc view`.

    python examples/benches/workbench.py [--times N]

Milliseconds of processor time of the process that answers, the median of some times and the worst: what others do on
the machine is none of it. A page is timed whole, as a command that starts from nothing, torch's imports included (they
stand in a row of their own); its browser is not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.language.rule import BUILT_IN
from dplc.engine.view.live_program import LiveProgram
from dplc.engine.view.server import LivePage
from dplc.engine.workbench import document as queries
from dplc.engine.workbench.document import At, Document

ROOT = Path(__file__).resolve().parents[2]
NORM = "nn.RMSNorm(2048)(torch.randn(32, 2048))"
START = "import sys; from dplc.engine.cli.app import main; main(sys.argv[1:])"
Row = tuple[str, list[float], int]  # what was timed, in milliseconds, and what it may take


def timed(change: Callable[[int], object], times: int) -> list[float]:
    """The processor time of each call."""
    found = []
    for number in range(times):
        start = time.process_time()
        change(number)
        found.append((time.process_time() - start) * 1e3)
    return found


def largest() -> Path:
    """The rule file with the most characters, those of the examples beside it included: they are judged with it."""
    files = (path for path in BUILT_IN.rglob("*.rw") if "\nmatch\n" in path.read_text())
    return max(files, key=lambda path: sum(len(one.read_text()) for one in path.parent.glob(f"{path.stem}.*rw")))


def editor_rows(path: Path, times: int) -> Iterator[Row]:
    """The language server on a file."""
    queries.warm()
    gc.collect()
    gc.freeze()  # as the server does
    text, document = path.read_text(), Document(path)
    yield "it is opened", timed(lambda n: Document(path).problems(text + "\n" * n), 1), 1000
    document.problems(text)

    def guard(n: int) -> object:
        return document.problems(text.replace("\nwhere ", "\nwhere " + " " * (n + 1), 1))

    def lines(n: int) -> object:
        return document.problems("\n" * (n + 1) + text)

    def half(n: int) -> object:
        return document.problems(text.replace("\nwhere ", "\nwhere " + "x" * (n + 1) + "(", 1))

    yield "a guard changes", timed(guard, times), 150
    yield "every line moves", timed(lines, times), 150
    yield "a guard is half written", timed(half, times), 150
    document.problems(text)
    asked = [(n, len(line) // 2) for n, line in enumerate(text.splitlines()) if line.strip()]
    step = max(1, len(asked) // times)
    spots = asked[::step]
    yield "hover", timed(lambda n: queries.meaning(At(document, *spots[n % len(spots)])), times), 50
    yield "completion", timed(lambda n: queries.completions(At(document, *spots[n % len(spots)])), times), 50
    name = next((n, len("rule ")) for n, line in enumerate(text.splitlines()) if line.startswith("rule "))
    yield "references of a rule", timed(lambda n: queries.references(At(document, *name)), times), 1000


def page_rows(times: int) -> Iterator[Row]:
    """The page of a compile."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "page.html"
        block = (ROOT / "docs" / "pictures" / "block.txt").read_text()
        few = max(1, times // 4)
        imports = [sys.executable, "-c", "import torch.export._trace"]
        yield "torch and its export are imported", [_of_child(imports) for _ in range(few)], 0
        for what, text, bar in (("page of RMSNorm, a whole command", NORM, 1000), ("of a decoder block", block, 4000)):
            command = [sys.executable, "-c", START, "view", "-c", text, "-o", str(out)]
            yield what, [_of_child(command) for _ in range(few)], bar
        for what, text, bar in (("RMSNorm", NORM, 1000), ("a decoder block", block, 4000)):
            found = [_live(text) for _ in range(few)]
            yield f"live page of {what}: it is there", [there for there, _ in found], 1000
            yield f"live page of {what}: it is whole", [whole for _, whole in found], bar
        rule = Path(folder) / "my.rw"
        rule.write_text("# nothing yet\n")
        program = LiveProgram(capture_text(NORM), LivePage(NORM), [rule], (), target())
        program.compile("started")

        def saved(n: int) -> object:
            rule.write_text(f"override number most_unrolled = {8 + n}\n")
            return program.compile("saved")

        yield "RMSNorm again after a saved rule", timed(saved, few), 700


def _of_child(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def _live(text: str) -> tuple[float, float]:
    """Measure `dplc view` until its page is served, and until all columns and the trace are there."""
    command = [sys.executable, "-c", START, "view", "--no-browse", "-c", text]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().strip()
        urllib.request.urlopen(address).read()
        there, number, parts = _spent(process.pid), 0, {}
        while "trace" not in parts:
            with urllib.request.urlopen(f"{address.replace('/?', '/news?')}&since={number}") as answer:
                news = json.loads(answer.read())
            number, parts = news["number"], news["data"]
        whole = _spent(process.pid)
        process.terminate()
        process.stderr.read()
    return there, whole


def _spent(pid: int) -> float:
    """The processor time of a process so far, in milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    path = largest()
    print(
        f"Milliseconds of processor time; `{path.relative_to(ROOT)}`, the largest rule file, in the language server.\n"
    )
    print("| what | median | worst | at most |\n|---|---:|---:|---:|")
    for rows in (editor_rows(path, given.times), page_rows(given.times)):
        for what, found, bar in rows:
            print(f"| {what} | {statistics.median(found):.0f} | {max(found):.0f} | {bar or ''} |", flush=True)


if __name__ == "__main__":
    main()
