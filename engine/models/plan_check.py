"""Whether the plan of an artefact agrees with itself, and with the buffers that kernels were found to take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...codegen.cuda import bound
from ...codegen.kernel import POINTER_ALIGNMENT, CudaKernel, Program, lifetimes
from ...codegen.target import target
from ...ir.diagnostic import DplcError
from ...ir.dtypes import DTYPES
from ...ir.program import Kernel
from ...ir.sizes import sizes_in
from .extents import extent_at
from .inputs import vocabulary
from .plan_file import FURTHEST, BufferRecord, ConditionRecord, PlanFile, SizeRecord


def check_plan(
    plan: PlanFile, program: Program, units: Mapping[str, Kernel], kernels: Mapping[str, CudaKernel], path: Path
) -> None:
    """Raises DplcError, naming the field, for the first thing that does not fit.

    program: at the hints; units, kernels: of `kernels_of`; path: of the plan.
    """
    problems = itertools.chain(
        _arch(plan), _sizes(plan, units), _results(plan, program, plan.hints), _weights(plan), _tokens(plan),
        _arena(program), _ends(plan, units, kernels),
    )  # fmt: skip
    _raise_first(problems, path)


def check_rows(whole: PlanFile, rows: Sequence[PlanFile], path: Path) -> None:
    """Raises DplcError where a row cannot serve what the table gives it: other tokens, results or weights than the plan
    of the whole range has. path: of that plan."""
    _raise_first((f"row {n}: {p}" for n, row in enumerate(rows) for p in _row(whole, whole.rows[n].when, row)), path)


def _raise_first(problems: Iterator[str], path: Path) -> None:
    try:
        problem = next(problems, None)
    except DplcError as error:
        problem = error.what
    if problem is not None:
        raise DplcError(f"the artefact is damaged: {path}: {problem}")


def _sizes(plan: PlanFile, units: Mapping[str, Kernel]) -> Iterator[str]:
    """The sizes of kernels are those of the plan, and offsets are planned for a binding."""
    known = {record.name: record.size() for record in plan.sizes}
    if len(known) != len(plan.sizes):
        yield "`sizes`: a name is there twice"
    for unit in units.values():
        for name, size in sizes_in(unit).items():
            if known.get(name) is not size:
                yield f"`sizes`: `{name}` has another range in kernel `{unit.name}`, or is no size"
    if plan.sizes and (plan.offsets or plan.arena_bytes or plan.aliases):
        yield "`offsets`, `arena_bytes`, `aliases`: of a plan with sizes there are none"


def _ends(plan: PlanFile, units: Mapping[str, Kernel], kernels: Mapping[str, CudaKernel]) -> Iterator[str]:
    """A plan with sizes agrees with its kernels at the ends of their ranges, too."""
    for sizes in _corners(plan.sizes) if plan.sizes else ():
        program = plan.program({name: bound(unit, kernels[name], sizes) for name, unit in units.items()}, sizes)
        yield from _results(plan, program, sizes)
        yield from _arena(program)


def _corners(ranges: Sequence[ConditionRecord]) -> list[dict[str, int]]:
    """All sizes at their least numbers, and all at their greatest."""
    low = {n.name: -(-n.low // n.multiple) * n.multiple for n in ranges}
    return [low, {n.name: n.high // n.multiple * n.multiple for n in ranges}]


def _row(whole: PlanFile, when: tuple[ConditionRecord, ...], row: PlanFile) -> Iterator[str]:
    own, sizes = {n.name: n for n in row.sizes}, {n.name: n for n in whole.sizes}
    if row.rows or len({c.name for c in when}) != len(when) or not own.keys() | {c.name for c in when} <= sizes.keys():
        yield "rows within rows, or sizes that the whole has not"
        return
    asked = {**sizes, **{condition.name: condition for condition in when}}
    for name, condition in asked.items():
        if not _holds(sizes[name], condition):
            yield f"`{name}` is {condition.low}..{condition.high}, which is no part of its range"
        elif name in own and not _holds(own[name], condition):
            yield f"`{name}` is {own[name].low}..{own[name].high} in its plan, which is not enough"
        elif name not in own and condition.low != condition.high:
            yield f"`{name}` is a number in its plan"
    for corner in _corners(tuple(asked.values())):
        for field in ("inputs", "outputs", "results"):
            if _at(getattr(whole, field), corner) != _at(getattr(row, field), corner):
                yield f"`{field}` are others than those of the whole range"
        if [b.name for b in whole.inputs] != [b.name for b in row.inputs]:
            yield "`inputs` have other names than those of the whole range"
        if whole.tokens_at(corner) != row.tokens_at(corner):
            yield "it is for another number of tokens"
    weights = whole.wanted()
    if any(weights.get(name) != want for name, want in row.wanted().items()):
        yield "`weights`: the whole range takes others"
    if (row.dtype, row.arch, row.config) != (whole.dtype, whole.arch, whole.config):
        yield "it is of another model, or for another device"


def _holds(outer: SizeRecord, inner: ConditionRecord) -> bool:
    """Whether a range has all numbers of another, of which there are some."""
    least = -(-inner.low // inner.multiple) * inner.multiple
    return outer.low <= inner.low and least <= inner.high <= outer.high and inner.multiple % outer.multiple == 0


def _at(records: Sequence[BufferRecord], sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """What of each buffer is the same in all plans: a row of one length drops a dimension of one element."""
    return [(b.dtype, math.prod(extent_at(n, sizes) for n in b.shape)) for b in records]


def _arch(plan: PlanFile) -> Iterator[str]:
    try:
        target(plan.arch)
    except DplcError as error:
        yield f"`arch`: {error.what}"


def _results(plan: PlanFile, program: Program, sizes: Mapping[str, int]) -> Iterator[str]:
    if len(plan.results) != len(plan.outputs):
        yield f"`results` has {len(plan.results)} entries for {len(plan.outputs)} outputs"
    for output, result in zip(program.outputs, plan.results, strict=False):
        shape = [extent_at(n, sizes) for n in result.shape]
        if (output.dtype, output.size) != (result.dtype, math.prod(shape)):
            yield f"`results`: {result.dtype}{shape} is not what output `{output.name}` holds"


def _weights(plan: PlanFile) -> Iterator[str]:
    known: dict[str, BufferRecord] = {buffer.name: buffer for buffer in plan.constants}
    for constant in plan.constants:
        if any(not isinstance(n, int) for n in constant.shape):
            yield f"`constants`: `{constant.name}` depends on a size"
            return
    for weight in plan.weights:
        buffer = known.pop(weight.buffer) if weight.buffer in known else None
        if buffer is None:
            yield f"`weights`: `{weight.buffer}` is no constant of the program, or is there twice"
        elif (buffer.dtype, elements(buffer)) != (weight.dtype, math.prod(weight.shape)):
            yield f"`weights`: {weight.dtype}{list(weight.shape)} is not what constant `{weight.buffer}` holds"


def elements(buffer: BufferRecord) -> int:
    """Of a buffer without sizes."""
    return math.prod(extent_at(n, {}) for n in buffer.shape)


def _tokens(plan: PlanFile) -> Iterator[str]:
    if not plan.inputs:
        yield "`inputs` is empty"
    elif not plan.config:
        yield from _examples(plan)
    elif not isinstance(words := vocabulary(plan.config), int) or not 0 < words < 2**31:
        yield f"`config`: vocab_size is {words!r}"
    elif len(plan.inputs) == 1 and plan.inputs[0].dtype == "i64":
        batch, length = plan.tokens_at(plan.hints)
        shape = [extent_at(n, plan.hints) for n in plan.inputs[0].shape]
        if math.prod(shape) != batch * length:
            yield f"`inputs`: {shape} is no {batch} x {length} tokens"


def _examples(plan: PlanFile) -> Iterator[str]:
    """The inputs of a text, at both ends of the sizes, and every size among their extents."""
    told = {example.name: example for example in plan.examples}
    if len(told) != len(plan.examples) or any(not -FURTHEST <= e.low <= e.high <= FURTHEST for e in plan.examples):
        yield "`examples`: a name is there twice, or its ends are no range"
    for buffer in plan.inputs:
        if buffer.name not in told:
            yield f"`examples`: `{buffer.name}` is not there"
            return
    alike = [(told[buffer.name], buffer) for buffer in plan.inputs]
    for corner in _corners(plan.sizes):
        if any(_at([example], corner) != _at([buffer], corner) for example, buffer in alike):
            yield "`examples`: an input has other elements than in `inputs`"
    if missing := {n.name for n in plan.sizes} - {n for e in plan.examples for n in e.shape if isinstance(n, str)}:
        yield f"`examples`: no input tells `{min(missing)}`"


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
