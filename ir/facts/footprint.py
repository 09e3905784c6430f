"""What a region reads: the boxes that its loads of each buffer stay in, and whether threads of a block share them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..expr import Axis, Var, free_names, from_linear, linear, subtract
from ..loop import Load
from ..names import unused
from ..node import Expr, names_in
from ..program import Block, Kernel
from ..ranges import Interval
from ..sizes import highest
from ..substitute import substitute
from .layout import DTYPE_BYTES, bound_ranges, params, stages
from .structure import dependencies, summary

STAGED_DTYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "i32", "i8")


class Footprint(NamedTuple):
    """The box `buf[origin + slab]`. smem: a name for its copy; base, dims: origin and number of each kept dimension.

    reuse: some element is read more than once by the block. cells: where elements are gathered, what stands in an
    index of the copy; the origin mentions the labels of the slab then.
    """

    buf: Var
    smem: Var
    origin: tuple[Any, ...]
    slab: tuple[Axis, ...]
    base: tuple[Any, ...]
    dims: tuple[int, ...]
    reuse: bool
    bytes: int
    cells: tuple[Expr, ...] = ()


class RangedBlock(NamedTuple):
    """A block with the ranges of all names in it. uniform: the names that have one value for all threads."""

    kernel: Kernel
    body: Block
    threads: frozenset[str]
    local: frozenset[str]
    uniform: frozenset[str]
    ranges: dict[str, Interval]


def region(
    kernel: Kernel, body: Block, axes: Iterable[Axis], outside: dict[str, Interval], extra: dict[str, int]
) -> RangedBlock:
    """outside: the names in scope around the body with their ranges; extra: more loops inside, by name and extent."""
    loops = summary(body).loops
    ranges = dict(outside)
    for axis in axes:
        ranges[axis.name] = (0, highest(axis.extent) - 1)
    for name, extent in extra.items():
        ranges[name] = (0, highest(extent) - 1)
    for loop in loops:
        ranges.update(bound_ranges(loop, ranges))
    threads = frozenset(axis.name for axis in axes if axis.role == "THREAD")
    inner = {axis.name for axis in axes if axis.role in ("THREAD", "REG", "VEC")} | set(extra)
    local = frozenset(inner | {loop.var for loop in loops})
    return RangedBlock(kernel, body, threads, local, frozenset(ranges) - local, ranges)


def footprints(here: RangedBlock) -> tuple[Footprint, ...]:
    """The boxes that loads of inputs stay in: one of each buffer, or several that lie apart (packed queries and keys).

    A guarded load counts with all its places: those it does not read may lie outside of the buffer and are copied as 0.
    """
    wanted: dict[str, list[Load]] = {}
    slabs, known = stages(here.kernel), params(here.kernel)
    inputs = {param.name for param in here.kernel.ins}
    for load in summary(here.body).loads:
        if load.buf in inputs and load.buf not in slabs and known[load.buf].dtype in STAGED_DTYPES:
            wanted.setdefault(load.buf, []).append(load)
    taken: set[str] = set()
    found = []
    for buf, loads in wanted.items():
        boxes = _boxes(loads, here)
        found += [] if boxes else _gathered(buf, loads, here, taken)
        for box, within in boxes:
            if any(extent > 1 for extent, _ in box.sides):
                found.append(_footprint(buf, within, box, here, taken))
    return tuple(found)


def lies_in(idx: tuple[Any, ...], foot: Footprint, here: RangedBlock) -> bool:
    """Whether a load with this index is one of those that a footprint is of."""
    if foot.cells:
        labels = {cell.name: Var(axis.name) for cell, axis in zip(foot.cells, foot.slab, strict=True)}
        places: tuple[Any, ...] = substitute(idx, labels)
        return places == foot.origin
    box = box_of(idx, here)
    return box is not None and box.origin == foot.origin


class IndexBox(NamedTuple):
    """origin of each dimension; sides: (extent, name of a loop or axis along it)."""

    origin: tuple[Any, ...]
    sides: tuple[tuple[int, str], ...]


def _boxes(loads: list[Load], here: RangedBlock) -> list[tuple[IndexBox, list[Load]]]:
    """The boxes of all loads of a buffer, each with its loads; none if one load has no box, or two boxes meet."""
    groups: dict[tuple[Any, ...], list[tuple[IndexBox, Load]]] = {}
    for load in loads:
        box = box_of(load.idx, here)
        if box is None:
            return []
        groups.setdefault(box.origin, []).append((box, load))
    found = [(_hull([box for box, _ in group]), [load for _, load in group]) for group in groups.values()]
    apart = all(_apart(a, b) for (a, _), (b, _) in itertools.combinations(found, 2))
    return found if apart else []


def _hull(boxes: list[IndexBox]) -> IndexBox:
    columns = zip(*(box.sides for box in boxes), strict=True)
    return IndexBox(boxes[0].origin, tuple((max(extent for extent, _ in sides), sides[0][1]) for sides in columns))


def _apart(a: IndexBox, b: IndexBox) -> bool:
    """Whether two boxes have no element in common, or move differently: two copies then share little."""
    for one, other, (side, _), (other_side, _) in zip(a.origin, b.origin, a.sides, b.sides, strict=True):
        terms, constant = linear(subtract(other, one))
        if terms or constant >= side or -constant >= other_side:
            return True
    return False


def box_of(idx: tuple[Any, ...], here: RangedBlock) -> IndexBox | None:
    """The box of a load, or None if its index is not a uniform origin plus non-negative multiples of local names."""
    origin, sides = [], []
    for dim, e in enumerate(idx):
        terms, constant = linear(e)
        kept, extent, along = {}, 1, f"d{dim}"
        for atom, factor in terms.items():
            names = free_names(atom)
            if names <= here.uniform:
                kept[atom] = factor
            elif atom.__class__ is Var and atom.name in here.local and factor > 0:
                low, high = here.ranges[atom.name]
                constant, extent = constant + factor * low, extent + factor * (high - low)
                along = atom.name if along == f"d{dim}" else along
            else:
                return None
        origin.append(from_linear(kept, constant))
        sides.append((extent, along))
    return IndexBox(tuple(origin), tuple(sides))


def _footprint(buf: str, loads: list[Load], box: IndexBox, here: RangedBlock, taken: set[str]) -> Footprint:
    dims = tuple(dim for dim, (extent, _) in enumerate(box.sides) if extent > 1)
    labels = [box.sides[dim][1] for dim in dims]
    if len(set(labels)) < len(labels):
        labels = [f"d{dim}" for dim in dims]
    slab = tuple(Axis(label, box.sides[dim][0], None, dim) for label, dim in zip(labels, dims, strict=True))
    varying = frozenset().union(*(dependencies(load.idx, here.body) for load in loads))
    shared = {name for name in here.threads - varying if here.ranges[name][1] > 0}
    size = DTYPE_BYTES[params(here.kernel)[buf].dtype] * math.prod(axis.extent for axis in slab)
    smem = unused(f"{buf}_smem", names_in(here.kernel) | taken)
    taken.add(smem)
    base = tuple(box.origin[dim] for dim in dims)
    return Footprint(Var(buf), Var(smem), box.origin, slab, base, dims, bool(shared) or len(loads) > 1, size)


def _gathered(buf: str, loads: list[Load], here: RangedBlock, taken: set[str]) -> list[Footprint]:
    """What loads of one place read where that is no box: each combination of the axes and loops of the place is a cell.

    Axes of the block come last: its threads copy along them.
    """
    idx = loads[0].idx
    names = sorted(free_names(idx) & here.local, key=lambda name: (name in here.threads, list(here.ranges).index(name)))
    inside = free_names(idx) <= here.local | here.uniform and all(here.ranges[name][0] == 0 for name in names)
    if not names or not inside or any(load.idx != idx for load in loads):
        return []
    known = names_in(here.kernel) | taken
    labels = {name: unused(f"{name}_at", known) for name in names}
    smem = unused(f"{buf}_smem", known)
    taken.update((smem, *labels.values()))
    slab = tuple(Axis(labels[name], here.ranges[name][1] + 1) for name in names)
    origin = substitute(idx, {name: Var(label) for name, label in labels.items()})
    shared = {name for name in here.threads - dependencies(idx, here.body) if here.ranges[name][1] > 0}
    size = DTYPE_BYTES[params(here.kernel)[buf].dtype] * math.prod(axis.extent for axis in slab)
    cells = tuple(Var(name) for name in names)
    return [Footprint(Var(buf), Var(smem), origin, slab, (), (), bool(shared), size, cells)]


def local_index(idx: tuple[Any, ...], foot: Footprint) -> tuple[Any, ...]:
    """An index of the buffer as an index of its copy."""
    if foot.cells:
        return foot.cells
    return tuple(subtract(idx[dim], base) for dim, base in zip(foot.dims, foot.base, strict=True))
