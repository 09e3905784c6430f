"""`dplc compile` and `dplc run` of expressions and dumps."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...codegen.emulator.executor import DEFAULT_BLOCKS, ORDERS, SMALL, CheckedLaunch, CheckingExecutor, Violation
from ...codegen.emulator.runtime import EmulatorError, LineCost
from ...codegen.kernel import CudaKernel
from ...ir.diagnostic import DplcError, UsageError
from ..api import Compiled, choose_device
from ..bench.bench import LAYOUT, PROFILED, BenchSteps, bench_program
from ..bench.records import BenchRecord
from ..bench.running import can_measure
from ..bench.tables import TableLayout, print_table
from ..compiler import Compilation
from ..run.judge import Judgement, judge, run_reference
from .dumps import Dump, compile_dump, dump_sizes, read_dump, reference_of
from .options import Flags, Subject
from .output import ARRAYS, command_line, print_json, print_note, progress, write, writing
from .programs import (
    at_each_binding,
    bindings,
    compile_options,
    compile_text,
    each_binding,
    print_stage,
    print_trace,
    stage_named,
    tell_compilation,
    tools_for,
)


def compile_program(subject: Subject, flags: Flags) -> None:
    """`dplc compile`: print a program at a stage, CUDA by default. `--json` prints the kernels as well."""
    stage = stage_named(flags.ir or "cuda")
    if subject.is_dump:
        found = bindings(dump_sizes(subject.path), subject.name, flags.sizes)
        if len(found) > 1:
            raise UsageError("a compile is for one number of each size", hint="`dplc run` takes several")
        compilation, _ = _compiled_dump(subject, flags, None, found[0])
    else:
        compilation = compile_text(flags, values=False)
    if flags.as_json:
        print_json(_compile_record(compilation, flags.ir))
    else:
        print_trace(compilation, flags)
        print_stage(compilation, stage)


def run_program(subject: Subject, flags: Flags, out: Path | None, bench: bool, profile: bool) -> None:
    """`dplc run`: run a program at each binding of its sizes, and compare the results with float64."""
    device = choose_device(flags.device)
    if out is not None and out.suffix != ".npz":
        raise UsageError(f"--out {out}: the name must end in .npz")
    if subject.is_dump and device == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    single = "--out and --json are of one run" if out is not None or flags.as_json else ""
    for compilation, references in _prepared(subject, flags, device, single):
        table = None
        if bench:
            steps = BenchSteps(False, command=command_line())
            table = benched(compilation, flags, steps, device.startswith("cuda")), layout(profile)
        report_run(compilation, device, out, flags.as_json, references, table)


def check_program(subject: Subject, flags: Flags, blocks: str | None) -> None:
    """`dplc run --check`. Raises DplcError where something was found."""
    if flags.device not in (None, "emulator"):
        raise UsageError(f"--check looks at kernels in the emulator; it cannot on `{flags.device}`")
    single = "--json is of one run" if flags.as_json else ""
    for compilation, references in _prepared(subject, flags, "emulator", single):
        check_compilation(compilation, flags, blocks, references)


def _prepared(
    subject: Subject, flags: Flags, device: str, single: str
) -> Iterator[tuple[Compilation, Sequence[Any] | None]]:
    """Yield a program compiled, with the right outputs, at each binding of its sizes. single: as of `each_binding`."""
    if not subject.is_dump:
        compilation = compile_text(flags, device)
        print_trace(compilation, flags)
        for bound, drawn in at_each_binding(compilation, flags, single):
            yield bound, None if drawn is bound.captured else run_reference(drawn, drawn.tensors)
        return
    for binding in each_binding(bindings(dump_sizes(subject.path), subject.name, flags.sizes), single):
        compilation, dump = _compiled_dump(subject, flags, device, binding)
        print_trace(compilation, flags)
        with progress("computing what it means"):
            references = reference_of(dump, compilation.captured.tensors)
        yield compilation, references


def _compiled_dump(
    subject: Subject, flags: Flags, device: str | None, binding: Mapping[str, int]
) -> tuple[Compilation, Dump]:
    dump, options = read_dump(subject.path, binding), compile_options(flags, device)
    with progress("compiling"):
        compilation = compile_dump(dump, options, flags.seed)
    tell_compilation(compilation)
    return compilation, dump


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
