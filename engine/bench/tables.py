"""The table of a bench: for a terminal, and as a Markdown page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .records import BenchRecord, CaseRecord

MISSING = "-"
Column = tuple[str, Callable[[CaseRecord], Any], Callable[[Any], str]]  # title, value, how it is written


def number(format: str) -> Callable[[Any], str]:
    return lambda value: MISSING if value is None else format.format(value)


def median(field: str) -> Callable[[CaseRecord], Any]:
    return lambda case: getattr(getattr(case.measured, field, None), "median_us", None)


def ffma_share(case: CaseRecord) -> float | None:
    """Of the kernel that takes longest, where it has a loop."""
    main = case.main
    return main.ffma_share if main is not None and main.has_loop else None


def _result(case: CaseRecord) -> str:
    if case.error:
        return "not compiled"
    if case.run is None:
        return MISSING
    if not case.run.ok:
        return "WRONG"
    return f"{case.run.relative_error:.0e}" + ("" if case.run.extent == "whole" else " *")


def bound(case: CaseRecord) -> str:
    return case.main.predicted_bound if case.main else MISSING


COLUMNS: tuple[Column, ...] = (
    ("case", lambda c: c.name, str),
    ("compile ms", lambda c: c.compile_ms, number("{:.0f}")),
    ("kernels", lambda c: len(c.kernels), str),
    ("registers", lambda c: c.registers, number("{}")),
    ("spills B", lambda c: c.spills, number("{}")),
    ("smem KB", lambda c: c.smem / 1024, number("{:.1f}")),
    ("HBM ratio", lambda c: c.hbm_ratio, number("{:.2f}")),
    ("sector eff.", lambda c: c.sector_efficiency, number("{:.2f}")),
    ("wavefronts", lambda c: c.wavefront_ratio, number("{:.2f}")),
    ("FFMA", ffma_share, number("{:.3f}")),
    ("predicted us", lambda c: c.predicted_us, number("{:.1f}")),
    ("bound", bound, str),
    ("x limit", lambda c: c.times_limit, number("{:.1f}")),
    ("error", _result, str),
)
MEASURED: tuple[Column, ...] = tuple(
    (title, median(field), number("{:.1f}"))
    for title, field in (("measured us", "dplc"), ("eager us", "eager"), ("torch.compile us", "torch_compile"))
)

LEGEND = (
    "compile ms: cold, capture included, in one process. "
    "HBM ratio: the buffers of all kernels over inputs and outputs, each once. "
    "sector eff.: least sectors of global memory over sectors; wavefronts: of shared memory over the least; "
    "both counted by the emulator in the first and the last block of every kernel, the worst kernel shown. "
    "FFMA: share of the hot loop of the longest kernel, in SASS. "
    "predicted us: by the analytic model for the target, from published peaks, not calibrated, never measured. "
    "x limit: the same over what no schedule goes below (every byte and every operation once, at published peaks, and "
    "a launch), of the kernel where it is most. "
    "error: of a run on the emulator against float64, over the largest value; * of some blocks."
)


@dataclass(frozen=True)
class TableLayout:
    """How a record is shown: its columns, what they mean, one paragraph of totals."""

    columns: Callable[[Any], tuple[Column, ...]]
    legend: str
    summary: Callable[[Any], str]


def columns(record: BenchRecord) -> tuple[Column, ...]:
    """What to show: the times of a GPU only where there are any."""
    return (*COLUMNS, *MEASURED) if any(case.measured for case in record.cases) else COLUMNS


def summary(record: BenchRecord) -> str:
    """One paragraph of totals."""
    t = record.totals
    parts = [
        f"{t.cases} cases, {t.kernels} kernels" + (f", {t.failed} not compiled" if t.failed else ""),
        f"compiled cold in {t.compile_seconds:.2f} s ({t.compile_cpu_seconds:.2f} s of processor time), "
        f"{t.rules_ms / 1e3:.2f} s of it for the rules",
    ]
    if t.spill_bytes is not None:
        parts.append(f"{t.spill_bytes} bytes spilled")
    if t.wrong is not None:
        parts.append("all right against float64" if not t.wrong else f"{t.wrong} WRONG")
    if t.predicted_geomean_us is not None:
        parts.append(f"geometric mean predicted for {record.target}: {t.predicted_geomean_us:.1f} us")
    return "; ".join(parts)


SUITE = TableLayout(columns, LEGEND, summary)


def print_table(record: BenchRecord, wide: bool, layout: TableLayout = SUITE) -> None:
    """The table on standard output. wide: it is not a terminal, so nothing is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = layout.columns(record)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, (title, _, _) in enumerate(shown):
        table.add_column(title, justify="left" if place == 0 or title == "bound" else "right", no_wrap=place == 0)
    for case in record.cases:
        style = "red" if case.error or (case.run is not None and not case.run.ok) else None
        table.add_row(*(write(value(case)) for _, value, write in shown), style=style)
    console = Console(highlight=False, width=220 if wide else None)
    console.print(table)
    console.print(f"{record.target} ({record.arch}): {layout.summary(record)}.")
    for case in record.cases:
        problem = case.error or (case.run.finding if case.run else "") or (case.measured.wrong if case.measured else "")
        if problem:
            console.print(f"\n{case.name}: {problem}", markup=False)


def markdown(record: BenchRecord, layout: TableLayout = SUITE) -> str:
    """The page: how it was made, the totals, the table."""
    shown = layout.columns(record)
    lines = [
        f"# {record.suite}",
        "",
        record.about,
        "",
        f"Made by `{record.command}` on {record.date} ({record.machine}). Do not edit: run it again.",
        "",
        f"**{record.target}** ({record.arch}): {layout.summary(record)}.",
        "",
        "; ".join(f"{name} {value}" for name, value in record.versions.items() if value) + ".",
        "",
        layout.legend,
        "",
        "| " + " | ".join(title for title, _, _ in shown) + " |",
        "|" + "|".join("---" if place == 0 else "---:" for place in range(len(shown))) + "|",
    ]
    lines += ["| " + " | ".join(write(value(case)) for _, value, write in shown) + " |" for case in record.cases]
    extents = sorted({case.run.extent for case in record.cases if case.run is not None and case.run.extent != "whole"})
    lines += ["", *(f"\\* {extent}" for extent in extents)] if extents else []
    return "\n".join(lines) + "\n"
