"""How fast a search looks at candidates, and whether it keeps its memory.

    python -m dplc.examples.benches.search_rate [--tries 400] [--assemble] [--memory 10000] [--write FILE]

Candidates are different programs of a matmul 128x512x256, limits and model included; a second is one of CPU time.
`--assemble` builds those that may win with NVRTC, several at once, and takes their registers from the cubin: then the
rate by the clock counts. `--memory` prints the resident memory on the way. `--write` does all three and writes a page.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import sys
import time
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.bench.bench import assembler
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import compiler_with
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.space import FusionVariant, ProgramSpace
from dplc.engine.tune.evaluators import AHEAD, AssemblingEvaluator, PredictingEvaluator
from dplc.engine.tune.search import DEFAULT_SEARCH, Budget, SearchOptions, SearchRun, Tried

TEXT = "torch.randn(128, 256) @ torch.randn(256, 512)"
MACHINE = target("sm_90a")
SEARCHES = ("hill", "random")
ASSEMBLED = ("hill",)
WHOLE_RUN = 10_000  # tries over which memory is looked at


def space() -> ProgramSpace:
    """A new one: nothing is remembered from the search before."""
    plan = compiler_with(MACHINE).cut(capture_text(TEXT, 0))[1]
    return ProgramSpace(toolchain(), [FusionVariant("", lambda: plan.kernels)], MACHINE)


def rate(search: str, tries: int, assemble: bool) -> str:
    """A line about one search."""
    found, evaluator = space(), AssemblingEvaluator() if assemble else PredictingEvaluator()
    begun, wall = time.process_time(), time.perf_counter()
    run = SearchRun(found, evaluator, SearchOptions(search, budget=Budget(tries=tries), assemble=assemble)).run()
    spent, wall = time.process_time() - begun, time.perf_counter() - wall
    best = run.best[0] * 1e6 if run.best else float("inf")
    figures = f"{run.programs / spent:6.1f} programs a CPU second ({run.tries / spent:.1f} tries)"
    if assemble:
        figures += f", {run.programs / wall:.1f} a second by the clock"
    about = f"{run.programs} programs, {run.refused} refused, {wall:.1f} s, best {best:.2f} us predicted"
    return f"{search:10} {figures}, {about}"


def rates(tries: int, assemble: bool) -> list[str]:
    """The searches, a line each."""
    return [said(rate(search, tries, assemble)) for search in (ASSEMBLED if assemble else SEARCHES)]


def memory(tries: int) -> list[str]:
    """Resident memory while the default search goes on."""
    lines = []

    def observe(run: SearchRun, tried: Tried) -> None:
        if run.tries % max(tries // 10, 1) == 0:
            lines.append(said(f"{run.tries:6} tries: {resident():.0f} MB, {run.programs} programs"))

    SearchRun(space(), PredictingEvaluator(), SearchOptions(budget=Budget(tries=tries)), observe=observe).run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*lines, said(f"peak {peak:.0f} MB")]


def said(line: str) -> str:
    print(line, flush=True)
    return line


def resident() -> float:
    """Megabytes, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def page(tries: int) -> str:
    """Everything, as text."""
    load = os.getloadavg()[0]
    alone, built, kept = rates(tries, False), rates(tries // 4, True), memory(WHOLE_RUN)
    command = " ".join(["python -m dplc.examples.benches.search_rate", *sys.argv[1:]])
    return "\n".join([
        "# How fast a search looks at candidates", "",
        f"Made by `{command}` on {os.cpu_count()} cores; load average {load:.1f} when it began, of which it is 1.",
        f"Candidates are programs of `{TEXT}` for {MACHINE.name}; nothing was measured on a GPU.", "",
        "With the model alone, in CPU seconds:", "", "```", *alone, "```", "",
        f"With {assembler() or 'no assembler'} for those that may win, {AHEAD} at once, registers from the cubin:", "",
        "```", *built, "```", "",
        f"Resident memory of the default search, {DEFAULT_SEARCH}:", "", "```", *kept, "```", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=400)
    parser.add_argument("--assemble", action="store_true")
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    warm_up = SearchOptions("random", 1, Budget(tries=40))  # every rule is compiled once
    SearchRun(space(), PredictingEvaluator(), warm_up).run()
    gc.collect()
    gc.freeze()
    if given.write is not None:
        given.write.write_text(page(given.tries))
    elif given.memory:
        memory(given.memory)
    else:
        rates(given.tries, given.assemble)


if __name__ == "__main__":
    main()
