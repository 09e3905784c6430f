"""How far from the best schedule each search ends, on spaces that can be enumerated whole.

    python -m dplc.examples.benches.regret [FOLDER]

writes regret.json and regret.md there (default: suites/results/predicted beside this folder). A space is a kernel
with some passes free and the others as by default; the analytic model scores every program, so times are predicted.
A search's regret after n tries is the best it found over the best there is; tries count programs seen before too.
Budgets are shares of the space.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import exhaustive  # noqa: F401  (adds the search that enumerates a space)
import msgspec

from dplc.codegen.target import Target, target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.space import FusionVariant, ProgramSpace, ScheduleCandidate
from dplc.engine.store.store import Basis, Score
from dplc.engine.tune.evaluators import PredictingEvaluator
from dplc.engine.tune.search import Budget, SearchOptions, SearchRun

ROWS = "cooperative_reduce register_row rows_per_block"
SPACES = {
    "mm": ("torch.randn(128, 256) @ torch.randn(256, 512)", "blockify_launch slice_matmul_k"),
    "mm-ring": ("torch.randn(128, 256) @ torch.randn(256, 512)", "blockify_launch double_buffer"),
    "mm-stage": ("torch.randn(128, 256) @ torch.randn(256, 512)", "blockify_launch stage_inputs"),
    "small": ("torch.randn(64, 64) @ torch.randn(64, 64)", "blockify_launch slice_matmul_k"),
    "ragged": ("torch.randn(100, 200) @ torch.randn(200, 300)", "blockify_launch slice_matmul_k"),
    "batched": ("torch.randn(16, 64, 64) @ torch.randn(16, 64, 64)", "blockify_launch stage_inputs"),
    "tall": ("torch.randn(8, 128, 64) @ torch.randn(8, 64, 128)", "blockify_launch slice_matmul_k"),
    "transposed": ("torch.randn(128, 256) @ torch.randn(512, 256).t()", "blockify_launch slice_matmul_k"),
    "long": ("torch.softmax(torch.randn(4, 50000), -1)", f"{ROWS} split_rows"),
    "sum": ("torch.randn(64, 100000).sum(-1)", f"{ROWS} split_rows blockify_launch"),
}
SEARCHES = ("hill", "random")
SHARES = (0.05, 0.1, 0.2, 0.3)
SEEDS = 10
BOUND, SHARE = 1.05, 0.1  # the bar: within 5% of the best after tries for a tenth of the space
MACHINE = "sm_90a"


class Found(msgspec.Struct):
    """One search in one space. regret: {share of the space: of each seed, best found over best}."""

    space: str
    search: str
    regret: dict[str, list[float]]

    def median(self, share: float) -> float:
        return statistics.median(self.regret[f"{share:g}"])


class Enumerated(msgspec.Struct):
    """A space, whole. microseconds are predicted."""

    name: str
    expression: str
    free: str
    programs: int
    refused: int
    default_us: float
    best_us: float
    near: int


@dataclass
class Table:
    """An evaluator that remembers: {program: score}."""

    known: dict[str, Score]
    basis: Basis = "predicted"

    def __call__(self, candidate: ScheduleCandidate) -> Score:
        if candidate.key not in self.known:
            self.known[candidate.key] = PredictingEvaluator()(candidate)
        return self.known[candidate.key]


def enumerated(name: str, machine: Target) -> tuple[Enumerated, ProgramSpace, Table]:
    """The space, and the score of every program in it."""
    expression, free = SPACES[name]
    tools = toolchain()
    plan = Compiler(tools, machine).cut(capture_text(expression, 0))[1]
    variant = FusionVariant("", lambda: plan.kernels[:1])
    space = ProgramSpace(tools, [variant], machine, frozenset(free.split()))
    table = Table({})
    run = SearchRun(space, table, SearchOptions("exhaustive", budget=Budget())).run()
    assert run.best is not None and run.default.seconds is not None
    seconds = [score.seconds for score in table.known.values() if score.seconds is not None]
    near = sum(one <= BOUND * run.best[0] for one in seconds)
    refused = run.programs - len(seconds)
    times = run.default.seconds * 1e6, run.best[0] * 1e6
    return Enumerated(name, expression, free, run.programs, refused, *times, near), space, table


def searched(about: Enumerated, space: ProgramSpace, table: Table, search: str) -> Found:
    """A search with every seed."""
    regret: dict[str, list[float]] = {f"{share:g}": [] for share in SHARES}
    for seed in range(SEEDS):
        tries = [max(2, round(share * about.programs)) for share in SHARES]
        curve = SearchRun(space, table, SearchOptions(search, seed, Budget(tries=tries[-1]))).run().curve
        for share, limit in zip(SHARES, tries, strict=True):
            best = min((seconds for number, _, seconds in curve if number <= limit), default=float("inf"))
            regret[f"{share:g}"].append(round(best * 1e6 / about.best_us, 4))
    return Found(about.name, search, regret)


def page(spaces: list[Enumerated], found: list[Found]) -> str:
    """The tables as text."""
    lines = [
        "# Regret of the searches", "",
        f"Predicted by the analytic model for {MACHINE}; nothing here was measured.",
        f"Made by `python -m dplc.examples.benches.regret` on {time.strftime('%Y-%m-%d')}: "
        f"it enumerates each space and runs every search with {SEEDS} seeds.", "",
        "| space | program | free passes | programs | refused | default/best | within 5% |",
        "|---|---|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    for one in spaces:
        figures = one.programs, one.refused, f"{one.default_us / one.best_us:.2f}", one.near
        lines.append(f"| {one.name} | `{one.expression}` | {one.free} | {' | '.join(map(str, figures))} |")
    for share in SHARES:
        lines += ["", f"Best found over best after {share:.0%} of the space in tries, median of {SEEDS} seeds:", ""]
        lines += ["| space | " + " | ".join(SEARCHES) + " |", "|---|" + "--:|" * len(SEARCHES)]
        for one in spaces:
            cells = [next(f for f in found if (f.space, f.search) == (one.name, s)).median(share) for s in SEARCHES]
            lines.append(f"| {one.name} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")
        means = [geomean(f.median(share) for f in found if f.search == s) for s in SEARCHES]
        lines.append("| geomean | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")
        within = [sum(f.median(share) <= BOUND for f in found if f.search == s) for s in SEARCHES]
        lines.append("| within 5% | " + " | ".join(f"{count} of {len(spaces)}" for count in within) + " |")
    return "\n".join(lines) + "\n"


def geomean(values: Any) -> float:
    return statistics.geometric_mean(list(values))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "suites/results/predicted"
    machine = target(MACHINE)
    gc.collect()
    gc.freeze()
    spaces, found = [], []
    for name in SPACES:
        about, space, table = enumerated(name, machine)
        spaces.append(about)
        found += [searched(about, space, table, search) for search in SEARCHES]
        print(f"{name}: {about.programs} programs", file=sys.stderr, flush=True)
    text = page(spaces, found)
    (folder / "regret.md").write_text(text)
    data = {"machine": MACHINE, "basis": "predicted", "seeds": SEEDS, "spaces": spaces, "searches": found}
    (folder / "regret.json").write_text(msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n")
    print(text)


if __name__ == "__main__":
    main()
