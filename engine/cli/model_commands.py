"""compile of whole models, and of texts as artefacts."""

from __future__ import annotations

import contextlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...ir.diagnostic import UsageError
from ...ir.expr import Size
from ..capture.capture import Capture
from ..capture.sizes import Dim
from ..capture.text import capture_text
from ..models import artefact, weights
from ..models.capturing import capture_results
from ..models.compiling import CompiledModel, ModelShape, compile_model, with_rows
from ..models.module import build
from ..models.sources import ModelSource, find
from ..models.texts import compile_text
from ..models.weights import Tell
from .compiling import (
    compile_options,
    float_named,
    print_schedules,
    print_stage,
    print_trace,
    stage_named,
)
from .options import Flags
from .show import bars, print_json, print_remark, write


def source_of(model: str) -> ModelSource:
    """The configuration of a model, with a remark on where that of an id comes from. Raises DplcError."""
    return find(model, print_remark)


def shape_of(flags: Flags) -> ModelShape:
    """The shape of `--seq-len`, `--batch`, `--layers` and `--dtype`. Raises UsageError."""
    if str(flags.length) == "0":
        raise UsageError("--seq-len 0: a sequence has at least one token")
    length, batch = extent("--seq-len", str(flags.length), "s"), extent("--batch", flags.batch, "b")
    return ModelShape(length, batch, float_named(flags.dtype) or "f32", flags.layers)


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


def rows_of(flags: Flags, size: Any) -> Any:
    """What `--rows` says of a length, as `dplc.compile` takes rows: the numbers where they end, or `none`.

    size: the length, a Dim or a Size; anything else where there is none, or several. Raises UsageError.
    """
    text = (flags.rows or "").strip()
    if not text or text == "none":
        return not text
    ends = [int(end) for end in text.split(",")] if re.fullmatch(r"\d{1,9}(\s*,\s*\d{1,9})*", text) else []
    if not ends or ends != sorted(set(ends)):
        raise UsageError(f"--rows {text}: write the numbers where rows end, 1,64,512, or none")
    if not isinstance(size, (Dim, Size)):
        raise UsageError("--rows goes with one range of lengths", hint="--seq-len 1..4096, or `dim(s, 1..4096)` in -c")
    lows = [size.low, *(end + 1 for end in ends)]
    return [Dim(size.name, low, high) for low, high in zip(lows, ends, strict=False)]


def compiled_model(model: str, flags: Flags, tell: Tell) -> CompiledModel:
    """Raises DplcError for a model that is not there or cannot be compiled."""
    shape = shape_of(flags)
    made = compile_model(source_of(model), shape, compile_options(flags), rows_of(flags, shape.length), tell)
    print_schedules(made.compilation)
    return made


def captured_model(model: str, flags: Flags) -> Capture:
    """A model as a program, its weights left out. Raises DplcError for one that is not there or cannot be captured."""
    shape = shape_of(flags)
    return capture_results(build(source_of(model), shape.dtype, shape.layers), shape.length, shape.batch).captured


def compile_command(
    model: str, flags: Flags, folder: Path | None, out: Path | None, cubins: bool, ir: str | None
) -> None:
    """`dplc compile MODEL`. folder: of weights to check the model against; out: where the artefact goes."""
    stage = None if ir is None else stage_named(ir)
    with bars() as tell:
        compiled = compiled_model(model, flags, tell)
        if folder is not None:
            weights.check(folder, compiled.weights)
        if out is not None:
            artefact.save(compiled, out, cubins, folder, tell)
    print_row_schedules(compiled)
    _print(compiled, flags, stage, out)


def compile_text_command(flags: Flags, out: Path, cubins: bool, ir: str | None) -> None:
    """`dplc compile -c TEXT -o DIR`"""
    stage = None if ir is None else stage_named(ir)

    def capture() -> Capture:
        with contextlib.redirect_stdout(sys.stderr):  # ours is for results
            return capture_text(flags.text, flags.seed, float_named(flags.dtype), values=False)

    with bars() as tell:
        made_with = compile_options(flags)
        compiled = compile_text(flags.text, capture, made_with, tell)
        length = next(iter(compiled.sizes.values())) if len(compiled.sizes) == 1 else None
        compiled = with_rows(compiled, made_with, rows_of(flags, length))
        artefact.save(compiled, out, cubins, None, tell)
    print_schedules(compiled.compilation)
    print_row_schedules(compiled)
    _print(compiled, flags, stage, out)


def print_row_schedules(compiled: CompiledModel) -> None:
    """Of each row that was compiled: how many of its schedules a store decided."""
    for row, made in compiled.rows.made.items() if compiled.rows is not None else ():
        count = sum(bool(origin.line) for origin in made.origins)
        if count:
            told = " and ".join(f"`{dim.name}` {dim.range}" for dim in row)
            print_remark(f"row {told}: {count} of {len(made.origins)} schedules are from the store")


def _print(compiled: CompiledModel, flags: Flags, stage: str | None, out: Path | None) -> None:
    if flags.as_json:
        print_json(_record(compiled, stage, out))
        return
    print_trace(compiled.compilation, flags)
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
    whole = bool(compiled.source.config)
    what = f"{layers}, {compiled.told}, {shape.dtype}" if whole else compiled.told
    blocks = f", at most {found.per_block} in a block" if whole else ""
    times = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in found.seconds.items())
    lines = [
        f"{compiled.source.name}: {what}, for {target.name} ({target.arch})",
        f"  launches       {found.launches}{blocks}",
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
