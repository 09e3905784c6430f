"""compile, run and rewrite."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ...codegen.target import target as find_target
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ...ir.program import Kernel
from ...ir.text.print import print_program
from ...ir.text.read import read_program
from ..api import Compiled, choose_device, default_target_name
from ..compiler import STAGES, Compilation, compile_captured
from ..front.text import capture_text
from ..match.passes import names_of, only as only_steps, run_pipeline
from ..match.trace import Trace
from ..reference import accepted, errors, run_reference
from ..toolchain import Toolchain, read_settings, toolchain
from .show import print_note, print_text

Levels = ("loop", "tile", "kernel")


def compile_expression(
    text: str, ir: str | None, target: str | None, verbose: int, as_json: bool, rules: list[Path], settings: list[str], seed: int
) -> None:
    """`dplc compile`"""
    stage = _stage(ir or "cuda")
    compilation = _compile(text, target, rules, settings, seed, trace=verbose > 0)
    if as_json:
        kernels = [_kernel_record(k) | {"text": k.text} for k in compilation.cuda_kernels]
        print(json.dumps({"kernels": kernels, "timings": compilation.timings, "target": compilation.target.arch}, indent=2))
        return
    if verbose and compilation.trace is not None:
        print_text(compilation.trace.render(verbose), "diff")
    print_text(compilation.ir(stage), "cuda" if stage == "cuda" else "ir")


def run_expression(
    text: str, device: str | None, seed: int, out: Path | None, as_json: bool, target: str | None, rules: list[Path],
    settings: list[str], verbose: int,
) -> None:  # fmt: skip
    """`dplc run`"""
    chosen = choose_device(device)
    compilation = _compile(text, target or default_target_name(chosen), rules, settings, seed, trace=verbose > 0)
    if verbose and compilation.trace is not None:
        print_text(compilation.trace.render(verbose), "diff")
    compiled = Compiled(compilation, chosen)
    captured = compilation.captured
    start = time.perf_counter()
    results = compiled.run({})
    elapsed = time.perf_counter() - start
    references = run_reference(captured, captured.tensors)
    absolute, relative = errors(results, references)
    ok = accepted(results, references, captured.reference)
    if out is not None:
        _save(out, results)
    for note in compiled.notes:
        print_note(f"note: {note}")
    if as_json:
        kernels = [_kernel_record(k) for k in compilation.cuda_kernels]
        print(json.dumps({"ok": ok, "device": chosen, "kernels": kernels, "max_abs_err": absolute, "max_rel_err": relative}, indent=2))
    else:
        _print_run(compilation, chosen, results, elapsed, absolute, relative, ok)
    if not ok:
        raise DplcError(f"the result is off by {relative:.2e} of the largest value; the gate is 1e-5, or twice eager's own error")


def _print_run(
    compilation: Compilation, device: str, results: list[Any], elapsed: float, absolute: float, relative: float, ok: bool
) -> None:
    kernels = compilation.cuda_kernels if device != "reference" else ()
    for kernel in kernels:
        grid = " x ".join(map(str, kernel.grid))
        print(f"kernel {kernel.name}: grid {grid}, {kernel.block} threads, {kernel.smem} bytes of shared memory")
    for place, value in enumerate(results):
        print(f"out{place}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}")
    print(f"device {device}: {elapsed * 1e3:.1f} ms, building included")
    print(f"against float64: max|error| {absolute:.2e}, over max|reference| {relative:.2e}: {'ok' if ok else 'WRONG'}")


def _save(path: Path, results: list[Any]) -> None:
    import numpy as np

    if path.suffix != ".npz":
        raise UsageError(f"--out {path}: the name must end in .npz")
    try:
        with path.open("wb") as file:
            np.savez(file, **{f"out{place}": value.detach().cpu().numpy() for place, value in enumerate(results)})
    except OSError as error:
        raise DplcError(f"cannot write {path}: {error.strerror}") from None


def rewrite_program(
    file: Path | None, text: str | None, trace: bool, only: list[str], settings: list[str], rules: list[Path], target: str | None, seed: int
) -> None:
    """`dplc rewrite`: of an expression, everything from capture on; of a dump, the passes of its level and those after it."""
    events = Trace() if trace or text is not None else None
    if text is not None:
        compilation = _compile(text, target, rules, settings, seed, trace=True, only=only)
        assert compilation.trace is not None
        if trace:
            print_text(compilation.trace.render(2), "diff")
        else:
            print_text(compilation.ir("tile"), "ir")
        return
    assert file is not None
    try:
        content = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DplcError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    level, units = read_program(content, str(file))
    tools = _tools(rules, settings)
    units = _rewrite_units(level, units, tools, only, target, events)
    if events is not None:
        print_text(events.render(2), "diff")
    else:
        print_text(print_program(units), "ir")


def _rewrite_units(level: str | None, units: tuple[Any, ...], tools: Toolchain, only: list[str], target: str | None, trace: Trace | None) -> Any:
    from .graphs import rewrite_tensor_graph

    machine = find_target(target)
    if not all(isinstance(unit, Kernel) for unit in units):
        return rewrite_tensor_graph(level, units, tools, machine, trace)
    for pipeline in ("kernel",) if level == "kernel" else ("loop", "tile"):
        steps = tools.pipelines[pipeline]
        if only:
            steps = only_steps(steps, [name for name in only if _concerns(steps, name)])
        units = run_pipeline(tools.engine, steps, units, machine, trace.at(pipeline) if trace is not None else None)
    return units


def _concerns(steps: Any, name: str) -> bool:
    return any(name in names_of(s) for s in steps)


def _compile(text: str, target: str | None, rules: list[Path], settings: list[str], seed: int, trace: bool, only: list[str] | None = None) -> Compilation:
    machine = find_target(target)
    tools = _tools(rules, settings)
    if only:
        tools = tools.only(only)
    start = time.perf_counter()
    captured = capture_text(text, seed)
    elapsed = (time.perf_counter() - start) * 1e3
    return compile_captured(captured, tools, machine, Trace() if trace else None, elapsed)


def _tools(rules: list[Path], settings: list[str]) -> Toolchain:
    tools = toolchain(rules)
    return toolchain(tools.rules, read_settings(settings, tools.rules)) if settings else tools


def _stage(name: str) -> str:
    if name not in STAGES:
        raise UsageError(f"--ir {name}: there is no such stage", notes=(f"stages are {', '.join(STAGES)}",), hint=did_you_mean(name, STAGES))
    return name


def _kernel_record(kernel: Any) -> dict[str, Any]:
    return {"name": kernel.name, "grid": list(kernel.grid), "block": kernel.block, "smem": kernel.smem}
