"""Whether the plan of an artefact agrees with itself, and with the buffers that kernels were found to take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

from ...codegen.kernel import POINTER_ALIGNMENT, Program
from ...codegen.memory_plan import lifetimes
from ...codegen.target import target
from ...ir.diagnostic import DplcError
from ...ir.dtypes import DTYPES
from .plan_file import PlanFile


def check_plan(plan: PlanFile, program: Program, path: Path) -> None:
    """Raises DplcError, naming the field, for the first thing that does not fit. path: of the plan."""
    problems = itertools.chain(_arch(plan), _results(plan), _weights(plan), _tokens(plan), _arena(program))
    for problem in problems:
        raise DplcError(f"the artefact is damaged: {path}: {problem}")


def _arch(plan: PlanFile) -> Iterator[str]:
    try:
        target(plan.arch)
    except DplcError as error:
        yield f"`arch`: {error.what}"


def _results(plan: PlanFile) -> Iterator[str]:
    if len(plan.results) != len(plan.outputs):
        yield f"`results` has {len(plan.results)} entries for {len(plan.outputs)} outputs"
    for output, result in zip(plan.outputs, plan.results, strict=False):
        if (output.dtype, math.prod(output.shape)) != (result.dtype, math.prod(result.shape)):
            yield f"`results`: {result.dtype}{list(result.shape)} is not what output `{output.name}` holds"


def _weights(plan: PlanFile) -> Iterator[str]:
    known = {buffer.name: buffer for buffer in plan.constants}
    for weight in plan.weights:
        buffer = known.pop(weight.buffer, None)
        if buffer is None:
            yield f"`weights`: `{weight.buffer}` is no constant of the program, or is there twice"
        elif (buffer.dtype, math.prod(buffer.shape)) != (weight.dtype, math.prod(weight.shape)):
            yield f"`weights`: {weight.dtype}{list(weight.shape)} is not what constant `{weight.buffer}` holds"


def _tokens(plan: PlanFile) -> Iterator[str]:
    if not plan.inputs:
        yield "`inputs` is empty"
    elif not isinstance(words := plan.config.get("vocab_size", 2), int) or not 0 < words < 2**31:
        yield f"`config`: vocab_size is {words!r}"
    elif len(plan.inputs) == 1 and math.prod(plan.inputs[0].shape) != plan.length * plan.batch:
        yield f"`inputs`: {list(plan.inputs[0].shape)} is no {plan.batch} x {plan.length} tokens"


def _arena(program: Program) -> Iterator[str]:
    """Every temporary lies within the arena, aligned, and apart from all that live when it does."""
    assert program.arena is not None
    offsets, lives = program.arena.offsets, lifetimes(program)
    names = {buffer.name for buffer in program.temporaries}
    if offsets.keys() != names:
        yield f"`offsets`: `{sorted(offsets.keys() ^ names)[0]}` is a temporary without an offset, or no temporary"
        return
    placed: list[tuple[int, int, str]] = []
    for buffer in program.temporaries:
        start = offsets[buffer.name]
        end = start + math.prod(buffer.shape) * DTYPES[buffer.dtype].item_bytes
        if start % POINTER_ALIGNMENT or end > program.arena.bytes:
            yield f"`offsets`: `{buffer.name}` at {start} to {end} of {program.arena.bytes} bytes"
        if buffer.name in lives:
            placed.append((start, end, buffer.name))
    placed.sort()
    for place, (start, end, name) in enumerate(placed):
        for begin, until, other in placed[place + 1 :]:
            if begin >= end:
                break
            if until > start and lives[name][0] <= lives[other][1] and lives[other][0] <= lives[name][1]:
                yield f"`offsets`: `{name}` and `{other}` share bytes at one launch"
