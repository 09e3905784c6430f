"""Questions about shared slabs: who reads them how, and which layout costs the fewest wavefronts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..expr import Axis, Binary, Call, Not, Sum, Var, free_names, linear
from ..node import memoised, replace
from ..program import Block, Kernel
from ..ranges import interval
from ..tile import Combine, CombineTuple, Slab, Stage
from .layout import (
    CHUNK,
    WORD,
    cell_of,
    copy_shape,
    item_bytes,
    lanes_of,
    physical,
    pitch,
    ranges_of,
    row_and_column,
    slab_rows,
    tile_of,
    wavefronts,
    xor_chunk,
)
from .structure import dependencies, summary

WARP = 32
NO_BIT = 31  # in a xor map: this bit of the chunk stays as it is


def lane_values(axes: tuple[Axis, ...]) -> dict[str, Any]:
    """The thread axes of the first warp as arrays over its lanes."""
    threads = [axis for axis in axes if axis.role == "THREAD"]
    count = math.prod(axis.extent for axis in threads)
    rest, values = np.arange(min(WARP, count)), {}
    for axis in reversed(threads):
        values[axis.name] = rest % axis.extent
        rest = rest // axis.extent
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


def bank_cycles(
    kernel: Kernel, body: Block, axes: tuple[Axis, ...], slabs: dict[str, Stage], only: str | None = None
) -> int:
    """Shared-memory cycles of one warp, every load of a slab counted once, element by element."""
    lanes, total = lane_values(axes), 0
    for load in dict.fromkeys((load.buf, load.idx) for load in summary(body).loads):
        stage = slabs.get(load[0])
        if stage is None or (only is not None and only != load[0]):
            continue
        item = item_bytes(kernel, stage)
        words = physical(stage, [at_lanes(e, lanes) for e in cell_of(stage, load[1])], item) * item // WORD
        total += wavefronts(np.broadcast_to(words, len(next(iter(lanes.values()), [0]))), 1)
    return total


def is_box(stage: Stage, source: tuple[int, ...], item: int = WORD) -> bool:
    """Whether TMA can copy the slab: rank, order of dimensions, rows of whole 16 bytes, 256 elements a side."""
    inner, dims, chunk = stage.slab[-1], [axis.dim or 0 for axis in stage.slab], CHUNK // item
    aligned = inner.dim == len(source) - 1 and inner.extent % chunk == 0 and source[-1] % chunk == 0
    return aligned and len(source) <= 5 and dims == sorted(dims) and all(axis.extent <= 256 for axis in stage.slab)


def spread_lanes(kernel: Kernel, stage: Stage) -> int:
    """Lanes per row so that all threads copy a whole number of rows at once; 0 if they do not come out even."""
    width, chunks, rows, threads = copy_shape(kernel, stage)
    if width * item_bytes(kernel, stage) < CHUNK or threads % rows or rows * chunks % threads:
        return 0
    lanes = max(threads // rows, 2)
    return lanes if lanes < chunks and chunks % lanes == 0 else 0


@memoised
def exchange_bytes(kernel: Kernel) -> int:
    """Shared memory through which threads of several warps combine: one partial value per warp, or per thread."""
    tile = tile_of(kernel)
    return sum(_exchange(stmt, tile.axes, kernel.body) for stmt in summary(tile.body).combines) if tile else 0


def _exchange(stmt: Combine | CombineTuple, axes: tuple[Axis, ...], body: Block) -> int:
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


# ---- xor layouts


class Request(NamedTuple):
    """One warp access of a slab. width in words; rows, columns of the lanes; touched: row bits that registers vary.

    item: bytes of an element.
    """

    width: int
    rows: Any
    columns: Any
    touched: int
    item: int = WORD


def requests(kernel: Kernel, stage: Stage, body: Block) -> tuple[Request, ...]:
    """Every warp read of this slab in a block, and its 16-byte copy."""
    tile = tile_of(kernel)
    axes = tile.axes if tile else ()
    lanes, ranges = lane_values(axes), ranges_of(kernel)
    fixed = frozenset(axis.name for axis in axes if axis.role in ("THREAD", "BLOCK"))
    found, item, below = [], item_bytes(kernel, stage), summary(body)
    wide = (CHUNK // item, CHUNK // 2 // item) if item < WORD else (CHUNK // item,)
    every: tuple[Any, ...] = (*below.loads, *below.stores)
    for idx in dict.fromkeys(access.idx for access in every if access.buf == stage.dst):
        row, column = row_and_column(kernel, stage, cell_of(stage, idx))
        run = next((n for n in wide if _runs_of(n, column, fixed, ranges)), 1)
        width = max(1, run * item // WORD)
        found.append(Request(width, at_lanes(row, lanes), at_lanes(column, lanes), _touched(row, fixed, ranges), item))
    if isinstance(stage, Slab):
        return tuple(found)
    width, _, rows, threads = copy_shape(kernel, stage)
    if width * item == CHUNK:
        count, thread = lanes_of(kernel, stage), np.arange(min(WARP, threads))
        found.append(Request(CHUNK // WORD, thread // count % rows, thread % count * width, 0, item))
    return tuple(found)


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


def xor_cycles(stage: Stage, asked: tuple[Request, ...], bits: tuple[int, ...]) -> int:
    """Wavefronts of some requests under a xor map."""
    swizzled, total = replace(stage, xor=tuple(bits)), 0
    for width, row, column, _, item in asked:
        cells = CHUNK // item
        chunk = xor_chunk(swizzled, row, column // cells)
        words = np.atleast_1d(row * pitch(stage) + chunk * cells + column % cells) * item // WORD
        total += wavefronts(words, width)
    return total


def xor_maps(stage: Stage, item: int = WORD) -> tuple[tuple[int, ...], ...]:
    """The xor maps worth trying: for each bit of the chunk one bit of the row, or none; the plain layout first."""
    chunks, rows = stage.slab[-1].extent * item // CHUNK, slab_rows(stage)
    if stage.slab[-1].extent * item % CHUNK or chunks < 2 or chunks & (chunks - 1) or pitch(stage) & (pitch(stage) - 1):
        return ((),)
    options = (NO_BIT, *range(min(6, (rows - 1).bit_length())))
    maps = itertools.product(options, repeat=min(3, chunks.bit_length() - 1))
    return ((), *(bits for bits in maps if _distinct(bits)))


def _distinct(bits: tuple[int, ...]) -> bool:
    used = [bit for bit in bits if bit != NO_BIT]
    return bool(used) and len(set(used)) == len(used)


def best_xor(kernel: Kernel, stage: Stage, body: Block) -> tuple[int, ...]:
    """Fewest wavefronts; then fewest row bits that registers touch, then fewest bits: each doubles the addresses."""
    asked = requests(kernel, stage, body)
    touched = 0
    for request in asked:
        touched |= request.touched

    def side_costs(bits: tuple[int, ...]) -> tuple[Any, ...]:
        used = [bit for bit in bits if bit != NO_BIT]
        return sum(touched >> bit & 1 for bit in used), len(used), bits

    best: tuple[int, ...] = ()
    fewest = xor_cycles(stage, asked, ())
    for bits in (
        sorted(xor_maps(stage, item_bytes(kernel, stage))[1:], key=side_costs) if fewest > _least(asked) else ()
    ):
        cycles = xor_cycles(stage, asked, bits)
        if cycles < fewest:
            best, fewest = bits, cycles
            if fewest == _least(asked):
                break
    return best


def _least(asked: tuple[Request, ...]) -> int:
    """Wavefronts that no layout can avoid: for each group of lanes its distinct words over the 32 banks."""
    return sum(_least_of(request) for request in asked)


def _least_of(request: Request) -> int:
    group, total = WARP // request.width, 0
    cells = np.atleast_1d(request.rows * (1 << 20) + request.columns * request.item // WORD)
    for first in range(0, len(cells), group):
        total += -(-len(np.unique(cells[first : first + group])) * request.width // WARP)
    return total
