"""bench of an expression, and `dplc run --bench`."""

from __future__ import annotations

from ..api import choose_device
from ..bench import expression
from ..bench.bench import BenchSteps
from ..bench.measuring import can_measure
from ..bench.records import BenchRecord
from ..bench.tables import TableLayout
from ..compiler import Compilation
from .bench_command import Shown, complain, show_bench, teller
from .compiling import compile_text, print_trace, tools_for
from .options import Options


def bench_expression(options: Options, shown: Shown, steps: BenchSteps) -> None:
    """`dplc bench -c EXPR`. Raises DplcError where the result is wrong."""
    device = choose_device(None)
    compilation = compile_text(options, device, values=steps.run)
    print_trace(compilation, options)
    record = benched(compilation, options, steps, steps.run and device.startswith("cuda"))
    show_bench(record, layout(shown.profile), shown)
    complain(record)


def benched(compilation: Compilation, options: Options, steps: BenchSteps, measuring: bool) -> BenchRecord:
    """The record. measuring: where there is a GPU to measure on."""
    wanted = measuring and can_measure()
    return expression.bench_program(compilation, options.text.strip(), tools_for(options), steps, teller(), wanted)


def layout(profile: bool) -> TableLayout:
    """The table of `--profile`, or the one without."""
    return expression.PROFILED if profile else expression.LAYOUT
