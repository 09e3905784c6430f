"""Faults that the page names as open, put into the code as it is now, each against tests that somebody names for it.

    python examples/benches/open_faults.py
    python examples/benches/open_faults.py 3=tests/ir/test_sorts.py 7=tests/tune/test_space.py,tests/bench/test_bench.py
    python examples/benches/open_faults.py --caught 80 --seed 0

Without tests they are listed, with their numbers, and the page takes what `equivalent.json` says by now. A fault is
known by its line of text, wherever that stands. What a test notices is written into the page at once, beside the
verdict that the fault had at first; a fault whose line is gone stays in the list until `equivalent.json` says
`"rewritten"`.

With `--caught` so many faults are drawn of those that the page says are caught, and `make test` has to catch them: the
file of tests that caught a fault runs first, then the nearest ones, with the draws that `make test` has. The page says
how many it caught.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from broken_copies import ROOT
from fault_page import GOOD, Judged, known_runs, verdicts, write_again, write_all
from faults import Fault, of_file
from mutants import imported
from nearest_tests import Nearest

PAGE = ROOT / "examples" / "suites" / "results" / "mutants"


def as_it_is_now(record: dict[str, Any], root: Path) -> Fault | None:
    """The fault of a record: the same change at the same column of the same text, the nearest to its old line."""
    file, line, _, change = record["fault"].split(":", 3)
    column, text = record["line"].split(": ", 1)
    if not (root / file).exists():
        return None
    found = [
        fault
        for fault in of_file((root / file).read_text(), file)
        if str(fault).split(":", 3)[3] == change and fault.line(root) == f"{column}: {text}"
    ]
    return min(found, key=lambda fault: abs(fault.at[0] - int(line)), default=None)


def open_records(runs: list[Judged]) -> list[dict[str, Any]]:
    return [record for run in runs for record in run.faults if record["verdict"] not in GOOD]


def caught_again(runs: list[Judged], count: int, seed: int) -> int:
    """Print which of `count` drawn faults that were caught are not caught; return 1 if these are more than 5 %."""
    imported()
    work = Nearest(ROOT / "build" / "mutants_caught")
    work.take_tests()
    known: dict[str, tuple[Fault, str]] = {}
    for record in (record for run in runs for record in run.faults if record["verdict"] == "caught"):
        fault = as_it_is_now(record, work.plain) if "line" in record else None
        if fault is not None:
            known[str(fault)] = fault, record["by"].partition("::")[0].partition(",")[0]
    drawn = random.Random(seed).sample(sorted(known), min(count, len(known)))
    work.named = {name: [known[name][1]] for name in drawn if (work.plain / known[name][1]).is_file()}
    missed = 0
    for number, name in enumerate(drawn, 1):
        record = work.judge(known[name][0])
        record = work.judge_on(known[name][0]) if work.open(record) else record
        missed += record["verdict"] != "caught"
        print(f"[{number}/{len(drawn)}] {name}: {record.get('by', 'NOT CAUGHT')}", flush=True)
    print(
        f"{len(drawn) - missed} of {len(drawn)} faults are caught, seed {seed}, of {len(known)} that were caught once"
    )
    write_again(PAGE, runs, seed=seed, known=len(known), drawn=len(drawn), caught=len(drawn) - missed)
    return int(missed * 20 > len(drawn))


def main() -> int:
    """List, or judge and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", metavar="N=TEST,..", help="the n-th fault of the list meets these")
    parser.add_argument(
        "--caught", type=int, metavar="COUNT", help="draw so many that were caught, and catch them again"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones --caught draws")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    runs = [Judged(**{**run.__dict__, "faults": verdicts(run.faults)}) for run in known_runs(PAGE)]
    if options.caught is not None:
        return caught_again(runs, options.caught, options.seed)
    records = open_records(runs)
    if not options.tests:
        for number, record in enumerate(records, 1):
            fault = as_it_is_now(record, ROOT)
            print(f"{number} {fault or record['fault'] + ': its line is gone'}: {record['verdict']}")
        write_all(PAGE, runs)
        return int(bool(records))
    imported()
    state = ROOT / "build" / "mutants_open"
    shutil.rmtree(state, ignore_errors=True)
    work, missed = Nearest(state), 0
    for number, _, tests in (word.partition("=") for word in options.tests):
        record = records[int(number) - 1]
        fault = as_it_is_now(record, work.plain)
        if fault is None:
            print(f"{number} {record['fault']}: its line is gone")
            continue
        judged = work.judge_named(fault, tests.split(","))
        print(f"{number} {fault}: {judged.get('by', 'NOT NOTICED')}", flush=True)
        if "by" in judged:
            record |= {**judged, "fault": record["fault"], "at first": record.get("at first", record["verdict"])}
            write_all(PAGE, runs)
        missed += "by" not in judged
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
