"""compile and run."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...codegen.kernel import CudaKernel
from ...ir.diagnostic import DplcError, UsageError
from ..api import Compiled, choose_device
from ..bench.bench import BenchSteps
from ..bench.records import BenchRecord
from ..bench.tables import TableLayout, print_table
from ..compiler import Compilation
from ..run.judge import Judgement, judge, run_reference
from .bench_command import command_line
from .bindings import alone, bindings, drawn_at, told
from .compiling import captured_text, compile_text, print_stage, print_trace, stage_named
from .options import Flags
from .output_file import ARRAYS, writing
from .show import print_json, print_note, progress, write


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


def kernel_table(
    compilation: Compilation, flags: Flags, device: str, bench: str
) -> tuple[BenchRecord, TableLayout] | None:
    """The table of `run --bench` and `--profile`. bench: which, "" for none."""
    if not bench:
        return None
    from .expression_bench import benched, layout

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
