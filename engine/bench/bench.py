"""Complete benchmarks: a suite or one program as input, a record and its tables as output."""

from __future__ import annotations

import functools
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
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
from ..compiler import Compilation, Compiler
from ..cost.predict import RESOURCES, UNHIDDEN
from ..language.rule import RuleSet, read_rules
from ..rewrite.trace import EACH, Trace
from ..ruleset import Toolchain, here, processes, toolchain
from ..run.calls import Preparation
from .cases import (
    BenchCase,
    CompiledCase,
    CudaClock,
    Say,
    Suite,
    Written,
    assemble_all,
    assembler,
    build_all,
    can_measure,
    compile_all,
    describe,
    device_name,
    limits,
    measured,
    nothing_measured,
    read_suite,
    run_case,
    subject_of,
    timing,
    with_rules,
)
from .records import BenchRecord, CaseRecord, KernelRecord, Totals, geomean, markdown_table


@dataclass(frozen=True)
class BenchSteps:
    """Steps of a benchmark in addition to compiling."""

    run: bool = True
    assemble: bool = True
    command: str = ""


def bench(
    path: Path, suite: Suite, cases: list[BenchCase], compiler: Callable[[], Compiler], steps: BenchSteps, say: Say
) -> BenchRecord:
    """Compile the cases cold; assemble, run and measure them as requested.

    Raises DplcError for an error outside of a case.
    """
    records, compiled, times = compile_all([subject_of(suite, case) for case in cases], compiler, say)
    made = compiler()
    _assemble_and_run(compiled, made.target.arch, steps, say)
    for one in compiled if steps.run and can_measure() else ():
        say(f"measuring {one.record.name}")
        one.record.measured = measured(one, Callee(one.compilation, "cuda"), CudaClock())
    return BenchRecord(
        suite=str(path), about=suite.about, published=suite.published, totals=totals(records, *times), cases=records,
        **provenance(steps.command, made.target, made.tools),
    )  # fmt: skip


def _assemble_and_run(suite: list[CompiledCase], arch: str, steps: BenchSteps, say: Say) -> None:
    if steps.assemble and assembler():
        assemble_all(suite, arch, say)
    if steps.run:
        build_all(suite, say)
        for compiled in suite:
            say(f"running {compiled.record.name} on the emulator")
            run_case(compiled)


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
        **(_launching() if can_measure() else {}),
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
    return f"{platform.machine()}, {os.cpu_count()} cores, {device_name() if can_measure() else 'no GPU'}"


# ---- one program


def bench_program(compilation: Compilation, text: str, steps: BenchSteps, say: Say, measuring: bool) -> BenchRecord:
    """Benchmark a compiled program on the inputs that its text generated. measuring: whether to measure on a GPU."""
    target, milliseconds = compilation.target, sum(compilation.timings.values())
    record = CaseRecord(
        name=WHOLE, operation="expression", sizes={}, dtype="", compile_ms=milliseconds, stages=compilation.timings
    )
    compiled = CompiledCase(Written(compilation.captured), compilation, record)
    describe(compiled)
    _assemble_and_run([compiled], target.arch, steps, say)
    kernels = rows(record.kernels)
    note_limits(kernels, compilation.plan.kernels, compilation.kernels, target)
    if measuring and not record.problem:
        say("measuring")
        measure(compiled, kernels, Callee(compilation, "cuda"), CudaClock())
    seconds = milliseconds / 1e3
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
    made, device = compiled.compilation, memory_of(callee.device)
    program, tensors = made.program, {name: tensor.to(device) for name, tensor in made.captured.tensors.items()}
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
    if last.measured is not None and last.measured.dplc is not None:
        said.append(f"{last.measured.dplc.median_us:.1f} us measured on {last.measured.device}")
    if run is not None and run.relative_error is not None:
        said.append(
            f"{run.relative_error:.0e} off float64 on the emulator ({run.extent})" + ("" if run.ok else ", WRONG")
        )
    return "; ".join(said)


# ---- Tables of a benchmark: for a terminal, and as a Markdown page.

MISSING = "-"
Figure = Callable[[CaseRecord], Any]  # None where it is not known
Column = tuple[str, str | Figure, str]  # title; a field of a case, or a function of it; format


def over(choose: Callable[[list[Any]], Any], field: str) -> Figure:
    """Return a function of the values that are known of a field of the kernels: their sum, or the worst."""

    def read(case: CaseRecord) -> Any:
        found = [value for kernel in case.kernels if (value := getattr(kernel, field)) is not None]
        return choose(found) if found else None

    return read


def median(field: str) -> Figure:
    return lambda case: getattr(getattr(case.measured, field, None), "median_us", None)


def _result(case: CaseRecord) -> str:
    if case.error:
        return "not compiled"
    if case.run is None:
        return MISSING
    if not case.run.ok:
        return "WRONG"
    return f"{case.run.relative_error:.0e}" + ("" if case.run.extent == "whole" else " *")


REGISTERS: Column = ("registers", over(max, "registers"), "{}")
SPILLS: Column = ("spills B", over(sum, "spill_bytes"), "{}")
SHARED: Column = ("smem KB", lambda case: max((kernel.smem / 1024 for kernel in case.kernels), default=None), "{:.1f}")
FFMA: Column = ("FFMA", lambda case: case.main.ffma_share if case.main and case.main.has_loop else None, "{:.3f}")
ACCESSES: tuple[Column, ...] = (
    ("sector eff.", over(min, "sector_efficiency"), "{:.2f}"),
    ("wavefronts", over(max, "wavefront_ratio"), "{:.2f}"),
)
TIMES: tuple[Column, ...] = (
    ("predicted us", "predicted_us", "{:.1f}"),
    ("bound", lambda case: case.main and case.main.predicted_bound, "{}"),
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
MEASURED: tuple[Column, ...] = tuple(
    (f"{who} us", median(field), "{:.1f}")
    for who, field in (("measured", "dplc"), ("eager", "eager"), ("torch.compile", "torch_compile"))
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

        def cell(case: CaseRecord, read: str | Figure, form: str) -> str:
            value = getattr(case, read) if isinstance(read, str) else read(case)
            return MISSING if value is None else form.format(value)

        rows = [[cell(case, read, form) for _, read, form in shown] for case in record.cases]
        return [title for title, _, _ in shown], rows


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


# ---- a row for each kernel


WHOLE = "end to end"


def row(record: KernelRecord, launches: int, dtype: str) -> CaseRecord:
    """Return the row of a kernel with the sum of all its launches."""
    return CaseRecord(
        name=record.name, operation="kernel", sizes={"launches": launches}, dtype=dtype, kernels=[record],
        compulsory_bytes=record.dram_bytes * launches, predicted_us=record.predicted_us * launches,
    )  # fmt: skip


def rows(records: Iterable[KernelRecord]) -> list[CaseRecord]:
    """Return a row for each distinct kernel. records: one for every launch."""
    launched: dict[str, list[KernelRecord]] = {}
    for record in records:
        launched.setdefault(record.name, []).append(record)
    return [row(same[-1], len(same), "") for same in launched.values()]


def sums(kernels: Sequence[CaseRecord]) -> dict[str, Any]:
    """Return the fields of the last row that are sums of all kernels."""
    return {
        "sizes": {"launches": sum(case.sizes["launches"] for case in kernels)},
        "compulsory_bytes": sum(case.compulsory_bytes for case in kernels),
        "predicted_us": sum(case.predicted_us or 0.0 for case in kernels),
    }


def note_limits(
    cases: Iterable[CaseRecord], loops: Sequence[Kernel], kernels: Sequence[Kernel], target: Target
) -> None:
    """Fill in the distance of each kernel from its limit. If a schedule split a kernel, the last part gets it."""
    by_name = {case.name: case for case in cases}
    seconds = [by_name[safe_kernel_name(kernel.name)].kernels[0].predicted_us * 1e-6 for kernel in kernels]
    for limit in limits(loops, kernels, seconds, target) if loops else ():
        by_name[safe_kernel_name(limit.name)].times_limit = limit.times


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


def _share(title: str, read: Callable[[KernelRecord], float]) -> Column:
    """Return the column of some microseconds of a kernel over its measured time, else over its predicted time."""

    def share(case: CaseRecord) -> float | None:
        kernel, timed = case.main, median("dplc")(case)
        if kernel is None:
            return None
        return read(kernel) / (kernel.predicted_us if timed is None else timed / case.sizes["launches"])

    return title, share, "{:.1%}"


NAMED: tuple[Column, ...] = (("kernel", "name", "{}"), ("launches", lambda case: case.sizes["launches"], "{}"))
MEGABYTES: Column = ("MB", lambda case: case.compulsory_bytes / 1e6, "{:.1f}")
KERNEL_COLUMNS: tuple[Column, ...] = (*NAMED, REGISTERS, SPILLS, SHARED, FFMA, MEGABYTES, *TIMES)
PROFILE: tuple[Column, ...] = (
    *NAMED,
    MEGABYTES,
    *(_share(name, lambda kernel, name=name: kernel.busy_us[name]) for name in RESOURCES),  # type: ignore[misc]
    _share("busiest", lambda kernel: kernel.busiest_us),
    _share("fixed", lambda kernel: kernel.fixed_us),
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
            mean = math.exp(sum(map(math.log, ratios.values())) / len(self.predicted_us))
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
        plain = [(name, number.value) for name, number in rules.numbers.items() if type(number.value) in (int, float)]
        halved = ((name, value, type(value)(value * factor)) for name, value in plain for factor in (0.5, 1.5))
        numbers = [f"{name}={changed}" for name, value, changed in halved if changed != value]
    for text in numbers:
        name, _, value = text.partition("=")
        if name not in rules.numbers or not value:
            hint = did_you_mean(name, rules.numbers) or "write NAME=VALUE, or each"
            raise UsageError(f"--number {text}: there is no number `{name}`", hint=hint)
        made.append(Variant(text, f"override number {name} = {value}\n"))
    return made


class Subjects:
    """Captured programs of a suite. fired: the rules that fire in each, once they are compiled with all rules."""

    def __init__(self, path: Path, only: str | None, compiler: Compiler, fired: dict[str, set[str]]):
        suite = read_suite(path)
        self.given = path, only, compiler, fired  # for other processes: each captures the suite again
        self.cases = {case.name: (subject_of(suite, case).capture(), case.rules) for case in suite.select(only)}
        self.compiler, self.fired = compiler, fired

    def microseconds(self, name: str, compiler: Compiler) -> float:
        """Return the predicted time of a program. Raises DplcError."""
        captured, rules = self.cases[name]
        return with_rules(compiler, rules).compile(captured).predicted_seconds * 1e6

    def baseline(self) -> dict[str, float]:
        """Compile all programs with all rules. Raises DplcError."""
        found = {}
        for name in self.cases:
            trace = Trace()
            found[name] = self.microseconds(name, replace(self.compiler, trace=trace))
            self.fired[name] = {rule for event in trace.firings for rule in (event.rule, *event.cleaned)}
        return found

    def effect(self, variant: Variant, before: dict[str, float]) -> Effect:
        """Compile the programs that a variant may change, and keep those that it does change."""
        found: Effect = {}
        tools = self.compiler.tools
        files = (*tools.rules.files, read_rules(Source(variant.name, variant.text)))
        changed = replace(self.compiler, tools=toolchain(RuleSet(files), tools.settings))
        for name, us in before.items():
            if variant.rules and self.fired[name].isdisjoint(variant.rules):
                continue
            try:
                us_changed = self.microseconds(name, changed)
            except Exception as error:  # the rules that are left may build what none of them expects
                found[name] = error.what if isinstance(error, DplcError) else f"{type(error).__name__}: {error}"
            else:
                if abs(us_changed / us - 1) > NOTICEABLE:
                    found[name] = us_changed
        return found


def ablate(
    path: Path, only: str | None, compiler: Compiler, asked: Sequence[Variant], kept: Path | None, say: Say
) -> Ablation:
    """Compile a suite once for every variant, in as many processes as there are cores.

    Args:
        kept: a file of an earlier run with the same rules, whose effects are not computed again. Each effect is
            written to the file as soon as it is known.

    Raises:
        DplcError: for a program that does not compile with all rules.
        UsageError: if `kept` has other results.
    """
    say(f"compiling {path.stem} with all rules")
    subjects = Subjects(path, only, compiler, {})
    record = Ablation(str(path), compiler.target.name, compiler.tools.rules.digest, subjects.baseline())
    if kept is not None and kept.exists():
        found = msgspec.json.decode(kept.read_bytes(), type=Ablation)
        if msgspec.structs.replace(found, effects={}) != record:
            hint = "name another file with -o, or delete this one"
            raise UsageError(f"{kept} has results of another suite, other rules or another target", hint=hint)
        record.effects = found.effects
    left = [variant for variant in asked if variant.name not in record.effects]
    for variant, effect in _effects(left, subjects, record.predicted_us):
        record.effects[variant.name] = effect
        say(f"{len(record.effects)}: {variant.name}")
        if kept is not None:
            kept.write_bytes(msgspec.json.encode(record))
    record.effects = {variant.name: record.effects[variant.name] for variant in asked}
    return record


def _effects(left: Sequence[Variant], subjects: Subjects, before: dict[str, float]) -> Iterator[tuple[Variant, Effect]]:
    count = min(len(os.sched_getaffinity(0)), len(left) // 4)  # fewer cost less than their captures
    if count <= 1:
        yield from ((variant, subjects.effect(variant, before)) for variant in left)
        return
    with ProcessPoolExecutor(count, processes(), here(_begin), subjects.given) as pool:
        made = {pool.submit(_effect, variant, before): variant for variant in left}
        yield from ((made[one], one.result()) for one in as_completed(made))


_OF_PROCESS: list[Subjects] = []


def _begin(*given: Any) -> None:
    _OF_PROCESS.append(Subjects(*given))


def _effect(variant: Variant, before: dict[str, float]) -> Effect:
    return _OF_PROCESS[0].effect(variant, before)
