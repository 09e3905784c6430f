"""How much the tests see: faults put into engine, codegen and ir, one at a time, and the nearest tests run on each.

    python examples/benches/mutants.py --count 200 --seed 0 [--again] [--write examples/suites/results/mutants]

A fault is one small change of meaning: a comparison flipped, a number off by one, a condition dropped or negated,
operands exchanged, a function for its opposite. Nearest are the tests that run the changed block, the quickest of
every file first, for so many seconds as they take together without the fault. What no test notices is printed with its
place: a test that can fail answers it, or `equivalent.json` says why it means the same, or the code says less than it
seems to. The seed decides which faults; every folder has its share.

All is done in copies of the tree, kept with what was found in the folder `--state`: what was stopped goes on there.
`--again` takes the tests as they are now and repeats what survived. After a change of the code, remove the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broken_copies import ROOT, Workplace, append, keep, lines
from faults import faults, sample

EQUIVALENT = ROOT / "examples" / "suites" / "results" / "mutants" / "equivalent.json"
STATE = ROOT / "build" / "mutants"
GOOD = ("caught", "the same")


def show(number: int, count: int, record: dict[str, Any]) -> None:
    how = f"caught by {record['by']}" if record["verdict"] == "caught" else record["verdict"].upper()
    print(
        f"[{number}/{count}] {record['seconds']:.0f} s, {record['tests']} tests: {record['fault']}: {how}", flush=True
    )


PAGE = """# Faults put into the code

{judged} of {possible} possible faults in `engine`, `codegen` and `ir`, seed {seed}: {caught} caught by
the nearest tests, {same} mean the same ([why](equivalent.json)), **{left} survive**.

Made by `python examples/benches/mutants.py --count {count} --seed {seed} --write examples/suites/results/mutants`
on {date}. Do not edit: run it again.

| folder | faults | caught | the same | survive |
|---|---:|---:|---:|---:|
{rows}

{survivors}
"""


def verdicts(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records in which faults that mean the same are called so. They are known without their places, which move."""
    known = {one["fault"] for one in json.loads(EQUIVALENT.read_text())} if EQUIVALENT.exists() else set()
    return [
        record
        | {"verdict": "the same" if record["verdict"] != "caught" and _unplaced(record) in known else record["verdict"]}
        for record in results
    ]


def _unplaced(record: dict[str, Any]) -> str:
    file, _, _, change = record["fault"].split(":", 3)
    return f"{file}:{change}"


def write(folder: Path, results: list[dict[str, Any]], possible: int, options: argparse.Namespace) -> None:
    """The records as data, and a page for people."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in results:
        counts[record["folder"]][record["verdict"]] += 1
    total = Counter(record["verdict"] for record in results)
    left = [record for record in results if record["verdict"] not in GOOD]
    rows = [
        f"| {name} | {n.total()} | {n['caught']} | {n['the same']} | {n.total() - n['caught'] - n['the same']} |"
        for name, n in sorted(counts.items())
    ]
    kept = [{name: value for name, value in record.items() if name != "seconds"} for record in results]
    data = {"seed": options.seed, "possible": possible, "faults": kept}
    page = PAGE.format(
        judged=len(results), possible=possible, seed=options.seed, count=options.count, caught=total["caught"],
        same=total["the same"], left=len(left), rows="\n".join(rows), date=datetime.now(UTC).date(),
        survivors="\n".join(f"- {record['fault']}: {record['verdict']}" for record in left),
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mutants.json").write_text(json.dumps(data, indent=1) + "\n")
    (folder / "README.md").write_text(page.rstrip() + "\n")


def main() -> int:
    """Look, sample, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", default="", metavar="PREFIX", help="of files whose path begins with this")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long")
    parser.add_argument("--again", action="store_true", help="repeat what survived, with the tests as they are now")
    parser.add_argument("--state", type=Path, default=STATE, help="the folder that is gone on with")
    parser.add_argument("--write", type=Path, default=None, help="a folder for the result as JSON and Markdown")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch._dynamo  # noqa: F401  # once, for all processes

    work = Workplace(options.state)
    if options.again:
        work.take_tests()
        keep(work.results, lambda record: record["verdict"] == "caught")
    reach = work.look()
    every = faults(work.plain)
    chosen = [fault for fault in sample(every, options.seed) if fault.file.startswith(options.only)][: options.count]
    done = {record["fault"]: record for record in lines(work.results)}
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    for number, fault in enumerate(chosen, 1):
        if until is not None and time.monotonic() > until:
            break
        if str(fault) not in done:
            start = time.monotonic()
            record = work.judge(fault, reach) | {"seconds": round(time.monotonic() - start, 1)}
            append(work.results, record)
            show(number, len(chosen), record)
            done[str(fault)] = record
    results = verdicts([done[str(fault)] for fault in chosen if str(fault) in done])
    said = ", ".join(f"{n} {what}" for what, n in sorted(Counter(r["verdict"] for r in results).items()))
    print(f"{len(results)} of {len(every)} possible faults, seed {options.seed}: {said}")
    if options.write is not None:
        write(options.write, results, len(every), options)
    return int(any(r["verdict"] not in GOOD for r in results))


if __name__ == "__main__":
    sys.exit(main())
