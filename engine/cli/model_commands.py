"""compile and run of whole models."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...codegen.launch import CudaExecutor, Executor
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ...ir.dtypes import FLOATS
from ..api import choose_device
from ..capture.sizes import Dim
from ..models import artefact, weights
from ..models.artefact import Artefact
from ..models.checking import compare, emulator
from ..models.compiling import CompiledModel, CompileOptions, ModelShape, compile_model
from ..models.running import ModelRunner
from ..models.sources import find
from ..models.weights import Tell
from .commands import save_outputs
from .compiling import (
    fusing_for,
    machine_for,
    print_schedules,
    print_stage,
    print_trace,
    schedules_for,
    stage_named,
    tools_for,
    trace_for,
)
from .options import Options
from .show import bars, print_json, print_note, write


def shape_of(options: Options) -> ModelShape:
    """The shape of `--seq-len`, `--batch`, `--layers` and `--dtype`. Raises UsageError."""
    dtype = options.dtype or "f32"
    if dtype not in FLOATS:
        raise UsageError(
            f"--dtype {dtype}: there is no such dtype here",
            notes=(f"dtypes are {', '.join(FLOATS)}",),
            hint=did_you_mean(dtype, FLOATS),
        )
    if str(options.length) == "0":
        raise UsageError("--seq-len 0: a sequence has at least one token")
    length, batch = extent("--seq-len", str(options.length), "s"), extent("--batch", options.batch, "b")
    return ModelShape(length, batch, dtype, options.layers)


def extent(option: str, text: str, name: str) -> int | Dim:
    """`32`, or `1..4096` and `1..4096:512` for a length that is known at a call, which is 512 as a rule.

    name: of the size. Raises UsageError.
    """
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9})(?::(\d{1,9}))?)?", text.strip())
    if found is None or int(found[1]) < 1:
        raise UsageError(f"{option} {text}: write 32, or 1..4096, or 1..4096:512 for 512 as a rule")
    if found[2] is None:
        return int(found[1])
    dim = Dim(name, int(found[1]), int(found[2]), hint=int(found[3]) if found[3] else None)
    return replace(dim, hint=dim.size().hint)


def _check_fixed(options: Options) -> None:
    """Raises UsageError for ranges where an artefact is written."""
    shape = shape_of(options)
    if isinstance(shape.length, Dim) or isinstance(shape.batch, Dim):
        raise UsageError("-o: an artefact is of one length: give --seq-len and --batch as numbers")


def compile_options(options: Options, tell: Tell, device: str | None = None) -> CompileOptions:
    """What a model is compiled with."""
    tools, machine, schedules = tools_for(options), machine_for(options, device), schedules_for(options)
    return CompileOptions(tools, machine, tell, trace_for(options), schedules, fusing_for(options, tools, machine))


def compiled_model(model: str, options: Options, tell: Tell) -> CompiledModel:
    """Raises DplcError for a model that is not there or cannot be compiled."""
    made = compile_model(find(model), shape_of(options), compile_options(options, tell))
    print_schedules(made.compilation)
    return made


def compile_command(
    model: str, options: Options, folder: Path | None, out: Path | None, cubins: bool, ir: str | None
) -> None:
    """`dplc compile MODEL`. folder: of weights to check the model against; out: where the artefact goes."""
    stage = None if ir is None else stage_named(ir)
    if out is not None:
        _check_fixed(options)
    with bars() as tell:
        compiled = compiled_model(model, options, tell)
        if folder is not None:
            weights.check(folder, compiled.weights)
        if out is not None:
            artefact.save(compiled, out, cubins, folder, tell)
    if options.as_json:
        print_json(_record(compiled, stage, out))
        return
    print_trace(compiled.compilation, options)
    if stage is not None:
        print_stage(compiled.compilation, stage)
        return
    write(report(compiled))
    if out is not None:
        write(f"artefact: {out}\n")


def report(compiled: CompiledModel) -> str:
    """The figures of a compile, for people."""
    shape, target, found = compiled.shape, compiled.compilation.target, compiled.figures
    layers = "all layers" if shape.layers is None else f"{shape.layers} layer{'s' * (shape.layers > 1)}"
    times = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in found.seconds.items())
    lines = [
        f"{compiled.source.name}: {layers}, {shape.told}, {shape.dtype}, for {target.name} ({target.arch})",
        f"  launches       {found.launches}, at most {found.per_block} in a block",
        f"  kernels        {found.kernels} distinct, {found.cuda_lines} lines of CUDA",
        f"  weights        {size(found.weight_bytes)}",
        f"  peak memory    {size(found.planned_bytes)} planned; eager at least {size(found.eager_bytes)}"
        " (computed; both beside weights, inputs and outputs)",
        f"  seconds        {times}",
        f"  this process   held at most {size(found.rss_bytes)}",
    ]
    return "\n".join(lines) + "\n"


def size(count: int) -> str:
    """Bytes, for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


def _record(compiled: CompiledModel, stage: str | None, out: Path | None) -> dict[str, Any]:
    import msgspec

    record: dict[str, Any] = {
        "model": compiled.source.name,
        "target": compiled.compilation.target.arch,
        "figures": msgspec.to_builtins(compiled.figures),
        "timings": compiled.compilation.timings,
        "kernels": [kernel.name for kernel in compiled.compilation.cuda_kernels],
    }
    if stage is not None:
        record["ir"] = compiled.compilation.ir(stage)
    if out is not None:
        record["artefact"] = str(out)
    return record


def run_command(
    folder: Path, given: Path | None, ids: str | None, device: str | None, seed: int, out: Path | None, as_json: bool,
    trust: bool = False,
) -> None:  # fmt: skip
    """`dplc run DIR`. given: the folder of weights, else that of the compile, else weights are made up.

    trust: take CUDA that dplc did not print.
    """
    chosen = choose_device(device)
    if out is not None and out.suffix != ".npz":
        raise UsageError(f"--out {out}: the name must end in .npz")
    with bars() as tell:
        tell("reading the artefact", 0, 1)
        found = artefact.load(folder, trust)
        tokens = _tokens(found, ids, seed)
        constants, whose = _weights(found, given, seed, tell)
        start = time.perf_counter()
        tell(f"running on {chosen}", 0, 1)
        results = _run(found, chosen, constants, tokens)
        elapsed = time.perf_counter() - start
        tell("comparing with float64", 0, 1)
        compared = compare(found, {**constants, **tokens}, results)
    if out is not None:
        save_outputs(out, results)
    if as_json:
        print_json({"model": found.plan.model, "device": chosen, "seconds": elapsed, **compared.record()})
    else:
        lines = [f"{found.plan.model}: {whose}"]
        lines += [
            f"out{place}: {str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for place, v in enumerate(results)
        ]
        lines.append(f"device {chosen}: {elapsed * 1e3:.1f} ms, building and placing weights included")
        lines.append(compared.line())
        write("\n".join(lines) + "\n")
    if not compared.ok:
        raise DplcError(f"the result is wrong: {compared.line()}")


def _tokens(found: Artefact, ids: str | None, seed: int) -> dict[str, Any]:
    """The inputs: `--ids`, else drawn. Raises UsageError for another number of tokens, or for anything else."""
    if len(found.plan.inputs) != 1:
        raise DplcError(f"{found.folder} takes {len(found.plan.inputs)} inputs: only a model of tokens can be run so")
    (buffer,) = found.plan.inputs
    words = found.plan.config.get("vocab_size", 2)
    shape = (found.plan.batch, found.plan.length)
    if ids is None:
        return {buffer.name: drawn_tokens(found.plan.config, *shape, seed)}
    parts = ids.replace(",", " ").split()
    if not all(part.isdigit() and int(part) < words for part in parts):
        raise UsageError(f"--ids {ids}: numbers from 0 to {words - 1} are expected")
    if len(parts) != shape[0] * shape[1]:
        raise UsageError(f"--ids has {len(parts)} tokens; {found.folder} was compiled for {shape[0] * shape[1]}")
    return {buffer.name: torch.tensor([int(part) for part in parts]).reshape(shape)}


def drawn_tokens(config: Mapping[str, Any], batch: int, length: int, seed: int = 0) -> Any:
    """Tokens of a model, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.get("vocab_size", 2), (batch, length), generator=generator)


def _weights(found: Artefact, given: Path | None, seed: int, tell: Tell) -> tuple[dict[str, Any], str]:
    """All constants of the program, and whose weights they are."""
    folder = given or (Path(found.plan.weights_from) if found.plan.weights_from else None)
    if folder is None:
        print_note("note: no weights were given (--weights DIR): they are made up")
        return {**found.constants, **weights.make(found.weights, seed)}, f"made-up weights, seed {seed}"
    return {**found.constants, **weights.load(folder, found.weights, tell)}, f"weights of {folder}"


def _run(found: Artefact, device: str, constants: dict[str, Any], tokens: dict[str, Any]) -> list[Any]:
    if device == "reference":
        from ...ir.interp import torch as meaning

        return list(meaning.run(found.torch_graph(), {**constants, **tokens}))
    runner: Executor = CudaExecutor(images=found.images()) if device == "cuda" else emulator()
    if device == "cuda":
        constants, tokens = ({n: t.cuda() for n, t in given.items()} for given in (constants, tokens))
    results = ModelRunner(found.program, found.outputs, runner, constants).run(tokens)
    return [result.cpu() for result in results]
