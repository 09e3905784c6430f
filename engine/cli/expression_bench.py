"""bench of an expression, and `dplc run --bench`."""

from __future__ import annotations

from collections.abc import Iterator

from ..api import choose_device
from ..bench import expression
from ..bench.bench import BenchSteps
from ..bench.measuring import can_measure
from ..bench.records import BenchRecord
from ..bench.tables import TableLayout
from ..compiler import Compilation
from .bench_command import Shown, complain, show_bench, teller
from .bindings import alone, bindings, drawn_at, told
from .compiling import captured_text, compile_text, print_trace, tools_for
from .options import Flags
from .show import write


def bench_expression(flags: Flags, shown: Shown, steps: BenchSteps) -> None:
    """`dplc bench -c EXPR`. Raises DplcError where the result is wrong."""
    device = choose_device(None)
    compilation = compile_text(flags, device, values=steps.run)
    print_trace(compilation, flags)
    for bound in _bound(compilation, flags, shown, steps.run):
        record = benched(bound, flags, steps, steps.run and device.startswith("cuda"))
        show_bench(record, layout(shown.profile), shown)
        complain(record)


def _bound(compilation: Compilation, flags: Flags, shown: Shown, values: bool) -> Iterator[Compilation]:
    """What was compiled once, at each binding of its sizes; itself where it has none."""
    if not (compilation.sizes or flags.sizes):
        yield compilation
        return
    found = bindings(compilation.sizes, "the text", flags.sizes)
    alone(found, shown.as_json or bool(shown.markdown), "--json and --markdown are of one table")
    for binding in found:
        if len(found) > 1:
            write(told(binding))
        drawn, _ = captured_text(flags, values, binding)
        yield drawn_at(compilation, drawn, binding)


def benched(compilation: Compilation, flags: Flags, steps: BenchSteps, measuring: bool) -> BenchRecord:
    """The record. measuring: where there is a GPU to measure on."""
    wanted = measuring and can_measure()
    return expression.bench_program(compilation, flags.text.strip(), tools_for(flags), steps, teller(), wanted)


def layout(profile: bool) -> TableLayout:
    """The table of `--profile`, or the one without."""
    return expression.PROFILED if profile else expression.LAYOUT
