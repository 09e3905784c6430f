"""Questions about shared slabs: who reads them how, and which layout costs the fewest wavefronts."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..expr import Axis, Binary, Call, Not, Sum, Var, free_names, linear
from ..loop import Load, Store
from ..node import memoised, replace
from ..program import Block, Kernel
from ..ranges import Interval, interval
from ..substitute import substitute
from ..tile import Combine, CombineTuple, Mma, Scan, ScanTuple, Slab, Stage
from .fragments import matrix_form, matrix_rows, operands_of
from .layout import (
    CHUNK,
    WORD,
    CopyShape,
    SlabLayout,
    answers,
    cell_of,
    copy_shape,
    item_bytes,
    lanes_at_once,
    lanes_of,
    layout_of,
    pitch,
    place_of,
    ranges_of,
    row_and_column,
    slab_rows,
    stages,
    tile_of,
    wavefronts,
)
from .structure import dependencies, summary

WARP = 32
SPANS = (32, 64, 128)  # bytes of a row that TMA swizzles
NO_BIT = 31  # in a xor map: this bit of the chunk stays as it is


@functools.lru_cache(256)
def lane_values(threads: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """The thread axes, by name and extent, of the first warp as arrays over its lanes."""
    count = math.prod(extent for _, extent in threads)
    rest, values = np.arange(min(WARP, count)), {}
    for name, extent in reversed(threads):
        values[name] = rest % extent
        rest = rest // extent
    return values


def at_lanes(e: Any, lanes: dict[str, Any]) -> Any:
    """An index expression at every lane; loops and register axes at 0."""
    kind = e.__class__
    if kind is Var:
        return lanes.get(e.name, 0)
    if kind is Sum:
        return e.constant + sum(at_lanes(atom, lanes) * n for atom, n in e.terms)
    if kind is Binary and e.op in _ARITHMETIC:
        return _ARITHMETIC[e.op](at_lanes(e.a, lanes), at_lanes(e.b, lanes))
    return 0 if kind in (Binary, Call, Not) else e


_ARITHMETIC: dict[str, Any] = {"*": np.multiply, "//": np.floor_divide, "%": np.remainder, "^": np.bitwise_xor}


def spread_lanes(kernel: Kernel, stage: Stage) -> int:
    """Lanes per row so that all threads copy a whole number of rows at once; 0 if they do not come out even.

    Copies of 16 bytes: as few as share a sector. Words: a warp, whose words are in different banks.
    """
    width, chunks, rows, threads = copy_shape(kernel, stage)
    if stage.gathered:
        return 0
    if width * item_bytes(kernel, stage) == WORD:
        even = chunks % WARP == threads % WARP == 0 < threads and rows % (threads // WARP) == 0
        return WARP if even and min(chunks, threads) > WARP else 0
    if width * item_bytes(kernel, stage) == CHUNK and math.gcd(chunks, threads) == 1 < chunks <= min(WARP, threads):
        return chunks  # neighbours share sectors, though a few threads copy nothing
    if width * item_bytes(kernel, stage) < CHUNK or threads % rows or rows * chunks % threads:
        return 0
    lanes = max(threads // rows, 2)
    return lanes if lanes < chunks and chunks % lanes == 0 else 0


@memoised
def exchange_bytes(kernel: Kernel) -> int:
    """Shared memory through which threads of several warps combine: one partial value per warp, or per thread."""
    tile = tile_of(kernel)
    if not tile:
        return 0
    found = summary(tile.body)
    return sum(_exchange(stmt, tile.axes, kernel.body) for stmt in (*found.combines, *found.scans))


def _exchange(stmt: Combine | CombineTuple | Scan | ScanTuple, axes: tuple[Axis, ...], body: Block) -> int:
    over, values = free_names(stmt.over), 0
    for acc in stmt.accs:
        held = dependencies(tuple(_added(acc, body)), body) - over
        values += math.prod(axis.extent for axis in axes if axis.role in ("REG", "VEC") and axis.name in held)
    threads = [axis for axis in axes if axis.role == "THREAD"]
    count = stride = math.prod(axis.extent for axis in threads)
    total = 0
    for axis in threads:
        stride //= axis.extent
        if axis.name in over and stride * axis.extent > WARP:
            total += WORD * values * count // max(1, min(axis.extent, WARP // stride))
    return total


def _added(acc: str, body: Block) -> Iterator[Any]:
    """What is folded into an accumulator."""
    found = summary(body)
    yield from (stmt.val for stmt in found.sums if stmt.acc == acc)
    yield from (stmt.vals for stmt in found.merges if acc in stmt.accs)


# ---- what a layout costs


class WarpRequest(NamedTuple):
    """One warp access of a slab. width in words; rows, columns of the lanes; touched: row bits that registers vary.

    item: bytes of an element; times: how often it is made.
    """

    width: int
    rows: Any
    columns: Any
    touched: int
    item: int = WORD
    times: int = 1


class Access(NamedTuple):
    """An access of a slab, whatever the padding of its rows: run of neighbours that a thread accesses, rows and columns
    at the lanes, row bits that registers vary, how many elements a thread accesses in all."""

    run: int
    rows: Any
    columns: Any
    touched: int
    values: int


class Requests(tuple[WarpRequest, ...]):
    """The warp accesses of a slab. known: what they cost in a layout, as far as somebody asked."""

    known: dict[Any, Any]

    def __new__(cls, found: Iterable[WarpRequest]) -> Requests:
        made = super().__new__(cls, found)
        made.known = {}
        return made


def requests(kernel: Kernel, stage: Stage, body: Block) -> Requests:
    """Every warp access of this slab in a block, and the copies of a warp.

    They are as wide as the rows of the slab allow: what is not a vector any more is several accesses.
    """
    known = answers(kernel)
    key = (requests, stage, item_bytes(kernel, stage), body)
    if key not in known:
        known[key] = _requests(kernel, stage, body)
    return known[key]  # type: ignore[no-any-return]


def _requests(kernel: Kernel, stage: Stage, body: Block) -> Requests:
    """The same of any block with the same accesses, and of any stage that is laid out so wide."""
    item, known, below = item_bytes(kernel, stage), answers(kernel), summary(body)
    every: tuple[Any, ...] = (*below.loads, *below.stores)
    own = [access for access in every if access.buf == stage.dst]
    places = tuple(dict.fromkeys([_matrix_or_own(kernel, stage, access, below.mmas) for access in own]))
    loops = frozenset([loop.var for loop in below.loops])
    accessed = (_accesses_of, stage.slab, stage.depth, item, places, loops)
    copied = None
    if not isinstance(stage, Slab) and stage.via != "TMA":
        copied = copy_shape(kernel, stage), lanes_of(kernel, stage), item
    key = (*accessed, pitch(stage), copied)
    if key not in known:
        if accessed not in known:
            known[accessed] = _accesses_of(kernel, stage, places, loops, item)
        found = _as_wide_as_rows(known[accessed], pitch(stage), item)
        known[key] = Requests((*found, *_copies(*copied)) if copied else found)
    return known[key]  # type: ignore[no-any-return]


def _matrix_or_own(kernel: Kernel, stage: Any, access: Load | Store, products: tuple[Mma, ...]) -> tuple[Any, bool]:
    """Where an access is, and whether it is a row of a matrix that a warp loads for an Mma."""
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
    kernel: Kernel, stage: Stage, indices: tuple[Any, ...], loops: frozenset[str], item: int
) -> tuple[Access, ...]:
    """The accesses of a slab at some indices, and whether each is a row of a matrix. loops: those that a thread walks
    between them."""
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
        values = math.prod(_extent(ranges, name) for name in free_names((row, column)) & inside)
        values *= run if matrix else 1  # of a matrix a thread has one element of each address
        places = at_lanes(row, lanes), at_lanes(column, lanes)
        found.append(Access(run, *places, _touched(row, fixed, ranges), values))
    return tuple(found)


def _extent(ranges: Mapping[str, Interval], name: str) -> int:
    low, high = ranges.get(name, (0, 0))
    return high - low + 1


@functools.lru_cache(1024)
def _copies(shape: CopyShape, count: int, item: int) -> tuple[WarpRequest, ...]:
    """The copies of a warp, `count` lanes a row, where they move whole words."""
    width, chunks, rows, threads = shape
    if width * item < WORD:
        return ()
    thread, times = np.arange(min(WARP, threads)), -(-rows * chunks // threads)
    return (WarpRequest(width * item // WORD, thread // count % rows, thread % count * width, 0, item, times),)


def _runs_of(width: int, column: Any, fixed: frozenset[str], ranges: Any) -> bool:
    """Whether a thread reads `width` aligned neighbours."""
    terms, _ = linear(column)
    for atom, n in terms.items():
        if atom.__class__ is Var and n == 1 and atom.name not in fixed and interval(atom, ranges)[1] >= width - 1:
            return all(k % width == 0 for other, k in terms.items() if other is not atom)
    return False


def _touched(row: Any, fixed: frozenset[str], ranges: Any) -> int:
    bits = 0
    for atom, n in linear(row)[0].items():
        if not free_names(atom) <= fixed:
            for step in range(min(interval(atom, ranges)[1], 64) + 1):
                bits |= n * step
    return bits


def cycles(stage: Stage, asked: tuple[WarpRequest, ...]) -> int:
    """Wavefronts of some requests of a slab, in the layout that it has."""
    return cycles_in(layout_of(stage), asked)


def cycles_in(layout: SlabLayout, asked: tuple[WarpRequest, ...]) -> int:
    """The same in another layout."""
    if asked.__class__ is not Requests:
        return _cycles(layout, asked)
    if layout not in asked.known:
        asked.known[layout] = _cycles(layout, asked)
    return asked.known[layout]  # type: ignore[no-any-return]


def _cycles(layout: SlabLayout, asked: tuple[WarpRequest, ...]) -> int:
    total = 0
    for width, row, column, _, item, times in asked:
        places = place_of(layout, row, column, item)  # one of all lanes, where they differ in nothing
        places = places if places.__class__ is np.ndarray else np.atleast_1d(places)
        total += times * wavefronts(places * item // WORD, width)
    return total


def bank_cycles(kernel: Kernel, body: Block) -> int:
    """Wavefronts of one warp for what a block reads of all slabs, and for their copies."""
    return sum(cycles(stage, requests(kernel, stage, body)) for stage in stages(kernel).values())


def padded_cycles(kernel: Kernel, stage: Stage, body: Block, pad: int) -> int:
    """Wavefronts of one warp for a slab, if its rows had `pad` unused elements: accesses may be less wide then."""
    padded = replace(stage, pad=pad)
    return cycles(padded, requests(kernel, padded, body))


def padded_accesses(kernel: Kernel, stage: Stage, body: Block, pad: int) -> int:
    """Instructions of one warp for such a slab."""
    return sum(request.times for request in requests(kernel, replace(stage, pad=pad), body))


def swizzled_cycles(stage: Stage, asked: tuple[WarpRequest, ...], span: int) -> int:
    """Wavefronts of some requests, if rows were cut into spans of so many bytes, and TMA swizzled these."""
    inner = stage.slab[-1]
    width = min(span // asked[0].item, inner.extent) if asked else inner.extent
    cut = replace(stage, slab=(*stage.slab[:-1], replace(inner, extent=width)), swizzle=span)
    moved = (r._replace(rows=r.rows + r.columns // width * slab_rows(stage), columns=r.columns % width) for r in asked)
    return cycles(cut, tuple(moved))


def box_loss(kernel: Kernel, stage: Stage, body: Block, pads: Iterable[int]) -> int:
    """Wavefronts that reading a slab takes more in the best layout that TMA writes than in the best that threads write.

    pads: unused elements that rows may have there.
    """
    boxed = replace(stage, via="TMA")
    asked, row = requests(kernel, boxed, body), stage.slab[-1].extent * item_bytes(kernel, stage)
    written = [cycles(boxed, asked), *(swizzled_cycles(boxed, asked, span) for span in SPANS if row % span == 0)]
    padded = [padded_cycles(kernel, stage, body, pad) for pad in pads]
    return min(written) - min((xor_cycles(boxed, asked, best_xor(kernel, boxed, body)), *padded))


# ---- xor layouts


def xor_cycles(stage: Stage, asked: tuple[WarpRequest, ...], bits: tuple[int, ...]) -> int:
    """Wavefronts of some requests under a xor map."""
    return cycles_in(SlabLayout(tuple(bits), stage.swizzle, pitch(stage)), asked)


def xor_maps(stage: Stage, item: int = WORD) -> tuple[tuple[int, ...], ...]:
    """The xor maps worth trying: for each bit of the chunk one bit of the row, or none; the plain layout first."""
    chunks, rows = stage.slab[-1].extent * item // CHUNK, slab_rows(stage)
    if stage.slab[-1].extent * item % CHUNK or chunks & (chunks - 1) or pitch(stage) & (pitch(stage) - 1):
        return ((),)
    return _maps(min(3, chunks.bit_length() - 1), min(6, (rows - 1).bit_length()))


@functools.cache
def _maps(chunk_bits: int, row_bits: int) -> tuple[tuple[int, ...], ...]:
    maps = itertools.product((NO_BIT, *range(row_bits)), repeat=chunk_bits)
    return ((), *(bits for bits in maps if _distinct(bits)))


def _distinct(bits: tuple[int, ...]) -> bool:
    used = [bit for bit in bits if bit != NO_BIT]
    return bool(used) and len(set(used)) == len(used)


@functools.lru_cache(256)
def _by_side_costs(maps: tuple[tuple[int, ...], ...], touched: int) -> tuple[tuple[int, ...], ...]:
    """Those first that flip by few row bits that registers touch, then by few bits: each doubles the addresses."""

    def side_costs(bits: tuple[int, ...]) -> tuple[Any, ...]:
        used = [bit for bit in bits if bit != NO_BIT]
        return sum(touched >> bit & 1 for bit in used), len(used), bits

    return tuple(sorted(maps, key=side_costs))


def best_xor(kernel: Kernel, stage: Stage, body: Block) -> tuple[int, ...]:
    """Fewest wavefronts; of these the least side costs."""
    asked = requests(kernel, stage, body)
    best: tuple[int, ...] = ()
    fewest, least = xor_cycles(stage, asked, ()), _least(asked)
    if fewest == least:
        return best
    touched = functools.reduce(operator.or_, [request.touched for request in asked], 0)
    layout = layout_of(stage)
    for bits in _by_side_costs(xor_maps(stage, item_bytes(kernel, stage))[1:], touched):
        taken = cycles_in(layout._replace(xor=bits), asked)
        if taken < fewest:
            best, fewest = bits, taken
            if fewest == least:
                break
    return best


def _least(asked: tuple[WarpRequest, ...]) -> int:
    """Wavefronts that no layout can avoid: for each group of lanes its distinct words over the 32 banks."""
    if asked.__class__ is not Requests:
        return sum(map(_least_of, asked))
    if _least not in asked.known:
        asked.known[_least] = sum(map(_least_of, asked))
    return asked.known[_least]  # type: ignore[no-any-return]


def _least_of(request: WarpRequest) -> int:
    cells = np.atleast_1d(request.rows * (1 << 20) + request.columns * request.item // WORD).tolist()
    group, total = lanes_at_once(cells, request.width) if len(cells) == WARP else WARP, 0
    for first in range(0, len(cells), group):
        total += -(-len(set(cells[first : first + group])) * request.width // WARP)
    return total * request.times
