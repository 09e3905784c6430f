"""Facts about the results of a block: the boxes of rows and columns that its threads store, and in which pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...ir.expr import Binary, Var, add, binary, both, free_names, from_linear, linear, multiply, subtract
from ...ir.facts.divisors import divisor
from ...ir.facts.footprint import STAGED_DTYPES, IndexBox, RangedBlock, box_of, region
from ...ir.facts.layout import CHUNK, DTYPE_BYTES, SECTOR, address, is_vector, slab_bytes, stages, strides, tidy
from ...ir.facts.requests import at_lanes, lane_values
from ...ir.facts.structure import summary
from ...ir.loop import For, If, Store
from ...ir.names import unused
from ...ir.node import names_in
from ...ir.program import Block, Param
from ...ir.sizes import at_hint
from ..language.facts import fact
from ..language.policy import policy
from .structure import conjuncts


class ResultBox(NamedTuple):
    """`buf[origin]` and what follows it: rows of dimension `row` by columns of the last one. smem: a name for a slab.

    bytes: shared memory of such a slab, its rows a vector apart, which turns them against the banks.
    pieces: whether a store of a warp fills its sectors only in part. edges: the dimensions at whose ends guards stop.
    """

    buf: Var
    smem: Var
    dtype: Var
    item: int
    rows: int
    columns: int
    pieces: bool
    origin: tuple[Any, ...]
    row: int
    shape: tuple[Any, ...]
    edges: tuple[int, ...]
    bytes: int


@fact("result_boxes() -> [record]", "tile")
def result_boxes(site: Any) -> tuple[ResultBox, ...]:
    """The boxes that the threads of a block store whole, each by one store behind all loops, a row being neighbours in
    memory: `.rows`, `.columns`, of `.item` bytes. The only guards are the edges of the buffer.

    `.pieces`: an instruction of a warp leaves parts of its sectors to others.
    """
    stores = list(_stores(site.tile.body, (), False))
    outs = {param.name: param for param in site.kernel.outs}
    here = region(site.kernel, site.tile.body, site.tile.axes, site.ranges, {})
    found: list[ResultBox] = []
    for store, guards, looped in stores:
        alone = sum(other.buf == store.buf for other, _, _ in stores) == 1
        if store.buf in outs and alone and not looped and outs[store.buf].dtype in STAGED_DTYPES:
            found += _box(site, store, guards, outs[store.buf], here)
    return tuple(found)


@fact("bytes_of_results() -> int", "tile")
def bytes_of_results(site: Any) -> int:
    """Shared memory by way of which the results that lanes hold in pieces would leave, in rows of whole vectors."""
    vector = policy(site.target).bytes_of_store
    found = [box for box in result_boxes(site) if box.pieces and divisor(box.shape[-1], {}) * box.item % vector == 0]
    return sum(box.bytes for box in found)


@fact("bytes_of(name) -> int", "tile")
def bytes_of(site: Any, slab: Var) -> int:
    """Shared memory of a slab with all its slots."""
    known = stages(site.kernel)[slab.name]
    return known.depth * slab_bytes(site.kernel, known)


@fact("left_by_ring() -> int", "tile")
def left_by_ring(site: Any) -> int:
    """Shared memory of copied slabs that nothing needs behind the one loop that fills and reads them.

    0 where something else is copied or read later, and where TMA copies: it may do so again before anything orders it
    after what threads store.
    """
    loops = [stmt for stmt in site.tile.body if isinstance(stmt, For) and stmt.role == "serial"]
    inside, whole = summary(loops[0].body if len(loops) == 1 else ()), summary(site.tile.body)
    names = {stage.dst for stage in inside.stages}
    later = len(inside.stages) < len(whole.stages) or _reads(inside, names) < _reads(whole, names)
    if later or any(stage.via != "ASYNC" for stage in inside.stages):
        return 0
    slabs = stages(site.kernel)
    return sum(slabs[name].depth * slab_bytes(site.kernel, slabs[name]) for name in names)


def _reads(found: Any, names: set[str]) -> int:
    """How many loads and stores name one of some slabs."""
    return sum(access.buf in names for access in (*found.loads, *found.stores))


@fact("placed(record, [expr]) -> [expr]", "tile")
def placed(site: Any, box: ResultBox, cell: Any) -> tuple[Any, ...]:
    """The place in the buffer of a row and a column of a box of results."""
    dims = (box.row, len(box.origin) - 1)
    return tuple(add(at, cell[dims.index(dim)]) if dim in dims else at for dim, at in enumerate(box.origin))


@fact("within_edges(record, [expr]) -> expr", "tile")
def within_edges(site: Any, box: ResultBox, cell: Any) -> Any:
    """Whether a row and a column of a box of results lie within the edges of the buffer that are guarded."""
    condition: Any = True
    place = placed(site, box, cell)
    for dim in box.edges:
        condition = both(condition, binary("<", place[dim], box.shape[dim]))
    return condition


@fact("cell_of(record, [expr]) -> [expr]", "tile")
def cell_of(site: Any, box: ResultBox, idx: Any) -> tuple[Any, ...]:
    """The row and the column in a box of results of a place in the buffer."""
    return tuple(subtract(idx[dim], box.origin[dim]) for dim in (box.row, len(idx) - 1))


@fact("thread_number([axis]) -> expr", "tile")
def thread_number(site: Any, axes: Any) -> Any:
    """The number of a thread in its block."""
    number: Any = 0
    for axis in axes:
        if axis.role == "THREAD":
            number = add(multiply(number, axis.extent), Var(axis.name))
    return number


@fact("rescales(run) -> bool", "tile")
def rescales(site: Any, body: Block) -> bool:
    """Whether sums of a run are scaled as it goes on, as those of a running softmax are."""
    return bool(summary(body).scales)


def _stores(block: Block, guards: tuple[Any, ...], looped: bool) -> Iterator[tuple[Store, tuple[Any, ...], bool]]:
    """The stores of a block, with the conditions around each and whether a loop is."""
    for stmt in block:
        if isinstance(stmt, Store):
            yield stmt, guards, looped
        elif isinstance(stmt, If):
            yield from _stores(stmt.body, (*guards, *conjuncts(stmt.cond)), looped)
        else:
            yield from _stores(getattr(stmt, "body", ()), guards, looped or isinstance(stmt, For))


def _box(site: Any, store: Store, guards: Any, param: Param, here: RangedBlock) -> Iterator[ResultBox]:
    """The box that a store fills, if its rows and columns are all there and its guards are edges of the buffer."""
    box = box_of(store.idx, here)
    dims = [dim for dim, (extent, _) in enumerate(box.sides) if extent > 1] if box is not None else []
    if box is None or len(dims) != 2 or dims[1] != len(param.shape) - 1 or not _whole(store, box, here):
        return
    edges = [_edge(store, guard, param, here) for guard in guards]
    if any(dim not in dims for dim in edges):
        return
    rows, columns = (box.sides[dim][0] for dim in dims)
    item, smem = DTYPE_BYTES[param.dtype], unused(f"{param.name}_out", names_in(site.kernel))
    yield ResultBox(
        Var(param.name), Var(smem), Var(param.dtype), item, rows, columns, _in_pieces(site, store, param.shape, item),
        box.origin, dims[0], param.shape, tuple(sorted({dim for dim in edges if dim is not None})),
        rows * (columns * item + policy(site.target).bytes_of_store),
    )  # fmt: skip


def _edge(store: Store, guard: Any, param: Param, here: RangedBlock) -> int | None:
    """The dimension of a buffer at whose end a guard keeps a store from going on."""
    if guard.__class__ is Binary and guard.op == "<":
        for dim, (place, extent) in enumerate(zip(store.idx, param.shape, strict=True)):
            if guard.b == extent and tidy(subtract(guard.a, place), here.ranges) == 0:
                return dim
    return None


def _whole(store: Store, box: IndexBox, here: RangedBlock) -> bool:
    """Whether the local names number the elements along each dimension: none is left out, and none stored twice."""
    used: list[str] = []
    for e, (extent, _) in zip(store.idx, box.sides, strict=True):
        own = [(n, at.name) for at, n in linear(e)[0].items() if at.__class__ is Var and at.name in here.local]
        used += [name for _, name in own]
        reached = 1
        for factor, name in sorted(own):
            if factor != reached:
                return False
            reached *= here.ranges[name][1] + 1
        if reached != extent:
            return False
    missing = here.local - set(used)
    return len(set(used)) == len(used) and all(here.ranges[name][1] == 0 for name in missing & here.threads)


def _in_pieces(site: Any, store: Store, shape: tuple[Any, ...], item: int) -> bool:
    """Whether the widest instruction that a warp can make of a store touches more sectors than it fills."""
    flat = address(site.kernel, store.buf, store.idx)
    replicated = [axis for axis in site.tile.axes if axis.role in ("REG", "VEC") and axis.extent * item <= CHUNK]
    width = max((a.extent for a in replicated if is_vector(flat, a.name, a.extent)), default=1)
    lanes = lane_values(tuple((a.name, a.extent) for a in site.tile.axes if a.role == "THREAD"))
    steps = strides(tuple(at_hint(extent) for extent in shape))  # of a size, as it is as a rule
    moved = [at_lanes(_along(e, lanes), lanes) * step for e, step in zip(store.idx, steps, strict=True)]
    places = {at_hint(place) for place in np.atleast_1d(sum(moved)).tolist()}
    touched = {place * item // SECTOR for place in places}
    return len(touched) * SECTOR > len(places) * width * item and len(places) > 1


def _along(e: Any, lanes: dict[str, Any]) -> Any:
    """The part of a place that lanes differ in."""
    return from_linear({at: n for at, n in linear(e)[0].items() if not free_names(at).isdisjoint(lanes)}, 0)
