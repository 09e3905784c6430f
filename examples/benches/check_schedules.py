"""Random schedules of every shape of a suite, at reduced extents, whole in checked mode and against float64.

    python examples/benches/check_schedules.py [--suite FILE] [--points N] [--seed N] [--only PATTERN]
                                               [--target NAME] [--json FILE]

A point that cannot be launched (too many threads, too much shared memory) is drawn again. Exit code 1 for any fault.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from dplc.codegen.target import target
from dplc.engine.front.capture import capture
from dplc.engine.suite.schedules import check_point, reduced
from dplc.engine.suite.subject import subject_of
from dplc.engine.suite.suite_file import Case, read_suite
from dplc.engine.toolchain import toolchain

HERE = Path(__file__).resolve().parent
SUITE = HERE.parent / "suites" / "kernels_84.json"
DRAWN = 4  # times the points that are wanted, at most


def check_case(path: Path, case: Case, points: int, seed: int, machine: str) -> dict[str, Any]:
    """Points of one case until enough could be launched."""
    torch.set_num_threads(1)
    os.environ["DPLC_EMULATOR_THREADS"] = "1"
    started = time.perf_counter()
    subject = subject_of(read_suite(path), case)
    captured = capture(subject.function, list(subject.inputs().values()))
    tools, chosen = toolchain(), target(machine)
    found = []
    for number in range(points * DRAWN):
        point = check_point(
            captured, tools, chosen, zlib.crc32(f"{case.operation} {case.sizes} {seed} {number}".encode())
        )
        found.append(point)
        if sum(point.refused is None for point in found) == points:
            break
    return {
        "case": case.name, "sizes": case.sizes, "checked": sum(point.refused is None for point in found),
        "refused": sum(point.refused is not None for point in found),
        "different": len({point.choices for point in found if point.refused is None}),
        "faults": [{"seed": p.seed, "choices": p.choices, "fault": p.fault} for p in found if p.fault is not None],
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=None)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    suite = read_suite(options.suite)
    wanted = {case.name for case in suite.select(options.only)}
    cases = [case for case in reduced(suite) if case.name in wanted]
    print(
        f"{len(cases)} different shapes at reduced extents, {options.points} points each, seed {options.seed}",
        flush=True,
    )
    records = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check_case, options.suite, c, options.points, options.seed, options.target) for c in cases]
        for job in jobs:
            record = job.result()
            records.append(record)
            counts = f"{record['checked']:3} checked ({record['different']} different), {record['refused']:3} refused"
            print(f"{record['case']:36} {counts}, {len(record['faults'])} faults, {record['seconds']} s", flush=True)
            for fault in record["faults"]:
                print(f"  seed {fault['seed']}: {fault['fault']}\n    " + "\n    ".join(fault["choices"]), flush=True)
    if options.json is not None:
        options.json.write_text(
            json.dumps({"points": options.points, "seed": options.seed, "cases": records}, indent=1) + "\n"
        )
    return int(any(record["faults"] or record["checked"] < options.points for record in records))


if __name__ == "__main__":
    sys.exit(main())
