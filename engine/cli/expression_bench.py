"""bench of an expression, and `dplc run --bench`."""

from __future__ import annotations

from ..api import choose_device
from ..bench import expression
from ..bench.bench import Wishes
from ..bench.measuring import can_measure
from ..bench.records import BenchRecord
from ..bench.tables import TableLayout
from ..compiler import Compilation
from .bench_command import Shown, command_line, complain, show_bench, teller
from .compiling import Request, compile_text, print_trace, tools_for


def bench_expression(request: Request, shown: Shown, run: bool, assemble: bool) -> None:
    """`dplc bench -c EXPR`. Raises DplcError where the result is wrong."""
    device = choose_device(None)
    compilation = compile_text(request, device)
    print_trace(compilation, 0 if shown.as_json else request.verbose)
    wishes = Wishes(run, assemble, command_line())
    record = benched(compilation, request, wishes, run and device.startswith("cuda"))
    show_bench(record, layout(shown.profile), shown)
    complain(record)


def benched(compilation: Compilation, request: Request, wishes: Wishes, measuring: bool) -> BenchRecord:
    """The record. measuring: where there is a GPU to measure on."""
    tools = tools_for(list(request.rules), list(request.settings))
    wanted = measuring and can_measure()
    return expression.bench_program(compilation, request.text.strip(), tools, wishes, teller(), wanted)


def layout(profile: bool) -> TableLayout:
    """The table of `--profile`, or the one without."""
    return expression.PROFILED if profile else expression.LAYOUT
