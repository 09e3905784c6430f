"""Dispatch of one program over several ranges: compiles for parts of the range of a size, and the table of calls.

A row is a refinement of sizes (low, high, multiple, hint); the same captured program is compiled for it when a call
first needs it. The first row that admits a call wins; the program of the whole range follows the last row.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import torch

from ...codegen.kernel import Program
from ...codegen.target import Target
from ...ir.diagnostic import UsageError, did_you_mean
from ...ir.dtypes import DTYPES
from ...ir.expr import Size, free_names, multiple_of
from ...ir.loop import For, Load, Store
from ...ir.node import nodes
from ...ir.program import Block, Kernel, Param, Stmt, TensorType
from ...ir.sizes import Binding, at_hint, value_of
from ...ir.substitute import with_sizes
from ..capture.capture import Capture
from ..capture.dynamic_shapes import Dim
from ..compiler import Compilation
from ..cost.instruction_counts import instruction_counts
from ..kernels.kernels import Plan
from ..language.rule import policy
from ..schedule.scheduling import StoredSchedules, tuned_ranges
from .inputs import check_arguments, sizes_of_call

T = TypeVar("T")
LOG = logging.getLogger("dplc")

Row = tuple[Dim, ...]  # conditions on sizes, all of which hold; the Dims' hints are what the row is compiled for


class Dispatch:
    """Table of rows as plain numbers, which are faster to compare than Dims: calls of new lengths read the table."""

    def __init__(self, rows: Iterable[Row]):
        listed = (tuple((dim.name, dim.low, dim.high, dim.multiple) for dim in row) for row in rows)
        self._rows = tuple((place, *first, rest) for place, (first, *rest) in enumerate(listed))

    def __call__(self, sizes: Binding) -> int | None:
        """Return the index of the first row that admits such sizes; None if only the whole range does."""
        for place, name, low, high, multiple, rest in self._rows:
            number = sizes[name]
            if low > number or number > high or number % multiple:
                continue
            if not rest or all(least <= sizes[n] <= most and not sizes[n] % by for n, least, most, by in rest):
                return place
        return None


Make = Callable[[Capture], Compilation]  # compiles a capture whose sizes are narrower


def requested_rows(rows: Any, whole: Compilation, make: Make, schedules: StoredSchedules | None) -> tuple[Row, ...]:
    """Return the rows of `rows=`: Dims, or tuples of Dims of several sizes; True for those of a store and of the model.

    whole: the program compiled for the full range. Raises UsageError for an invalid row.
    """
    sizes = whole.sizes
    if rows is True:
        tuned = stored_rows(whole, schedules) if schedules is not None else ()
        return (*tuned, *trimmed(default_rows(whole, make), tuned))
    if not isinstance(rows, Sequence) or not all(isinstance(d, Dim) for row in rows for d in _listed(row)):
        raise UsageError("rows= is a list of Dims, each a part of a size's range", hint='rows=[dplc.Dim("s", 1, 64)]')
    found = tuple(_listed(row) for row in rows)
    for dim in (dim for row in found for dim in row):
        size = sizes.get(dim.name)
        if size is None:
            notes = (f"its sizes are {', '.join(sizes) or 'none'}",)
            raise UsageError(f"rows= names `{dim.name}`, no size", notes=notes, hint=did_you_mean(dim.name, sizes))
        if dim.low < size.low or dim.high > size.high:
            raise UsageError(f"a row of `{dim.name}` is {dim.range}, outside of {size.low}..{size.high}")
    return found


def _listed(row: Any) -> Row:
    return tuple(row) if isinstance(row, (tuple, list)) else (row,)


def default_rows(whole: Compilation, make: Make) -> tuple[Row, ...]:
    """Return the default rows: of one size its octaves, of several none, for these multiply.

    Where rows of memory are as long as the size and the model says that vectors pay, lengths in whole vectors have rows
    of their own, and the lengths between them fewer.
    """
    if len(whole.sizes) != 1:
        return ()
    (size,), numbers = whole.sizes.values(), policy(whole.target)
    vectors, pays = _of_vectors(whole, size), False
    if vectors is not None and vectors.hint is not None:  # by the instructions that the model counts at the hint
        binding, other = {vectors.name: vectors.hint}, make(narrowed(whole.captured, (vectors,), whole.sizes))
        usual, narrow = (
            sum(count.issued * count.blocks for count in map(instruction_counts, with_sizes(one.kernels, binding)))
            for one in (whole, other)
        )
        pays = narrow <= numbers.worth_of_vectors * usual
    if vectors is None or not pays:
        return octaves(size, whole.target)[: numbers.most_ranges]
    ends, warp = numbers.range_ends, whole.target.warp_lanes * _floats_of_vector(whole.target)
    long = _between(vectors, [end for end in ends if end >= warp])  # up to there a lane has one vector
    rows = [*long, *_between(size, ends[::2])]  # coarser, for these read element by element
    return tuple((row,) for row in rows[: numbers.most_ranges])


def stored_rows(whole: Compilation, schedules: StoredSchedules) -> tuple[Row, ...]:
    """Return the parts of the range for which a store has schedules that are faster than the default order.

    These are the parts that gain most, the narrowest first, for the first row that holds serves a call.
    """
    gains = dict[Row, float]()
    for kernel in whole.plan.kernels:
        for row, gain in tuned_ranges(schedules, kernel, whole.compiler.tools.rules, whole.target):
            gains[row] = max(gain, gains.get(row, 0))
    most = sorted(gains, key=lambda row: -gains[row])[: policy(whole.target).most_ranges]
    lengths = {row: math.prod(dim.high // dim.multiple - (dim.low - 1) // dim.multiple for dim in row) for row in most}
    return tuple(sorted(most, key=lambda row: (lengths[row], [dim.low for dim in row])))


def trimmed(usual: Iterable[Row], first: Sequence[Row]) -> Iterator[Row]:
    """Yield the default rows of one size, without the ends that preceding rows serve."""
    taken = sorted((row[0] for row in first if len(row) == 1), key=lambda dim: dim.low)
    for (dim,) in usual:
        low, high = dim.low, dim.high
        whole = [one for one in taken if one.name == dim.name and not dim.multiple % one.multiple]
        for one in whole:
            low = one.high + 1 if one.low <= low <= one.high else low
        for one in reversed(whole):
            high = one.low - 1 if one.low <= high <= one.high else high
        if low <= high // dim.multiple * dim.multiple:
            yield (dim if (low, high) == (dim.low, dim.high) else _usual(dim, low, high),)


def _usual(size: Dim | Size, low: int, high: int) -> Dim:
    """Return a part of a range, with its greatest length as the hint."""
    return Dim(size.name, low, high, size.multiple, hint=high // size.multiple * size.multiple)


def octaves(size: Dim | Size, target: Target) -> tuple[Row, ...]:
    """Return the parts of a range that suit products and norms of as many rows."""
    return tuple((row,) for row in _between(size, policy(target).range_ends))


def _between(size: Dim | Size, ends: Sequence[int]) -> Iterator[Dim]:
    """Yield the parts of a range that end at `ends`, each for the greatest length in it."""
    low = size.low
    for high in (*(end for end in ends if size.low <= end < size.high), size.high):
        if high // size.multiple * size.multiple >= low:
            yield _usual(size, low, high)
        low = high + 1


def _of_vectors(whole: Compilation, size: Size) -> Dim | None:
    """Return the lengths in whole vectors, if most data of the kernels lies in rows as long as a size."""
    numbers = policy(whole.target)
    step = math.lcm(size.multiple, _floats_of_vector(whole.target))
    low, high = max(size.low, numbers.vectors_from), size.high // step * step
    params = [param for kernel in whole.plan.kernels for param in (*kernel.ins, *kernel.outs)]
    ragged = [p for p in params if size in nodes((p.shape[-1],), Size) and multiple_of(p.shape[-1]) % step]
    if low > high or not ragged or 2 * sum(map(_bytes, ragged)) < sum(map(_bytes, params)):
        return None
    return Dim(size.name, low, size.high, step, hint=min(max(size.hint // step * step, -(-low // step) * step), high))


def _floats_of_vector(target: Target) -> int:
    return target.vector_bytes // DTYPES["f32"].item_bytes


def _bytes(param: Param) -> float:
    return float(DTYPES[param.dtype].item_bytes * math.prod(map(at_hint, param.shape)))


class Rows:
    """Compiles of a program by row, each created when it is first needed.

    whole: that of the full range; make: compiles a capture whose sizes are narrower.
    """

    def __init__(self, whole: Compilation, rows: Sequence[Row], make: Make):
        self.whole, self.rows, self._make = whole, tuple(rows), make
        self.place = Dispatch(self.rows)
        self._made: dict[Row, Compilation] = {}

    def at(self, sizes: Binding) -> Compilation:
        """Return the compile that serves a call with such sizes."""
        place = self.place(sizes)
        return self.whole if place is None else self.compiled(self.rows[place])

    def compiled(self, row: Row) -> Compilation:
        if row not in self._made:
            start = time.perf_counter()
            self._made[row] = self._make(narrowed(self.whole.captured, row, self.whole.sizes))
            ranges = ", ".join(f"{dim.name}: {dim.range}" for dim in row)
            LOG.info(f"compiled for {ranges} in {(time.perf_counter() - start) * 1e3:.0f} ms")
        return self._made[row]

    @property
    def made(self) -> dict[Row, Compilation]:
        """The compiles that calls needed so far."""
        return dict(self._made)

    def compile_all(self) -> None:
        """Compile ahead what calls would compile."""
        for row in self.rows:
            self.compiled(row)

    @property
    def table(self) -> list[dict[str, Any]]:
        """Dispatch as data: conditions in order, of which the first that holds decides, each with its plan."""
        names = ("name", "low", "high", "multiple")
        listed = [[{name: getattr(dim, name) for name in names} for dim in row] for row in self.rows]
        return [{"when": when, "plan": n} for n, when in enumerate([*listed, []])]


def narrowed(captured: Capture, row: Iterable[Dim], sizes: Mapping[str, Size]) -> Capture:
    """Return the program with narrower sizes; a size of one number becomes that number."""
    known = {**sizes, **{dim.name: dim.number() for dim in row}}
    return dataclasses.replace(captured, graph=with_sizes(captured.graph, known))


# ---- Calls, bound once for each combination of dtypes and shapes.


MOST_KEPT = 64  # kinds of arguments whose launches are kept, as many as a compile keeps of bindings


@dataclass(frozen=True)
class BoundCall:
    """Compile that serves arguments of one kind. choose: returns it for such sizes, once something is launched."""

    sizes: Binding
    choose: Callable[[Binding], Compilation]

    @cached_property
    def made(self) -> Compilation:
        return self.choose(self.sizes)

    @cached_property
    def program(self) -> Program:
        """Its launches: a static program's own, or those of a binding."""
        return self.made.at(self.sizes) if self.made.sizes else self.made.program

    @cached_property
    def arrays(self) -> tuple[tuple[str, tuple[int, ...], list[int]], ...]:
        """Arrays of the launches: names, shapes, and these without dimensions of size 1."""
        buffers = (*self.program.inputs, *self.program.constants)
        return tuple((b.name, tuple(b.shape), [n for n in b.shape if n != 1]) for b in buffers)

    @cached_property
    def results(self) -> tuple[tuple[Param, tuple[int, ...]], ...]:
        """The outputs in order, with torch's shapes."""
        pairs = zip(self.made.plan.outputs, self.made.plan.results, strict=True)
        return tuple((param, tuple(value_of(n, self.sizes) for n in kind.shape)) for param, kind in pairs)


class Calls:
    """The calls of a compiled function by kind: checked and bound when a kind comes first, looked up then.

    So a call of a program with sizes costs what one without costs.
    """

    def __init__(self, whole: Compilation, choose: Callable[[Binding], Compilation]):
        self._whole, self._choose = whole, choose
        self._kept: dict[Hashable, BoundCall] = {}

    def of(self, inputs: Mapping[str, Any]) -> BoundCall:
        """Return the compile that serves these arguments, {input: tensor}. Raises DplcError if they do not fit."""
        kind = self._kind(inputs)
        found = self._kept.get(kind)
        if found is None:
            sizes = sizes_of_call(self._whole.inputs_with_sizes, inputs)
            check_arguments(self._whole.captured, inputs, sizes)
            found = self.at(sizes)
            if kind is not None:
                if len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[kind] = found
        return found

    def at(self, sizes: Binding) -> BoundCall:
        return BoundCall(sizes, self._choose)

    def _kind(self, inputs: Mapping[str, Any]) -> Hashable | None:
        """Return classes, layouts, dtypes and shapes; None if every call needs further checks."""
        if self._whole.captured.strides:
            return None
        kind = []
        for given in inputs.values():
            if not isinstance(given, torch.Tensor) or given.requires_grad or given.is_meta:
                return None
            kind.append(((type(given), given.layout, given.dtype), given.shape))
        return tuple(kind)


# ---- A compile at one binding of its sizes.


def at_binding(made: Compilation, sizes: Binding, captured: Capture | None = None) -> Compilation:
    """Return what serves a call with such sizes. captured: the program with the inputs of the call."""
    program, given = made.at(sizes), captured or made.captured
    results = tuple(TensorType(kind.dtype, with_sizes(kind.shape, sizes)) for kind in made.plan.results)
    plan = _at(made.plan, sizes, "kernels", "inputs", "outputs", "temporaries")
    return replace(
        _at(made, sizes, "tensor", "tile", "kernels"),
        captured=_at(given, sizes, "graph"),
        plan=replace(plan, results=results),
        cuda_kernels=program.distinct_kernels(),
        program=program,
        bounds=tuple(_at(bound, sizes, "term", "low", "end") for bound in made.bounds),
    )


def _at(record: T, sizes: Binding, *fields: str) -> T:
    """Return a record whose fields have numbers for sizes."""
    return replace(record, **{name: with_sizes(getattr(record, name), sizes) for name in fields})  # type: ignore[type-var]


# ---- Outputs that share the memory of an input, where the index maps of the kernels permit it.
#
# In Loop IR a kernel says which elements it reads and writes. An output may share an input's memory if no launch reads
# the input once the output is being written. The only exception is the kernel that writes the output, if it reads of
# the input only the very element that it stores next, in the same iteration of the same loops. No schedule changes
# that: an iteration's loads precede its store, and an element that another thread has staged in shared memory was read
# before a barrier. Kernel text calls such an input read-only, which is as good as true: no element that a thread reads
# has been written in this launch.


def with_aliases(compilation: Compilation, wanted: Iterable[str]) -> Compilation:
    """Return the compilation with each output in the memory of an input, where the kernels permit it.

    wanted: the name of an input for every output, in order.
    """
    pairs = [(output.name, source) for output, source in zip(compilation.plan.outputs, wanted, strict=True)]
    aliases = {output: source for output, source in pairs if refusal(compilation.plan, output, source) is None}
    return replace(compilation, program=replace(compilation.program, aliases=aliases))


def refusal(plan: Plan, output: str, source: str) -> str | None:
    """Return why an output may not share the memory of an input; None if it may."""
    inputs, outputs = ({param.name: param for param in params} for params in (plan.inputs, plan.outputs))
    if source not in inputs:
        return f"there is no input `{source}`"
    if (inputs[source].dtype, inputs[source].shape) != (outputs[output].dtype, outputs[output].shape):
        return "they differ in dtype or shape"
    written = ""
    for kernel in plan.kernels:
        reads = any(param.name == source for param in kernel.ins)
        writes = any(param.name == output for param in kernel.outs)
        if reads and written and not writes:
            return f"`{kernel.name}` reads `{source}` when `{written}` has written `{output}`"
        if writes and written:
            return f"both `{written}` and `{kernel.name}` write `{output}`"
        if writes:
            written = kernel.name
            reason = _reads_elsewhere(kernel, output, source) if reads else None
            if reason is not None:
                return reason
    return None if written else f"no kernel writes `{output}`"


@dataclass(frozen=True)
class _Access:
    """Load or store of a kernel, with its path. loops: {variable: the path of the loop that binds it}."""

    index: tuple[Any, ...]
    loops: Mapping[str, tuple[int, ...]]
    place: tuple[int, ...]

    @property
    def iteration(self) -> dict[str, tuple[int, ...]] | None:
        """The loops that its index follows; None if it follows anything else."""
        names = free_names(self.index)
        return {name: self.loops[name] for name in names} if names <= self.loops.keys() else None


def _reads_elsewhere(kernel: Kernel, output: str, source: str) -> str | None:
    """Return why a kernel that writes the output reads of the input more than the element that it is about to store."""
    stores, loads = [], []
    for statement, access in _accesses(kernel.body, {}, ()):
        if isinstance(statement, Store) and statement.buf == output:
            stores.append(access)
        elif isinstance(statement, Load) and statement.buf == source:
            loads.append(access)
    if len(stores) != 1:
        return f"`{kernel.name}` stores `{output}` at {len(stores)} places"
    (store,) = stores
    if store.iteration is None or store.iteration.keys() != store.loops.keys():
        return f"`{kernel.name}` stores elements of `{output}` that its loops do not tell apart"
    for load in loads:
        if load.index != store.index or load.iteration != store.iteration:
            return f"`{kernel.name}` reads `{source}` at another element than it writes `{output}`"
        if load.place > store.place:
            return f"`{kernel.name}` reads an element of `{source}` after it has written it"
    return None


def _accesses(
    block: Block, loops: Mapping[str, tuple[int, ...]], way: tuple[int, ...]
) -> Iterator[tuple[Stmt, _Access]]:
    for number, statement in enumerate(block):
        place = (*way, number)
        if isinstance(statement, (Load, Store)):
            yield statement, _Access(statement.idx, loops, place)
        inner = getattr(statement, "body", None)
        if inner is not None:
            bound = {**loops, statement.var: place} if isinstance(statement, For) else loops
            yield from _accesses(inner, bound, place)
