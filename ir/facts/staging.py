"""Questions about shared slabs: who reads them how, and which layout costs the fewest wavefronts."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..expr import Axis, free_names
from ..node import memoised, replace
from ..program import Block, Kernel
from ..tile import Combine, CombineTuple, Scan, ScanTuple, Stage
from .layout import (
    CHUNK,
    WORD,
    SlabLayout,
    copy_shape,
    item_bytes,
    lanes_at_once,
    layout_of,
    pitch,
    place_of,
    slab_rows,
    stages,
    tile_of,
    wavefronts,
)
from .requests import WARP, Requests, WarpRequest, requests
from .structure import dependencies, summary

SPANS = (32, 64, 128)  # bytes of a row that TMA swizzles
NO_BIT = 31  # in a xor map: this bit of the chunk stays as it is


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
