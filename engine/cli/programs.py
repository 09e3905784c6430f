"""What compile, run and rewrite share: a text and options become rules, a target, a captured program, a compilation."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import torch

from ...codegen.emulator.executor import DEFAULT_BLOCKS, ORDERS, SMALL, CheckedLaunch, CheckingExecutor, Violation
from ...codegen.emulator.runtime import EmulatorError, LineCost
from ...codegen.kernel import CudaKernel
from ...codegen.target import Target
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ...ir.dtypes import COMPUTING_FLOATS, FLOAT_NAMES
from ...ir.expr import Size
from ...ir.sizes import hints, sizes_in
from ..api import Compiled, choose_device, target_for
from ..bench.bench import LAYOUT, PROFILED, BenchSteps, bench_program
from ..bench.records import BenchRecord
from ..bench.running import can_measure
from ..bench.tables import TableLayout, print_table
from ..capture.capture import Capture
from ..capture.dynamic_shapes import Dim, range_of
from ..capture.text import capture_text
from ..compiler import STAGES, Compilation, CompileOptions, Explore, compile_captured
from ..rewrite.statements.driver import tell_unheard
from ..rewrite.trace import Trace
from ..ruleset import Toolchain, exactly, read_settings, toolchain
from ..run.dispatch import Row, at_binding, narrowed
from ..run.judge import Judgement, judge, run_reference
from ..schedule.stored import StoredSchedules, stored_schedules
from .options import Flags
from .output import ARRAYS, command_line, print_json, print_note, print_remark, print_text, progress, write, writing

TOLD = 4  # kernels whose schedules are told one by one


def compile_text(flags: Flags, device: str | None = None, values: bool = True) -> Compilation:
    """Compile a `-c` text for the target asked for, by default the device's; `-v` and `-vv` keep what the rules did.

    values: whether it will be run, and compared with what eager makes of it.
    """
    given = compile_options(flags, device)
    captured, elapsed = captured_text(flags, values)
    with progress("compiling"):
        compilation = compile_captured(captured, given, elapsed)
    tell_compilation(compilation)
    return compilation


def tell_compilation(compilation: Compilation) -> None:
    """Warn of settings without effect, and name the schedules that are out of a store. Raises UsageError."""
    tell_unheard(compilation.unheard, lambda line: print_note(f"warning: {line}"))
    print_schedules(compilation)


def compile_options(flags: Flags, device: str | None = None) -> CompileOptions:
    """What the flags of a command say that a compile depends on."""
    tools, machine = tools_for(flags, device), machine_for(flags, device)
    schedules = schedules_for(flags, tools)
    return CompileOptions(tools, machine, trace_for(flags), schedules, fusing_for(flags, tools, machine, schedules))


def captured_text(
    flags: Flags, values: bool = True, sizes: Mapping[str, int] = MappingProxyType({})
) -> tuple[Capture, float]:
    """A text captured, and the milliseconds it took. What it prints goes to standard error: ours is for results.

    values, sizes: as of `capture_text`.
    """
    start = time.perf_counter()
    with progress("capturing"), contextlib.redirect_stdout(sys.stderr):
        captured = capture_text(flags.text, flags.seed, float_named(flags.dtype), values, sizes)
    return captured, (time.perf_counter() - start) * 1e3


def tools_for(flags: Flags, device: str | None = None) -> Toolchain:
    """The rules of `--rules` with the parameters of `--set` and `--prefer`; of `--exact`, less what is @approx. What
    they declare for one device is in force where the target is that device."""
    tools, settings = toolchain(flags.rules), flags.pinned
    rules = exactly(tools.rules) if flags.exact else tools.rules
    tools = toolchain(rules, read_settings(settings, rules)) if settings or flags.exact else tools
    return tools.at(target_for(choose_device(device), flags.target))


def machine_for(flags: Flags, device: str | None = None) -> Target:
    """The target of `--target`; by default the GPU that is present (unless another device is asked for), else sm_80.
    With it goes what the rules override of the policy."""
    return tools_for(flags, device).on(target_for(choose_device(device), flags.target))


def schedules_for(flags: Flags, tools: Toolchain) -> StoredSchedules | None:
    """The store whose schedules a compile replays. Raises UsageError for a file that was named and is not there."""
    if not flags.no_db and flags.db is not None and not flags.db.is_file():
        raise UsageError(f"--db {flags.db}: there is no such file", hint="`dplc tune --db` makes one")
    return stored_schedules(tools, flags.db, not flags.no_db)


def fusing_for(flags: Flags, tools: Toolchain, machine: Target, schedules: StoredSchedules | None) -> Explore | None:
    """What chooses how a program is fused: the store if it knows the program, else `--explore`, else the rules."""
    if schedules is None and not flags.explore:
        return None
    from ..explore.candidates import chosen, remembered

    choose = chosen(tools, machine, schedules=schedules, tell=print_remark) if flags.explore else None
    return remembered(schedules, tools, machine, choose, print_remark)


def trace_for(flags: Flags) -> Trace | None:
    """What the rules do, where `-v` or `--why-not` asks for it."""
    return Trace(asked=frozenset(flags.why_not or ())) if flags.verbose or flags.why_not else None


def float_named(name: str | None) -> str | None:
    """A dtype of `--dtype`, by our name or torch's. Raises UsageError."""
    if name is not None and name not in FLOAT_NAMES:
        raise UsageError(
            f"--dtype {name}: not a dtype for floats",
            notes=(f"dtypes are {', '.join(COMPUTING_FLOATS)}",),
            hint=did_you_mean(name, tuple(FLOAT_NAMES)),
        )
    return None if name is None else FLOAT_NAMES[name]


def stage_named(name: str) -> str:
    """A stage of `--ir`. Raises UsageError."""
    if name not in STAGES:
        raise UsageError(
            f"--ir {name}: there is no such stage",
            notes=(f"stages are {', '.join(STAGES)}",),
            hint=did_you_mean(name, STAGES),
        )
    return name


def print_stage(compilation: Compilation, stage: str) -> None:
    """A program at a stage."""
    print_text(compilation.ir(stage), "cuda" if stage == "cuda" else "ir")


def print_trace(compilation: Compilation, flags: Flags) -> None:
    """The trace of `-v`, `-vv` and `--why-not`, on standard error, since the result has the other."""
    if compilation.trace and not flags.as_json:
        print_text(compilation.trace.render(flags.verbose), "diff", error=True)


def print_schedules(compilation: Compilation) -> None:
    """Whenever a store decides: which schedules are out of it."""
    told = [origin.line for origin in compilation.origins if origin.line]
    for line in told[:TOLD]:
        print_remark(line)
    if len(told) > TOLD:
        print_note(f"note: and of {len(told) - TOLD} more kernels out of the store (-v lists them)")


# ---- --size


MOST_RUNS = 1000


def bindings(sizes: Mapping[str, Size], subject: str, asked: Sequence[str] | None) -> list[dict[str, int]]:
    """The numbers of the sizes of a program: of `--size`, every combination; else hints, and a note says so.

    asked: what `--size` says; subject: what declares them, for messages. Raises UsageError for what is no size of it.
    """
    given: dict[str, list[int]] = {}
    for written in asked or ():
        name, _, numbers = (part.strip() for part in written.partition("="))
        if not re.fullmatch(r"\d{1,15}(\s*,\s*\d{1,15})*", numbers):
            raise UsageError(f"--size {written}: write NAME=7 or NAME=1,7,100")
        if name not in sizes:
            has = f"it has {', '.join(sizes)}" if sizes else "it has none"
            raise UsageError(
                f"--size {written}: {subject} has no size `{name}`", notes=(has,), hint=did_you_mean(name, sizes)
            )
        given[name] = list(dict.fromkeys(map(int, numbers.split(","))))
    for name, size in sizes.items():
        if name not in given:
            print_remark(f"`{name}` is {size.hint}, its hint; --size {name}=N for another number")
    values = [given.get(name, [size.hint]) for name, size in sizes.items()]
    if math.prod(map(len, values)) > MOST_RUNS:
        raise UsageError(f"--size: more than {MOST_RUNS} combinations")
    return [dict(zip(sizes, point, strict=True)) for point in itertools.product(*values)]


def alone(found: Sequence[Mapping[str, int]], wanted: bool, why: str) -> None:
    """Raises UsageError where something is wanted of one binding, and there are several."""
    if wanted and len(found) > 1:
        raise UsageError(f"{why}: give one number of each size")


def drawn_at(made: Compilation, drawn: Capture, binding: Mapping[str, int]) -> Compilation:
    """A text that was compiled with sizes, at a binding. drawn: the text evaluated there, for its inputs."""
    tensors = {**made.captured.tensors, **drawn.tensors}
    return at_binding(made, binding, replace(made.captured, tensors=tensors, reference=drawn.reference))


def told(binding: Mapping[str, int]) -> str:
    """`s=7, t=9:`, before what belongs to it."""
    return ", ".join(f"{name}={value}" for name, value in binding.items()) + ":\n"


# ---- compile and run


def compile_expression(flags: Flags, ir: str | None = None) -> None:
    """`dplc compile`"""
    stage_named(ir or "cuda")
    print_compilation(compile_text(flags, values=False), flags, ir)


def _compile_record(compilation: Compilation, stage: str | None) -> dict[str, Any]:
    kernels = [_kernel_record(kernel) | {"text": kernel.text} for kernel in compilation.cuda_kernels]
    record: dict[str, Any] = {"kernels": kernels, "timings": compilation.timings, "target": compilation.target.arch}
    if stage is not None:
        record["ir"] = compilation.ir(stage)
    if compilation.origins:
        record["schedules"] = [origin.record() for origin in compilation.origins]
    if compilation.trace:
        record["trace"] = [event.record() for event in compilation.trace.events]
    return record


def print_compilation(compilation: Compilation, flags: Flags, ir: str | None) -> None:
    """A program at a stage, CUDA by default. `--json` holds the stage that was asked for beside the kernels."""
    if flags.as_json:
        print_json(_compile_record(compilation, ir))
        return
    print_trace(compilation, flags)
    print_stage(compilation, ir or "cuda")


def run_expression(flags: Flags, device: str | None = None, out: Path | None = None, bench: str = "") -> None:
    """`dplc run`. bench: "bench" or "profile" for a table of the kernels too."""
    chosen = choose_device(device)
    check_arrays(out)
    compilation = compile_text(flags, chosen)
    print_trace(compilation, flags)
    if compilation.sizes or flags.sizes:
        _run_bindings(compilation, flags, chosen, out, bench)
    else:
        report_run(compilation, chosen, out, flags.as_json, table=kernel_table(compilation, flags, chosen, bench))


def benched(compilation: Compilation, flags: Flags, steps: BenchSteps, measuring: bool) -> BenchRecord:
    """The record. measuring: where there is a GPU to measure on."""

    wanted = measuring and can_measure()
    return bench_program(compilation, flags.text.strip(), tools_for(flags), steps, teller(), wanted)


def layout(profile: bool) -> TableLayout:
    """The table of `--profile`, or the one without."""
    return PROFILED if profile else LAYOUT


def teller() -> Callable[[str], None]:
    """Says what is being done: on one line of a terminal, nowhere else."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[K{text}", end="\r", file=sys.stderr, flush=True)


def kernel_table(
    compilation: Compilation, flags: Flags, device: str, bench: str
) -> tuple[BenchRecord, TableLayout] | None:
    """The table of `run --bench` and `--profile`. bench: which, "" for none."""
    if not bench:
        return None
    record = benched(compilation, flags, BenchSteps(False, command=command_line()), device.startswith("cuda"))
    return record, layout(bench == "profile")


def _run_bindings(compilation: Compilation, flags: Flags, device: str, out: Path | None, bench: str) -> None:
    """What was compiled once, at each binding of its sizes: the text is evaluated anew for its inputs."""
    found = bindings(compilation.sizes, "the text", flags.sizes)
    alone(found, out is not None or flags.as_json, "--out and --json are of one run")
    for binding in found:
        if len(found) > 1:
            write(told(binding))
        drawn, _ = captured_text(flags, sizes=binding)
        bound = drawn_at(compilation, drawn, binding)
        table = kernel_table(bound, flags, device, bench)
        report_run(bound, device, out, flags.as_json, run_reference(drawn, drawn.tensors), table)


def check_arrays(out: Path | None) -> None:
    """Raises UsageError for an `--out` of a run that numpy would write under another name."""
    if out is not None and out.suffix != ".npz":
        raise UsageError(f"--out {out}: the name must end in .npz")


def report_run(
    compilation: Compilation, device: str | None, out: Path | None, as_json: bool,
    references: Sequence[Any] | None = None, table: tuple[BenchRecord, TableLayout] | None = None,
) -> None:  # fmt: skip
    """Run what was compiled and print how far it is from float64. Raises DplcError where that is too far.

    references: the right outputs, else those of what was captured. table: of a bench of it.
    """
    chosen = choose_device(device)
    results, notes, elapsed = _execute(compilation, chosen)
    captured = compilation.captured
    references = run_reference(captured, captured.tensors) if references is None else references
    found = judge(results, references, captured.reference)
    if out is not None:
        save_outputs(out, results)
    for note in (*notes, *found.notes):
        print_note(f"note: {note}")
    kernels = compilation.cuda_kernels if chosen != "reference" else ()
    if as_json:
        records = [_kernel_record(kernel) for kernel in kernels]
        record = {"ok": found.ok, "device": chosen, "kernels": records, **judged_record(found)}
        schedules = [origin.record() for origin in compilation.origins]
        beside = {"bench": msgspec.to_builtins(table[0])} if table is not None else {}
        print_json(record | ({"schedules": schedules} if schedules else {}) | beside)
    else:
        write(_run_report(kernels, chosen, results, elapsed, found))
        if table is not None:
            print_table(table[0], not sys.stdout.isatty(), table[1])
    if not found.ok:
        off = f"the result is off by {found.relative:.2e} of the largest value"
        raise DplcError(f"{off}; the gate is 1e-5, or twice eager's own error")


def judged_record(found: Judgement) -> dict[str, Any]:
    """What `--json` says of a comparison with float64; counts of elements where float64 did not decide all."""
    counts = {"wrong": found.wrong, "as_eager": found.as_eager, "unjudged": found.unjudged}
    return {"max_abs_err": found.absolute, "max_rel_err": found.relative} | (counts if any(counts.values()) else {})


def judged_line(found: Judgement) -> str:
    """What a report says of a comparison with float64."""
    largest = f"max|error| {found.absolute:.2e}, over max|reference| {found.relative:.2e}"
    return f"against float64: {largest}: {found.verdict}"


def _execute(compilation: Compilation, device: str) -> tuple[list[Any], tuple[str, ...], float]:
    """The outputs of a run on what was captured, its notes, and the seconds it took."""
    compiled = Compiled(compilation, device)
    captured = compilation.captured
    inputs = {}
    if device == "cuda" and compiled.executor:  # which says what is missing
        inputs = {name: tensor.cuda() for name, tensor in captured.tensors.items()}
    start = time.perf_counter()
    with progress(f"running on {device}"):
        results = compiled.run(inputs)
        if device == "cuda":
            torch.cuda.synchronize()
    return results, compiled.notes, time.perf_counter() - start


def _run_report(
    kernels: tuple[CudaKernel, ...],
    device: str,
    results: list[Any],
    elapsed: float,
    found: Judgement,
) -> str:
    lines = [
        f"kernel {k.name}: grid {' x '.join(map(str, k.grid))}, {k.block} threads, {k.smem} bytes of shared memory"
        for k in kernels
    ]
    lines += [
        f"out{place}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        for place, value in enumerate(results)
    ]
    lines.append(f"device {device}: {elapsed * 1e3:.1f} ms, building included")
    lines.append(judged_line(found))
    return "\n".join(lines) + "\n"


def save_outputs(path: Path, results: list[Any]) -> None:
    """Outputs as out0, out1, .. in a file of numpy's. Raises DplcError."""
    import numpy as np

    with writing(path, ARRAYS) as file:
        np.savez(file, **{f"out{place}": _as_numpy(value) for place, value in enumerate(results)})


def _as_numpy(value: Any) -> Any:
    """An output as numpy has it; bf16, which numpy lacks, as f32."""
    value = value.detach().cpu()
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()


def _kernel_record(kernel: CudaKernel) -> dict[str, Any]:
    return {"name": kernel.name, "grid": list(kernel.grid), "block": kernel.block, "smem": kernel.smem}


# ---- run --check


LINE_WIDTH = 72


def check_expression(flags: Flags, blocks: str | None = None, device: str | None = None) -> None:
    """`dplc run --check`. Raises DplcError where something was found."""
    check_device(device)
    compilation = compile_text(flags, "emulator")
    print_trace(compilation, flags)
    if not (compilation.sizes or flags.sizes):
        check_compilation(compilation, flags, blocks)
        return
    asked = bindings(compilation.sizes, "the text", flags.sizes)
    alone(asked, flags.as_json, "--json is of one run")
    for binding in asked:
        if len(asked) > 1:
            write(told(binding))
        drawn, _ = captured_text(flags, sizes=binding)
        check_compilation(drawn_at(compilation, drawn, binding), flags, blocks, run_reference(drawn, drawn.tensors))


def check_device(device: str | None) -> None:
    """Raises UsageError for a device on which nothing can be checked."""
    if device not in (None, "emulator"):
        raise UsageError(f"--check looks at kernels in the emulator; it cannot on `{device}`")


def check_compilation(
    compilation: Compilation, flags: Flags, blocks: str | None, references: Sequence[Any] | None = None
) -> None:  # fmt: skip
    """One run of the kernels, reported. references: the right outputs, else those of what was captured.

    Raises DplcError where something was found.
    """
    checker = CheckingExecutor(None if blocks is None else tuple(word.strip() for word in blocks.split(",")))
    judged = _run(compilation, checker, references)
    ok = judged is not None and judged.ok
    found = checker.findings
    if flags.as_json:
        print_json(
            {"ok": ok and not found, "findings": [dataclasses.asdict(finding) for finding in found]}
            | {"kernels": [_record(launch) for launch in checker.launches], "orders": list(checker.orders)}
            | ({"max_abs_err": None, "max_rel_err": None} if judged is None else judged_record(judged))
        )
    else:
        write("\n".join(_report(checker, blocks is None, judged)) + "\n")
    if found:
        raise DplcError(f"checked mode found {len(found)} fault{'s' if len(found) > 1 else ''}")
    if judged is not None and not ok:
        raise DplcError(f"the result is off by {judged.relative:.2e} of the largest value")


def _run(
    compilation: Compilation, checker: CheckingExecutor, references: Sequence[Any] | None
) -> Judgement | None:  # fmt: skip
    """How the outputs compare with float64; None where a kernel did not end."""
    compiled = Compiled(compilation, "emulator")
    compiled.executor = checker
    captured = compilation.captured
    with progress("running in checked mode"):
        try:
            results = compiled.run({})
        except EmulatorError:
            return None  # it is among the findings
    references = run_reference(captured, captured.tensors) if references is None else references
    return judge(results, references, captured.reference)


# ---- for programs


def _record(launch: CheckedLaunch) -> dict[str, Any]:
    return {
        "name": launch.kernel.name,
        "grid": list(launch.kernel.grid),
        "blocks": list(launch.blocks),
        "whole": launch.whole,
        "sites": [dataclasses.asdict(site) | {"unit": site.unit, "text": launch.line(site)} for site in launch.sites],
    }


# ---- for people


def _report(checker: CheckingExecutor, default: bool, judged: Judgement | None) -> list[str]:
    lines: list[str] = []
    for launch in checker.launches:
        lines += [_heading(launch), *_table(launch), ""]
        for finding in launch.findings:
            lines += [*_found(finding), ""]
    if default and not all(launch.whole for launch in checker.launches):
        lines.append(
            f"grids of more than {SMALL} threads: {', '.join(DEFAULT_BLOCKS)} blocks; `--blocks all` checks every one"
        )
    if judged is not None:
        lines += [*(f"note: {note}" for note in judged.notes), judged_line(judged)]
    count = len(checker.findings)
    lines.append(f"{count or 'no'} finding{'' if count == 1 else 's'}")
    return lines


def _heading(launch: CheckedLaunch) -> str:
    kernel, blocks = launch.kernel, launch.blocks
    some = f"blocks {', '.join(map(str, blocks[:16]))}{', ..' if len(blocks) > 16 else ''} of {kernel.blocks}"
    which = f"all {kernel.blocks} blocks" if launch.whole else some
    return f"kernel {kernel.name}: {which} of {kernel.block} threads, {len(ORDERS)} orders of threads"


def _table(launch: CheckedLaunch) -> list[str]:
    """What each access costs: 32-byte sectors of global memory, wavefronts of shared memory, per request of a warp."""
    if not launch.sites:
        return []
    head = ("line", "access", "bytes", "requests", "cost", "ideal", "per request", "")
    rows = [head, *(_row(launch, site) for site in sorted(launch.sites, key=lambda s: (s.line, s.access)))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    left = (1,)  # columns of words
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        + (f"  {row[-1]}" if row[-1] else "")
        for row in rows
    ]


def _row(launch: CheckedLaunch, site: LineCost) -> tuple[str, ...]:
    text = launch.line(site)
    short = text if len(text) <= LINE_WIDTH else text[: LINE_WIDTH - 2] + ".."
    each = f"{site.cost / site.requests:.2f} {site.unit}"
    return (
        str(site.line), site.access, str(site.width), str(site.requests), str(site.cost), str(site.ideal), each, short,
    )  # fmt: skip


def _found(finding: Violation) -> list[str]:
    order = ("forwards", "backwards", "shuffled")[min(finding.order, 2)]
    return [f"FOUND {finding.message}", f"  threads started {order}", *(f"  {line}" for line in finding.lines)]


# ---- --row


_WRITTEN = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*=\s*)?(\d{1,9})(?:\s*\.\.\s*(\d{1,9}))?(?:\s*:\s*(\d{1,9}))?\s*")


def row_of(asked: Sequence[str] | None, sizes: Mapping[str, Size]) -> Row:
    """What `--row` says of the sizes of a program, each at most once: a row of lengths, of which the greatest is the
    usual one if none is named. Raises UsageError."""
    found: dict[str, Dim] = {}
    for written in asked or ():
        parts = _WRITTEN.fullmatch(written)
        if parts is None:
            hint = "NAME=A..B where there are several sizes, A..B:N for N as a rule"
            raise UsageError(f"--row {written}: write A..B, as 129..512", hint=hint)
        name, low = parts[1] or _only(written, sizes), int(parts[2])
        if name not in sizes:
            notes = (f"its sizes are {', '.join(sizes)}",)
            raise UsageError(f"--row {written}: `{name}` is no size", notes=notes, hint=did_you_mean(name, sizes))
        if name in found:
            raise UsageError(f"--row {written}: `{name}` has its row already")
        found[name] = _part(written, sizes[name], low, int(parts[3] or low), parts[4])
    return tuple(found.values())


def _only(written: str, sizes: Mapping[str, Size]) -> str:
    if len(sizes) == 1:
        return next(iter(sizes))
    if not sizes:
        hint = "`dim(s, 1..4096)` in -c, or --seq-len 1..4096 of a model"
        raise UsageError(f"--row {written}: nothing in it is a size", hint=hint)
    first = next(iter(sizes))
    raise UsageError(
        f"--row {written}: its sizes are {', '.join(sizes)}", hint=f"say of which: --row {first}={written}"
    )


def _part(written: str, whole: Size, low: int, high: int, hint: str | None) -> Dim:
    """Raises UsageError for what is no part of the range."""
    if not whole.low <= low <= high <= whole.high:
        raise UsageError(f"--row {written}: `{whole.name}` is {range_of(whole)}, and a row is a part of that")
    part = Dim(whole.name, low, high, whole.multiple, int(hint) if hint else None)
    part.size()  # refuses a hint that is not in it
    return part


def captured_row(flags: Flags, values: bool = True, binding: Mapping[str, int] = MappingProxyType({})) -> Capture:
    """The text of `-c` captured, where its sizes are those of `--row`; what it draws has the lengths of their hints.

    values, binding: as of `captured_text`.
    """
    captured, _ = captured_text(flags, values, binding)
    sizes = sizes_in(captured.graph)
    row = row_of(flags.row, sizes)
    if not row:
        return captured
    made = narrowed(captured, row, sizes)
    usual = hints(captured.graph) | {dim.name: dim.size().hint for dim in row}
    if usual != hints(captured.graph):
        drawn, _ = captured_text(flags, values, usual)
        made = replace(made, tensors={**captured.tensors, **drawn.tensors}, reference=drawn.reference)
    return made


def tell_lengths(captured: Capture) -> None:
    """What a search takes lengths for that are known at a call."""
    for size in sizes_in(captured.graph).values():
        print_remark(f"`{size.name}` is {range_of(size)}; times are those of {size.hint}")
