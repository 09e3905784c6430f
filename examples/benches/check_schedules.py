"""Random schedules of every shape of a suite, at reduced extents, whole in checked mode and against float64.

    python examples/benches/check_schedules.py [--suite FILE] [--points N] [--seed N] [--only NAME ..] [--target NAME]
                                               [--dtype NAME] [--rules FILE] [--workers N] [--records FILE]
                                               [--write FOLDER]

Shapes that are one at reduced extents share its points, so that no program is checked twice. A point that cannot be
launched (too many threads, too much shared memory) is drawn again. Verdicts are kept in the records, by what decides
them: a run that was killed goes on, and after a change of rules only what became other programs is checked.
Exit code 1 for any fault, and where there are not enough points.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from short_extents import KEPT, LONGER, LONGEST, SHORT, DrawnSchedule, Points, processor_seconds, reduced, turns

from dplc.codegen.cache import cache_directory, digest
from dplc.codegen.target import target
from dplc.engine.bench.bench import versions
from dplc.engine.bench.cases import BenchCase, Suite, read_suite
from dplc.engine.ruleset import Toolchain, toolchain

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUITE = HERE.parent / "suites" / "kernels_84.json"
DRAWN = 12  # times the points that are wanted, at most


@dataclass(frozen=True)
class Task:
    """A case at reduced extents, and the names of the cases that it stands for."""

    suite: Path
    case: BenchCase
    names: tuple[str, ...]
    points: int
    seed: int
    machine: str
    records: Path
    dtype: str | None = None
    rules: tuple[Path, ...] = ()

    def tools(self) -> Toolchain:
        """The rules, the user's laid over them."""
        return toolchain(self.rules)


def read_as(path: Path, dtype: str | None) -> Suite:
    """A suite, of cases in another dtype where one is named."""
    suite = read_suite(path)
    return (
        suite if dtype is None else structs.replace(suite, cases=[structs.replace(c, dtype=dtype) for c in suite.cases])
    )


def known(records: Path) -> dict[str, dict[str, Any]]:
    """Verdicts by digest. A run that was killed may have left half a line."""
    found = {}
    for line in records.read_text().splitlines() if records.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[record["digest"]] = record
    return found


def check_case(task: Task) -> dict[str, Any]:
    """Points of one case until there are enough for all cases that it stands for."""
    torch.set_num_threads(1)
    os.environ["DPLC_EMULATOR_THREADS"] = "1"
    suite, verdicts = read_as(task.suite, task.dtype), known(task.records)
    case = next(case for case in suite.cases if case.name == task.names[0])
    points = Points(suite, case, task.tools(), target(task.machine))
    wanted, seen, kernels = task.points * len(task.names), set(), set()
    counts, refusals, rules = Counter(), Counter(), Counter()
    faults, seconds = [], []
    for number in range(wanted * DRAWN):
        if len(seen) == wanted:
            break
        start = processor_seconds()
        seed = zlib.crc32(f"{task.case.operation} {task.case.sizes} {task.seed} {number}".encode())
        point = points.draw(seed)
        drawn, drew = point.drawn, processor_seconds() - start
        counts["drawn"] += 1
        if drawn.program is None:
            counts["beyond a limit"] += 1
            refusals[limit(drawn.refused or "")] += 1
            continue
        key = point.space.digest(drawn.program)
        if point.thin or key in seen:
            counts["short rings" if point.thin else "drawn before"] += 1
            continue
        seen.add(key)
        kernels |= {digest([kernel.text, repr(kernel.grid)]) for kernel in drawn.program.kernels}
        rules.update(drawn.rules)
        counts["with a ring"] += turns(drawn.tiles) < float("inf")
        verdict = verdicts.get(key) or judged(point, key, drew, task.records)
        seconds.append(verdict["seconds"])
        if verdict["fault"] is not None:
            where = {"case": case.name, "sizes": point.sizes, "seed": seed}
            faults.append({**where, "fault": verdict["fault"], "choices": drawn.choices})
    return {
        "cases": task.names, "sizes": task.case.sizes, "points": len(seen), "kernels": len(kernels), **counts,
        "refusals": dict(refusals), "rules": dict(rules), "faults": faults, "seconds": seconds,
    }  # fmt: skip


def judged(point: DrawnSchedule, key: str, drew: float, records: Path) -> dict[str, Any]:
    """The verdict on a point, for the records too."""
    assert point.drawn.program is not None
    verdict = point.space.check(point.drawn.program)
    record = {"digest": key, "fault": verdict.fault, "seconds": {"draw": drew, **verdict.seconds}}
    with records.open("a") as file:
        file.write("\n" + json.dumps(record))
    return record


def limit(refusal: str) -> str:
    """The limit that a refusal is about."""
    return next((word for word in ("threads", "shared memory", "TMA", "blocks") if word in refusal), refusal)


def checked(tasks: list[Task], workers: int, records: Path) -> Iterator[dict[str, Any]]:
    """What came of the tasks, in order, with progress on stderr."""
    before, start = len(known(records)), time.monotonic()
    with ProcessPoolExecutor(workers) as pool:
        jobs = [pool.submit(check_case, task) for task in tasks]
        for number, job in enumerate(jobs):
            while wait([job], timeout=10).not_done:
                done, minutes = len(known(records)) - before, (time.monotonic() - start) / 60
                line = f"{done} programs checked in {minutes:.1f} minutes; case {number + 1} of {len(jobs)}"
                print(line, file=sys.stderr, flush=True)
            yield job.result()


def show(found: dict[str, Any]) -> None:
    """One line for a case, and its faults."""
    took = sum(sum(part.values()) for part in found["seconds"])
    others = f" and {len(found['cases']) - 1} more" if len(found["cases"]) > 1 else ""
    print(
        f"{found['cases'][0] + others:44} {found['points']:3} points, {found['kernels']:3} kernels, "
        f"{found.get('beyond a limit', 0):3} beyond a limit, {len(found['faults'])} faults, {took:.1f} s",
        flush=True,
    )
    for fault in found["faults"]:
        print(f"  seed {fault['seed']}, {fault['sizes']}: {fault['fault']}\n    " + "\n    ".join(fault["choices"]))


def per_point(found: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Processor seconds of a point by phase: median, 90 %, sum."""
    points = [point for case in found for point in case["seconds"]]
    phases = {"all": [sum(point.values()) for point in points]}
    phases |= {name: [point.get(name, 0.0) for point in points] for name in ("draw", "build", "run", "compare")}
    out = {}
    for name, values in phases.items():
        nine_tenths = statistics.quantiles([*values, *values], n=10, method="inclusive")[8]
        out[name] = {
            "median": round(statistics.median(values), 4),
            "p90": round(nine_tenths, 4),
            "sum": round(sum(values), 1),
        }
    return out


def _in_tree(path: Path) -> str:
    """A path as a page names it."""
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def summary(found: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """All of it as data."""

    def total(name: str) -> int:
        return sum(case.get(name, 0) for case in found)

    def added(name: str) -> dict[str, int]:
        return dict(sum((Counter(case[name]) for case in found), Counter()).most_common())

    given = {"--suite": _in_tree(options.suite)} if options.suite != SUITE else {}
    given |= {"--points": options.points, "--seed": options.seed, "--target": options.target}
    given |= {"--dtype": options.dtype} if options.dtype else {}
    command = ["python", "examples/benches/check_schedules.py", *(str(part) for item in given.items() for part in item)]
    command += ["--only", *options.only] if options.only else []
    command += ["--rules", *map(str, options.rules)] if options.rules else []
    faults = [fault for case in found for fault in case["faults"]]
    apart = ("seconds", "rules", "faults", "refusals")
    return {
        "written": _in_tree(options.write) if options.write else None,
        "date": time.strftime("%Y-%m-%d"), "command": shlex.join(command), "suite": options.suite.name,
        "dtype": options.dtype or "the dtypes of the suite",
        "versions": versions(toolchain(options.rules)), "rules": toolchain(options.rules).rules.digest,
        "shapes": sum(len(case["cases"]) for case in found), "shapes_at_reduced_extents": len(found),
        "points_per_shape": options.points, "points": total("points"), "kernels": total("kernels"),
        "with_a_ring": total("with a ring"), "drawn": total("drawn"), "beyond_a_limit": total("beyond a limit"),
        "drawn_before": total("drawn before"), "short_rings": total("short rings"), "refusals": added("refusals"),
        "findings": len(faults), "faults": faults, "processor_seconds": per_point(found), "rules_fired": added("rules"),
        "cases": [{name: value for name, value in case.items() if name not in apart} for case in found],
    }  # fmt: skip


PAGE = """# Random schedules, checked

{shapes} shapes of {suite}, {points_per_shape} random points of the rule space each: {points} programs, no two alike,
{kernels} kernels, {with_a_ring} programs with a ring. Each ran whole on the emulator in checked mode (races,
uninitialised reads, bounds, alignment, barriers, waits), under two orders of threads that must agree to the bit, and
was compared with float64 (gate 1e-5 of the largest value, or twice the error of eager). Inputs are of {dtype}.
**{findings} findings.**

Made by `{command} --write {written}` on {date} (emulator, no GPU). Rules {rules}; dplc
{versions[dplc]}, python {versions[python]}, torch {versions[torch]}. Do not edit: run it again.

Extents that cases name (`emulated` in the suite) are those. Others are reduced: sizes beyond {longest} to {short} and
their residue modulo {kept}; what is summed over to {long} at most where a ring would turn less than twice; batches to a
few. {shapes_at_reduced_extents} shapes are left. Those that stand for several have as many times the points.

Drawn: {drawn}. Not counted: {beyond_a_limit} beyond a limit of the device ({limits}), {drawn_before} drawn before,
{short_rings} with a ring that turns less than twice.

| processor seconds of a point | median | 90 % | all points |
|---|---:|---:|---:|
{seconds}

| shape at reduced extents | stands for | points | kernels | with a ring | beyond a limit | findings |
|---|---:|---:|---:|---:|---:|---:|
{cases}

Rules that fired, in so many points: {fired}.
"""


def page(data: dict[str, Any]) -> str:
    """The same for people."""
    wrong = Counter(fault["case"] for fault in data["faults"])
    cases = (
        f"| {case['cases'][0]} {' '.join(f'{name}={n}' for name, n in case['sizes'].items())} | {len(case['cases'])} "
        f"| {case['points']} | {case['kernels']} | {case.get('with a ring', 0)} | {case.get('beyond a limit', 0)} "
        f"| {wrong[case['cases'][0]]} |"
        for case in data["cases"]
    )
    phases = data["processor_seconds"].items()
    return PAGE.format(
        **data | {
            "cases": "\n".join(cases), "longest": LONGEST, "kept": KEPT,
            "short": SHORT * KEPT, "long": LONGER[-1] * KEPT,
            "limits": ", ".join(f"{what}: {n}" for what, n in data["refusals"].items()) or "none",
            "seconds": "\n".join(f"| {name} | {p['median']} | {p['p90']} | {p['sum']} |" for name, p in phases),
            "fired": ", ".join(f"{rule} {n}" for rule, n in data["rules_fired"].items()), "rules": data["rules"][:12],
        }
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=None, help="cases that match one of these")
    parser.add_argument("--target", default="h200")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default=None,
        help="of all inputs, whatever the suite says",
    )
    parser.add_argument("--rules", type=Path, nargs="*", default=(), help="rule files that are laid over ours")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--records", type=Path, default=cache_directory() / "schedules.jsonl")
    parser.add_argument("--write", type=Path, default=None, help="a folder for the result as JSON and Markdown")
    options = parser.parse_args()
    suite = read_as(options.suite, options.dtype)
    wanted = {case.name for pattern in options.only or [None] for case in suite.select(pattern)}
    options.records.parent.mkdir(parents=True, exist_ok=True)
    tasks = [
        Task(
            options.suite,
            case,
            names,
            options.points,
            options.seed,
            options.target,
            options.records,
            options.dtype,
            tuple(options.rules),
        )
        for case, cases in reduced(suite)
        if (names := tuple(case.name for case in cases if case.name in wanted))
    ]
    print(f"{len(wanted)} shapes, {len(tasks)} at reduced extents, {options.points} points each", flush=True)
    found = []
    for record in checked(tasks, options.workers, options.records):
        found.append(record)
        show(record)
    data = summary(found, options)
    print(f"{data['points']} points, {data['kernels']} kernels, {data['findings']} findings", flush=True)
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
        (options.write / f"{options.suite.stem}.json").write_text(json.dumps(data, indent=1) + "\n")
        (options.write / "README.md").write_text(page(data))
    return int(bool(data["faults"]) or any(c["points"] < options.points * len(c["cases"]) for c in found))


if __name__ == "__main__":
    sys.exit(main())
