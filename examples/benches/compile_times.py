"""How long a compile takes: from what torch.export gave to CUDA text, warm, without capture and builds.

    python examples/benches/compile_times.py [--json] [--markdown] [--runs 20] [--warm-up 3] [--no-process]

Measured here: the median of 20 compiles in one process after 3, every result dropped before the next; the same for a
shape that was never seen before each time; and a whole process, `dplc compile -c ..`. Beside them what deplodock, a
compiler of the same kind with rules in Python, took on another 2-core machine: its version of May 2026 / its newest.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.capture.signature import Capture
from dplc.engine.compiler import Compiler
from dplc.engine.ruleset import toolchain

STAGES = ("torch", "tensor", "fusion", "tile", "kernel", "cuda")


@dataclass(frozen=True)
class Case:
    """A program over an extent {n}, the milliseconds it may take; what deplodock took, warm and as a whole process."""

    name: str
    text: str
    n: int
    bar: float | None
    theirs: tuple[float, float]
    their_process: float

    def capture(self, more: int = 0) -> Capture:
        return capture_text(self.text.replace("{n}", str(self.n + more)))


BIASED = "torch.relu(torch.matmul(torch.randn({n}, 64) + torch.randn(64), torch.randn(64, 16)))"
ATTENTION = "F.scaled_dot_product_attention(*(torch.randn(32, {n}, 64) for _ in range(3)))"
CASES = (
    Case("RMSNorm", "nn.RMSNorm(2048)(torch.randn(1, {n}, 2048))", 32, 12, (23, 25), 3.8),
    Case("softmax", "nn.Softmax(-1)(torch.randn(1, 28, {n}, 512))", 512, None, (20, 22), 3.6),
    Case("relu(matmul(x + bias, w))", BIASED, 16, 15, (88, 21), 3.3),
    Case("Linear", "nn.Linear(2048, 2048)(torch.randn({n}, 2048))", 512, 25, (432, 46), 3.3),
    Case("attention", ATTENTION, 128, 50, (622, 74), 4.0),
)


@dataclass(frozen=True)
class Row:
    """Milliseconds of a warm compile: median, fastest, slowest; the median of its CPU time (other work on the machine
    shows in the difference), of every stage, and over new shapes. Seconds of a whole process."""

    name: str
    milliseconds: float
    fastest: float
    slowest: float
    cpu: float
    stages: dict[str, float]
    new_shapes: float
    bar: float | None
    theirs: tuple[float, float]
    process_seconds: float | None
    their_process: float


def measure(case: Case, runs: int, warm_up: int, process: bool) -> Row:
    """One case."""
    same = [case.capture()] * (warm_up + runs)
    times, spent, stages = compiled(same, warm_up)
    medians = {stage: statistics.median(timings[stage] for timings in stages) for stage in STAGES}
    others, _, _ = compiled([case.capture(16 * number) for number in range(1, runs + 1)], 0)
    seconds = whole_process(case.text.replace("{n}", str(case.n))) if process else None
    median, cpu, new = map(statistics.median, (times, spent, others))
    return Row(
        case.name, median, min(times), max(times), cpu, medians, new, case.bar, case.theirs, seconds, case.their_process
    )  # fmt: skip


def compiled(captures: list[Capture], warm_up: int) -> tuple[list[float], list[float], list[dict[str, float]]]:
    """Milliseconds of each compile after the first ones, of CPU time in it, and of its stages."""
    tools, machine = toolchain(), target()
    times: list[float] = []
    spent: list[float] = []
    stages: list[dict[str, float]] = []
    for captured in captures:
        gc.collect()
        start, busy = time.perf_counter(), time.process_time()
        compilation = Compiler(tools, machine).compile(captured)
        assert compilation.cuda
        times.append((time.perf_counter() - start) * 1e3)
        spent.append((time.process_time() - busy) * 1e3)
        stages.append(compilation.timings)
        del compilation  # nodes are interned: a result that is still there would be found again
    return times[warm_up:], spent[warm_up:], stages[warm_up:]


def whole_process(text: str) -> float:
    """Seconds of `dplc compile -c TEXT`, the fastest of three."""
    command = [str(Path(sys.executable).with_name("dplc")), "compile", "-c", text]
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def table(rows: list[Row], runs: int, warm_up: int) -> str:
    """For people."""
    head = f"{'ms':26} {'dplc':>22} {'cpu':>5} {'new shapes':>11} {'bar':>4} {'deplodock':>11}"
    head += f" {'process':>9} {'theirs':>7} "
    lines = [
        f"warm compile, measured here: median of {runs} after {warm_up} (fastest..slowest); deplodock: elsewhere",
        head + " ".join(f"{stage:>6}" for stage in STAGES),
    ]
    for row in rows:
        ours = f"{row.milliseconds:.1f} ({row.fastest:.1f}..{row.slowest:.1f})"
        bar = "" if row.bar is None else f"{row.bar:g}"
        theirs = f"{row.theirs[0]:g} / {row.theirs[1]:g}"
        process = "" if row.process_seconds is None else f"{row.process_seconds:.2f} s"
        stages = " ".join(f"{row.stages[stage]:6.1f}" for stage in STAGES)
        left = f"{row.name:26} {ours:>22} {row.cpu:>5.1f} {row.new_shapes:>11.1f} {bar:>4} {theirs:>11}"
        lines.append(f"{left} {process:>9} {row.their_process:>5.1f} s {stages}")
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """The table of a page: CPU time, which other work on the machine changes least, and what others took."""
    lines = ["| warm compile, ms | CPU, median | by the clock | bar | deplodock |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:g}{', missed' * (row.cpu > row.bar)}"
        theirs = f"{row.theirs[0]:g} / {row.theirs[1]:g}"
        lines.append(f"| {row.name} | {row.cpu:.1f} | {row.milliseconds:.1f} | {bar} | {theirs} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--markdown", action="store_true", help="the table of examples/README.md")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--no-process", action="store_true", help="leave the whole processes out")
    options = parser.parse_args()
    rows = [measure(case, options.runs, options.warm_up, not options.no_process) for case in CASES]
    if options.json:
        listed = [asdict(row) for row in rows]
        print(json.dumps({"runs": options.runs, "warm_up": options.warm_up, "rows": listed}, indent=2))
    else:
        print(page(rows) if options.markdown else table(rows, options.runs, options.warm_up))


if __name__ == "__main__":
    main()
