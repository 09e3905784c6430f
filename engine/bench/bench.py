"""Complete benchmarks: a suite or one program as input, a record and its tables as output."""

from __future__ import annotations

import functools
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from ...codegen.compiler import find_program, program_identity
from ...codegen.cuda import safe_kernel_name
from ...codegen.launch import Session, memory_of
from ...codegen.sass import find_nvdisasm
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, Source, UsageError, did_you_mean
from ...ir.program import Kernel
from ...version import __version__
from ..api import Compiled as Callee
from ..api import has_gpu
from ..compiler import Compilation, Compiler
from ..cost.predict import RESOURCES, UNHIDDEN
from ..language.rule import read_rules
from ..rewrite.trace import EACH, Trace
from ..ruleset import Toolchain, here, processes, toolchain
from ..run.calls import Preparation
from .cases import (
    BenchCase,
    BenchSteps,
    CompiledCase,
    CudaClock,
    Say,
    Suite,
    assemble_and_run,
    assembler,
    compile_all,
    describe,
    device_name,
    measured,
    nothing_measured,
    over_limits,
    read_suite,
    sources_of,
    subject_of,
    timing,
    with_rules,
)
from .records import BenchRecord, CaseRecord, KernelRecord, PackedResult, PackResults, Totals, geomean, read_json


def bench(
    path: Path, suite: Suite, cases: list[BenchCase], compiler: Callable[[], Compiler], steps: BenchSteps, say: Say
) -> BenchRecord:
    """Compile the cases cold; assemble, run and measure them as requested.

    Raises DplcError for an error outside of a case.
    """
    records, compiled, times = compile_all([subject_of(suite, case) for case in cases], compiler, say)
    made = compiler()
    assemble_and_run(compiled, made.target.arch, steps, say)
    for one in compiled if steps.run and has_gpu() else ():
        say(f"measuring {one.record.name}")
        one.record.measured = measured(one, Callee(one.compilation, "cuda"), CudaClock())
    return BenchRecord(
        suite=str(path), about=suite.about, published=suite.published, totals=totals(records, *times), cases=records,
        **provenance(steps.command, made.target, made.tools),
    )  # fmt: skip


def provenance(command: str, target: Target, tools: Toolchain) -> dict[str, Any]:
    """Return the command, date, machine, target and versions of a record."""
    return {
        "command": command, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(),
        "target": target.name, "arch": target.arch, "dram_bytes_per_second": target.dram_bytes_per_second,
        "versions": versions(tools),
    }  # fmt: skip


def totals(records: list[CaseRecord], wall: float, cpu: float, rules_ms: float) -> Totals:
    """Return the totals under the table.

    wall, cpu, rules_ms: wall-clock and processor seconds of all compiles, and milliseconds of loading the rules.
    """
    spills = [k.spill_bytes for record in records for k in record.kernels if k.spill_bytes is not None]
    runs = [record.run for record in records if record.run is not None]
    return Totals(
        cases=len(records),
        failed=sum(bool(record.error) for record in records),
        kernels=sum(len(record.kernels) for record in records),
        compile_seconds=wall,
        compile_cpu_seconds=cpu,
        rules_ms=rules_ms,
        spill_bytes=sum(spills) if spills else None,
        wrong=sum(not run.ok for run in runs) if runs else None,
        predicted_geomean_us=geomean(record.predicted_us for record in records),
    )


def versions(tools: Toolchain) -> dict[str, str]:
    """Return the versions of all tools; "" for a missing one."""
    host, disassembler = find_program("g++"), find_nvdisasm()
    return {
        "dplc": __version__,
        "rules": tools.rules.digest[:12],
        "python": platform.python_version(),
        "torch": version("torch"),
        "assembler": assembler(),
        "disassembler": program_identity(disassembler).splitlines()[-1] if disassembler else "",
        "host compiler": program_identity(host).splitlines()[0] if host else "",
        **(_launching() if has_gpu() else {}),
    }


def _launching() -> dict[str, str]:
    """Return the versions of what launches kernels, and the GPU."""
    import pycuda.driver
    import torch

    number = pycuda.driver.get_driver_version()
    driver = f"for CUDA {number // 1000}.{number % 1000 // 10}"
    cuda = str(torch.version.cuda)
    return {"pycuda": version("pycuda"), "CUDA of torch": cuda, "driver": driver, "gpu": device_name()}


def machine() -> str:
    """Describe this machine."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {device_name() if has_gpu() else 'no GPU'}"


# ---- one program


def bench_program(compilation: Compilation, text: str, steps: BenchSteps, say: Say, measuring: bool) -> BenchRecord:
    """Benchmark a compiled program on the inputs that its text generated. measuring: whether to measure on a GPU."""
    target = compilation.target
    record = CaseRecord(name=WHOLE, operation="expression", sizes={}, dtype="")
    compiled = CompiledCase(compilation, record)
    describe(compiled)
    assemble_and_run([compiled], target.arch, steps, say)
    kernels = rows(record.kernels)
    note_limits(kernels, sources_of(compilation), target)
    if measuring and not record.problem:
        say("measuring")
        measure(compiled, kernels, Callee(compilation, "cuda"), CudaClock())
    seconds = record.compile_ms / 1e3
    last = msgspec.structs.replace(record, kernels=[], hbm_ratio=None, least_us=None, **sums(kernels))
    about = "Every distinct kernel with all its launches, and the whole."
    return BenchRecord(
        suite=text, about=about, published="", totals=totals([record], seconds, seconds, 0.0),
        cases=[*kernels, last], **provenance(steps.command, target, compilation.compiler.tools),
    )  # fmt: skip


def measure(compiled: CompiledCase, kernels: list[CaseRecord], callee: Callee, clock: CudaClock) -> None:
    """Measure the whole program if its result is right, then each kernel alone."""
    compiled.record.measured = measured(compiled, callee, clock)
    if compiled.record.measured.dplc is None:
        return
    made, tensors = compiled.compilation, compiled.tensors(memory_of(callee.device))
    program = made.program
    tensors |= Preparation().now(made.prepared, tensors)
    inputs, constants = (
        {buffer.name: tensors[buffer.name].reshape(buffer.shape) for buffer in buffers}
        for buffers in (program.inputs, program.constants)
    )
    session = callee.executor.prepare(program, constants)
    session.run(inputs)
    time_kernels(kernels, session, clock)


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


# ---- Tables of a benchmark: for a terminal, and as a Markdown page.

MISSING = "-"
Figure = Callable[[Any], Any]  # None where it is not known
Column = tuple[str, str | Figure, str]  # title; the path of a field, as `figure` takes it, or a function; format


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


def table(columns: Sequence[Column], records: Iterable[Any]) -> tuple[list[str], list[list[str]]]:
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
ACCESSES: tuple[Column, ...] = (
    ("sector eff.", over(min, "sector_efficiency"), "{:.2f}"),
    ("wavefronts", over(max, "wavefront_ratio"), "{:.2f}"),
)
TIMES: tuple[Column, ...] = (
    ("predicted us", "predicted_us", "{:.1f}"),
    ("bound", "main.predicted_bound", "{}"),
    ("x limit", "times_limit", "{:.1f}"),
)
COLUMNS: tuple[Column, ...] = (
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
MEASURED: tuple[Column, ...] = (
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


@dataclass(frozen=True)
class TableLayout:
    """Table of a record: columns, their meaning, and a paragraph of totals."""

    columns: tuple[Column, ...]
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


def markdown(record: BenchRecord, layout: TableLayout) -> str:
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


def ratio(above: str, below: str) -> Figure:
    """Return a function of two times of a case: the first divided by the second."""

    def read(one: PackedResult) -> float | None:
        times = figure(one, above), figure(one, below)
        return None if None in times else times[0] / times[1]

    return read


RATIOS = {
    "eager / dplc": ratio(EAGER, OURS), "torch.compile / dplc": ratio(COMPILED, OURS),
    "predicted / measured": ratio("predicted_us", OURS),
}  # fmt: skip
COMPARED: tuple[Column, ...] = (
    ("case", "name", "{}"),
    ("predicted us", "predicted_us", "{:.1f}"),
    ("measured us", OURS, "{:.1f}"),
    ("predicted / measured", RATIOS["predicted / measured"], "{:.2f}"),
    ("eager us", EAGER, "{:.1f}"),
    ("torch.compile us", COMPILED, "{:.1f}"),
    ("eager / dplc", RATIOS["eager / dplc"], "{:.2f}"),
    ("error", lambda one: one.status.upper() if one.status != "ok" or one.error is None else f"{one.error:.0e}", "{}"),
)


def comparison(results: PackResults) -> str:
    """Return a Markdown table of every measured suite, with the geometric means below it."""
    about = f"Measured on {results.gpu}, predicted for {results.pack.get('target', 'another device')}"
    parts = [f"# {results.gpu}", f"{about}; {results.device.get('l2', '')}."]
    for suite in results.suites:
        cases = results.of(suite)
        means = {title: geomean(map(read, cases)) for title, read in RATIOS.items()}
        told = [f"{title} {mean:.2f}" for title, mean in means.items() if mean is not None]
        right = f"{sum(one.status == 'ok' for one in cases)} of {len(cases)} right"
        below = f"{'; '.join((right, *told))} (geometric means)."
        parts += [f"## {suite}", markdown_table(*table(COMPARED, cases)), below]
    if results.faults:
        parts += ["## Faults", "\n".join(f"- {fault}" for fault in results.faults)]
    looked = [one for one in results.sanitizer if one["status"] == "ok"]
    clean = f"compute-sanitizer: {len(looked)} of {len(results.sanitizer)} runs clean"
    parts.append(f"{clean}; {results.left} items were left undone.")
    return "\n\n".join(parts) + "\n"


# ---- a row for each kernel


WHOLE = "end to end"


def row(record: KernelRecord, launches: int, dtype: str) -> CaseRecord:
    """Return the row of a kernel with the sum of all its launches."""
    return CaseRecord(
        name=record.name, operation="kernel", sizes={"launches": launches}, dtype=dtype, kernels=[record],
        compulsory_bytes=record.dram_bytes * launches, predicted_us=record.predicted_us * launches,
    )  # fmt: skip


def rows(records: Sequence[KernelRecord]) -> list[CaseRecord]:
    """Return a row for each distinct kernel. records: one for every launch."""
    launches = Counter(record.name for record in records)
    return [row(record, launches[name], "") for name, record in {record.name: record for record in records}.items()]


def sums(kernels: Sequence[CaseRecord]) -> dict[str, Any]:
    """Return the fields of the last row that are sums of all kernels."""
    return {
        "sizes": {"launches": sum(case.sizes["launches"] for case in kernels)},
        "compulsory_bytes": sum(case.compulsory_bytes for case in kernels),
        "predicted_us": sum(case.predicted_us or 0.0 for case in kernels),
    }


def note_limits(cases: Iterable[CaseRecord], sources: Mapping[str, Kernel], target: Target) -> None:
    """Fill in the distance of each kernel from its limit. If a schedule split a kernel, the last part gets it.

    sources: see `sources_of`.
    """
    by_name = {case.name: case for case in cases}
    predicted_us = {name: case.kernels[0].predicted_us for name, case in by_name.items()}
    for name, times in over_limits(sources, predicted_us, target).items():
        by_name[safe_kernel_name(name)].times_limit = times


def time_kernels(cases: Iterable[CaseRecord], session: Session, clock: CudaClock) -> None:
    """Time the first launch of each kernel alone, multiplied by the number of its launches.

    session: of a program that has run.
    """
    names = [kernel.name for kernel in session.program.kernels]
    for case in cases:
        case.measured = nothing_measured()
        run = functools.partial(session.launch, names.index(case.name))
        case.measured.dplc = timing(run, clock, case.sizes["launches"])


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


NAMED: tuple[Column, ...] = (("kernel", "name", "{}"), ("launches", "sizes.launches", "{}"))
MEGABYTES: Column = ("MB", lambda case: case.compulsory_bytes / 1e6, "{:.1f}")
KERNEL_COLUMNS: tuple[Column, ...] = (*NAMED, REGISTERS, SPILLS, SHARED, FFMA, MEGABYTES, *TIMES)
PROFILE: tuple[Column, ...] = (
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


# ---- Effect of rules and numbers on the predicted times of a suite: each rule left out, each number changed.
#
# A variant is one more rule file: `without RULE`, or `override number NAME = VALUE`. A process captures the suite once,
# and compiles it for one variant after the other. A rule that did not fire in a program cannot change the program.

NOTICEABLE = 1e-3  # a predicted time that changes by less is the same
ABLATION_HEAD = ("variant", "geometric mean", "changed", "slowest", "program", "not compiled")
ABLATION_LEGEND = "Predicted time with the change over predicted time without it. Nothing was run."
Effect = dict[str, float | str]  # microseconds of the programs that a variant changes, or why one does not compile


class Variant(msgspec.Struct, frozen=True):
    """Change of the rules: a rule file, and the rules that the file leaves out."""

    name: str
    text: str
    rules: tuple[str, ...] = ()


class Ablation(msgspec.Struct):
    """JSON of `dplc bench SUITE --without ..`. rules: digest of the rules that the variants change."""

    suite: str
    target: str
    rules: str
    predicted_us: dict[str, float]
    effects: dict[str, Effect] = {}

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table, the variants that cost most first."""
        found = []
        for name, effect in self.effects.items():
            ratios = {case: us / self.predicted_us[case] for case, us in effect.items() if not isinstance(us, str)}
            mean = statistics.geometric_mean(ratios.get(case, 1.0) for case in self.predicted_us)
            slowest = max(ratios, key=ratios.__getitem__, default="")
            failed = len(effect) - len(ratios)
            cells = (name, f"{mean:.4f}", str(len(ratios)), f"{ratios.get(slowest, 1):.2f}", slowest, str(failed))
            found.append((failed, mean, cells))
        return [cells for _, _, cells in sorted(found, reverse=True)]


def variants(without: Sequence[str], numbers: Sequence[str], tools: Toolchain) -> list[Variant]:
    """Read `--without` (`each`, or rules: `A,B` leaves out two together) and `--number` (`each`, or `NAME=VALUE`).

    Raises:
        UsageError: for a rule or a number that does not exist.
    """
    rules, made = tools.rules, []
    passes = (step.rules for level in ("loop", "tile", "kernel") for step in tools.pipelines[level])
    every = list(dict.fromkeys(rule.name for each in (*passes, rules.canonical) for rule in each))
    for text in every if EACH in without else without:
        names = tuple(map(rules.plain, text.split(",")))
        for name in set(names) - rules.rules.keys():
            raise UsageError(f"--without {text}: there is no rule `{name}`", hint=did_you_mean(name, every))
        made.append(Variant(text, "".join(f"without {name}\n" for name in names), names))
    if EACH in numbers:  # every number, reduced and increased by half
        numbers = [
            f"{name}={changed}"
            for name, number in rules.numbers.items()
            if type(value := number.value) in (int, float)
            for factor in (0.5, 1.5)
            if (changed := type(value)(value * factor)) != value
        ]
    for text in numbers:
        name, _, value = text.partition("=")
        if name not in rules.numbers or not value:
            hint = did_you_mean(name, rules.numbers) or "write NAME=VALUE, or each"
            raise UsageError(f"--number {text}: there is no number `{name}`", hint=hint)
        made.append(Variant(text, f"override number {name} = {value}\n"))
    return made


@functools.lru_cache(1)
def _programs(path: Path, only: str | None) -> dict[str, Callable[[Compiler], float]]:
    """Capture the cases of a suite. Return {case: the function from a compiler to its predicted microseconds}."""
    suite = read_suite(path)

    def program(case: BenchCase) -> Callable[[Compiler], float]:
        captured = subject_of(suite, case).capture()
        return lambda compiler: with_rules(compiler, case.rules).compile(captured).predicted_seconds * 1e6

    return {case.name: program(case) for case in suite.select(only)}


def _effect(
    path: Path, only: str | None, compiler: Compiler, before: Mapping[str, float], fired: Mapping[str, set[str]],
    variant: Variant,
) -> Effect:  # fmt: skip
    """Compile the programs of a suite that a variant may change, and keep those that it does change.

    before: predicted microseconds with all rules; fired: the rules that fired in each program.
    """
    found: Effect = {}
    tools = compiler.tools
    rules = tools.rules.extended(read_rules(Source(variant.name, variant.text)))
    changed = replace(compiler, tools=toolchain(rules, tools.settings))
    for name, program in _programs(path, only).items():
        if variant.rules and fired[name].isdisjoint(variant.rules):
            continue
        try:
            us = program(changed)
        except Exception as error:  # the rules that are left may build what none of them expects
            found[name] = error.what if isinstance(error, DplcError) else f"{type(error).__name__}: {error}"
        else:
            if abs(us / before[name] - 1) > NOTICEABLE:
                found[name] = us
    return found


def _keep(record: Ablation, kept: Path) -> None:
    try:
        kept.write_bytes(msgspec.json.encode(record))
    except OSError as error:
        raise DplcError(f"cannot write {kept}: {error.strerror}") from None


def ablate(
    path: Path, only: str | None, compiler: Compiler, asked: Sequence[Variant], kept: Path | None, say: Say
) -> Ablation:
    """Compile a suite once for every variant, in as many processes as there are cores.

    Args:
        kept: a file of an earlier run with the same rules, whose effects are not computed again. Each effect is
            written to the file as soon as it and those of the preceding variants are known.

    Raises:
        DplcError: for a program that does not compile with all rules.
        UsageError: if `kept` has other results.
    """
    say(f"compiling {path.stem} with all rules")
    before, fired = dict[str, float](), dict[str, set[str]]()
    for name, program in _programs(path, only).items():
        trace = Trace()
        before[name] = program(replace(compiler, trace=trace))
        fired[name] = {rule for event in trace.firings for rule in (event.rule, *event.cleaned)}
    record = Ablation(str(path), compiler.target.name, compiler.tools.rules.digest, before)
    if kept is not None and kept.exists():
        hint = "name another file with -o, or delete this one"
        earlier = read_json(kept, Ablation, hint)
        if msgspec.structs.replace(earlier, effects={}) != record:
            raise UsageError(f"{kept} has results of another suite, other rules or another target", hint=hint)
        record.effects = earlier.effects
    left = [variant for variant in asked if variant.name not in record.effects]
    effect = functools.partial(_effect, path, only, compiler, before, fired)
    count = min(len(os.sched_getaffinity(0)), len(left) // 4)  # fewer cost less than their captures
    with ProcessPoolExecutor(count, processes()) if count > 1 else nullcontext() as pool:
        effects = pool.map(here(effect), left) if pool else map(effect, left)
        for variant, changed in zip(left, effects):
            record.effects[variant.name] = changed
            say(f"{len(record.effects)}: {variant.name}")
            if kept is not None:
                _keep(record, kept)
    record.effects = {variant.name: record.effects[variant.name] for variant in asked}
    return record
