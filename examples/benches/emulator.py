"""How fast the emulator is: threads a second of a RMSNorm, GFLOP/s of a 128x128-tile matmul, seconds to build a kernel.

    python examples/benches/emulator.py [--json] [--markdown] [--runs 15] [--beside PROGRAM]

Measured here, on one core, in fast and in checked mode: the kernels are what the default order makes for sm_90a, every
result is compared with float64 first, and a figure is the best and the median of some launches, by CPU time (builds by
the clock). `--beside` names another emulator's program that prints its own figures; it is run in turns with ours, so
that both see the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from dplc.codegen.emulator.executor import EmulatorExecutor, EmulatorSession
from dplc.codegen.emulator.runtime import load
from dplc.codegen.judge import judge
from dplc.codegen.kernel import Program
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, compiler_with
from dplc.engine.run.calls import run_reference

NORM = "nn.RMSNorm(4096)(torch.randn({rows}, 4096))"
MATMUL = "torch.randn(2048, {k}) @ torch.randn({k}, 2048)"
BUILT = (NORM.format(rows=64), MATMUL.format(k=512), "F.softmax(torch.randn(64, 2048), -1)", "torch.randn(999).sin()")
BUILD_BAR = 0.7  # seconds


@dataclass(frozen=True)
class Row:
    """A rate of a kernel: the best and the median of some launches, and what it counts."""

    name: str
    unit: str
    best: float
    median: float


def compiled(text: str) -> Compilation:
    return compiler_with(target("sm_90a")).compile(capture_text(text))


def session(compilation: Compilation, checked: bool) -> EmulatorSession:
    """The program, on one core, after one run that agreed with float64."""
    captured, program = compilation.captured, compilation.program
    arrays = {buffer.name: captured.tensors[buffer.name] for buffer in (*program.inputs, *program.constants)}
    constants, inputs = ({b.name: arrays[b.name] for b in some} for some in (program.constants, program.inputs))
    ready = EmulatorExecutor(workers=1, checked=checked).prepare(program, constants)
    found = judge([*ready.run(inputs).values()], run_reference(captured, captured.tensors))
    assert found.relative <= 1e-5, f"wrong by {found.relative}"
    return ready


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def threads_of(program: Program) -> int:
    return sum(int(np.prod(launch.kernel.grid)) * launch.kernel.block for launch in program.launches())


def rates(runs: int, beside: str | None) -> list[Row]:
    """Launches of every kind in turns with the other program, if any."""
    rows, k = 512, 128
    norm, matmul = compiled(NORM.format(rows=rows)), compiled(MATMUL.format(k=k))
    threads, flops = threads_of(norm.program) / 1e6, 2 * 2048 * 2048 * k / 1e9
    cases: list[tuple[str, str, EmulatorSession, float, list[float]]] = []
    for mode, checked in (("fast", False), ("checked", True)):
        cases.append((f"RMSNorm, {mode}", "M threads/s", session(norm, checked), threads, []))
        cases.append((f"matmul, {mode}", "GFLOP/s", session(matmul, checked), flops, []))
    for number in range(runs):
        for name, _, ready, amount, found in cases:
            if "fast" in name or number < 3:
                found.append(amount / seconds(lambda ready=ready: ready.launch(0), time.process_time))  # type: ignore[misc]
        if beside is not None:
            print(subprocess.run([beside], check=True, capture_output=True, text=True).stdout.rstrip())
    return [Row(name, unit, max(found), statistics.median(found)) for name, unit, _, _, found in cases]


def builds(runs: int) -> list[Row]:
    """Seconds from a kernel's text to its loaded library, in an empty cache."""
    kernels = [compiled(text).program.distinct_kernels() for text in BUILT]
    found: dict[str, list[float]] = {kernel.name: [] for each in kernels for kernel in each}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as empty:
            os.environ["DPLC_CACHE_DIR"] = empty
            for kernel in (kernel for each in kernels for kernel in each):
                load.cache_clear()
                found[kernel.name].append(seconds(lambda kernel=kernel: load((kernel,)), time.perf_counter))  # type: ignore[misc]
    del os.environ["DPLC_CACHE_DIR"]
    unit = f"s (bar {BUILD_BAR})"
    return [Row(f"build of {name}", unit, min(each), statistics.median(each)) for name, each in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="the table of examples/README.md")
    parser.add_argument("--runs", type=int, default=15, help="launches of every kind (default 15)")
    parser.add_argument("--beside", metavar="PROGRAM", help="another emulator's program, run in turns with ours")
    options = parser.parse_args()
    rows = rates(options.runs, options.beside) + builds(min(options.runs, 3))
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    if options.markdown:
        print("| what | best | median | |\n|---|---:|---:|---|")
        for row in rows:
            print(f"| {row.name} | {row.best:.2f} | {row.median:.2f} | {row.unit} |")
        return
    for row in rows:
        print(f"{row.name:28} best {row.best:8.2f}   median {row.median:8.2f} {row.unit}")


if __name__ == "__main__":
    main()
