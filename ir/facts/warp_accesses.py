"""Accesses of warps to shared memory, the wavefronts of a layout, and the footprints of loads in global memory."""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache, reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..expr import Axis, NameSet, Var, extents_of, free_names, from_linear, linear, subtract
from ..interp.scalar import evaluate
from ..kernel import WARP
from ..loop import Load, Store
from ..names import unused
from ..node import Expr, memoised, names_in, replace
from ..program import Block, Kernel
from ..ranges import interval
from ..sizes import Interval, highest
from ..substitute import substitute
from ..tile import Combine, CombineTuple, Mma, Scan, ScanTuple, SharedTile, Stage
from .layout import (
    CHUNK,
    DTYPE_BYTES,
    WORD,
    Answers,
    CopyShape,
    SharedTileLayout,
    XorMap,
    answers,
    bound_ranges,
    cell_of,
    copy_shape,
    item_bytes,
    lanes_at_once,
    lanes_of,
    layout_of,
    matrix_form,
    matrix_rows,
    operands_of,
    params,
    pitch,
    place_of,
    ranges_of,
    row_and_column,
    shared_tile_rows,
    stages,
    tile_of,
    wavefronts,
)
from .structure import dependencies, summary


@lru_cache(256)
def lane_values(threads: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """Return the thread axes, by name and extent, of the first warp as arrays over its lanes."""
    count = prod(extent for _, extent in threads)
    rest, values = np.arange(min(WARP, count)), {}
    for name, extent in reversed(threads):
        values[name] = rest % extent
        rest = rest // extent
    return values


def at_lanes(e: Any, lanes: dict[str, Any]) -> Any:
    """Return the values of an index expression at every lane, with loops and register axes at 0."""
    return evaluate(e, defaultdict(int, lanes))


class WarpRequest(NamedTuple):
    """One warp access of a shared tile. width in words; rows, columns: of the lanes; touched: row bits of registers.

    item: bytes of an element; times: how often it is made.
    """

    width: int
    rows: Any
    columns: Any
    touched: int
    item: int = WORD
    times: int = 1


class Access(NamedTuple):
    """An access of a shared tile, independent of the padding of its rows.

    run: neighbouring elements that a thread accesses. rows, columns: of the lanes. touched: row bits that registers
    vary.
    values: elements that a thread accesses in all.
    """

    run: int
    rows: Any
    columns: Any
    touched: int
    values: int


class Requests(tuple[WarpRequest, ...]):
    """The warp accesses of a shared tile. known: costs computed so far, by layout."""

    @cached_property
    def known(self) -> Answers:
        return Answers()


def requests(kernel: Kernel, stage: Stage, body: Block) -> Requests:
    """Return every warp access of this shared tile in a block, and the copies of a warp.

    They are as wide as the rows of the shared tile allow. An access that is not a vector becomes several accesses.
    """
    key = (requests, stage, item_bytes(kernel, stage), body)
    return answers(kernel).once(key, lambda: _requests(kernel, stage, body))


def _requests(kernel: Kernel, stage: Stage, body: Block) -> Requests:
    """Return the requests of a shared tile.

    All blocks with the same accesses share them, as do all stages with the same layout width.
    """
    item, known, below = item_bytes(kernel, stage), answers(kernel), summary(body)
    accesses: tuple[Any, ...] = (*below.loads, *below.stores)
    own = [access for access in accesses if access.buf == stage.dst]
    places = tuple(dict.fromkeys([_matrix_or_own(kernel, stage, access, below.mmas) for access in own]))
    loops = frozenset([loop.var for loop in below.loops])
    accessed = (_accesses_of, stage.box, stage.depth, item, places, loops)
    copied = None
    if not isinstance(stage, SharedTile) and stage.via != "TMA":
        copied = copy_shape(kernel, stage), lanes_of(kernel, stage), item

    def asked() -> Requests:
        made = known.once(accessed, lambda: _accesses_of(kernel, stage, places, loops, item))
        found = _as_wide_as_rows(made, pitch(stage), item)
        every = (*found, *_copies(*copied)) if copied else found
        return _alike(tuple([(r.width, _hashable(r.rows), _hashable(r.columns), *r[3:]) for r in every]))

    return known.once((*accessed, pitch(stage), copied), asked)


def _hashable(places: Any) -> Any:
    """Return the indices of lanes as a hashable value."""
    return places.astype(np.int64).tobytes() if places.__class__ is np.ndarray else places


@lru_cache(1024)
def _alike(described: tuple[Any, ...]) -> Requests:
    """Return the requests for a hashable description: one object and one cache of costs for all equal shared tiles."""
    return Requests(WarpRequest(width, _read(rows), _read(columns), *rest) for width, rows, columns, *rest in described)


def _read(described: Any) -> Any:
    return np.frombuffer(described, np.int64) if described.__class__ is bytes else described


def _matrix_or_own(kernel: Kernel, stage: Any, access: Load | Store, products: tuple[Mma, ...]) -> tuple[Any, bool]:
    """Return the index of an access, and whether it is a row of a matrix that a warp loads for an Mma."""
    if not isinstance(access, Load) or not isinstance(stage, Stage):
        return access.idx, False
    for product in products:
        for e, operand in zip((product.a, product.b), operands_of(product), strict=True):
            form = matrix_form(kernel, stage, access, operand) if e == Var(access.dst) else None
            if form is not None:
                return substitute(access.idx, matrix_rows(operand, form)), True
    return access.idx, False


def _as_wide_as_rows(accesses: tuple[Access, ...], row: int, item: int) -> list[WarpRequest]:
    found: list[WarpRequest] = []
    for run, rows, first, touched, values in accesses:
        width, times = run if row % run == 0 else 1, max(1, values // run)
        words = max(1, width * item // WORD)
        found += [WarpRequest(words, rows, first + shift, touched, item, times) for shift in range(0, run, width)]
    return found


def _accesses_of(
    kernel: Kernel, stage: Stage, indices: tuple[Any, ...], loops: NameSet, item: int
) -> tuple[Access, ...]:
    """Return the accesses of a shared tile at some indices, each paired with whether it is a row of a matrix.

    loops: loops that a thread runs between the accesses.
    """
    tile = tile_of(kernel)
    axes = tile.axes if tile else ()
    lanes = lane_values(tuple((axis.name, axis.extent) for axis in axes if axis.role == "THREAD"))
    ranges = ranges_of(kernel)
    fixed = frozenset(axis.name for axis in axes if axis.role in ("THREAD", "BLOCK"))
    found: list[Access] = []
    wide = (CHUNK // item, CHUNK // 2 // item) if item < WORD else (CHUNK // item,)
    inside = {axis.name for axis in axes} - fixed | loops
    for idx, matrix in indices:
        row, column = row_and_column(kernel, stage, cell_of(stage, idx))
        run = wide[0] if matrix else next((n for n in wide if _runs_of(n, column, fixed, ranges)), 1)
        values = prod(_extent(ranges, name) for name in free_names((row, column)) & inside)
        values *= run if matrix else 1  # of a matrix a thread has one element of each address
        places = at_lanes(row, lanes), at_lanes(column, lanes)
        found.append(Access(run, *places, _touched(row, fixed, ranges), values))
    return tuple(found)


def _extent(ranges: Mapping[str, Interval], name: str) -> int:
    low, high = ranges.get(name, (0, 0))
    return high - low + 1


@lru_cache(1024)
def _copies(shape: CopyShape, count: int, item: int) -> tuple[WarpRequest, ...]:
    """Return the copies of a warp, `count` lanes a row, where they move whole words."""
    width, chunks, rows, threads = shape
    if width * item < WORD:
        return ()
    thread, times = np.arange(min(WARP, threads)), -(-rows * chunks // threads)
    return (WarpRequest(width * item // WORD, thread // count % rows, thread % count * width, 0, item, times),)


def _runs_of(width: int, column: Any, fixed: NameSet, ranges: Any) -> bool:
    """Return whether a thread reads `width` aligned neighbours."""
    terms, _ = linear(column)
    for atom, n in terms.items():
        if atom.__class__ is Var and n == 1 and atom.name not in fixed and interval(atom, ranges)[1] >= width - 1:
            return all(k % width == 0 for other, k in terms.items() if other is not atom)
    return False


def _touched(row: Any, fixed: NameSet, ranges: Any) -> int:
    bits = 0
    for atom, n in linear(row)[0].items():
        if not free_names(atom) <= fixed:
            for step in range(min(interval(atom, ranges)[1], 64) + 1):
                bits |= n * step
    return bits


# ---- layouts of shared memory: which costs the fewest wavefronts


SPANS = (32, 64, 128)  # bytes of a row that TMA swizzles
NO_BIT = 31  # in a xor map: this bit of the chunk stays as it is


@memoised
def exchange_bytes(kernel: Kernel) -> int:
    """Return the bytes of shared memory through which threads of several warps combine: a value per warp or thread."""
    tile = tile_of(kernel)
    if not tile:
        return 0
    found = summary(tile.body)
    return sum(_exchange(stmt, tile.axes, kernel.body) for stmt in (*found.combines, *found.scans))


def _exchange(stmt: Combine | CombineTuple | Scan | ScanTuple, axes: tuple[Axis, ...], body: Block) -> int:
    over, values = free_names(stmt.over), 0
    for acc in stmt.accs:
        held = dependencies(tuple(_added(acc, body)), body) - over
        values += prod(axis.extent for axis in axes if axis.role in ("REG", "VEC") and axis.name in held)
    threads = [axis for axis in axes if axis.role == "THREAD"]
    count = stride = prod(extents_of(threads))
    total = 0
    for axis in threads:
        stride //= axis.extent
        if axis.name in over and stride * axis.extent > WARP:
            total += WORD * values * count // max(1, min(axis.extent, WARP // stride))
    return total


def _added(acc: str, body: Block) -> Iterator[Any]:
    """Yield the values that a block adds to an accumulator."""
    found = summary(body)
    yield from (stmt.val for stmt in found.sums if stmt.acc == acc)
    yield from (stmt.vals for stmt in found.merges if acc in stmt.accs)


# ---- what a layout costs


def cycles(stage: Stage, asked: Requests) -> int:
    """Return the wavefronts of some requests of a shared tile, in its own layout."""
    return cycles_in(layout_of(stage), asked)


def cycles_in(layout: SharedTileLayout, asked: Requests) -> int:
    """Return the wavefronts of some requests of a shared tile in a given layout."""
    return asked.known.once(layout, lambda: _cycles(layout, asked))


def _cycles(layout: SharedTileLayout, asked: Requests) -> int:
    total = 0
    for width, row, column, _, item, times in asked:
        places = place_of(layout, row, column, item)  # one of all lanes, where they differ in nothing
        places = places if places.__class__ is np.ndarray else np.atleast_1d(places)
        total += times * wavefronts(places * item // WORD, width)
    return total


def bank_cycles(kernel: Kernel, body: Block) -> int:
    """Return the wavefronts of one warp for the accesses of a block to all shared tiles, and for their copies."""
    return sum(cycles(stage, requests(kernel, stage, body)) for stage in stages(kernel).values())


def padded_cycles(kernel: Kernel, stage: Stage, body: Block, pad: int) -> int:
    """Return the wavefronts of a warp for a shared tile with `pad` unused elements a row, which may narrow accesses."""
    padded = replace(stage, pad=pad)
    return cycles(padded, requests(kernel, padded, body))


def padded_accesses(kernel: Kernel, stage: Stage, body: Block, pad: int) -> int:
    """Return the instructions of one warp for a shared tile with `pad` unused elements a row."""
    return sum(request.times for request in requests(kernel, replace(stage, pad=pad), body))


def swizzled_cycles(stage: Stage, asked: Requests, span: int) -> int:
    """Return the wavefronts of some requests if the rows are split into TMA swizzle spans of `span` bytes."""
    inner = stage.box[-1]
    width = min(span // asked[0].item, inner.extent) if asked else inner.extent
    cut = replace(stage, box=(*stage.box[:-1], replace(inner, extent=width)), swizzle=span)
    moved = (
        r._replace(rows=r.rows + r.columns // width * shared_tile_rows(stage), columns=r.columns % width) for r in asked
    )
    return cycles(cut, Requests(moved))


def box_loss(kernel: Kernel, stage: Stage, body: Block, pads: Iterable[int]) -> int:
    """Return the additional wavefronts of a shared tile in TMA's best layout, compared with the best of threads.

    pads: unused elements that rows may have in the layout of threads.
    """
    boxed = replace(stage, via="TMA")
    asked, row = requests(kernel, boxed, body), stage.box[-1].extent * item_bytes(kernel, stage)
    written = [cycles(boxed, asked), *(swizzled_cycles(boxed, asked, span) for span in SPANS if row % span == 0)]
    padded = [padded_cycles(kernel, stage, body, pad) for pad in pads]
    return min(written) - min((xor_cycles(boxed, asked, best_xor(kernel, boxed, body)), *padded))


# ---- xor layouts


def xor_cycles(stage: Stage, asked: Requests, bits: XorMap) -> int:
    """Return the wavefronts of some requests under a xor map."""
    return cycles_in(SharedTileLayout(tuple(bits), stage.swizzle, pitch(stage)), asked)


def xor_maps(stage: Stage, item: int = WORD) -> tuple[XorMap, ...]:
    """Return the xor maps worth trying, the plain layout first.

    A map has for each bit of the chunk one bit of the row, or none.
    """
    chunks, rows = stage.box[-1].extent * item // CHUNK, shared_tile_rows(stage)
    if stage.box[-1].extent * item % CHUNK or chunks & (chunks - 1) or pitch(stage) & (pitch(stage) - 1):
        return ((),)
    return _maps(min(3, chunks.bit_length() - 1), min(6, (rows - 1).bit_length()))


@cache
def _maps(chunk_bits: int, row_bits: int) -> tuple[XorMap, ...]:
    maps = itertools.product((NO_BIT, *range(row_bits)), repeat=chunk_bits)
    return ((), *(bits for bits in maps if _distinct(bits)))


def _distinct(bits: XorMap) -> bool:
    used = [bit for bit in bits if bit != NO_BIT]
    return bool(used) and len(set(used)) == len(used)


@lru_cache(256)
def _by_side_costs(maps: tuple[XorMap, ...], touched: int) -> tuple[XorMap, ...]:
    """Sort the maps by the flipping row bits that registers touch, then by all flipping bits.

    Each such bit doubles the addresses.
    """

    def side_costs(bits: XorMap) -> tuple[Any, ...]:
        used = [bit for bit in bits if bit != NO_BIT]
        return sum(touched >> bit & 1 for bit in used), len(used), bits

    return tuple(sorted(maps, key=side_costs))


def best_xor(kernel: Kernel, stage: Stage, body: Block) -> XorMap:
    """Return the xor map with the fewest wavefronts, and of several such the one with the least side costs."""
    asked = requests(kernel, stage, body)
    best: tuple[int, ...] = ()
    fewest, least = xor_cycles(stage, asked, ()), _least(asked)
    if fewest == least:
        return best
    touched = reduce(operator.or_, [request.touched for request in asked], 0)
    layout = layout_of(stage)
    for bits in _by_side_costs(xor_maps(stage, item_bytes(kernel, stage))[1:], touched):
        taken = cycles_in(layout._replace(xor=bits), asked)
        if taken < fewest:
            best, fewest = bits, taken
            if fewest == least:
                break
    return best


def _least(asked: Requests) -> int:
    """Return the wavefronts that no layout can avoid: for each group of lanes its distinct words over the 32 banks."""
    return asked.known.once(_least, lambda: sum(map(_least_of, asked)))


def _least_of(request: WarpRequest) -> int:
    cells = np.atleast_1d(request.rows * (1 << 20) + request.columns * request.item // WORD).tolist()
    group, total = lanes_at_once(cells, request.width) if len(cells) == WARP else WARP, 0
    for first in range(0, len(cells), group):
        total += -(-len(set(cells[first : first + group])) * request.width // WARP)
    return total * request.times


# ---- footprints: the boxes that the loads of a buffer stay in, and whether threads of a block share them


STAGED_DTYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "i32", "i8")


class Footprint(NamedTuple):
    """The box `buf[origin + box]`. smem: a name for its copy; base, dims: origin and number of each kept dimension.

    reuse: whether the block reads some element more than once. cells: index of the copy if elements are gathered; the
    origin then mentions the labels of the shared tile.
    """

    buf: Var
    smem: Var
    origin: tuple[Any, ...]
    box: tuple[Axis, ...]
    base: tuple[Any, ...]
    dims: tuple[int, ...]
    reuse: bool
    bytes: int
    cells: tuple[Expr, ...] = ()


class RangedBlock(NamedTuple):
    """A block with the ranges of all names in it. uniform: the names that have one value for all threads."""

    kernel: Kernel
    body: Block
    threads: NameSet
    local: NameSet
    uniform: NameSet
    ranges: dict[str, Interval]


def region(
    kernel: Kernel, body: Block, axes: Iterable[Axis], outside: dict[str, Interval], extra: dict[str, int]
) -> RangedBlock:
    """Return a block with the ranges of all its names.

    outside: names in scope around the body, with their ranges. extra: additional inner loops, by name and extent.
    """
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
    """Return the boxes that contain the loads of inputs.

    A buffer has one box, or several disjoint boxes (packed queries and keys). A guarded load counts with all its
    indices: those that it does not read may lie outside of the buffer and are copied as 0.
    """
    wanted: dict[str, list[Load]] = {}
    shared_tiles, known = stages(here.kernel), params(here.kernel)
    inputs = {param.name for param in here.kernel.ins}
    for load in summary(here.body).loads:
        if load.buf in inputs and load.buf not in shared_tiles and known[load.buf].dtype in STAGED_DTYPES:
            wanted.setdefault(load.buf, []).append(load)
    taken: set[str] = set()
    found = []
    for buf, loads in wanted.items():
        boxes = _boxes(loads, here)
        found += [] if boxes else _gathered(buf, loads, here, taken)
        for box, within in boxes:
            if any(extent > 1 for extent, _ in box.sides):
                found.append(_boxed(buf, within, box, here, taken))
    return tuple(found)


def lies_in(idx: tuple[Any, ...], foot: Footprint, here: RangedBlock) -> bool:
    """Return whether a load with this index is one of the loads of a footprint."""
    if foot.cells:
        labels = {cell.name: Var(axis.name) for cell, axis in zip(foot.cells, foot.box, strict=True)}
        places = substitute(idx, labels)
        return places == foot.origin
    box = box_of(idx, here)
    return box is not None and box.origin == foot.origin


class IndexBox(NamedTuple):
    """Box of an index. origin: of each dimension. sides: (extent, name of a loop or axis along it)."""

    origin: tuple[Any, ...]
    sides: tuple[tuple[int, str], ...]


def _boxes(loads: list[Load], here: RangedBlock) -> list[tuple[IndexBox, list[Load]]]:
    """Return the boxes of all loads of a buffer, each with its loads.

    The result is empty if a load has no box, or two boxes overlap.
    """
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
    """Return whether two boxes have no element in common, or move differently, so that two copies share little."""
    for one, other, (side, _), (other_side, _) in zip(a.origin, b.origin, a.sides, b.sides, strict=True):
        terms, constant = linear(subtract(other, one))
        if terms or constant >= side or -constant >= other_side:
            return True
    return False


def box_of(idx: tuple[Any, ...], here: RangedBlock) -> IndexBox | None:
    """Return the box of a load, or None if the load has no box.

    A box requires an index that is a uniform origin plus non-negative multiples of local names.
    """
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


def _boxed(buf: str, loads: list[Load], box: IndexBox, here: RangedBlock, taken: set[str]) -> Footprint:
    dims = tuple(dim for dim, (extent, _) in enumerate(box.sides) if extent > 1)
    labels = [box.sides[dim][1] for dim in dims]
    if len(set(labels)) < len(labels):
        labels = [f"d{dim}" for dim in dims]
    tile_box = tuple(Axis(label, box.sides[dim][0], None, dim) for label, dim in zip(labels, dims, strict=True))
    base = tuple(box.origin[dim] for dim in dims)
    return _footprint(buf, loads, here, taken, box.origin, tile_box, base, dims)


def _footprint(
    buf: str,
    loads: list[Load],
    here: RangedBlock,
    taken: set[str],
    origin: tuple[Any, ...],
    box: tuple[Axis, ...],
    base: tuple[Any, ...] = (),
    dims: tuple[int, ...] = (),
    cells: tuple[Expr, ...] = (),
) -> Footprint:
    """Return a footprint with a new name for its copy, its bytes, and whether the loads read an element again."""
    varying = frozenset().union(*(dependencies(load.idx, here.body) for load in loads))
    reuse = len(loads) > 1 or any(here.ranges[name][1] > 0 for name in here.threads - varying)
    size = DTYPE_BYTES[params(here.kernel)[buf].dtype] * prod(extents_of(box))
    smem = unused(f"{buf}_smem", names_in(here.kernel) | taken)
    taken.add(smem)
    return Footprint(Var(buf), Var(smem), origin, box, base, dims, reuse, size, cells)


def _runs(place: Expr, name: str) -> bool:
    """Return whether the first step of a name moves an index by one."""
    start = dict.fromkeys(free_names(place), 0)
    return bool(evaluate(place, start | {name: 1}) == evaluate(place, start) + 1)


def _gathered(buf: str, loads: list[Load], here: RangedBlock, taken: set[str]) -> list[Footprint]:
    """Return the footprint of loads whose common index is not a box: each combination of its axes and loops is a cell.

    What runs along memory comes last, or else axes of the block do: its threads copy along them.
    """
    idx = loads[0].idx
    runs = {name for name in free_names(idx) & here.local if _runs(idx[-1], name)}
    runs = runs & here.threads or runs
    order = list(here.ranges)
    names = sorted(free_names(idx) & here.local, key=lambda n: (n in runs, n in here.threads, order.index(n)))
    inside = free_names(idx) <= here.local | here.uniform and all(here.ranges[name][0] == 0 for name in names)
    if not names or not inside or any(load.idx != idx for load in loads):
        return []
    known = names_in(here.kernel) | taken
    labels = {name: unused(f"{name}_at", known) for name in names}
    taken.update(labels.values())
    tile_box = tuple(Axis(labels[name], here.ranges[name][1] + 1) for name in names)
    origin = substitute(idx, {name: Var(label) for name, label in labels.items()})
    return [_footprint(buf, loads[:1], here, taken, origin, tile_box, cells=tuple(map(Var, names)))]
