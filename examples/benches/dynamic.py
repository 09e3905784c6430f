"""One kernel for every length beside a kernel for each: predicted times, at seventeen lengths.

    python examples/benches/dynamic.py [--only RMSNorm] [--dtype f32] [--target h200] [--lengths]
    python examples/benches/dynamic.py --costs
    python examples/benches/dynamic.py --static
    python examples/benches/dynamic.py --measured

Every program is compiled once for 1..4096 (hint 512), then with the usual rows (at most twelve parts of the range),
and once for each length. A cell is the predicted time of the first or the second over that of the third, all by the
model of `dplc bench`: the geometric mean over the lengths, the worst and where it is, and issued instructions. left
open: rule refusals, of all compiles with sizes, that a number would not have had. --costs measures what rows cost here:
seconds of CPU for twelve rows of a Linear, microseconds of a look into the table, and of a whole call. --static: what
programs without sizes pay for them: the share of warm compiles that is spent in the modules that are about sizes.
--measured, on a machine with a GPU: medians of calls with rows over those of a compile for that length, in turns; both
are compared with float64 first, and what is wrong is not timed.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import functools
import inspect
import itertools
import math
import pstats
import time
import timeit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import dplc
from dplc.codegen.judge import judge
from dplc.codegen.target import Target, target
from dplc.engine.api import has_gpu
from dplc.engine.bench.bench import CudaClock, timing
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.ir.substitute import with_sizes

LENGTHS = (1, 7, 16, 32, 33, 64, 100, 128, 200, 256, 500, 512, 1000, 1024, 2047, 2048, 4096)
HINT = 512
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class SwiGLU(nn.Module):
    """[s, 1024] by way of 2816."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(1024, 2816, bias=False), nn.Linear(1024, 2816, bias=False)
        self.down = nn.Linear(2816, 1024, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    """Heads of 64 of a causal prompt, [8, s, 64] each."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@dataclass(frozen=True)
class Case:
    """A program over a length: its module, the shape of its inputs (0 is the length), and how many these are."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    inputs: int = 1

    def arguments(self, length: int, dtype: Any) -> tuple[Any, ...]:
        return tuple(torch.empty([n or length for n in self.shape], dtype=dtype) for _ in range(self.inputs))


CASES = (
    Case("RMSNorm [s, 2048]", lambda: nn.RMSNorm(2048), (0, 2048)),
    Case("LayerNorm [s, 2048]", lambda: nn.LayerNorm(2048), (0, 2048)),
    Case("softmax [64, s]", lambda: nn.Softmax(-1), (64, 0)),
    Case("Linear [s, 2048] x [2048, 2048]", lambda: nn.Linear(2048, 2048), (0, 2048)),
    Case("SwiGLU [s, 1024] x 2816", SwiGLU, (0, 1024)),
    Case("causal attention [8, s, 64]", Attention, (1, 8, 0, 64), 3),
)


@dataclass(frozen=True)
class Ratios:
    """Of every length: predicted time and issued instructions over those of the kernels of that length alone."""

    times: dict[int, float]
    instructions: dict[int, float]

    @property
    def worst(self) -> tuple[float, int]:
        """(ratio of times, length)"""
        return max((ratio, length) for length, ratio in self.times.items())

    def cells(self) -> tuple[str, ...]:
        worst, where = self.worst
        issued = geomean(self.instructions.values())
        return f"{geomean(self.times.values()):.3f}", f"{worst:.2f} at {where}", f"{issued:.2f}"


@dataclass(frozen=True)
class Line:
    """A case: one compile, and rows. left_open: the conditions of rules."""

    name: str
    dtype: str
    one: Ratios
    rows: Ratios
    left_open: tuple[str, ...]

    def __str__(self) -> str:
        return (
            "| "
            + " | ".join((self.name, self.dtype, *self.one.cells(), *self.rows.cells(), str(len(self.left_open))))
            + " |"
        )


def geomean(ratios: Iterable[float]) -> float:
    listed = list(ratios)
    return math.exp(sum(map(math.log, listed)) / len(listed))


def priced(kernels: Any, machine: Target) -> tuple[float, float]:
    """(predicted seconds, issued instructions of all warps) of kernels of Kernel IR."""
    counted = [instruction_counts(kernel) for kernel in kernels]
    return sum(predict(count, machine).seconds for count in counted), sum(c.issued * c.blocks for c in counted)


def compared(case: Case, dtype: str, machine: Target, lengths: Sequence[int] = LENGTHS) -> Line:
    """A case at every length."""
    module = case.make().to(DTYPES[dtype]).eval()
    options: dict[str, Any] = {"target": machine, "db": False}
    names = list(inspect.signature(module.forward).parameters)
    dynamic = {name: {case.shape.index(0): dplc.Dim("s", 1, max(LENGTHS), hint=HINT)} for name in names}
    made = dplc.compile(module, case.arguments(HINT, DTYPES[dtype]), dynamic=dynamic, rows=True, **options)
    assert made.rows is not None
    one, rows, used = dict[int, Any](), dict[int, Any](), [made.compilation]
    for length in lengths:
        own = dplc.compile(module, case.arguments(length, DTYPES[dtype]), trace=False, **options).compilation
        static = priced(own.kernels, machine)
        used.append(made.rows.at({"s": length}))
        for found, compilation in ((one, made.compilation), (rows, used[-1])):
            priced_here = priced(with_sizes(compilation.kernels, {"s": length}), machine)
            found[length] = tuple(a / b for a, b in zip(priced_here, static, strict=True))
    open_ = dict.fromkeys(each.text for each in used for each in (each.trace.left_open if each.trace else ()))
    return Line(case.name, dtype, _ratios(one), _ratios(rows), tuple(open_))


def _ratios(found: dict[int, Any]) -> Ratios:
    return Ratios({n: pair[0] for n, pair in found.items()}, {n: pair[1] for n, pair in found.items()})


HEAD = (
    "| predicted, over a compile for each length | dtype | one compile: geomean | worst | instructions "
    "| rows: geomean | worst | instructions | left open |\n|---|---|---:|---:|---:|---:|---:|---:|---:|"
)


def costs(machine: Target) -> None:
    """What rows cost on this machine: CPU seconds to compile twelve, warm, and microseconds to find one."""
    ends = (0, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096)
    rows = [dplc.Dim("s", low + 1, high) for low, high in itertools.pairwise(ends)]
    layer = nn.Linear(2048, 2048)
    spent = []
    for _ in range(2):  # the first warms what a process keeps
        dynamic = {"input": {0: dplc.Dim("s", 1, 4096, hint=HINT)}}
        made = dplc.compile(layer, (torch.empty(HINT, 2048),), dynamic=dynamic, rows=rows, target=machine, db=False)
        start = time.process_time()
        made.rows.compile_all()
        spent.append(time.process_time() - start)
    print(f"{len(rows)} rows of a Linear: {spent[0]:.2f} s of CPU, warm {spent[1]:.2f}")
    for length in (1, HINT, 4096):
        place = functools.partial(made.rows.place, {"s": length})
        best = min(timeit.repeat(place, timer=time.process_time, number=100_000, repeat=5)) * 10
        print(f"row {place()} for {length}: {best:.2f} us")
    time_calls()


def time_calls(rounds: int = 60, each: int = 20) -> None:
    """What a call of a small RMSNorm costs on the emulator: microseconds of CPU, the least of some rounds, in turns."""
    x = torch.randn(64, 16)
    sized = {"x": {0: dplc.Dim("s", 1, 4096, hint=64)}}
    ways: dict[str, dict[str, Any]] = {"its length alone": {}, "every length": {"dynamic": sized, "rows": ()}}
    ways["rows"] = {"dynamic": sized}
    made = {name: dplc.compile(nn.RMSNorm(16), (x,), db=False, **options) for name, options in ways.items()}
    best = dict.fromkeys(made, math.inf)
    for _ in range(rounds):
        for name, compiled in made.items():
            start = time.process_time_ns()
            for _ in range(each):
                compiled(x)
            best[name] = min(best[name], (time.process_time_ns() - start) / each / 1000)
    print("a call: " + ", ".join(f"{name} {spent:.0f} us" for name, spent in best.items()))


def measured(case: Case, dtype: str, clock: CudaClock, device: str = "cuda", lengths: Sequence[int] = LENGTHS) -> str:
    """A line of the table of measured ratios. clock: of `dplc bench`. Raises SystemExit for a result that is wrong."""
    module = case.make().to(DTYPES[dtype]).eval()
    exact = copy.deepcopy(module).double()
    options: dict[str, Any] = {"device": device, "db": False}
    names = list(inspect.signature(module.forward).parameters)
    dynamic = {name: {case.shape.index(0): dplc.Dim("s", 1, max(LENGTHS), hint=HINT)} for name in names}
    made = dplc.compile(module, case.arguments(HINT, DTYPES[dtype]), dynamic=dynamic, **options)
    ratios: dict[int, float] = {}
    for length in lengths:
        given = tuple(torch.randn_like(tensor) for tensor in case.arguments(length, DTYPES[dtype]))
        with torch.no_grad():
            wanted, eager = exact(*[tensor.double() for tensor in given]), module(*given)
        own = dplc.compile(module, given, trace=False, **options)
        there = tuple(tensor.to("cuda" if device == "cuda" else "cpu") for tensor in given)
        for name, compiled in (("with rows", made), ("for its length", own)):
            if not judge([compiled(*there).cpu()], [wanted], [eager]).ok:
                raise SystemExit(f"{case.name} {dtype}, {name}, at {length}: wrong, not timed")
        taken = [timing(functools.partial(compiled, *there), clock).median_us for compiled in (made, own)]
        ratios[length] = taken[0] / taken[1]
    worst, where = max((ratio, length) for length, ratio in ratios.items())
    return f"| {case.name} | {dtype} | {geomean(ratios.values()):.3f} | {worst:.2f} at {where} |"


ABOUT_SIZES = (
    "ir/sizes.py", "ir/text/sizes.py", "engine/run/calls.py", "engine/capture/dynamic_shapes.py",
)  # fmt: skip


def static_share(machine: Target, length: int = 331) -> tuple[float, float]:
    """Of warm compiles of the programs for one length: the shares of function calls and of profiled time that modules
    about sizes have, with what these call of Python's own. A profile makes calls dear; these functions are short."""
    root = Path(inspect.getfile(dplc)).parent
    files = {str(root / name) for name in ABOUT_SIZES}
    profile = cProfile.Profile()
    for n in (length - 1, length):  # the first warms what a process keeps
        for case in CASES:
            module, given = case.make().eval(), case.arguments(n, torch.float32)
            if n == length:
                profile.enable()
            dplc.compile(module, given, target=machine, db=False, trace=False)
            profile.disable()
    spent: Any = pstats.Stats(profile)
    calls = seconds = 0.0
    for (file, _, _), (_, count, own, _, callers) in spent.stats.items():
        if file in files:
            calls, seconds = calls + count, seconds + own
        elif file == "~":  # Python's own
            inner = [made for (caller, _, _), made in callers.items() if caller in files]
            calls, seconds = calls + sum(made[1] for made in inner), seconds + sum(made[2] for made in inner)
    return calls / spent.total_calls, seconds / spent.total_tt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--dtype", choices=DTYPES, help="one of them; else both")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--lengths", action="store_true", help="every length, and what sizes left open")
    parser.add_argument("--costs", action="store_true", help="what rows cost here, instead")
    parser.add_argument("--static", action="store_true", help="what programs without sizes pay for them, instead")
    parser.add_argument("--measured", action="store_true", help="measure on the GPU that is here, instead")
    options = parser.parse_args()
    machine = target(options.target)
    chosen = [
        (case, dtype)
        for case in CASES
        for dtype in DTYPES
        if options.only in case.name and options.dtype in (None, dtype)
    ]
    if options.measured:
        if not has_gpu():
            raise SystemExit("no GPU here, or no PyCUDA: `dplc doctor` says which")
        print("| measured, over a compile for each length | dtype | rows: geomean | worst |\n|---|---|---:|---:|")
        for case, dtype in chosen:
            print(measured(case, dtype, CudaClock()), flush=True)
        return
    if options.costs:
        costs(machine)
        return
    if options.static:
        calls, seconds = static_share(machine)
        print(f"of warm compiles without sizes: {calls:.2%} of calls, {seconds:.2%} of profiled time are about sizes")
        return
    print(HEAD)
    for case, dtype in chosen:
        line = compared(case, dtype, machine)
        print(line, flush=True)
        if options.lengths:
            ratios = (line.one.times, line.rows.times, line.one.instructions, line.rows.instructions)
            told = (" ".join(f"{n}: {x:.2f}" for n, x in found.items()) for found in ratios)
            print("".join(f"    {text}\n" for text in (*told, *line.left_open)), end="")


if __name__ == "__main__":
    main()
