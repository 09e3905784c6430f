"""Records of a benchmark, which are its JSON, and their tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import MsgspecError, Struct, json

from ...ir.diagnostic import DplcError, UsageError
from ...ir.node import immutable
from ..cost.predict import RESOURCES, UNHIDDEN


class KernelRecord(Struct, kw_only=True):
    """One launch. A figure is None if it was not determined, or if its tool is missing.

    hbm_bytes: sizes of its buffers, each once; dram_bytes: the part of them that it transfers. busy_us: {resource:
    microseconds that it alone would need}; busiest_us: those of the busiest resource of each wave of blocks, summed;
    fixed_us: the launch, and the latency of the first loads and the last stores. predicted_us, by the analytic model
    and never measured, is fixed_us + busiest_us + 0.02 of (the sum of busy_us - busiest_us), because the work of the
    other resources is not fully hidden. occupancy: resident warps of a multiprocessor divided by its maximum, and the
    limiting resource (held_by), both counted in Kernel IR for the model. registers, spill_bytes, instructions,
    ffma_share (of the hot loop; has_loop: whether there is one), widths: of the assembled kernel. sector_efficiency:
    least sectors divided by sectors of global accesses; wavefront_ratio: wavefronts of shared memory divided by the
    least; the emulator counts both in the first and the last block. waves, resident: of blocks, by the model.
    """

    name: str
    grid: tuple[int, int, int]
    block: int
    smem: int
    hbm_bytes: int
    predicted_us: float
    predicted_bound: str
    waves: int
    resident: int
    dram_bytes: int
    busy_us: dict[str, float]
    busiest_us: float
    fixed_us: float
    occupancy: float
    held_by: str
    registers: int | None = None
    spill_bytes: int | None = None
    instructions: int | None = None
    has_loop: bool | None = None
    ffma_share: float | None = None
    widths: tuple[str, ...] | None = None
    sector_efficiency: float | None = None
    wavefront_ratio: float | None = None


class RunRecord(Struct, kw_only=True):
    """Run on the emulator. extent: whole, or which blocks. relative_error: against float64, over the largest value.

    finding: the error, "" for none.
    """

    ok: bool = False
    extent: str
    seconds: float = 0.0
    relative_error: float | None = None
    finding: str = ""


class TimingRecord(Struct, kw_only=True):
    """Microseconds measured on a GPU: median and quartiles of the runs. launched: by a CUDA graph, or directly."""

    median_us: float
    low_us: float
    high_us: float
    runs: int
    launched: str


class MeasuredRecord(Struct, kw_only=True):
    """Case on a GPU. It has times only if the result was right. wrong: why it has none.

    l2: state of the L2 cache before every run. float32: torch's precision of matmuls, for eager and torch.compile.
    """

    device: str
    l2: str
    float32: str
    relative_error: float | None = None
    dplc: TimingRecord | None = None
    eager: TimingRecord | None = None
    torch_compile: TimingRecord | None = None
    wrong: str = ""


class CaseRecord(Struct, kw_only=True):
    """One case. stages: milliseconds of each stage of its compile. error: why it could not be compiled.

    times_limit: predicted time divided by the limit, of the kernel that is furthest from its limit. least_us: lower
    bound of the time of its launches, with arguments and results transferred and every operation done once.
    predicted_us: None for a case that calls torch, whose time is not known.
    """

    name: str
    operation: str
    sizes: dict[str, int]
    dtype: str
    compile_ms: float = 0.0
    stages: dict[str, float] = {}
    kernels: list[KernelRecord] = []
    compulsory_bytes: int = 0
    hbm_ratio: float | None = None
    predicted_us: float | None = None
    times_limit: float | None = None
    least_us: float | None = None
    run: RunRecord | None = None
    measured: MeasuredRecord | None = None
    published: dict[str, float] = {}
    error: str = ""

    @property
    def problem(self) -> str:
        """Return why the case did not compile, or was wrong on the emulator or on a GPU; "" for a right one."""
        return self.error or (self.run.finding if self.run else "") or (self.measured.wrong if self.measured else "")

    @property
    def main(self) -> KernelRecord | None:
        """Kernel with the longest predicted time."""
        return max(self.kernels, key=lambda k: k.predicted_us, default=None)


class Totals(Struct, kw_only=True):
    """Totals of all cases. compile_*: loading the rules and every compile, capture included, cold, imports excluded."""

    cases: int
    failed: int
    kernels: int
    compile_seconds: float
    compile_cpu_seconds: float
    rules_ms: float
    spill_bytes: int | None
    wrong: int | None
    predicted_geomean_us: float | None


class BenchRecord(Struct, kw_only=True):
    """Benchmark. target: the device of compiles and predictions; dram_bytes_per_second: of that device.

    fast: {title of published times: {p: share}}, see `fast_shares`.
    """

    suite: str
    about: str = ""
    command: str
    date: str
    machine: str
    target: str
    arch: str
    dram_bytes_per_second: float
    versions: dict[str, str]
    totals: Totals
    published: str = ""
    cases: list[CaseRecord]
    fast: dict[str, dict[str, float]] = {}


def geomean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the values that are known, None without any."""
    known = [value for value in values if value is not None]
    return statistics.geometric_mean(known) if known else None


# ---- the results of a pack


FORMAT = "dplc results 1"
T = TypeVar("T")


class PackTiming(TimingRecord, kw_only=True):
    """Microseconds of a run.

    within: half of the 95% interval of the median, divided by the median; warm_us: with L2 as the preceding run left
    it.
    """

    warm_us: float
    within: float
    compile_seconds: float | None = None


class PackedResult(Struct, kw_only=True):
    """Case of a pack on a GPU. status: ok, wrong, failed or timeout. launches: features of the model, of each."""

    suite: str
    name: str
    same: str
    candidate: int | None
    predicted_us: float
    launches: list[dict[str, Any]]
    status: str = ""
    detail: str = ""
    error: float | None = None
    dplc: PackTiming | None = None
    eager: PackTiming | None = None
    torch_compile: PackTiming | None = None


class PackResults(Struct, kw_only=True):
    """Results of `--unpack`. pack: how the pack was made; device: the measuring machine; left: items not done."""

    format: str
    pack: dict[str, Any]
    device: dict[str, Any]
    left: int
    faults: list[str]
    sanitizer: list[dict[str, Any]]
    cases: list[PackedResult]

    @property
    def gpu(self) -> str:
        return str(self.device.get("name", "a GPU"))

    @property
    def suites(self) -> Sequence[str]:
        """Measured suites in order."""
        return list(dict.fromkeys(one.suite for one in self.cases))

    def of(self, suite: str) -> list[PackedResult]:
        """Return the cases of a suite, compiled as the rules choose."""
        return [one for one in self.cases if one.suite == suite and one.candidate is None]


def read_json(path: Path, kind: type[T], hint: str, noun: str = "results") -> T:
    """Read a record in a file. Raises UsageError for an unreadable file, DplcError with a hint for one without it."""
    try:
        return json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"cannot read the {noun} {path}: {error.strerror}") from None
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DplcError(f"{path} holds no {noun}: {error}", hint=hint) from None


def read_results(path: Path) -> PackResults:
    """Read the results in a file. Raises UsageError for an unreadable file, DplcError for one without results."""
    found = read_json(path, PackResults, "`dplc bench --unpack` writes them")
    if found.format != FORMAT:
        raise DplcError(f"{path} is `{found.format}`; this dplc reads `{FORMAT}`", hint="measure again")
    return found


# ---- Tables of a benchmark: for a terminal, and as a Markdown page.

MISSING = "-"
Figure = Callable[[Any], Any]  # None where it is not known
Column = tuple[str, str | Figure, str]  # title; the path of a field, as `figure` takes it, or a function; format
Columns = tuple[Column, ...]


def figure(record: Any, read: str | Figure) -> Any:
    """Return what a function computes of a record, or the field at a path of names; None where it is not known."""
    if not isinstance(read, str):
        return read(record)
    for name in read.split("."):
        record = record.get(name) if isinstance(record, dict) else getattr(record, name, None)
    return record


def over(choose: Callable[[list[Any]], Any], field: str) -> Figure:
    """Return a function of the values that are known of a field of the kernels: their sum, or the worst."""

    def read(case: CaseRecord) -> Any:
        found = [value for kernel in case.kernels if (value := getattr(kernel, field)) is not None]
        return choose(found) if found else None

    return read


def table(columns: Columns, records: Iterable[Any]) -> tuple[list[str], list[list[str]]]:
    """Return the titles, and a row of texts for each record."""
    rows = [
        [MISSING if (value := figure(record, read)) is None else form.format(value) for _, read, form in columns]
        for record in records
    ]
    return [title for title, _, _ in columns], rows


def markdown_table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown. The first column is aligned to the left."""
    line, *lines = (f"| {' | '.join(row)} |" for row in (titles, *rows))
    return "\n".join((line, "|---|" + "---:|" * (len(titles) - 1), *lines))


def _result(case: CaseRecord) -> str:
    if case.error:
        return "not compiled"
    if case.run is None:
        return MISSING
    if not case.run.ok:
        return "WRONG"
    return f"{case.run.relative_error:.0e}" + ("" if case.run.extent == "whole" else " *")


OURS, EAGER, COMPILED = "dplc.median_us", "eager.median_us", "torch_compile.median_us"
REGISTERS: Column = ("registers", over(max, "registers"), "{}")
SPILLS: Column = ("spills B", over(sum, "spill_bytes"), "{}")
SHARED: Column = ("smem KB", over(lambda sizes: max(sizes) / 1024, "smem"), "{:.1f}")
FFMA: Column = ("FFMA", lambda case: case.main.ffma_share if case.main and case.main.has_loop else None, "{:.3f}")
ACCESSES: Columns = (
    ("sector eff.", over(min, "sector_efficiency"), "{:.2f}"),
    ("wavefronts", over(max, "wavefront_ratio"), "{:.2f}"),
)
TIMES: Columns = (
    ("predicted us", "predicted_us", "{:.1f}"),
    ("bound", "main.predicted_bound", "{}"),
    ("x limit", "times_limit", "{:.1f}"),
)
COLUMNS: Columns = (
    ("case", "name", "{}"),
    ("compile ms", "compile_ms", "{:.0f}"),
    ("kernels", lambda case: len(case.kernels), "{}"),
    REGISTERS,
    SPILLS,
    SHARED,
    ("HBM ratio", "hbm_ratio", "{:.2f}"),
    *ACCESSES,
    FFMA,
    *TIMES,
    ("error", _result, "{}"),
)
MEASURED: Columns = (
    ("measured us", f"measured.{OURS}", "{:.1f}"),
    ("eager us", f"measured.{EAGER}", "{:.1f}"),
    ("torch.compile us", f"measured.{COMPILED}", "{:.1f}"),
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


@immutable
class TableLayout:
    """Table of a record: columns, their meaning, and a paragraph of totals."""

    columns: Columns
    legend: str
    summary: Callable[[Any], str]

    def table(self, record: BenchRecord) -> tuple[list[str], list[list[str]]]:
        """Return the titles, and a row of texts for each case; with measured times if there are any."""
        shown = (*self.columns, *MEASURED) if any(case.measured for case in record.cases) else self.columns
        return table(shown, record.cases)


def suite_summary(record: BenchRecord) -> str:
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
        parts.append(f"{t.wrong} WRONG" if t.wrong else "all right against float64")
    if t.predicted_geomean_us is not None:
        parts.append(f"geometric mean predicted for {record.target}: {t.predicted_geomean_us:.1f} us")
    return "; ".join(parts)


SUITE = TableLayout(COLUMNS, LEGEND, suite_summary)


# ---- folders of problems


FAST = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
FOLDER_LEGEND = (
    "kernels: launches of one call. predicted us: of all launches at full size, by the analytic model for the target, "
    "from published peaks, not calibrated, never measured. x limit: the same over what no schedule goes below, of the "
    "kernel where it is most. Columns with the name of a file of `--published` are times of others, "
    "with their quotient by the time of dplc, measured if there is such a time and else predicted. fast_p: share of "
    "the problems with such a time that are not known to be wrong and more than p times as fast. error: with smaller "
    "extents on the emulator against float64, over the largest value."
)


def speedup(case: CaseRecord, title: str) -> float | None:
    """Return a published time divided by the measured, else the predicted time; None without one of them."""
    ours, theirs = figure(case, f"measured.{OURS}") or case.predicted_us, case.published.get(title)
    return theirs and ours and theirs / ours


def fast_shares(cases: Sequence[CaseRecord]) -> dict[str, dict[str, float]]:
    """Return fast_p of KernelBench for each p of FAST, by the title of published times.

    It is the share of the problems with such a time that are right and more than p times as fast.
    """
    shares = {}
    for title in dict.fromkeys(title for case in cases for title in case.published):
        known = [case for case in cases if title in case.published]
        reached = [0.0 if case.problem else speedup(case, title) or 0.0 for case in known]
        shares[title] = {str(p): round(sum(ratio > p for ratio in reached) / len(known), 3) for p in FAST}
    return shares


def folder_layout(record: BenchRecord) -> TableLayout:
    """Return the table of a folder of problems."""
    columns = [*COLUMNS[:3], *TIMES]
    for title in record.fast:
        theirs = partial(lambda title, case: case.published.get(title), title)
        columns += [(f"{title} us", theirs, "{:.1f}"), (f"{title} / dplc", partial(speedup, title=title), "{:.2f}")]
    return TableLayout((*columns, COLUMNS[-1]), FOLDER_LEGEND, folder_summary)


def folder_summary(record: BenchRecord) -> str:
    """Return the totals, and fast_p with the geometric mean for each title of published times."""
    parts = [suite_summary(record)]
    for title, shares in record.fast.items():
        mean = geomean(speedup(case, title) for case in record.cases)
        listed = ", ".join(f"{p}: {share}" for p, share in shares.items())
        parts.append(f"{title} / dplc: geometric mean {mean and round(mean, 2)}; share above p {listed}")
    return "; ".join(parts)


def markdown_page(record: BenchRecord, layout: TableLayout) -> str:
    """Return the page: its origin, the totals, the table."""
    parts = [
        f"# {record.suite}",
        record.about,
        f"Made by `{record.command}` on {record.date} ({record.machine}). Do not edit: run it again.",
        f"**{record.target}** ({record.arch}): {layout.summary(record)}.",
        "; ".join(f"{name} {value}" for name, value in record.versions.items() if value) + ".",
        layout.legend,
        markdown_table(*layout.table(record)),
    ]
    if extents := {case.run.extent for case in record.cases if case.run is not None} - {"whole"}:
        parts.append("\n".join(f"\\* {extent}" for extent in sorted(extents)))
    return "\n\n".join(parts) + "\n"


# ---- the measured cases of packs


def ratio(title: str, above: str, below: str) -> Column:
    """Return the column of the first of two times of a case divided by the second."""

    def read(one: PackedResult) -> float | None:
        times = figure(one, above), figure(one, below)
        return None if None in times else times[0] / times[1]

    return title, read, "{:.2f}"


OF_EAGER = ratio("eager / dplc", EAGER, OURS)
OF_PREDICTED = ratio("predicted / measured", "predicted_us", OURS)
RATIOS = (OF_EAGER, ratio("torch.compile / dplc", COMPILED, OURS), OF_PREDICTED)
COMPARED: Columns = (
    ("case", "name", "{}"),
    ("predicted us", "predicted_us", "{:.1f}"),
    ("measured us", OURS, "{:.1f}"),
    OF_PREDICTED,
    ("eager us", EAGER, "{:.1f}"),
    ("torch.compile us", COMPILED, "{:.1f}"),
    OF_EAGER,
    ("error", lambda one: one.status.upper() if one.status != "ok" or one.error is None else f"{one.error:.0e}", "{}"),
)


def comparison(results: PackResults) -> str:
    """Return a Markdown table of every measured suite, with the geometric means below it."""
    about = f"Measured on {results.gpu}, predicted for {results.pack.get('target', 'another device')}"
    parts = [f"# {results.gpu}", f"{about}; {results.device.get('l2', '')}."]
    for suite in results.suites:
        cases = results.of(suite)
        means = [(title, geomean(figure(one, read) for one in cases)) for title, read, _ in RATIOS]
        ratios = [f"{title} {mean:.2f}" for title, mean in means if mean is not None]
        right = f"{sum(one.status == 'ok' for one in cases)} of {len(cases)} right"
        below = f"{'; '.join((right, *ratios))} (geometric means)."
        parts += [f"## {suite}", markdown_table(*table(COMPARED, cases)), below]
    if results.faults:
        parts += ["## Faults", "\n".join(f"- {fault}" for fault in results.faults)]
    looked = [one for one in results.sanitizer if one["status"] == "ok"]
    clean = f"compute-sanitizer: {len(looked)} of {len(results.sanitizer)} runs clean"
    parts.append(f"{clean}; {results.left} items were left undone.")
    return "\n\n".join(parts) + "\n"


# ---- the table


def _share(title: str, path: str) -> Column:
    """Return the column of some microseconds of a kernel over its measured time, else over its predicted time."""

    def share(case: CaseRecord) -> float | None:
        taken, timed = figure(case, path), figure(case, f"measured.{OURS}")
        if taken is None:
            return None
        whole = figure(case, "main.predicted_us") if timed is None else timed / case.sizes["launches"]
        return float(taken / whole)

    return title, share, "{:.1%}"


NAMED: Columns = (("kernel", "name", "{}"), ("launches", "sizes.launches", "{}"))
MEGABYTES: Column = ("MB", lambda case: case.compulsory_bytes / 1e6, "{:.1f}")
KERNEL_COLUMNS: Columns = (*NAMED, REGISTERS, SPILLS, SHARED, FFMA, MEGABYTES, *TIMES)
PROFILE: Columns = (
    *NAMED,
    MEGABYTES,
    *(_share(name, f"main.busy_us.{name}") for name in RESOURCES),
    _share("busiest", "main.busiest_us"),
    _share("fixed", "main.fixed_us"),
    *ACCESSES,
    REGISTERS,
    ("occupancy", over(max, "occupancy"), "{:.0%}"),
    ("held by", over(max, "held_by"), "{}"),
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


def summary(record: BenchRecord) -> str:
    """Return one paragraph: number of launches, their time, and whether the result is right."""
    last, run = record.cases[-1], record.cases[-1].run
    launches, kernels = last.sizes["launches"], len(record.cases) - 1
    said = [f"{launches} launch{'es' * (launches > 1)} of {kernels} kernel{'s' * (kernels > 1)}", totals_line(record)]
    if (timed := figure(last, f"measured.{OURS}")) is not None:
        said.append(f"{timed:.1f} us measured on {figure(last, 'measured.device')}")
    if run is not None and run.relative_error is not None:
        said.append(
            f"{run.relative_error:.0e} off float64 on the emulator ({run.extent})" + ("" if run.ok else ", WRONG")
        )
    return "; ".join(said)
