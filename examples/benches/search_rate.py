"""How fast a search looks at candidates, and whether it keeps its memory.

    python -m dplc.examples.benches.search_rate [--tries 400] [--assemble] [--memory 10000]

Candidates are different programs of a matmul 128x512x256, limits and model included; a second is one of CPU time.
`--assemble` builds those that may win with NVRTC in two threads; `--memory` prints the resident memory on the way.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.compiler import Stopwatch, cut_into_kernels
from dplc.engine.front.text import capture_text
from dplc.engine.toolchain import toolchain
from dplc.engine.tune.assembling import Assembled
from dplc.engine.tune.predicting import Model
from dplc.engine.tune.running import DEFAULT_SEARCH, Budget, Run, Runner
from dplc.engine.tune.search import Tried
from dplc.engine.tune.space import Space, Start

TEXT = "torch.randn(128, 256) @ torch.randn(256, 512)"
MACHINE = target("sm_90a")
SEARCHES = ("hill", "mcts", "mcts-tree", "evolution", "random")


def space() -> Space:
    """A new one: nothing is remembered from the search before."""
    plan = cut_into_kernels(capture_text(TEXT, 0), toolchain(), MACHINE, None, Stopwatch())[2]
    return Space(toolchain(), Start(plan.kernels), MACHINE)


def rate(search: str, tries: int, assemble: bool) -> str:
    """A line about one search."""
    found, evaluator = space(), Assembled() if assemble else Model()
    begun, wall = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        threads = {"pool": pool, "ahead": 2} if assemble else {}
        run = Runner(found, evaluator, search, 0, Budget(tries=tries), **threads).run()  # type: ignore[arg-type]
    spent, wall = time.process_time() - begun, time.perf_counter() - wall
    best = run.best[0] * 1e6 if run.best else float("inf")
    figures = f"{run.programs / spent:6.1f} programs a CPU second ({run.tries / spent:.1f} tries)"
    about = f"{run.programs} programs, {run.pruned} refused, {wall:.1f} s, best {best:.2f} us predicted"
    return f"{search:10} {figures}, {about}"


def memory(tries: int) -> None:
    """Resident memory while the default search goes on."""

    def heard(run: Run, tried: Tried) -> None:
        if run.tries % max(tries // 10, 1) == 0:
            print(f"{run.tries:6} tries: {resident():.0f} MB, {run.programs} programs", flush=True)

    Runner(space(), Model(), DEFAULT_SEARCH, 0, Budget(tries=tries), heard).run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak {peak:.0f} MB")


def resident() -> float:
    """Megabytes, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=400)
    parser.add_argument("--assemble", action="store_true")
    parser.add_argument("--memory", type=int, default=0)
    given = parser.parse_args()
    Runner(space(), Model(), "random", 1, Budget(tries=40)).run()  # every rule is compiled once
    gc.collect()
    gc.freeze()
    if given.memory:
        memory(given.memory)
        return
    for search in SEARCHES[: 2 if given.assemble else None]:
        print(rate(search, given.tries, given.assemble), flush=True)


if __name__ == "__main__":
    main()
