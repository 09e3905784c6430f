"""A `-c` text as a model: no configuration, no weight files; what its modules hold are constants of the artefact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import torch

from ...ir.diagnostic import DplcError
from ...ir.dtypes import COMPUTING_FLOATS
from ...ir.schemas import DTYPES
from ..capture.capture import Capture
from ..compiler import CompileOptions
from .capturing import CapturedModel
from .compiling import CompiledModel, ModelShape, compile_call
from .extents import extent_at
from .plan_file import FURTHEST, BufferRecord, ExampleRecord, result_record
from .sources import ModelSource
from .weights import Tell, silent

LONGEST = 60  # characters of a text that name it


def compile_text(
    text: str, capture: Callable[[], Capture], options: CompileOptions, tell: Tell = silent
) -> CompiledModel:
    """Compile a text for an artefact. capture: of the text.

    Raises DplcError for one without inputs, and for one that reads their memory by strides.
    """
    line = " ".join(text.split())
    source = ModelSource(line if len(line) <= LONGEST else line[: LONGEST - 2] + "..", {})
    made = compile_call(source, ModelShape(0, 0), lambda: CapturedModel(_fit(capture()), {}), options, tell)
    held = sum(buffer.nbytes for buffer in made.program.constants)
    told = msgspec.structs.replace(made.figures, weight_bytes=held)
    return replace(made, shape=ModelShape(0, 0, _coarsest(made.compilation.captured)), figures=told)


def _fit(captured: Capture) -> Capture:
    """The program as an artefact has it: weights stay as they are. Raises DplcError for what none can be of."""
    if not captured.inputs:
        raise DplcError("the text has no inputs: an artefact would give the same at every run")
    if captured.strides:
        name = next(iter(captured.strides))
        raise DplcError(f"an artefact's inputs are in order, and this text reads the memory of `{name}` by strides")
    return replace(captured, folds=False)


def _coarsest(captured: Capture) -> str:
    """The dtype of floats, of those that the program takes and computes, that rounds most: results are judged by it."""
    kinds = {kind.dtype for kind in (*captured.graph.ins, *captured.graph.outs)}
    floats = [name for name in COMPUTING_FLOATS if name in kinds]
    return max(floats, key=lambda name: torch.finfo(getattr(torch, DTYPES[name])).eps, default="f32")


def examples(captured: Capture) -> tuple[ExampleRecord, ...]:
    """The inputs of a text, for a plan."""
    given = [param for param in captured.graph.ins if captured.kinds[param.name] == "input"]
    return tuple(_example(result_record(param.name, param), captured.tensors[param.name]) for param in given)


def _example(record: BufferRecord, tensor: Any) -> ExampleRecord:
    low, high = _ends(tensor)
    return ExampleRecord(record.name, record.dtype, record.shape, low, high)


def _ends(tensor: Any) -> tuple[float, float]:
    """The least and the greatest element that is finite; 0 and 1 where there is none."""
    found = tensor.detach().double()
    found = found[found.isfinite()].clamp(-FURTHEST, FURTHEST)
    return (float(found.min()), float(found.max())) if found.numel() else (0.0, 1.0)


def drawn(records: Sequence[ExampleRecord], sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """{input: tensor} at a binding of the sizes, the same for the same seed; elements are evenly spread between the
    ends of a record."""
    generator, made = torch.Generator().manual_seed(seed), {}
    for record in records:
        dtype = getattr(torch, DTYPES[record.dtype])
        shape = [extent_at(n, sizes) for n in record.shape]
        spread = torch.rand(shape, generator=generator, dtype=torch.double)
        room = record.high - record.low
        values = spread * room if dtype.is_floating_point else (spread * (room + 1)).floor()
        made[record.name] = (record.low + values).to(dtype)
    return made
