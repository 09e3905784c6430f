"""How much the tests see: faults put into engine, codegen and ir, one at a time, and the nearest tests run on each.

    python examples/benches/mutants.py --count 200 --seed 0 [--near] [--again] [--write examples/suites/results/mutants]

A fault is one small change of meaning: a comparison flipped, a number off by one, a condition dropped or negated,
operands exchanged, a function for its opposite. Nearest are the tests that run the changed block, the quickest of
every file first, for so many seconds as they take together without the fault. What no test notices is printed with its
place: a test that can fail answers it, or `equivalent.json` says why it means the same, or the code says less than it
seems to. The seed decides which faults; every folder has its share.

To know what runs the changed block, every test is run once before the first fault: an hour or more. `--near` does
without: the files of tests nearest by name and by import run on a fault, 10 s of CPU in all; what survives is tried
against more of them, for 60 s.

All is done in copies of the tree, kept with what was found in the folder `--state`: what was stopped goes on there.
`--again` takes the tests as they are now and repeats what survived. After a change of the code, remove the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broken_copies import ROOT, Workplace, append, lines
from fault_page import GOOD, Judged, verdicts, write
from faults import Fault, faults, sample
from nearest_tests import Nearest

# What is slow to import is imported once, for all processes; not what starts threads by that, which forks would lose.
SLOW = ("torch._dynamo", "torch.export", "pytest_lsp", "pytest_asyncio.plugin", "hypothesis.strategies")


def show(number: int, count: int, record: dict[str, Any]) -> None:
    how = f"caught by {record['by']}" if record["verdict"] == "caught" else record["verdict"].upper()
    print(
        f"[{number}/{count}] {record['seconds']:.0f} s, {record['tests']} tests: {record['fault']}: {how}", flush=True
    )


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", default="", metavar="PREFIX", help="of files whose path begins with this")
    parser.add_argument("--near", action="store_true", help="look at the nearest files only, at none beforehand")
    parser.add_argument(
        "--tests",
        action="append",
        default=[],
        metavar="N=TEST,..",
        help="with --near: the n-th fault meets these first",
    )
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long")
    parser.add_argument("--again", action="store_true", help="repeat what survived, with the tests as they are now")
    parser.add_argument("--state", type=Path, default=None, help="the folder that is gone on with")
    parser.add_argument("--write", type=Path, default=None, help="a folder for the result as JSON and Markdown")
    return parser.parse_args(arguments)


def answered(record: dict[str, Any]) -> bool:
    return verdicts([record])[0]["verdict"] in GOOD


def judge_all(work: Workplace, chosen: list[Fault], minutes: float | None, again: bool) -> dict[str, dict[str, Any]]:
    """Every fault's record, of earlier runs too; after all of them what is still open, once more.

    again: what no test caught is judged with the tests as they are now; the record keeps how it ended at first.
    """
    done = {record["fault"]: record for record in lines(work.results)}
    until = None if minutes is None else time.monotonic() + 60 * minutes

    def judge(number: int, judged: Callable[[Fault], dict[str, Any]]) -> None:
        if until is None or time.monotonic() < until:
            start, fault = time.monotonic(), chosen[number - 1]
            record = judged(fault) | {"line": fault.line(work.plain), "seconds": round(time.monotonic() - start, 1)}
            before = done.get(str(fault), {})
            if "at first" in before or (again and before):
                record["at first"] = before.get("at first", before["verdict"])
            append(work.results, record)
            show(number, len(chosen), record)
            done[str(fault)] = record

    for number, fault in enumerate(chosen, 1):
        if str(fault) not in done or (again and not answered(done[str(fault)])):
            judge(number, work.judge)
    for number, fault in enumerate(chosen, 1):
        if str(fault) in done and work.open(done[str(fault)]) and not answered(done[str(fault)]):
            judge(number, work.judge_on)
    return done


def imported() -> None:
    """What is slow to import, once."""
    for name in SLOW:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> int:
    """Look, sample, run, tell."""
    options = options_of()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    imported()
    kind, folder = (Nearest, "mutants_near") if options.near else (Workplace, "mutants")
    work = kind(options.state or ROOT / "build" / folder)
    if options.again:
        work.take_tests()
    work.look()
    every = faults(work.plain)
    chosen = [fault for fault in sample(every, options.seed) if fault.file.startswith(options.only)][: options.count]
    if isinstance(work, Nearest):
        told = (written.partition("=") for written in options.tests)
        work.named = {str(chosen[int(number) - 1]): tests.split(",") for number, _, tests in told}
    done = judge_all(work, chosen, options.minutes, options.again)
    results = verdicts([done[str(fault)] for fault in chosen if str(fault) in done])
    said = ", ".join(f"{n} {what}" for what, n in sorted(Counter(r["verdict"] for r in results).items()))
    print(f"{len(results)} of {len(every)} possible faults, seed {options.seed}: {said}")
    if options.write is not None:
        write(options.write, Judged(options.seed, options.near, len(every), results))
    return int(any(r["verdict"] not in GOOD for r in results))


if __name__ == "__main__":
    sys.exit(main())
