"""How the warps of a kernel access a shared slab: each access at the lanes of a warp, whatever the layout."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..expr import Binary, Call, Not, Sum, Var, free_names, linear
from ..loop import Load, Store
from ..program import Block, Kernel
from ..ranges import Interval, interval
from ..substitute import substitute
from ..tile import Mma, Slab, Stage
from .fragments import matrix_form, matrix_rows, operands_of
from .layout import (
    CHUNK,
    WORD,
    CopyShape,
    answers,
    cell_of,
    copy_shape,
    item_bytes,
    lanes_of,
    pitch,
    ranges_of,
    row_and_column,
    tile_of,
)
from .structure import summary

WARP = 32


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
    accesses: tuple[Any, ...] = (*below.loads, *below.stores)
    own = [access for access in accesses if access.buf == stage.dst]
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
        every = (*found, *_copies(*copied)) if copied else found
        known[key] = _alike(tuple([(r.width, _told(r.rows), _told(r.columns), *r[3:]) for r in every]))
    return known[key]  # type: ignore[no-any-return]


def _told(places: Any) -> Any:
    """Places at lanes as something that dictionaries take."""
    return places.astype(np.int64).tobytes() if places.__class__ is np.ndarray else places


@functools.lru_cache(1024)
def _alike(told: tuple[Any, ...]) -> Requests:
    """The requests that are told so, one object for all slabs that are read alike: what they cost is found once."""
    return Requests(WarpRequest(width, _read(rows), _read(columns), *rest) for width, rows, columns, *rest in told)


def _read(told: Any) -> Any:
    return np.frombuffer(told, np.int64) if told.__class__ is bytes else told


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
