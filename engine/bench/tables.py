"""Table of a benchmark: for a terminal, and as a Markdown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...codegen.cuda import safe_kernel_name
from ...codegen.kernel import Program
from ...codegen.target import Target
from ...ir.program import Kernel
from ..cost.predict import RESOURCES, UNHIDDEN
from .cases import limits
from .records import BenchRecord, CaseRecord, KernelRecord, markdown_table
from .running import Clock, nothing_measured, timing

MISSING = "-"
Column = tuple[str, Callable[[CaseRecord], Any], Callable[[Any], str]]  # title, value, how it is written


def number(format: str) -> Callable[[Any], str]:
    return lambda value: MISSING if value is None else format.format(value)


def median(field: str) -> Callable[[CaseRecord], Any]:
    return lambda case: getattr(getattr(case.measured, field, None), "median_us", None)


def ffma_share(case: CaseRecord) -> float | None:
    """Return the share of FFMA in the longest kernel, if it has a loop."""
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
    """Table of a record: columns, their meaning, and a paragraph of totals."""

    shown: tuple[Column, ...]
    legend: str
    summary: Callable[[Any], str]

    def columns(self, record: BenchRecord) -> tuple[Column, ...]:
        """Return the columns of a record, with measured times if there are any."""
        return (*self.shown, *MEASURED) if any(case.measured for case in record.cases) else self.shown


def summary(record: BenchRecord) -> str:
    """Return one paragraph of totals."""
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


SUITE = TableLayout(COLUMNS, LEGEND, summary)


def print_table(record: BenchRecord, wide: bool, layout: TableLayout = SUITE) -> None:
    """Print the table to standard output. wide: the output is not a terminal, so no line is cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = layout.columns(record)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, (title, _, _) in enumerate(shown):
        table.add_column(title, justify="left" if place == 0 or title == "bound" else "right", no_wrap=place == 0)
    for case, cells in zip(record.cases, _cells(record, shown), strict=True):
        table.add_row(*cells, style="red" if case.error or (case.run is not None and not case.run.ok) else None)
    console = Console(highlight=False, width=220 if wide else None)
    console.print(table)
    console.print(f"{record.target} ({record.arch}): {layout.summary(record)}.")
    for case in record.cases:
        problem = case.error or (case.run.finding if case.run else "") or (case.measured.wrong if case.measured else "")
        if problem:
            console.print(f"\n{case.name}: {problem}", markup=False)


def _cells(record: BenchRecord, shown: Sequence[Column]) -> list[list[str]]:
    return [[write(value(case)) for _, value, write in shown] for case in record.cases]


def markdown(record: BenchRecord, layout: TableLayout = SUITE) -> str:
    """Return the page: its origin, the totals, the table."""
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
        *markdown_table([title for title, _, _ in shown], _cells(record, shown)),
    ]
    extents = sorted({case.run.extent for case in record.cases if case.run is not None and case.run.extent != "whole"})
    lines += ["", *(f"\\* {extent}" for extent in extents)] if extents else []
    return "\n".join(lines) + "\n"


# ---- a row for each kernel


WHOLE = "end to end"


def row(record: KernelRecord, launches: int, dtype: str) -> CaseRecord:
    """Return the row of a kernel with the sum of all its launches."""
    case = CaseRecord(name=record.name, operation="kernel", sizes={"launches": launches}, dtype=dtype, kernels=[record])
    case.compulsory_bytes, case.predicted_us = record.dram_bytes * launches, record.predicted_us * launches
    return case


def rows(records: Iterable[KernelRecord], dtype: str) -> list[CaseRecord]:
    """Return a row for each distinct kernel. records: one for every launch."""
    launched = list(records)
    counts = Counter(record.name for record in launched)
    return [row(record, counts[record.name], dtype) for record in {r.name: r for r in launched}.values()]


def whole(kernels: Sequence[CaseRecord], operation: str, dtype: str) -> CaseRecord:
    """Return the last row: the sum of all kernels."""
    launches = sum(case.sizes["launches"] for case in kernels)
    made = CaseRecord(name=WHOLE, operation=operation, sizes={"launches": launches}, dtype=dtype)
    made.compulsory_bytes = sum(case.compulsory_bytes for case in kernels)
    made.predicted_us = sum(case.predicted_us or 0.0 for case in kernels)
    return made


def note_limits(
    cases: Iterable[CaseRecord], loops: Sequence[Kernel], kernels: Sequence[Kernel], target: Target
) -> None:
    """Fill in the distance of each kernel from its limit. If a schedule split a kernel, the last part gets it."""
    by_name = {case.name: case for case in cases}
    seconds = [by_name[safe_kernel_name(kernel.name)].kernels[0].predicted_us * 1e-6 for kernel in kernels]
    for limit in limits(loops, kernels, seconds, target) if loops else ():
        by_name[safe_kernel_name(limit.name)].times_limit = limit.times


def time_kernels(
    cases: Iterable[CaseRecord], program: Program, launch: Callable[[int], None], clock: Clock
) -> None:  # fmt: skip
    """Time the first launch of each kernel alone, multiplied by the number of its launches.

    launch: a function that launches one kernel of a program that has run.
    """
    places: dict[str, int] = {}
    for place, kernel in enumerate(program.kernels):
        places.setdefault(kernel.name, place)
    for case in cases:
        one, count = timing(lambda place=places[case.name]: launch(place), clock), case.sizes["launches"]  # type: ignore[misc]
        case.measured = nothing_measured()
        case.measured.dplc = msgspec.structs.replace(
            one, median_us=one.median_us * count, low_us=one.low_us * count, high_us=one.high_us * count
        )


# ---- the table


def _of_kernel(read: Callable[[KernelRecord], Any]) -> Callable[[CaseRecord], Any]:
    return lambda case: read(case.kernels[0]) if case.kernels else None


def _share(read: Callable[[KernelRecord], float | None]) -> Callable[[CaseRecord], Any]:
    """Return a function that divides some microseconds of a kernel by its measured time, else by its predicted time."""

    def share(case: CaseRecord) -> float | None:
        taken = read(case.kernels[0]) if case.kernels else None
        if taken is None:
            return None
        timed = case.measured.dplc.median_us if case.measured is not None and case.measured.dplc is not None else None
        alone = timed / case.sizes["launches"] if timed is not None else case.kernels[0].predicted_us
        return taken / alone

    return share


def _busy(resource: str) -> Column:
    return resource, _share(lambda kernel: kernel.busy_us[resource]), number("{:.1%}")


NAMED: tuple[Column, ...] = (("kernel", lambda c: c.name, str), ("launches", lambda c: c.sizes["launches"], str))
REGISTERS: Column = ("registers", lambda c: c.registers, number("{}"))
MEGABYTES: Column = ("MB", lambda c: c.compulsory_bytes / 1e6, number("{:.1f}"))
TIMES: tuple[Column, ...] = (
    ("predicted us", lambda c: c.predicted_us, number("{:.1f}")),
    ("bound", bound, str),
    ("x limit", lambda c: c.times_limit, number("{:.1f}")),
)
KERNEL_COLUMNS: tuple[Column, ...] = (
    *NAMED,
    REGISTERS,
    ("spills B", lambda c: c.spills, number("{}")),
    ("smem KB", lambda c: c.smem / 1024 if c.kernels else None, number("{:.1f}")),
    ("FFMA", ffma_share, number("{:.3f}")),
    MEGABYTES,
    *TIMES,
)
PROFILE: tuple[Column, ...] = (
    *NAMED,
    MEGABYTES,
    *map(_busy, RESOURCES),
    ("busiest", _share(lambda kernel: kernel.busiest_us), number("{:.1%}")),
    ("fixed", _share(lambda kernel: kernel.fixed_us), number("{:.1%}")),
    ("sector eff.", lambda c: c.sector_efficiency, number("{:.2f}")),
    ("wavefronts", lambda c: c.wavefront_ratio, number("{:.2f}")),
    REGISTERS,
    ("occupancy", _of_kernel(lambda k: k.occupancy), number("{:.0%}")),
    ("held by", _of_kernel(lambda k: k.held_by), number("{}")),
    *TIMES,
)


KERNEL_LEGEND = (
    "launches: of one run. MB: what the kernel takes from its buffers, each once, over all its launches. "
    "predicted us: over all its launches, by the analytic model for the target, from published peaks, not calibrated, "
    "never measured. x limit: the same over what no schedule goes below (every byte and every operation once, at "
    "published peaks, and a launch). FFMA: share of the hot loop, in SASS. Columns of measured times are there only "
    "where a GPU was: medians, a kernel alone times its launches, the whole beside eager and torch.compile on the "
    "same tensors."
)
PROFILE_LEGEND = (
    "DRAM, L2, shared, issue, latency, tensor: the share of a kernel's time (measured where a GPU was, else predicted) "
    "that the resource alone would take, by what is counted in the kernel's IR and published peaks: no profiler was "
    "asked. busiest: the share of the busiest resource of each wave of blocks, summed. fixed: the share of the launch, "
    f"the first loads and the last stores. The predicted time is fixed + busiest + {UNHIDDEN:.0%} of (the sum of the "
    "six resources - busiest). "
    "sector eff.: least sectors of global memory over sectors; wavefronts: of shared memory over the least; counted by "
    "the emulator where it ran. "
    "occupancy: warps on the busiest multiprocessor over those it can hold, and what holds it down: the grid, blocks, "
    "threads, shared memory or registers (known where the kernel was assembled). bound: what takes longest. "
)


def kernel_layout(profile: bool, summary: Callable[[Any], str]) -> TableLayout:
    """Return the table of the kernels of a program. profile: with the utilisation of each."""
    if profile:
        return TableLayout(PROFILE, PROFILE_LEGEND + KERNEL_LEGEND, summary)
    return TableLayout(KERNEL_COLUMNS, KERNEL_LEGEND, summary)


def totals_line(record: BenchRecord) -> str:
    """Return the last row as a sentence."""
    last = record.cases[-1]
    floor = last.compulsory_bytes / record.dram_bytes_per_second * 1e6
    return f"{last.predicted_us:.1f} us predicted, {floor:.1f} us if DRAM alone counted"
