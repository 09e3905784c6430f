"""`dplc compile` and `dplc run` of expressions and dumps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...codegen.emulator.executor import DEFAULT_BLOCKS, ORDERS, SMALL, CheckedLaunch, CheckingExecutor
from ...codegen.emulator.runtime import EmulatorError
from ...codegen.kernel import CudaKernel
from ...codegen.launch import memory_of
from ...ir.diagnostic import DplcError, UsageError
from ..api import Compiled, choose_device
from ..bench.bench import BenchSteps, bench_program, summary
from ..bench.records import BenchRecord
from ..bench.running import can_measure
from ..bench.tables import TableLayout, kernel_layout, print_table
from ..capture.capture import Capture
from ..compiler import Compilation
from ..run.dispatch import at_binding
from ..run.inputs import Judgement, judge, run_reference
from .dumps import compile_dump, dump_sizes, read_dump, reference_of
from .options import Flags
from .output import ARRAYS, command_line, print_json, print_remark, print_rows, progress, write, write_lines, writing
from .programs import (
    bindings,
    captured_text,
    compile_options,
    compile_text,
    each_binding,
    print_stage,
    print_trace,
    stage_named,
    tell_compilation,
)

References = Callable[[], Sequence[Any]]  # computes the right outputs of a program


def compile_program(flags: Flags) -> None:
    """Run `dplc compile`: print a program at a stage, CUDA by default. `--json` prints the kernels as well."""
    stage = stage_named(flags.ir or "cuda")
    if flags.subject.is_dump:
        single = "a compile is of one program (`dplc run` takes several)"
        (binding,) = bindings(dump_sizes(flags.subject.path), flags.subject.name, flags.sizes, single)
        compilation, _ = _compiled_dump(flags, None, binding)
    else:
        compilation = compile_text(flags, values=False)
    if flags.as_json:
        print_json(compile_record(compilation, flags.ir))
    else:
        print_trace(compilation, flags)
        print_stage(compilation, stage)


def run_program(flags: Flags) -> None:
    """Run `dplc run`: run a program at each binding of its sizes, and compare the results with float64.

    Raises DplcError for a wrong result, and for findings of checked mode.
    """
    out = flags.out
    if flags.check and flags.device not in (None, "emulator"):
        raise UsageError(f"--check looks at kernels in the emulator; it cannot on `{flags.device}`")
    device = "emulator" if flags.check else choose_device(flags.device)
    check_arrays_path(out)
    if flags.subject.is_dump and device == "reference":
        raise UsageError("a dump is run on cuda or the emulator, and compared with what it means")
    single = "--out and --json are of one run" if out is not None or flags.as_json else ""
    for compilation, references in prepared(flags, device, single):
        if flags.check:
            _report_check(compilation, flags, references)
            continue
        table = None
        if flags.bench:
            steps = BenchSteps(False, command=command_line())
            layout = kernel_layout(flags.profile, summary)
            table = benched(compilation, flags, steps, device.startswith("cuda")), layout
        report_run(compilation, device, out, flags.as_json, references, table)


def prepared(flags: Flags, device: str, single: str, values: bool = True) -> Iterator[tuple[Compilation, References]]:
    """Yield a compiled program and the function for its reference outputs, at each binding of its sizes.

    single: see `bindings`; values: see `capture_text`.
    """
    if flags.subject.is_dump:
        sizes = dump_sizes(flags.subject.path)
        for binding in each_binding(bindings(sizes, flags.subject.name, flags.sizes, single)):
            compilation, references = _compiled_dump(flags, device, binding)
            print_trace(compilation, flags)
            yield compilation, references
        return
    compilation = compile_text(flags, device, values)
    print_trace(compilation, flags)
    captured = compilation.captured
    if not (compilation.sizes or flags.sizes):
        yield compilation, lambda: run_reference(captured, captured.tensors)
        return
    for binding in each_binding(bindings(compilation.sizes, "the text", flags.sizes, single)):
        drawn, _ = captured_text(flags, values, binding)
        tensors = {**captured.tensors, **drawn.tensors}
        bound = dataclasses.replace(captured, tensors=tensors, reference=drawn.reference)
        yield at_binding(compilation, binding, bound), functools.partial(run_reference, drawn, drawn.tensors)


def _compiled_dump(flags: Flags, device: str | None, binding: Mapping[str, int]) -> tuple[Compilation, References]:
    dump, options = read_dump(flags.subject.path, binding), compile_options(flags, device)
    with progress("compiling"):
        compilation = compile_dump(dump, options, flags.seed)
    tell_compilation(compilation)
    return compilation, lambda: reference_of(dump, compilation.captured.tensors)


def compile_record(compilation: Compilation, stage: str | None) -> dict[str, Any]:
    """Return the JSON of `dplc compile`."""
    kernels = [_kernel_record(kernel) | {"text": kernel.text} for kernel in compilation.cuda_kernels]
    record: dict[str, Any] = {"kernels": kernels, "timings": compilation.timings, "target": compilation.target.arch}
    if stage is not None:
        record["ir"] = compilation.ir(stage)
    if compilation.origins:
        record["schedules"] = [origin.record() for origin in compilation.origins]
    if compilation.trace:
        record["trace"] = [event.record() for event in compilation.trace.events]
    return record


def _kernel_record(kernel: CudaKernel) -> dict[str, Any]:
    return {"name": kernel.name, "grid": list(kernel.grid), "block": kernel.block, "smem": kernel.smem}


def benched(compilation: Compilation, flags: Flags, steps: BenchSteps, measuring: bool) -> BenchRecord:
    """Return the record of a benchmark. measuring: whether it measures on a GPU."""
    return bench_program(compilation, flags.text.strip(), steps, teller(), measuring and can_measure())


def teller() -> Callable[[str], None]:
    """Return a function that shows the current activity on one line of a terminal, and nowhere else."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[K{text}", end="\r", file=sys.stderr, flush=True)


def report_run(
    compilation: Compilation, device: str, out: Path | None, as_json: bool,
    references: References | None = None, table: tuple[BenchRecord, TableLayout] | None = None,
) -> None:  # fmt: skip
    """Run a compilation and print its difference from float64. Raises DplcError if that is too large.

    references: by default those of the capture. table: the benchmark of the program.
    """
    compiled, captured, inputs = Compiled(compilation, device), compilation.captured, dict[str, Any]()
    if device.startswith("cuda") and compiled.executor:  # which says what is missing
        inputs = {name: tensor.to(memory_of(device)) for name, tensor in captured.tensors.items()}
    start = time.perf_counter()
    with progress(f"running on {device}"):
        results = compiled.run(inputs)
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
    elapsed = time.perf_counter() - start
    found = _judged(captured, results, references or (lambda: run_reference(captured, captured.tensors)))
    if out is not None:
        save_outputs(out, results)
    for note in (*compiled.notes, *found.notes):
        print_remark(note)
    kernels = compilation.cuda_kernels if device != "reference" else ()
    if as_json:
        record = {"ok": found.ok, "device": device, "kernels": [*map(_kernel_record, kernels)], **judged_record(found)}
        if compilation.origins:
            record["schedules"] = [origin.record() for origin in compilation.origins]
        if table is not None:
            record["bench"] = msgspec.to_builtins(table[0])
        print_json(record)
    else:
        for kernel in kernels:
            grid = " x ".join(map(str, kernel.grid))
            write(f"kernel {kernel.name}: grid {grid}, {kernel.block} threads, {kernel.smem} bytes of shared memory\n")
        took = f"device {device}: {elapsed * 1e3:.1f} ms, building included"
        write_lines(*outputs_told(results), took, judged_line(found, compilation.since))
        if table is not None:
            print_table(table[0], not sys.stdout.isatty(), table[1])
    if not found.ok:
        off = f"the result is off by {found.relative:.2e} of the largest value"
        raise DplcError(f"{off}; the gate is 1e-5, or twice eager's own error")


def _judged(captured: Capture, results: list[Any], references: References) -> Judgement:
    with progress("computing what it means"):
        return judge(results, references(), captured.reference)


def judged_record(found: Judgement) -> dict[str, Any]:
    """Return the JSON of a comparison with float64, with counts of elements if float64 did not decide all."""
    counts = {"wrong": found.wrong, "as_eager": found.as_eager, "unjudged": found.unjudged}
    return {"max_abs_err": found.absolute, "max_rel_err": found.relative} | (counts if any(counts.values()) else {})


def judged_line(found: Judgement, since: str) -> str:
    """Return the line of a comparison. since: the level of the program; Kernel IR means its text in checked mode."""
    reference = "the checked emulator" if since == "kernel" else "float64"
    largest = f"max|error| {found.absolute:.2e}, over max|reference| {found.relative:.2e}"
    return f"against {reference}: {largest}: {found.verdict}"


def outputs_told(results: Sequence[Any]) -> Iterator[str]:
    """Yield a line for each output: dtype and shape."""
    for place, value in enumerate(results):
        yield f"out{place}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def check_arrays_path(path: Path | None) -> None:
    """Raise UsageError if the file for the outputs has an extension other than that of numpy."""
    if path is not None and path.suffix != ".npz":
        raise UsageError(f"--out {path}: the name must end in .npz")


def save_outputs(path: Path, results: list[Any]) -> None:
    """Save outputs as out0, out1, .. in a numpy file, bf16 converted to f32, which numpy has. Raises DplcError."""
    import numpy as np

    found = (value.detach().cpu() for value in results)
    arrays = [(value.float() if value.dtype is torch.bfloat16 else value).numpy() for value in found]
    with writing(path, ARRAYS) as file:
        np.savez(file, **{f"out{place}": array for place, array in enumerate(arrays)})


# ---- run --check


LINE_WIDTH = 72
COST_TABLE = ("line", "access", "bytes", "requests", "cost", "ideal", "per request", "")


def _report_check(compilation: Compilation, flags: Flags, references: References) -> None:
    """Run the kernels in checked mode and report what it finds. Raises DplcError if it finds anything."""
    checker = CheckingExecutor(None if flags.blocks is None else tuple(map(str.strip, flags.blocks.split(","))))
    compiled, judged = Compiled(compilation, "emulator"), None
    compiled.executor = checker
    with contextlib.suppress(EmulatorError):  # a kernel that does not end is a finding
        with progress("running in checked mode"):
            results = compiled.run({})
        judged = _judged(compilation.captured, results, references)
    found, launches, plain = checker.findings, checker.launches, dataclasses.asdict
    if flags.as_json:
        kernels = [
            {"name": launch.kernel.name, "grid": list(launch.kernel.grid), "blocks": list(launch.blocks)}
            | {"whole": launch.whole}
            | {"sites": [plain(site) | {"unit": site.unit, "text": launch.line(site)} for site in launch.sites]}
            for launch in launches
        ]
        ok = judged is not None and judged.ok and not found
        print_json(
            {"ok": ok, "findings": [*map(plain, found)], "kernels": kernels, "orders": list(checker.orders)}
            | ({"max_abs_err": None, "max_rel_err": None} if judged is None else judged_record(judged))
        )
    else:
        for launch in launches:
            _print_launch(launch)
        if flags.blocks is None and not all(launch.whole for launch in launches):
            blocks = ", ".join(DEFAULT_BLOCKS)
            write(f"grids of more than {SMALL} threads: {blocks} blocks; `--blocks all` checks every one\n")
        if judged is not None:
            write_lines(*(f"note: {note}" for note in judged.notes), judged_line(judged, compilation.since))
        write(f"{len(found) or 'no'} finding{'' if len(found) == 1 else 's'}\n")
    if found:
        raise DplcError(f"checked mode found {len(found)} fault{'s' if len(found) > 1 else ''}")
    if judged is not None and not judged.ok:
        raise DplcError(f"the result is off by {judged.relative:.2e} of the largest value")


def _print_launch(launch: CheckedLaunch) -> None:
    """Print the cost of each access of a kernel, and the findings in it.

    Costs are 32-byte sectors of global memory and wavefronts of shared memory, per request of a warp.
    """
    kernel, blocks = launch.kernel, launch.blocks
    some = f"blocks {', '.join(map(str, blocks[:16]))}{', ..' if len(blocks) > 16 else ''} of {kernel.blocks}"
    which = f"all {kernel.blocks} blocks" if launch.whole else some
    write(f"kernel {kernel.name}: {which} of {kernel.block} threads, {len(ORDERS)} orders of threads\n")
    rows = []
    for site in sorted(launch.sites, key=lambda s: (s.line, s.access)):
        text = launch.line(site)
        short = text if len(text) <= LINE_WIDTH else text[: LINE_WIDTH - 2] + ".."
        each = f"{site.cost / site.requests:.2f} {site.unit}"
        rows.append((site.line, site.access, site.width, site.requests, site.cost, site.ideal, each, short))
    print_rows(COST_TABLE, rows, left=("access", ""))
    write("\n")
    for finding in launch.findings:
        order = ("forwards", "backwards", "shuffled")[min(finding.order, 2)]
        write_lines(
            f"FOUND {finding.message}", f"  threads started {order}", *(f"  {line}" for line in finding.lines), ""
        )
