"""How near the programs of a suite are to what the device can do, predicted: `examples/suites/limits.json` by default.

    python examples/benches/limits.py [--only PART] [--jobs N] [--target h200] [--beside h100 ..] [--kernels] [SUITE]

bound: the larger of arguments and results moved once at the DRAM's published rate and of every operation done once at
the f32 peak, and the launches that are made. Nothing is run, and nothing is measured. --kernels prints every kernel,
too; --before is a file of {case: microseconds} that were predicted at another time, --save writes one. --beside are
other devices, each with a line over all programs and a column of ratios.
"""

from __future__ import annotations

import argparse
import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.bench.bench import compile_all
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.bench.records import CaseRecord, KernelRecord
from dplc.engine.compiler import compiler_with
from dplc.engine.ruleset import processes

SUITE = Path(__file__).resolve().parents[1] / "suites" / "limits.json"
NEAR, FAR = 1.3, 2.5


def compiled(path: Path, name: str, device: str) -> CaseRecord:
    """The record of one case."""
    suite = read_suite(path)
    case = next(case for case in suite.cases if case.name == name)
    return compile_all([subject_of(suite, case)], lambda: compiler_with(target(device)), lambda text: None)[0][0]


def records(path: Path, names: list[str], device: str, jobs: int) -> list[CaseRecord]:
    """Those of all cases, each compiled in one of so many processes."""
    with ProcessPoolExecutor(jobs, processes()) as pool:
        return list(pool.map(compiled, [path] * len(names), names, [device] * len(names)))


def ratio(record: CaseRecord) -> float:
    """Predicted over bound; infinite for what does not compile."""
    if record.error or record.predicted_us is None or record.least_us is None:
        return float("inf")
    return record.predicted_us / record.least_us


def row(record: CaseRecord, before: dict[str, float], others: list[CaseRecord]) -> str:
    """A program's line, with its ratio on other devices."""
    main = record.main
    if main is None:
        return f"| {record.name} |{' - |' * (7 + len(others))}"
    was = f"{before[record.name]:.1f}" if record.name in before else "-"
    beside = "".join(f" {ratio(other):.2f} |" for other in others)
    return (
        f"| {record.name} | {len(record.kernels)} | {record.least_us:.1f} | {was} | {record.predicted_us:.1f} | "
        f"{ratio(record):.2f} |{beside} {main.name} | {main.predicted_bound} |"
    )


def each_kernel(kernel: KernelRecord) -> str:
    busy = ", ".join(f"{name} {taken:.1f}" for name, taken in kernel.busy_us.items() if taken)
    return f"    {kernel.predicted_us:9.1f} us  {kernel.name}  grid {kernel.grid} block {kernel.block}  {busy}"


def totals(found: list[CaseRecord], device: str) -> str:
    """One line over all programs."""
    ratios = {record.name: ratio(record) for record in found}
    near, far = sum(one <= NEAR for one in ratios.values()), sum(one > FAR for one in ratios.values())
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    worst = max(ratios, key=lambda name: ratios[name])
    return (
        f"{len(found)} programs, predicted for {device}: {near} within {NEAR} of their bound, {far} above {FAR}; "
        f"geometric mean {mean:.2f}, worst {ratios[worst]:.2f} (`{worst}`)."
    )


def header(devices: list[str]) -> str:
    """The head of the table; devices: those with a column of ratios."""
    columns = "".join(f" {device} |" for device in devices)
    return (
        f"\n| program | launches | bound us | before us | predicted us | ratio |{columns} longest kernel | bound |\n"
        f"|---|---:|---:|---:|---:|---:|{'---:|' * len(devices)}---|---|"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="?", type=Path, default=SUITE)
    parser.add_argument("--only", help="cases whose names have this part, or match this pattern")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--beside", nargs="*", default=[], metavar="TARGET")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    before = json.loads(given.before.read_text()) if given.before else {}
    names = [case.name for case in read_suite(given.suite).select(given.only)]
    found = records(given.suite, names, given.target, given.jobs)
    others = [records(given.suite, names, device, given.jobs) for device in given.beside]
    for device, every in zip([given.target, *given.beside], [found, *others], strict=True):
        print(f"- {totals(every, target(device).name)}")
    print(header(given.beside))
    for record, *beside in zip(found, *others, strict=True):
        print(row(record, before, beside))
        for line in map(each_kernel, record.kernels if given.kernels else []):
            print(line)
    if given.save:
        given.save.write_text(
            json.dumps({one.name: round(one.predicted_us or 0.0, 2) for one in found}, indent=1) + "\n"
        )
    for record in found:
        if record.error:
            print(f"\n{record.name}: {record.error}")


if __name__ == "__main__":
    main()
