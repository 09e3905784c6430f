"""Kernels that differ in names only are compiled once: each launch maps to a kernel and its buffers.

A model's layers are alike, so 256 launches are 13 kernels. A kernel that a schedule cuts in two (split-K) stays a
chain of kernels that are launched together, with buffers between them for every launch of the chain. `key` is the
structural key of a kernel, `fusion_summary` that of a kernel that is not lifted yet.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from ...ir.expr import Axis, Size, extents_of
from ...ir.facts.dataflow import structure_of
from ...ir.names import unused
from ...ir.node import Expr, Node, immutable, memoised, nodes
from ...ir.program import Kernel, Module, Param
from ...ir.substitute import with_sizes
from ...ir.tensor import Term, axes, operands, postorder
from .lift import BufferLayout, Write

# ---- The structural key of a kernel: equal for kernels that differ in names only.
#
# Names that the kernel itself binds (parameters, loops, values, accumulators) are numbered in order of first use;
# everything else is spelled out. Layers of a model then share one compiled kernel.


@memoised
def key(kernel: Kernel) -> str:
    """Return a hash of a kernel's structure, with the kernel's own name left out."""
    return spelled(kernel, str, lambda leaf: f"{leaf.__class__.__name__}:{leaf!r}")


@memoised
def key_of_range(kernel: Kernel) -> str:
    """Return the key of a kernel whatever the hints and names of its sizes: legality does not depend on these."""
    plain = {
        size.name: Size(f"size{n}", size.low, size.high, size.multiple, size.high // size.multiple * size.multiple)
        for n, size in enumerate(sizes_of(kernel))
    }
    return key(with_sizes(kernel, plain) if plain else kernel)


def sizes_of(kernel: Kernel) -> tuple[Size, ...]:
    """Return the sizes of a kernel in the order in which it mentions them, which is that of `TuningKey.ranges`."""
    return tuple(dict.fromkeys(nodes(kernel, Size)))


def spelled(kernel: Kernel, sizes: Callable[[tuple[Expr, ...]], str], leaf: Callable[[object], str]) -> str:
    """Return a hash of a kernel with its names by number.

    sizes: of a shape; leaf: of what is neither a node nor a list.
    """
    params = [("in", param) for param in kernel.ins] + [("out", param) for param in kernel.outs]
    numbers = {name: f"#{n}" for n, name in enumerate(dict.fromkeys(param.name for _, param in params))}
    written = [f"{side} {param.dtype}{sizes(param.shape)}" for side, param in params]
    _spell(kernel.body, numbers, written.append, leaf)
    return hashlib.sha256(" ".join(written).encode()).hexdigest()[:DIGITS]


def _spell(value: Any, numbers: dict[str, str], put: Callable[[str], None], leaf: Callable[[object], str]) -> None:
    """Write a value in text order. Every name gets its number at its first occurrence: binders precede their uses."""
    kind = value.__class__
    if kind is tuple:
        put("(")
        for item in value:
            _spell(item, numbers, put, leaf)
        put(")")
    elif isinstance(value, Node):
        put(kind.__name__)
        for field in kind.fields:
            child = getattr(value, field.name)
            if field.sort == "Name" and child.__class__ is str and field.name != "op":  # the sign of a Binary
                if child not in numbers:
                    numbers[child] = f"#{len(numbers)}"
                put(numbers[child])
            else:
                _spell(child, numbers, put, leaf)
    else:
        put(leaf(value))


DIGITS = 16  # of a hash: enough for every kernel that there is


@immutable
class Sharing:
    """Kernels of a program, each structure once.

    kernels: one of every structure, in the order of their first launch. The second field is the index of the kernel
    for every launch. launches: the kernels as the program launches them, each with the names of its own buffers.
    """

    kernels: Module
    place: tuple[int, ...]
    launches: Module


def share(launches: Sequence[Kernel]) -> Sharing:
    """Give launches of one structure one kernel: the first of them."""
    alike = Counter(map(_parameters, launches))
    kernels: dict[Hashable, Kernel] = {}
    structures = []
    for kernel in launches:
        structure = _parameters(kernel)  # most tell a kernel from all others
        structures.append(key(kernel) if alike[structure] > 1 else structure)
        kernels.setdefault(structures[-1], kernel)
    index = {structure: number for number, structure in enumerate(kernels)}
    return Sharing(tuple(kernels.values()), tuple(index[each] for each in structures), tuple(launches))


@immutable
class ScheduledLaunch:
    """One launch after scheduling.

    index: of the scheduled kernel; buffers: {the kernel's own name: the buffer's}. The third field is the index of
    the launch of Loop IR that it is part of.
    """

    index: int
    buffers: Mapping[str, str]
    place: int


@immutable
class Steps:
    """All launches in order, and the buffers that only scheduling knows: those between the kernels of a chain."""

    steps: tuple[ScheduledLaunch, ...]
    between: tuple[Param, ...]


def steps(sharing: Sharing, scheduled: Sequence[Kernel], taken: Iterator[str] | Sequence[str]) -> Steps:
    """Return the launches of a program whose kernels became `scheduled`. taken: names of buffers that are in use."""
    chain = chains(sharing.kernels, scheduled)
    used, between, made, tried = set(taken), list[Param](), [], dict[str, int]()
    for place, (index, launch) in enumerate(zip(sharing.place, sharing.launches, strict=True)):
        own = sharing.kernels[index].params
        names = {a.name: b.name for a, b in zip(own, launch.params, strict=True)}
        for position in chain[index]:
            params = scheduled[position].params
            for param in params:
                if param.name not in names:
                    names[param.name] = name = unused(param.name, used, between="_", first=2, tried=tried)
                    used.add(name)
                    between.append(Param(name, param.dtype, param.shape))
            made.append(ScheduledLaunch(position, {param.name: names[param.name] for param in params}, place))
    return Steps(tuple(made), tuple(between))


def chains(kernels: Sequence[Kernel], scheduled: Sequence[Kernel]) -> list[range]:
    """Return for every kernel the positions of the kernels that it became.

    They are adjacent, and the last one completes the outputs of the kernel.
    """
    made, start, place = [], 0, 0
    for kernel in kernels:
        missing = {param.name for param in kernel.outs}
        while missing:
            missing -= {param.name for param in scheduled[place].outs}
            place += 1
        made.append(range(start, place))
        start = place
    assert place == len(scheduled), "a kernel that belongs to no launch"
    return made


def _parameters(kernel: Kernel) -> Hashable:
    """Return the properties of a kernel that kernels of one structure share and that are quick to compare."""
    return len(kernel.ins), *[(param.dtype, len(param.shape)) for param in kernel.params]


# ---- What a kernel will be, before it is lifted: equal summaries become kernels that differ in names only.
#
# A search needs the price of thousands of kernels, most of which it has seen in another layer. A summary is the
# terms of a kernel as plain data, operands first, with axes, buffers and terms by the order in which they are met.


FusionSummary = tuple[Hashable, ...]


def fusion_summary(writes: Sequence[Write], buffers: Mapping[Term, BufferLayout]) -> FusionSummary:
    """Return the summary of the kernel that makes these writes and reads its other values from these buffers."""
    written = {write.value for write in writes}
    numbers: dict[Axis, int] = {}
    terms: dict[Term, int] = {}
    places: dict[BufferLayout, int] = {}

    def stand_in(value: Any) -> Hashable:
        if value.__class__ is Axis:
            return numbers.setdefault(value, len(numbers))
        return ("term", terms[value]) if value in terms else None

    def read(term: Term) -> BufferLayout | None:
        return None if term in written else buffers.get(term)

    def place(buffer: BufferLayout) -> Hashable:
        if buffer in places:
            return places[buffer]
        places[buffer] = len(places)
        return buffer.dtype, structure_of((buffer.dims, buffer.loops, buffer.address), stand_in)

    values = []
    for term in postorder((write.value for write in writes), lambda term: () if read(term) else operands(term)):
        buffer = read(term)
        kept = None if buffer is None else place(buffer)
        values.append((kept, structure_of(term if buffer is None else axes(term), stand_in)))
        terms[term] = len(terms)
    stores = [(terms[write.value], place(write.buffer), structure_of(write.guard, stand_in)) for write in writes]
    return tuple(values), tuple(stores), extents_of(numbers)
