"""The 84 shapes, tuned against the default order, both predicted by the analytic model.

    python -m dplc.examples.benches.tuned_shapes [--tries 100] [--check] [FOLDER]

writes tuned.json and tuned.md there (default: suites/results/predicted beside this folder). Every distinct kernel is
tuned once. `--check` runs the winners on the emulator against float64 and takes the fastest that is right; without it
the table is about time only.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from dplc.codegen.target import target
from dplc.engine.bench.cases import read_suite, subject_of
from dplc.engine.compiler import Compiler
from dplc.engine.kernels.sharing import key
from dplc.engine.ruleset import toolchain
from dplc.engine.tune.evaluators import PredictingEvaluator
from dplc.engine.tune.search import DEFAULT_SEARCH, Budget, SearchOptions
from dplc.engine.tune.tuning import TuningOutcome, plain, tune_kernel

SUITES = Path(__file__).parents[1] / "suites"
MACHINE, SEED = "sm_90a", 0
TODAY = time.strftime("%Y-%m-%d")


def tuned(tries: int, check: bool) -> tuple[list[dict[str, Any]], dict[str, TuningOutcome]]:
    """The cases, and what came of every distinct kernel."""
    tools, machine = toolchain(), target(MACHINE)
    suite = read_suite(SUITES / "kernels_84.json")
    wishes = SearchOptions(DEFAULT_SEARCH, SEED, Budget(tries=tries), check=check)
    cases, outcomes = [], {}
    gc.collect()
    gc.freeze()
    for case in suite.cases:
        captured = subject_of(suite, case).capture()
        kernels = Compiler(tools, machine).cut(captured)[1].kernels
        for kernel in kernels:
            if key(kernel) not in outcomes:
                outcomes[key(kernel)] = tune_kernel(kernel, tools, machine, PredictingEvaluator(), wishes)
        found = [outcomes[key(kernel)] for kernel in kernels]
        default, best = (sum(times) * 1e6 for times in (_defaults(found), _bests(found)))
        cases.append({"case": case.name, "kernels": len(kernels), "default_us": default, "tuned_us": best})
        print(f"{case.name}: {default:.2f} us by default, {best:.2f} us tuned, predicted", file=sys.stderr, flush=True)
    return cases, outcomes


def _defaults(found: list[TuningOutcome]) -> list[float]:
    return [outcome.default_seconds or 0.0 for outcome in found]


def _bests(found: list[TuningOutcome]) -> list[float]:
    return [outcome.seconds or 0.0 for outcome in found]


def page(cases: list[dict[str, Any]], about: dict[str, Any]) -> str:
    """The table as text."""
    checked = (
        f"{about['right']} of {about['kernels']} winners were run on the emulator and are right against float64: "
        f"{about['whole']} compared whole, the others at a sample of elements, the first and the last of every axis "
        "among them; the first, last and ragged blocks in checked mode, too. "
        f"{about['wrong']} faster ones were wrong and are not counted."
        if about["checked"]
        else "The winners were not run: a table about predicted time only."
    )
    option = " --check" if about["checked"] else ""
    lines = [
        "# The 84 shapes, tuned", "",
        f"Predicted by the analytic model for {MACHINE}; nothing here was measured. Search {about['search']},",
        f"{about['tries']} tries for each of {about['kernels']} distinct kernels, {about['cpu_seconds']} CPU seconds:",
        f"made by `python -m dplc.examples.benches.tuned_shapes --tries {about['tries']}{option}` on {TODAY}.",
        checked, "",
        f"Default over tuned: geometric mean **{about['geomean']:.3f}**, least {about['least']:.3f}, "
        f"most {about['most']:.2f}.",
        "", "| case | kernels | default µs | tuned µs | default / tuned |", "|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    for case in cases:
        times = case["default_us"], case["tuned_us"], case["default_us"] / case["tuned_us"]
        lines.append(f"| {case['case']} | {case['kernels']} | {times[0]:.2f} | {times[1]:.2f} | {times[2]:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=SUITES / "results/predicted")
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    began = time.process_time()
    cases, outcomes = tuned(given.tries, given.check)
    ratios = [case["default_us"] / case["tuned_us"] for case in cases]
    about = {
        "machine": MACHINE, "basis": "predicted", "search": DEFAULT_SEARCH, "seed": SEED, "tries": given.tries,
        "kernels": len(outcomes), "checked": given.check, "cpu_seconds": round(time.process_time() - began),
        "geomean": statistics.geometric_mean(ratios), "least": min(ratios), "most": max(ratios),
        "whole": sum(o.checked == "emulator, whole" for o in outcomes.values()),
        "right": sum(bool(o.checked) for o in outcomes.values()), "wrong": sum(len(o.wrong) for o in outcomes.values()),
    }  # fmt: skip
    schedules = {
        name: {"kernel": o.kernel, "gain": o.gain, "checked": o.checked, "schedule": plain(o.winner),
               "wrong": [{"finding": why, "schedule": plain(c)} for c, why in o.wrong]}
        for name, o in outcomes.items()
    }  # fmt: skip
    (given.folder / "tuned.md").write_text(page(cases, about))
    data = {**about, "cases": cases, "kernels_tuned": schedules}
    (given.folder / "tuned.json").write_text(json.dumps(data, indent=1) + "\n")
    print(f"geomean {about['geomean']:.3f}, least {about['least']:.3f}, {about['cpu_seconds']} CPU seconds")


if __name__ == "__main__":
    main()
