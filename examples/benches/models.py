"""What whole models take to compile: seconds, memory, kernels. No weights, no network, no GPU.

    python examples/benches/models.py [--json] [--only NAME]

Measured here, every row in a process of its own after its imports: CPU seconds (other work on the machine shows least
in them) of building the module, of capture (torch.export alone beside it), of loading rules, of everything after
capture; seconds by the clock of all of it; the most memory the process held. A `block` is one decoder layer; warm: the
median of ten. deplodock's figures were measured elsewhere, on another 2-core machine: of May 2026 / of its newest.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parents[1] / "models"


@dataclass(frozen=True)
class Case:
    """A model or one block of it. theirs: what deplodock took, in seconds, its kernels and lines of CUDA."""

    name: str
    config: str
    length: int
    block: bool
    theirs: str


CASES = (
    Case("TinyLlama block", "tinyllama-1.1b", 128, True, "4.2 / 0.64 s warm; 11 kernels, 559 lines"),
    Case("TinyLlama-1.1B", "tinyllama-1.1b", 128, False, "-"),
    Case("Qwen2.5-7B", "qwen2.5-7b", 32, False, "165 / 72 s; 337 kernels, 14,125 lines"),
)


@dataclass
class Row:
    """Seconds of CPU by step, and by the clock in all; bytes."""

    name: str
    cpu: dict[str, float]
    wall: float
    launches: int
    per_block: int
    distinct: int
    lines: int
    planned: int
    eager: int
    rss: int
    theirs: str


def measure(case: Case) -> Row:
    """One case, in this process, after the imports."""
    import torch
    from eager_memory import eager_peak

    from dplc.codegen.target import target
    from dplc.engine.compiler import Compiler
    from dplc.engine.language.rule_files import collections_paused
    from dplc.engine.models.compiling import ModelShape, capture_call, capture_results, compile_call, peak_rss
    from dplc.engine.models.sources import build, find
    from dplc.engine.ruleset import toolchain

    source = find(str(MODELS / f"{case.config}.json"))
    import_module(f"transformers.models.{source.model_type}.modeling_{source.model_type}")  # imported when first built
    cpu: dict[str, float] = {}
    start, machine = time.perf_counter(), target("sm_90a")
    with collections_paused():
        model = timed(cpu, "build", lambda: build(source, layers=1 if case.block else None))
        if case.block:
            given, layer = inputs(torch, case.length), layer_of(model)
            captured = timed(cpu, "capture", lambda: capture_call(model, given, layer, None))
        else:
            captured = timed(cpu, "capture", lambda: capture_results(model, case.length))
        tools = timed(cpu, "rules", toolchain)
        call = functools.partial(compile_call, source, ModelShape(), lambda: captured, Compiler(tools, machine))
        found = timed(cpu, "compile", call).figures
    wall, rss = time.perf_counter() - start, peak_rss()
    per_block = found.launches if case.block else found.per_block
    if case.block:
        cpu["warm"] = warm(lambda: Compiler(tools, machine).compile(captured.captured))
    else:
        cpu["torch.export"] = exported(torch, model, case.length)
    return Row(
        case.name, cpu, wall, found.launches, per_block, found.kernels, found.cuda_lines, found.planned_bytes,
        eager_peak(captured.captured.graph), rss, case.theirs,
    )  # fmt: skip


def inputs(torch: Any, length: int) -> dict[str, Any]:
    """What a decoder layer takes: hidden states, and the table of its rotary embedding."""
    shapes = {"x": 2048, "cos": 64, "sin": 64}
    return {name: torch.empty(1, length, width, device="meta") for name, width in shapes.items()}


def layer_of(model: Any) -> Callable[..., Any]:
    layer = model.model.layers[0]
    return lambda x, cos, sin: layer(x, attention_mask=None, position_embeddings=(cos, sin))


def timed(cpu: dict[str, float], name: str, step: Callable[[], Any]) -> Any:
    start = time.process_time()
    result = step()
    cpu[name] = time.process_time() - start
    return result


def warm(step: Callable[[], Any]) -> float:
    """The median of ten, each result dropped before the next: nodes are interned and would be found again."""
    times = []
    for _ in range(10):
        gc.collect()
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return statistics.median(times)


def exported(torch: Any, model: Any, length: int) -> float:
    """torch.export alone, on the same module."""
    ids = torch.empty((1, length), dtype=torch.long, device="meta")
    gc.collect()
    start = time.process_time()
    with torch.no_grad():
        torch.export.export(model, (), {"input_ids": ids, "use_cache": False, "return_dict": False}, strict=False)
    return time.process_time() - start


def table(rows: list[Row]) -> str:
    """For people, as Markdown."""
    head = "| | launches (a block) | distinct kernels, lines | CPU s: build, capture (torch.export alone), rules, rest "
    head += "| s by the clock | peak MiB: planned, eager at least | RSS GB | deplodock |"
    lines = [head, "|---" * 8 + "|"]
    for row in rows:
        alone = f" ({row.cpu['torch.export']:.2f})" if "torch.export" in row.cpu else ""
        steps = (
            f"{row.cpu['build']:.2f}, {row.cpu['capture']:.2f}{alone}, {row.cpu['rules']:.2f}, {row.cpu['compile']:.2f}"
        )
        steps += f"; warm {row.cpu['warm']:.2f}" if "warm" in row.cpu else ""
        peaks = f"{row.planned / 2**20:.2f}, {row.eager / 2**20:.2f}"
        lines.append(
            f"| {row.name} | {row.launches} ({row.per_block}) | {row.distinct}, {row.lines} | {steps} | {row.wall:.1f} "
            f"| {peaks} | {row.rss / 1e9:.2f} | {row.theirs} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--only", metavar="NAME", help="one case")
    parser.add_argument("--here", action="store_true", help="in this process (what a row's own process is asked for)")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in (None, case.name)]
    if not cases:
        parser.error(f"there is no case {options.only}: {', '.join(case.name for case in CASES)}")
    rows = [measure(case) if options.here else elsewhere(case) for case in cases]
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else table(rows))


def elsewhere(case: Case) -> Row:
    command = [sys.executable, __file__, "--here", "--json", "--only", case.name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Row(**json.loads(done.stdout)[0])


if __name__ == "__main__":
    main()
