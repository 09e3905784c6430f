"""Memory layout: flat addresses, vector legality, wavefronts, shapes of cooperative copies.

Addresses count elements, of the buffer or of the source of the shared tile. Answers are cached for the ranges of a
kernel, so a repeated query costs a dictionary look-up.
"""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..atoms import ATOMS, WITHIN, WORD_BYTES, Atom, numbers
from ..dtypes import DTYPES
from ..expr import (
    Binary,
    Var,
    add,
    extents_of,
    floordiv,
    free_names,
    linear,
    modulo,
    multiple_of,
    multiply,
    rejoined,
    total,
)
from ..interp.scalar import evaluate
from ..loop import For, Load
from ..node import Expr, Node, memoised, nodes
from ..program import Block, Kernel, Param, Stmt
from ..ranges import by_steps, interval, simplify
from ..sizes import Interval
from ..substitute import substitute
from ..tile import Mma, SharedTile, Stage, Tile
from .structure import own_fields, summary, used_names

R = TypeVar("R")
WORD = 4  # bytes of a bank, and the least that cp.async copies
DTYPE_BYTES = {name: dtype.item_bytes for name, dtype in DTYPES.items()}
CHUNK = 16  # bytes: the widest copy and the unit of every swizzle
VECTOR_BYTES = (4, 8, CHUNK)  # what one instruction moves of several elements
ROW = 128  # bytes after which TMA's swizzles go on
BANKS = 32
IDLE = -1  # the first word of a lane that reads nothing
SECTOR = 32  # bytes: the least that global memory moves


@memoised
def params(kernel: Kernel) -> dict[str, Param]:
    """Return the buffers of a kernel by name."""
    return {param.name: param for param in kernel.params}


@memoised
def stages(kernel: Kernel) -> dict[str, Stage]:
    """Return the shared tiles of a kernel by name, including those for computed values.

    All Stages of one shared tile agree on its layout (a verifier checks it).
    """
    found = summary(kernel.body)
    shared_tiles: tuple[Any, ...] = (*found.stages, *found.shared_tiles)
    return {shared_tile.dst: shared_tile for shared_tile in shared_tiles}


def item_bytes(kernel: Kernel, stage: Stage) -> int:
    """Return the bytes of an element of a shared tile, or of a word if the source is not known."""
    if isinstance(stage, SharedTile):
        return DTYPE_BYTES[stage.dtype]
    source = params(kernel).get(stage.src)
    return WORD if source is None else DTYPE_BYTES[source.dtype]


def shared_tile_bytes(kernel: Kernel, stage: Stage) -> int:
    """Return the bytes of one slot of a shared tile."""
    return item_bytes(kernel, stage) * shared_tile_cells(stage)


def all_shared_tile_bytes(kernel: Kernel) -> int:
    """Return the bytes of all slots of all shared tiles of a kernel."""
    return sum(shared_tile.depth * shared_tile_bytes(kernel, shared_tile) for shared_tile in stages(kernel).values())


@memoised
def tile_of(kernel: Kernel) -> Tile | None:
    """Return the Tile of a kernel, if it has one."""
    return next((stmt for stmt in kernel.body if isinstance(stmt, Tile)), None)


def thread_count(tile: Tile) -> int:
    return math.prod(axis.extent for axis in tile.axes if axis.role == "THREAD")


@memoised
def ranges_of(kernel: Kernel) -> dict[str, Interval]:
    """Return every axis and loop variable with its interval; sibling loops of one name give the union."""
    known: dict[str, Interval] = {}
    tile = tile_of(kernel)
    for stmt in (*([tile] if tile else []), *summary(kernel.body).loops):
        for name, (low, high) in bound_ranges(stmt, known):
            if name in known:
                low, high = min(low, known[name][0]), max(high, known[name][1])
            known[name] = (low, high)
    return known


def bound_ranges(stmt: Node, known: dict[str, Interval]) -> Iterable[tuple[str, Interval]]:
    """Return the names that a Tile or a loop binds, with their intervals."""
    if isinstance(stmt, Tile):
        return [(axis.name, (0, interval(axis.extent, known)[1] - 1)) for axis in stmt.axes]
    if isinstance(stmt, For):
        low, high = interval(stmt.start, known)[0], interval(stmt.stop, known)[1] - 1
        return [(stmt.var, (low, max(low, high)))]
    return []


# ---- addresses


@functools.lru_cache(1024)
def strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return row-major strides, in elements."""
    found: list[Expr] = []
    step: Expr = 1
    for extent in reversed(shape):
        found.append(step)
        step = multiply(step, extent)
    return tuple(reversed(found))


def pitch(stage: Stage) -> int:
    """Return the elements from one innermost row of a shared tile to the next."""
    return int(stage.box[-1].extent) + stage.pad


def shared_tile_rows(stage: Stage) -> int:
    return math.prod(extents_of(stage.box[:-1]))


def shared_tile_cells(stage: Stage) -> int:
    """Return the elements of one slot of a shared tile."""
    return shared_tile_rows(stage) * pitch(stage)


def cell_of(stage: Stage, idx: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the cell that a load of the shared tile reads: its index without the slot."""
    return idx[1:] if stage.depth > 1 else idx


def row_of(stage: Stage, cell: Sequence[Expr]) -> Expr:
    """Return the innermost row that contains a cell."""
    if len(stage.box) == 2:
        return cell[0]
    return total(cell[:-1], strides(extents_of(stage.box[:-1])))


def row_and_column(kernel: Kernel, stage: Stage, cell: Sequence[Expr]) -> tuple[Expr, Expr]:
    """Return row and column of a cell of a shared tile as sums.

    Quotients and remainders are those of whole steps, not of the offset within a step.
    """
    known = ranges_of(kernel)
    row, column = (tidy(e, known) for e in (row_of(stage, cell), cell[-1]))
    return by_steps(row, known), by_steps(column, known)


def address(kernel: Kernel, buf: str, idx: tuple[Expr, ...]) -> Expr:
    """Return the flat address of an access.

    The xor of a shared tile is omitted: it moves whole chunks, so it does not affect vectors.
    """
    place: Any = stages(kernel).get(buf) or params(kernel)[buf]
    return answers(kernel).once((address, place, idx), lambda: _address(kernel, place, idx))


class Answers(dict[Any, Any]):
    """Cached answers about accesses for certain ranges of the names."""

    __slots__ = ("__weakref__",)

    def once(self, key: Any, compute: Callable[[], R]) -> R:
        """Return the answer to a question, which is computed at its first request."""
        if key not in self:
            self[key] = compute()
        answer: R = self[key]
        return answer


_answers: weakref.WeakValueDictionary[Any, Answers] = weakref.WeakValueDictionary()


@memoised
def answers(kernel: Kernel) -> Answers:
    """Return the cache shared by all kernels with the same axes and ranges. Most rule applications change neither."""
    tile = tile_of(kernel)
    key = (tile.axes if tile else (), *ranges_of(kernel).items())
    found = _answers.get(key)
    if found is None:
        found = _answers[key] = Answers()
    return found


def _address(kernel: Kernel, stage: Stage | Param, idx: tuple[Expr, ...]) -> Expr:
    if isinstance(stage, Param):
        return tidy(total(idx, strides(stage.shape)), ranges_of(kernel))
    row, column = row_and_column(kernel, stage, cell_of(stage, idx))
    return total((row, column, idx[0] if stage.depth > 1 else 0), (pitch(stage), 1, shared_tile_cells(stage)))


def tidy(e: Expr, known: dict[str, Interval]) -> Expr:
    """Return e simplified by the ranges, with `(x // n)*n + x % n` combined to `x`."""
    e = simplify(e, known)
    while (joined := rejoined(e, lambda e, n: simplify(Binary("//", e, n), {}))) is not e:
        e = simplify(joined, known)
    return e


# ---- vectors and wavefronts


def is_vector(flat: Expr, name: str, width: int) -> bool:
    """Return whether an address runs over `width` aligned neighbours, forwards or backwards: see `vector_step`."""
    return vector_step(flat, name, width) != 0


def vector_step(flat: Expr, name: str, width: int) -> int:
    """Return how an address runs over `width` aligned neighbours as `name` does from any multiple of it.

    The result is 1 forwards, -1 backwards, and 0 for any other address.
    """
    terms, constant = linear(flat)
    axis = Var(name)
    if axis not in terms and name in free_names(flat):
        terms, constant = linear(_from_a_multiple(flat, axis, width))
    step = terms.get(axis)
    if step not in (1, -1) or (constant if step == 1 else constant + 1) % width:
        return 0
    others = ((atom, factor) for atom, factor in terms.items() if atom is not axis)
    aligned = all(n * multiple_of(atom) % width == 0 and name not in free_names(atom) for atom, n in others)
    return step if aligned else 0


def _from_a_multiple(flat: Expr, axis: Var, width: int) -> Expr:
    """Return the address with an axis as vector number and element. Terms constant within a vector are moved out."""
    whole = Var(f"{axis.name}_whole")
    ranges = {axis.name: (0, width - 1)}
    return by_steps(simplify(substitute(flat, {axis.name: add(multiply(whole, width), axis)}), ranges), ranges)


XorMap = tuple[int, ...]  # bit n of a chunk is flipped by bit xor[n] of the row


class SharedTileLayout(NamedTuple):
    """Layout of a shared tile: row bits that flip chunks, swizzle bytes, and elements between innermost rows."""

    xor: XorMap
    swizzle: int
    pitch: int


def layout_of(stage: Stage) -> SharedTileLayout:
    """Return the layout that a shared tile has."""
    return SharedTileLayout(stage.xor, stage.swizzle, pitch(stage))


def xor_chunk(xor: XorMap, row: Any, chunk: Any) -> Any:
    """Return the 16-byte chunk that holds chunk `chunk` of row `row`: bit n is flipped by bit xor[n] of the row."""
    for n, bit in enumerate(xor):
        chunk = chunk ^ ((row >> bit & 1) << n)
    return chunk


def physical(stage: Stage, cell: Sequence[Any], item: int = WORD) -> Any:
    """Return the element index of a cell within a slot, with pad, xor and swizzle.

    Cells are numbers or arrays of numbers. item: bytes of an element.
    """
    rows = map(operator.mul, cell, strides(extents_of(stage.box[:-1])))
    return place_of(layout_of(stage), sum(rows), cell[-1], item)


def place_of(layout: SharedTileLayout, row: Any, column: Any, item: int = WORD) -> Any:
    """Return the element index of a column of an innermost row, in elements of `item` bytes."""
    chunk = CHUNK // item
    if layout.xor:
        column = xor_chunk(layout.xor, row, column // chunk) * chunk + column % chunk
    place = row * layout.pitch + column
    if layout.swizzle:  # as TMA does it: the chunk within a row of 128 bytes is flipped by the number of that row
        place = place ^ (place // (ROW // item) & layout.swizzle // CHUNK - 1) * chunk
    return place


def wavefronts(words: Any, width: int) -> int:
    """Return the shared-memory cycles of one warp access of `width` words a lane.

    The result is the most words in one bank, for each group of lanes. words: the first word of each lane, or a single
    one that all lanes read.
    """
    return warp_wavefronts(tuple(words.tolist()) if words.__class__ is np.ndarray else tuple(map(int, words)), width)


def lanes_at_once(first: Sequence[int], width: int) -> int:
    """Return the lanes of a warp that shared memory serves at once: 32 of one word each, 16 of two, 8 of four.

    first: the first word of each lane.

    The number doubles if two lanes at a time receive the same words: lanes n and n ^ 1 read the same address for all n,
    or lanes n and n ^ 2 do. A read of 16 bytes a lane then costs two wavefronts at best, not four. Source: an NVIDIA
    engineer on the developer forum (unexpected-shared-memory-bank-conflict/77228), for 7.0 and later; not measured
    here.
    """
    if width > 1:
        for step in (1, 2):
            pairs = ((word, first[n ^ step]) for n, word in enumerate(first))
            if all(a == b or IDLE in (a, b) for a, b in pairs):
                return 2 * BANKS // width
    return BANKS // width


@functools.lru_cache(1 << 14)  # schedules of one kernel read in few different ways
def warp_wavefronts(first: tuple[int, ...], width: int) -> int:
    lanes = lanes_at_once(first, width) if len(first) == BANKS else BANKS
    banks, total = BANKS, 0
    if width > 1 and not any(word % width for word in first):  # aligned: whole groups of banks
        first, banks, width = tuple(word // width for word in first), BANKS // width, 1
    for start in range(0, len(first), lanes):
        distinct = {word for word in first[start : start + lanes] if word != IDLE}
        if width > 1:
            distinct = {word + more for word in distinct for more in range(width)}
        counts = [0] * banks
        for word in distinct:
            counts[word % banks] += 1
        total += max(counts)
    return total


# ---- cooperative copies


class CopyShape(NamedTuple):
    """Shape of a cooperative copy.

    width: elements per copy. chunks: copies per row. rows: of the shared tile. threads: of the block.
    """

    width: int
    chunks: int
    rows: int
    threads: int


def copy_shape(kernel: Kernel, stage: Stage) -> CopyShape:
    """Return the shape of a Stage's copy: 16 bytes each if source and box allow it, else 4 bytes or one element."""
    source = params(kernel)[stage.src]
    return answers(kernel).once((copy_shape, stage, source), lambda: _copy_shape(stage, source, tile_of(kernel)))


def _copy_shape(stage: Stage, source: Param, tile: Tile | None) -> CopyShape:
    item = DTYPE_BYTES[source.dtype]
    width = next((n for n in (CHUNK // item, WORD // item) if n > 1 and _aligned(source, stage, n)), 1)
    return CopyShape(width, stage.box[-1].extent // width, shared_tile_rows(stage), thread_count(tile) if tile else 1)


def _aligned(source: Param, stage: Stage, width: int) -> bool:
    """Return whether rows of the source and of the shared tile divide into the same groups of `width` elements."""
    inner, last = stage.box[-1], len(source.shape) - 1
    if stage.gathered:
        return False
    sizes = (inner.extent, pitch(stage), source.shape[-1])
    if inner.dim != last or inner.stride != 1:
        return False
    if any(size % width for size in sizes):
        return False
    if any(axis.dim == last and axis.stride % width for axis in stage.box[:-1]):
        return False
    terms, constant = linear(stage.origin[-1])
    return constant % width == 0 and all(factor % width == 0 for factor in terms.values())


def place_in_source(stage: Stage, cell: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the element of the source that a Stage copies to a cell."""
    labels = {axis.name: place for axis, place in zip(stage.box, cell, strict=True) if axis.dim is None}
    position = list(substitute(stage.origin, labels))
    for axis, place in zip(stage.box, cell, strict=True):
        if axis.dim is not None:
            position[axis.dim] = add(position[axis.dim], multiply(place, axis.stride))
    return tuple(position)


def lanes_of(kernel: Kernel, stage: Stage) -> int:
    """Return the threads that copy one row: those of the Stage, else the common divisor of chunks and threads."""
    shape = copy_shape(kernel, stage)
    return stage.lanes or math.gcd(shape.chunks, shape.threads)


def owners(kernel: Kernel, stage: Stage) -> list[int]:
    """Return the thread that copies each cell, in row-major order of the cells.

    A row has L threads, of which lane c % L copies chunk c.
    """
    width, _, rows, threads = copy_shape(kernel, stage)
    lanes = lanes_of(kernel, stage)
    groups = threads // lanes
    run = adjacent_rows(stage, rows, groups)
    return [r // run % groups * lanes + x // width % lanes for r in range(rows) for x in range(stage.box[-1].extent)]


def adjacent_rows(stage: Stage, rows: int, groups: int) -> int:
    """Return the number of neighbouring rows that the same lanes copy.

    If cells are gathered, these are all rows of the lanes, so that the iteration number gives the address offset of a
    row.
    """
    return rows // groups if stage.gathered and rows % groups == 0 else 1


# ---- TMA boxes: rows as they lie in the buffer, or swizzled rows of 128 bytes


def is_box(stage: Stage, source: tuple[int, ...], item: int = WORD) -> bool:
    """Return whether TMA can copy the box, with its dimensions in their order."""
    dims = [axis.dim or 0 for axis in stage.box]
    return _is_copied_by_tma(stage, source, item) and dims == sorted(dims)


def is_swizzled_box(stage: Stage, source: tuple[int, ...], item: int = WORD) -> bool:
    """Return whether TMA can copy the shared tile, in boxes whose rows are each 128 bytes that it swizzles."""
    return _is_copied_by_tma(stage, source, item) and stage.box[-1].extent * item == ROW


def _is_copied_by_tma(stage: Stage, source: tuple[int, ...], item: int) -> bool:
    """Return whether a box has the rank, the rows of whole 16 bytes and the sides of at most 256 elements of TMA."""
    if stage.gathered:
        return False
    inner, chunk = stage.box[-1], CHUNK // item
    aligned = inner.dim == len(source) - 1 and inner.extent % chunk == 0 and source[-1] % chunk == 0
    return aligned and len(source) <= 5 and all(axis.extent <= 256 for axis in stage.box)


# ---- operands of tensor cores: the loads, and the rows of a shared tile that ldmatrix reads


ROWS, COLUMNS = "rows", "columns"  # of a shared tile: what the words of a fragment run along


class FragmentOperand(NamedTuple):
    """An operand of an Mma. own: the Tile's axes by the names of the atom; order: those of its words, slowest first."""

    atom: Atom
    own: dict[str, str]
    order: tuple[str, ...]

    @property
    def within(self) -> tuple[str, ...]:
        """The axis along the elements of a word, if it has several."""
        return (self.own[WITHIN],) if WITHIN in self.own else ()

    @property
    def inner(self) -> tuple[str, ...]:
        """The registers of one fragment."""
        return (*(self.own[name] for name in self.order), *self.within)


def operands_of(stmt: Mma) -> tuple[FragmentOperand, FragmentOperand]:
    """Return both operands of an Mma."""
    atom = ATOMS[stmt.atom]
    own = {name: axis.name for (name, _), axis in zip(atom.axes, stmt.axes, strict=True)}
    return FragmentOperand(atom, own, atom.a_order), FragmentOperand(atom, own, atom.b_order)


def operand_of(name: str, later: Block) -> FragmentOperand | None:
    """Return the Mma operand as which later statements read a loaded value, or None if another statement reads it."""
    products = [stmt for stmt in nodes(later, Mma) if Var(name) in (stmt.a, stmt.b)]
    if not products or any(name in used_names(stmt) and not _only_multiplies(stmt, name) for stmt in later):
        return None
    wanted = [
        operand
        for stmt in products
        for e, operand in zip((stmt.a, stmt.b), operands_of(stmt), strict=True)
        if e == Var(name)
    ]
    return wanted[0] if all(operand == wanted[0] for operand in wanted) else None


def _only_multiplies(stmt: Stmt, name: str) -> bool:
    """Return whether only Mmas in a statement read a value."""
    if not hasattr(stmt, "body"):
        return isinstance(stmt, Mma)
    readers = (part for part in stmt.body if name in used_names(part))
    return name not in free_names(own_fields(stmt)) and all(_only_multiplies(part, name) for part in readers)


def matrix_form(kernel: Kernel, stage: Stage, stmt: Load, operand: FragmentOperand) -> str | None:
    """Return the form of a matrix load: words along the rows of a shared tile, words across rows, or None for neither.

    Along rows, g is a row, and t and w are neighbours.
    """
    atom, own, item = operand.atom, operand.own, item_bytes(kernel, stage)
    if item * atom.per_word != WORD_BYTES or stmt.when is not True or {"g", "t"} - own.keys():
        return None
    row_at, column_at = row_and_column(kernel, stage, cell_of(stage, stmt.idx))
    (row, _), (column, constant) = linear(row_at), linear(column_at)
    g, t = Var(own["g"]), Var(own["t"])
    along: dict[Expr, int] = {t: atom.per_word, **{Var(w): 1 for w in operand.within}}
    beside = [constant, stage.box[-1].extent, stage.pad, *(n for e, n in column.items() if e not in (g, *along))]
    if any(number % (CHUNK // item) for number in beside):
        return None
    in_row, in_column = ({e: terms[e] for e in (g, *along) if e in terms} for terms in (row, column))
    if in_column == along and in_row == {g: 1}:
        return ROWS
    return COLUMNS if item == 2 and in_column == {g: 1} and in_row == along else None


def matrix_rows(operand: FragmentOperand, form: str) -> dict[str, Expr]:
    """Return the axes' values in the address of a row: lane 8*m + r, which is 4*g + t, has row r of matrix m."""
    own, atom = operand.own, operand.atom
    g, t = own["g"], own["t"]
    row, matrix = add(multiply(modulo(Var(g), 2), 4), Var(t)), floordiv(Var(g), 2)
    images = {g: row, t: 0, **dict.fromkeys(operand.within, 0)}
    if form == COLUMNS:
        images = {g: 0, t: floordiv(row, atom.per_word), **dict.fromkeys(operand.within, modulo(row, atom.per_word))}
    stride, sizes = 1, dict(atom.axes)
    for name in reversed(operand.order):
        images[own[name]] = modulo(floordiv(matrix, stride), sizes[name])
        stride *= sizes[name]
    return images


# ---- matrix views: loads that asynchronous MMAs do themselves, and the descriptors of their matrices
#
# Four numbers locate the elements of a matrix in shared memory. In shared tiles of 128-byte rows with the swizzle
# of TMA, a line of the matrix (a row of a, a column of b) runs along such a row of the shared tile, or across the rows:
#
# along:  element (line, column) at  start + line // 8 * stride + line % 8 * 128 + column*item
# across: the same at  start + line // 64 * leading + line % 64 * item + column // 8 * stride + column % 8 * 128
#
# The swizzle then takes its bits from the sum. Across, elements have 2 bytes. The emulator reads matrices by these
# numbers; `across` has been compared with no manual and no hardware.


REPEAT = 8 * ROW  # bytes after which a swizzle of 128 bytes comes again
STEP = 32  # bytes of a row that an atom reads


class MatrixView(NamedTuple):
    """A matrix in a slot of a shared tile. across: lines run across the rows of the tile; stride, leading: bytes."""

    across: bool
    stride: int
    leading: int


@memoised
def views_of(kernel: Kernel) -> frozenset[Load]:
    """Return the loads of shared tiles whose values only asynchronous atoms read."""
    return frozenset(_views(kernel.body, stages(kernel)))


def _views(block: Block, shared_tiles: Container[str]) -> Iterator[Load]:
    for position, stmt in enumerate(block):
        if isinstance(stmt, Load) and stmt.buf in shared_tiles:
            operand = operand_of(stmt.dst, block[position + 1 :])
            if operand is not None and operand.atom.asynchronous:
                yield stmt
        yield from _views(getattr(stmt, "body", ()), shared_tiles)


def matrix_view(kernel: Kernel, stage: Stage, load: Load, product: Mma, left: bool) -> MatrixView | None:
    """Return the descriptor form with which an asynchronous atom reads the matrix of a load, or None if none fits.

    left: whether the matrix is the operand a.
    """
    atom, item = ATOMS[product.atom], item_bytes(kernel, stage)
    plain = stage.via == "TMA" and stage.swizzle == ROW and pitch(stage) * item == ROW and not stage.xor
    if not plain or item * atom.per_word != WORD_BYTES or load.when is not True:
        return None
    row, column = row_and_column(kernel, stage, cell_of(stage, load.idx))
    names = [axis.name for axis in product.axes]
    own: list[tuple[Expr, int]] = []
    beside: list[tuple[Expr, int]] = []
    for e, unit in ((row, ROW), (column, item)):
        terms, constant = linear(e)
        beside.append((constant, unit))
        for term, factor in terms.items():
            (own if free_names(term) <= set(names) else beside).append((term, factor * unit))
    if any(not free_names(term).isdisjoint(names) for term, _ in beside):
        return None
    found = _form(atom, names, own, left, item)
    return found if found is not None and _starts(kernel, beside, found.across) else None


def _form(atom: Atom, names: list[str], own: list[tuple[Expr, int]], left: bool, item: int) -> MatrixView | None:
    """Return the descriptor form that gives every element of the atom's matrix the address that the load gives it.

    item: bytes of an element.
    """
    line, place = numbers(atom, atom.row if left else atom.b_column), numbers(atom, atom.place)
    grids = np.meshgrid(*(np.arange(extent) for _, extent in atom.axes), indexing="ij")
    env: dict[str, Any] = dict(zip(names, grids, strict=True))
    at = np.broadcast_to(sum((evaluate(term, env) * factor for term, factor in own), 0), line.shape)

    def where(one: int, other: int) -> int:
        """Return the bytes from the matrix's start to an element, or 0 if the matrix lacks the element."""
        chosen = at[(line == one) & (place == other)]
        return int(chosen[0]) if chosen.size else 0

    along = MatrixView(False, where(8, 0), 0)
    across = MatrixView(True, where(0, 8), where(64, 0))
    if np.array_equal(at, line // 8 * along.stride + line % 8 * ROW + place * item):
        return along
    if not atom.across:
        return None
    columns = line // 64 * across.leading + line % 64 * item
    return across if np.array_equal(at, columns + place // 8 * across.stride + place % 8 * ROW) else None


def _starts(kernel: Kernel, beside: list[tuple[Expr, int]], across: bool) -> bool:
    """Return whether a matrix starts where the swizzle starts or, along a row, whole steps later."""
    known, most = ranges_of(kernel), 0
    for term, factor in beside:
        if isinstance(term, int):
            term, factor = 1, term * factor
        if factor * (1 if term == 1 else multiple_of(term)) % REPEAT == 0:
            continue
        low, high = interval(term, known)
        if across or factor % STEP or low < 0:
            return False
        most += factor * high
    return most <= ROW - STEP
