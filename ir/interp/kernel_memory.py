"""Shared memory of some blocks, byte-addressed, with everything that orders its accesses; accesses to global memory.

Shared memory is counted in cells: as many bytes as the smallest element that a kernel keeps there. Every cell remembers
the element that starts in it, its last writer and reader, and their epochs (the stretch between two barriers), so that
finding a race does not depend on luck.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..atoms import ATOMS, WITHIN, WORD_BYTES, Atom, multiplied, numbers
from ..expr import Binary, Call, Not, Sum, Var, is_int
from ..facts.layout import DTYPE_BYTES
from ..kernel import (
    SHARED,
    WARP,
    CommitProducts,
    Element,
    Fragment,
    LoadMatrix,
    Matrix,
    Multiply,
    PackWord,
    QueueProduct,
    WaitProducts,
)
from ..node import Expr, memoised, nodes
from ..program import Stmt
from .scalar import KINDS, OPERATORS, ScheduleError, apply, as_index, as_kind

EPOCH = 1 << 12  # threads of an epoch: `epoch * EPOCH + thread` says who and when
SEVERAL = EPOCH - 1
FIRST_BYTES = 16  # global buffers start at multiples of this
CODES = {dtype: number + 1 for number, dtype in enumerate(KINDS)}  # 0: never written
INSIDE = len(CODES) + 1  # a cell in which an element goes on


class Lanes(NamedTuple):
    """The threads of a batch that take part in an access, and where each goes. All are arrays of one length.

    flat: position in an array of (blocks, threads). address: elements of a buffer, or bytes of shared memory.
    """

    flat: np.ndarray
    block: np.ndarray
    thread: np.ndarray
    address: np.ndarray

    def chosen(self, which: np.ndarray) -> Lanes:
        return Lanes(self.flat[which], self.block[which], self.thread[which], self.address[which])

    def moved(self, by: np.ndarray | int) -> Lanes:
        return self._replace(address=self.address + by)


class Copy(NamedTuple):
    """An asynchronous copy on its way. values: bits, a row for each thread."""

    lanes: Lanes
    dtype: str
    values: np.ndarray


def bits_of(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return values as 64 bits each, whatever their kind."""
    values = np.ascontiguousarray(values, KINDS[dtype])
    return values.view(np.int64) if values.itemsize == 8 else values.astype(np.int64)


def values_of(bits: np.ndarray, dtype: str) -> np.ndarray:
    kind = np.dtype(KINDS[dtype])
    return np.ascontiguousarray(bits).view(kind) if kind.itemsize == 8 else bits.astype(kind)


class SharedMemory:
    """The shared memory of a batch of blocks. unit: bytes of a cell."""

    def __init__(self, blocks: int, size: int, unit: int):
        self.size, self.unit = size, unit
        self.cells_per_block = -(-size // unit)
        count = blocks * self.cells_per_block
        self.bits = np.zeros(count, np.int64)
        self.starts = np.zeros(count, np.int8)
        self.in_flight = np.zeros(count, bool)
        self.writes, self.reads = np.full(count, -1), np.full(count, -1)
        self.tickets = np.zeros(count, int)  # of the box that wrote a cell
        self.ordered: Callable[[np.ndarray, Lanes], np.ndarray] | None = None  # whether who reads waited for a box
        self.epoch = self.since = 0  # what stands before the epoch `since` is known to who runs

    def cells(self, lanes: Lanes, dtype: str, width: int) -> tuple[np.ndarray, int]:
        """Return the cells of an access, a row for each thread, and the number of cells of an element."""
        item = DTYPE_BYTES[dtype]
        check_aligned(lanes.address, item * width)
        if np.any((lanes.address < 0) | (lanes.address + item * width > self.size)):
            raise ScheduleError(f"access outside of the {self.size} bytes of shared memory")
        first = lanes.block * self.cells_per_block + lanes.address // self.unit
        return first[:, None] + np.arange(width * item // self.unit), item // self.unit

    def stamp(self, lanes: Lanes, cells: np.ndarray) -> np.ndarray:
        """Return thread and epoch for every cell of an access."""
        return np.broadcast_to((self.epoch * EPOCH + lanes.thread)[:, None], cells.shape)

    def of_others(self, marks: np.ndarray, stamp: np.ndarray) -> np.ndarray:
        """Return a mask of the marks that are from other threads and from a time not known to be over."""
        others: np.ndarray = (marks >= self.since * EPOCH) & (marks % EPOCH != stamp % EPOCH)
        return others

    def meet(self) -> None:
        """Record that all running threads are at a barrier, so that their earlier accesses are complete."""
        self.epoch += 1
        self.since = self.epoch

    # ---- reading

    def load(self, lanes: Lanes, dtype: str, width: int) -> np.ndarray:
        """Return the values that threads read: a row for each thread."""
        cells, step = self.cells(lanes, dtype, width)
        self.check_readable(cells, dtype, width, step)
        stamp = self.stamp(lanes, cells)
        if np.any(self.written_by_others(lanes, cells, stamp)):
            raise ScheduleError("race: shared memory is read before a barrier after it was written")
        self.note_readers(cells, stamp)
        return values_of(self.bits[cells[:, ::step]], dtype)

    def written_by_others(self, lanes: Lanes, cells: np.ndarray, stamp: np.ndarray) -> np.ndarray:
        """Return a mask of the cells that another thread has written since the last barrier, without awaited boxes."""
        writes = self.writes[cells]
        others = self.of_others(writes, stamp)
        if self.ordered is not None and np.any(others):
            others &= ~self.ordered(self.tickets[cells], lanes)
        return others

    def check_readable(self, cells: np.ndarray, dtype: str, width: int, step: int) -> None:
        if np.any(self.in_flight[cells]):
            raise ScheduleError("shared memory is read while a copy to it is in flight: no WaitGroup")
        starts = self.starts[cells]
        if np.any(starts == 0):
            raise ScheduleError("uninitialised shared memory is read")
        if np.any(starts != self.marks(dtype, width, step)):
            raise ScheduleError(f"shared memory is read as {dtype}, but something else was written there")

    def note_readers(self, cells: np.ndarray, stamp: np.ndarray) -> None:
        before = self.reads[cells]
        others = self.of_others(before, stamp)
        self.reads[cells] = stamp
        others |= self.reads[cells] != stamp
        self.reads[cells[others]] = self.epoch * EPOCH + SEVERAL

    def marks(self, dtype: str, width: int, step: int) -> np.ndarray:
        """Return the entries of `starts` for some elements."""
        return np.tile(np.array([CODES[dtype]] + [INSIDE] * (step - 1), np.int8), width)

    # ---- writing

    def store(self, lanes: Lanes, dtype: str, bits: np.ndarray) -> None:
        """Store a row of values for each thread."""
        cells, step = self.cells(lanes, dtype, bits.shape[1])
        stamp = self.check_free(lanes, cells)
        self.put(cells, dtype, bits, step)
        self.writes[cells], self.tickets[cells] = stamp, 0

    def check_free(self, lanes: Lanes, cells: np.ndarray) -> np.ndarray:
        """Check that these threads may overwrite these cells, and return the stamp that they leave there."""
        stamp = self.stamp(lanes, cells)
        if np.any(self.in_flight[cells]):
            raise ScheduleError("shared memory is overwritten while a copy to it is in flight")
        reads, writes = self.reads[cells], self.writes[cells]
        if np.any(self.of_others(reads, stamp)):
            raise ScheduleError("race: shared memory is overwritten while others may read it: no barrier in between")
        others = self.written_by_others(lanes, cells, stamp)
        self.writes[cells] = stamp
        if np.any(others) or np.any(self.writes[cells] != stamp):
            raise ScheduleError("race: shared memory is written by two threads between two barriers")
        self.writes[cells] = writes
        return stamp

    def put(self, cells: np.ndarray, dtype: str, bits: np.ndarray, step: int) -> None:
        self.bits[cells[:, ::step]] = bits
        self.starts[cells] = self.marks(dtype, bits.shape[1], step)

    # ---- asynchronous copies

    def begin(self, copy: Copy, early: bool, tickets: np.ndarray | None = None) -> None:
        """Begin a copy. Until it lands, the cells hold the new values or their earlier values.

        tickets: for a box, one ticket for each row.
        """
        cells, step = self.cells(copy.lanes, copy.dtype, copy.values.shape[1])
        self.check_free(copy.lanes, cells)
        self.in_flight[cells], self.tickets[cells] = True, 0 if tickets is None else tickets[:, None]
        if early:
            self.put(cells, copy.dtype, copy.values, step)

    def land(self, copy: Copy, nobody: bool = False) -> None:
        """Complete a copy: its own thread may read the cells, other threads after the next barrier.

        The flag says that the copy is a TMA box, which does not belong to any thread.
        """
        cells, step = self.cells(copy.lanes, copy.dtype, copy.values.shape[1])
        self.put(cells, copy.dtype, copy.values, step)
        self.in_flight[cells] = False
        self.writes[cells] = self.epoch * EPOCH + SEVERAL if nobody else self.stamp(copy.lanes, cells)


def check_aligned(address: np.ndarray, size: int) -> None:
    """Raise ScheduleError if an access of `size` bytes does not start at a multiple of `size`."""
    if np.any(address % size):
        raise ScheduleError(f"misaligned: an access of {size} bytes at byte {address[address % size != 0][0]}")


def elements(array: np.ndarray, lanes: Lanes, dtype: str, width: int, what: str) -> np.ndarray:
    """Return the elements of a buffer that threads access, a row for each."""
    if np.any((lanes.address < 0) | (lanes.address + width > array.size)):
        wrong = lanes.address[(lanes.address < 0) | (lanes.address + width > array.size)][0]
        raise ScheduleError(f"{what} out of bounds: element {wrong} of {array.size}")
    check_aligned(lanes.address * DTYPE_BYTES[dtype], min(width * DTYPE_BYTES[dtype], FIRST_BYTES))
    return lanes.address[:, None] + np.arange(width)


# ---- registers and expressions
#
# A value is an array that broadcasts to (blocks, threads). Registers never written are poison.


Place = tuple[str, tuple[int, ...]]
POISON: dict[Any, Any] = {np.float64: np.nan, np.int32: -(2**30) + 9991, np.int64: -(2**62) + 99991, np.bool_: True}


def both(mask: Any, condition: Any) -> Any:
    """Return the threads of a mask (None: all) for which a condition holds."""
    if condition is True:
        return mask
    return condition if mask is None else mask & condition


@memoised
def divides(e: Any) -> bool:
    """Return whether an expression has a quotient or remainder that C rounds to zero: all but shifts and masks."""
    return any(
        part.op in ("//", "%") and not (is_int(part.b) and part.b > 0 and part.b & (part.b - 1) == 0)
        for part in nodes(e, Binary)
    )


def chosen(value: Any, which: np.ndarray) -> Any:
    """Return a value for some of the threads. A value that all threads share stays as it is."""
    varies = np.ndim(value) == 2 and np.shape(value)[1] == len(which) > 1
    return value[:, which] if varies else value


class RegisterValues:
    """The registers of the threads: scalars, and arrays by index."""

    def __init__(self, env: Mapping[str, Any]):
        self.env = dict(env)
        self.dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.arrays: dict[str, dict[tuple[int, ...], Any]] = {}

    def declare(self, name: str, dtype: str, shape: tuple[int, ...], fill: Any) -> None:
        """Declare registers, all poison or all with one value."""
        kind = KINDS[dtype]
        start = as_kind(POISON[kind] if fill is None else fill, dtype)
        self.dtypes[name], self.shapes[name] = dtype, shape
        if shape:
            self.arrays[name] = dict.fromkeys(np.ndindex(*shape), start)
        else:
            self.env[name] = start

    def define(self, name: str, dtype: str, value: Any) -> None:
        self.dtypes[name], self.shapes[name] = dtype, ()
        self.env[name] = as_kind(value, dtype)

    def put(self, place: Place, value: Any, mask: Any) -> None:
        """Set one register of the threads in the mask."""
        name, index = place
        value = as_kind(value, self.dtypes[name])
        if mask is not None:
            value = np.where(mask, value, self.get(place))
        if index:
            self.arrays[name][index] = value
        else:
            self.env[name] = value

    def get(self, place: Place) -> Any:
        name, index = place
        return self.arrays[name][index] if index else self.env[name]

    def place(self, e: Expr) -> Place:
        """Return the register that an expression names."""
        return self.run(e, 1)[0]

    def run(self, e: Expr, width: int) -> list[Place]:
        """Return `width` consecutive registers, from the named register on or along the omitted index."""
        if not isinstance(e, Var | Element) or e.name not in self.dtypes:
            raise ScheduleError("this is no place")
        shape = self.shapes[e.name]
        index = tuple(int(self.value(i, None)) for i in e.index) if isinstance(e, Element) else ()
        if len(index) == len(shape) - 1 and width > 1:
            index = (*index, 0)
        if len(index) != len(shape) or (width > 1 and not shape):
            raise ScheduleError(f"`{e.name}` has {len(shape)} dimensions")
        if not shape:
            return [(e.name, ())]
        last = index[-1]
        if any(not 0 <= i < n for i, n in zip(index, shape, strict=True)) or last + width > shape[-1]:
            raise ScheduleError(f"`{e.name}` has no such registers")
        return [(e.name, (*index[:-1], last + lane)) for lane in range(width)]

    def of(self, which: np.ndarray) -> RegisterValues:
        """Return the registers of some of the threads as separate registers."""
        made = RegisterValues({name: chosen(value, which) for name, value in self.env.items()})
        made.dtypes, made.shapes = dict(self.dtypes), dict(self.shapes)
        made.arrays = {
            name: {index: chosen(value, which) for index, value in array.items()} for name, array in self.arrays.items()
        }
        return made

    # ---- expressions

    def value(self, e: Any, mask: Any) -> Any:
        """Return the value of an expression. Checks apply to the threads in the mask only."""
        kind = e.__class__
        if kind is Var:
            return self.scalar(e.name)
        if kind is Element:
            return self.get(self.place(e))
        if kind is Sum:
            result = e.constant
            for atom, factor in e.terms:
                result = result + as_index(self.value(atom, mask)) * factor
            return result
        if kind is Call:
            return self.call(e, mask)
        if kind is Binary:
            return self.binary(e, mask)
        if kind is Not:
            return np.logical_not(self.value(e.a, mask))
        return e

    def scalar(self, name: str) -> Any:
        if name not in self.env:
            raise ScheduleError(f"undefined name `{name}`" if name not in self.arrays else f"`{name}` is an array")
        return self.env[name]

    def call(self, e: Any, mask: Any) -> Any:
        if e.fn == "where" and divides(e):  # the side that is not chosen is not computed
            chosen = np.asarray(self.value(e.args[0], mask), bool)
            return np.where(
                chosen,
                self.value(e.args[1], both(mask, chosen)),
                self.value(e.args[2], both(mask, ~chosen)),
            )
        args = [self.value(arg, mask) for arg in e.args]
        return apply(e.fn, args)

    def binary(self, e: Any, mask: Any) -> Any:
        a = as_index(self.value(e.a, mask))
        if e.op in ("and", "or") and divides(e.b):
            mask = both(mask, np.asarray(a, bool) if e.op == "and" else ~np.asarray(a, bool))
        b = as_index(self.value(e.b, mask))
        if e.op in ("//", "%") and divides(e):
            wrong = (np.asarray(a) < 0) | (np.asarray(b) <= 0)
            if np.any(wrong if mask is None else wrong & mask):
                raise ScheduleError(f"`{e.op}` of a negative number, or by one that is not positive")
        return OPERATORS[e.op](a, b)


# ---- fragments: words of several elements, matrices that a warp loads, products of a warp


ROWS, ROW_BYTES = 8, 16  # of a matrix


class Fragments:
    """The fragments of the threads of some blocks: registers, with the element of a word as their last index."""

    def __init__(self, registers: RegisterValues, shared: SharedMemory, shape: tuple[int, int]):
        self.registers, self.shared, self.shape = registers, shared, shape

    def declare(self, stmt: Fragment) -> None:
        shape = (stmt.words, WORD_BYTES // DTYPE_BYTES[stmt.dtype])
        self.registers.declare(stmt.dst, stmt.dtype, shape, None)

    def word(self, place: Any, number: int = 0) -> list[Place]:
        """Return the elements of the word that is `number` words after an element of a fragment."""
        known = self.registers.shapes.get(getattr(place, "name", ""), ())
        first = int(self.registers.value(place.index[0], None)) + number if isinstance(place, Element) else -1
        if len(known) != 2 or not 0 <= first < known[0]:
            raise ScheduleError("this is no place of a fragment")
        return [(place.name, (first, element)) for element in range(known[1])]

    def pack(self, stmt: PackWord, values: list[Any], mask: Any) -> None:
        for place, value in zip(self.word(stmt.into), values, strict=True):
            self.registers.put(place, value, mask)

    def load(self, stmt: LoadMatrix, lanes: Lanes) -> None:
        """Load matrices into fragments.

        lanes: the addresses of all threads; addresses that no matrix needs are ignored.
        """
        dtype = self.registers.dtypes[self.word(stmt.into)[0][0]]
        blocks, threads = self.shape
        if threads % WARP:
            raise ScheduleError("a warp loads matrices together, and this one is not whole")
        asked = lanes.chosen(lanes.thread % WARP < ROWS * stmt.count)
        row = ROW_BYTES // DTYPE_BYTES[dtype]
        found = self.shared.load(asked, dtype, row).reshape(blocks, threads // WARP, stmt.count, ROWS, row)
        per_word = WORD_BYTES // DTYPE_BYTES[dtype]
        g, t = np.divmod(np.arange(WARP), row // per_word)
        for matrix, element in itertools.product(range(stmt.count), range(per_word)):
            at = (t * per_word + element, g) if stmt.trans else (g, t * per_word + element)
            value = found[:, :, matrix, at[0], at[1]].reshape(self.shape)
            self.registers.put(self.word(stmt.into, matrix)[element], value, None)

    def multiply(self, stmt: Multiply) -> None:
        atom = ATOMS[stmt.atom]
        sides = ((stmt.a, atom.a_order), (stmt.b, atom.b_order))
        a, b = (self.operand(self.words(place, atom, order), atom, order) for place, order in sides)
        product = multiplied(atom, a, b).reshape(*self.shape, *(extent for _, extent in atom.registers))
        tail = len(atom.registers)
        name, index = self.registers.place(stmt.acc)
        for own in np.ndindex(*(extent for _, extent in atom.registers)):
            place = (name, (*index[:-tail], *(first + n for first, n in zip(index[-tail:], own, strict=True))))
            self.registers.put(place, self.registers.get(place) + product[(..., *own)], None)

    def words(self, place: Any, atom: Atom, order: tuple[str, ...]) -> list[list[Place]]:
        """Return the words of an operand from a given word on."""
        return [self.word(place, number) for number in range(atom.words(order))]

    def operand(self, words: list[list[Place]], atom: Atom, order: tuple[str, ...]) -> Any:
        """Return a fragment as (blocks, warps, *axes of the atom), 1 along axes that it lacks, for `multiplied`."""
        sizes = dict(atom.axes)
        inner = (*order, *(name for name, _ in atom.depth if name == WITHIN))
        held = [np.broadcast_to(self.registers.get(element), self.shape) for word in words for element in word]
        lanes = [extent for _, extent in atom.lanes]
        whole = np.stack(held, axis=-1).reshape(self.shape[0], -1, *lanes, *(sizes[name] for name in inner))
        names = [name for name, _ in (*atom.registers, *atom.depth)]
        first = 2 + len(lanes)
        whole = np.transpose(whole, (*range(first), *(first + inner.index(name) for name in names if name in inner)))
        whole = whole.astype(KINDS[atom.sums])
        return whole.reshape(*whole.shape[:first], *(sizes[name] if name in inner else 1 for name in names))


# ---- asynchronous products (WGMMA)
#
# A product reads its matrices when it is queued and again at its wait. Both reads must be legal and must find the bytes
# of the same copies. Between them its registers hold nothing, and writing them is an error.


ROW, CHUNK, REPEAT = 128, 16, 1024  # bytes: of a row, of what is swizzled, after which a swizzle comes again


@dataclass
class Queued:
    """A product in flight.

    lanes: addresses that each thread reads of both operands, None for a fragment. words: words of the fragment.
    held: their values when the product was queued. tickets: copies that brought the other operands.
    """

    stmt: QueueProduct
    lanes: tuple[Lanes | None, Lanes | None]
    places: list[Place]
    words: list[list[Place]]
    held: Any = None
    product: Any = None
    tickets: Any = None


class Products:
    """The products of the threads of some blocks that are not done. dice: which read when they are queued."""

    def __init__(
        self, registers: RegisterValues, shared: SharedMemory, fragments: Fragments, dice: random.Random
    ) -> None:
        self.registers, self.shared, self.fragments, self.dice = registers, shared, fragments, dice
        self.shape = fragments.shape
        self.open: list[Queued] = []
        self.groups: list[list[Queued]] = []
        self.sums: dict[Place, Any] = {}

    def statement(self, stmt: Stmt, where: Callable[[Any], tuple[str, Lanes]]) -> None:
        """Execute a statement of the queue. where: returns the memory of a matrix and its address for each thread."""
        if isinstance(stmt, QueueProduct):
            starts = [where(matrix) if isinstance(matrix, Matrix) else None for matrix in (stmt.a, stmt.b)]
            if any(start is not None and start[0] != SHARED for start in starts):
                raise ScheduleError("matrices stand in shared memory")
            a, b = (None if start is None else start[1] for start in starts)
            self.queue(stmt, (a, b))
        elif isinstance(stmt, CommitProducts):
            self.commit()
        elif isinstance(stmt, WaitProducts):
            self.wait(stmt.keep)

    def queue(self, stmt: QueueProduct, starts: tuple[Lanes | None, Lanes | None]) -> None:
        """Queue a product. starts: start address of the matrix by thread; None for a fragment."""
        atom = ATOMS[stmt.atom]
        if self.shape[1] % math.prod(extent for _, extent in atom.lanes):
            raise ScheduleError("a group of warps multiplies together, and this one is not whole")
        sides = ((stmt.a, atom.row), (stmt.b, atom.b_column))
        left, right = (
            None if start is None else self._lanes(matrix, start, atom, line)
            for (matrix, line), start in zip(sides, starts, strict=True)
        )
        words = [] if left else self.fragments.words(stmt.a, atom, atom.a_order)
        queued = Queued(stmt, (left, right), self._places(stmt, atom), words)
        queued.product = self._product(queued)
        self.open.append(queued)
        for place in queued.places:
            if place not in self.sums:
                self.sums[place] = self.registers.get(place)
            self.registers.put(place, np.full(self.shape, np.nan), None)

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait(self, keep: int) -> None:
        while len(self.groups) > keep:
            for queued in self.groups.pop(0):
                now = self._product(queued)
                made = queued.product if self.dice.random() < 0.5 else now
                for number, place in enumerate(queued.places):
                    self.sums[place] = self.sums[place] + made[..., number]
        pending = {place for group in (*self.groups, self.open) for queued in group for place in queued.places}
        for place in [place for place in self.sums if place not in pending]:
            if not np.all(np.isnan(self.registers.get(place))):
                raise ScheduleError(f"`{place[0]}` is changed while a product on it is not done")
            self.registers.put(place, self.sums.pop(place), None)

    def finished(self) -> bool:
        return not self.open and not any(self.groups)

    def _places(self, stmt: QueueProduct, atom: Atom) -> list[Place]:
        """Return the registers of the result of a thread, in the order of the atom."""
        name, index = self.registers.place(stmt.acc)
        first = index[-len(atom.registers) :]
        every = np.ndindex(*(extent for _, extent in atom.registers))
        return [(name, (*index[: -len(first)], *map(sum, zip(first, own, strict=True)))) for own in every]

    def _lanes(self, matrix: Any, start: Lanes, atom: Atom, layout: str) -> Lanes:
        """Return thread and address for every element of the fragments of a matrix, in the order of axes."""
        lanes = math.prod(extent for _, extent in atom.lanes)
        first = start.address.reshape(-1, lanes)
        if np.any(first != first[:, :1]):
            raise ScheduleError("the threads of a group say different matrices")
        line, place = (_own(atom, layout, e) for e in (layout, atom.place))
        line, place = (part.reshape(lanes, -1) for part in np.broadcast_arrays(line, place))
        item = WORD_BYTES // atom.per_word
        if matrix.across:
            at = line // 64 * matrix.leading + line % 64 * item + place // 8 * matrix.stride + place % 8 * ROW
        else:
            at = line // 8 * matrix.stride + line % 8 * ROW + place * item
        at = (first[:, :, None] + at).reshape(-1, at.shape[-1])
        at = at ^ ((at // ROW) % (REPEAT // ROW) * CHUNK)
        flat, block, thread = (np.repeat(part, at.shape[-1]) for part in (start.flat, start.block, start.thread))
        return Lanes(flat, block, thread, at.reshape(-1))

    def _product(self, queued: Queued) -> Any:
        """Return the values that a product adds to the registers of its result, from operands read now."""
        atom, dtype = ATOMS[queued.stmt.atom], queued.stmt.dtype
        values, tickets = [], []
        if queued.words:
            values.append(self.fragments.operand(queued.words, atom, atom.a_order))
            queued.held = values[0] if queued.held is None else queued.held
            if not np.array_equal(values[0], queued.held, equal_nan=True):
                raise ScheduleError("the left operand is changed in its registers before the product is done")
        for lanes, layout in zip(queued.lanes, (atom.row, atom.b_column), strict=True):
            if lanes is None:
                continue
            found = self.shared.load(lanes, dtype, 1)
            cells, _ = self.shared.cells(lanes, dtype, 1)
            tickets.append(self.shared.tickets[cells])
            if np.any(tickets[-1] == 0):
                raise ScheduleError("nothing shows tensor cores what threads wrote to a matrix")
            shape = _own(atom, layout, layout).shape[len(atom.lanes) :]
            own = [extent for _, extent in atom.lanes]
            values.append(found.astype(KINDS[atom.sums]).reshape(self.shape[0], -1, *own, *shape))
        if queued.tickets is None:
            queued.tickets = tickets
        elif not all(map(np.array_equal, tickets, queued.tickets)):
            raise ScheduleError("a matrix is overwritten before a product that reads it is done")
        return multiplied(atom, *values).reshape(*self.shape, -1)


def _own(atom: Atom, layout: str, asked: str) -> Any:
    """Return a layout as numbers over the axes that an operand has: lanes, and axes of its line and reduction index."""
    named = {term.partition("*")[0] for e in (layout, atom.place) for term in e.split(" + ")}
    named |= {name for name, _ in atom.lanes}
    kept = tuple(slice(None) if name in named else slice(0, 1) for name, _ in atom.axes)
    return numbers(atom, asked)[kept]


# ---- mbarriers and copies by TMA
#
# A phase of an mbarrier ends when its arrivals have come and all announced bytes are copied. A box is in flight from
# its issue until a thread of its block observes the end of the phase. Then the waiting threads may read it, and after
# the next barrier all threads.


BARRIER_BYTES = 8
BOX_ALIGNMENT = 128
SWIZZLE_REPEAT = 1024  # bytes


@dataclass(frozen=True)
class Map:
    """A tensor map: elements of a buffer, the sides of a box, bytes of the swizzle."""

    array: np.ndarray
    shape: tuple[int, ...]
    dtype: str
    box: tuple[int, ...]
    swizzle: int


@dataclass
class Issued:
    """A box in flight: to which mbarrier, in which phase of each block, and where it is going."""

    barrier: int
    phase: np.ndarray
    copy: Copy


class Barriers:
    """The mbarriers of a batch of blocks, each array with an entry for every block.

    A cluster counts as one block: the shared memories of its `cluster` blocks, `span` bytes each, are adjacent.
    """

    def __init__(
        self, shared: SharedMemory, shape: tuple[int, int], dice: random.Random, cluster: int = 1, span: int = 0
    ):
        self.cluster, self.span = cluster, span
        self.shared, self.shape, self.dice = shared, shape, dice
        self.number: dict[int, int] = {}  # by address
        self.made = np.zeros((0, shape[0]), bool)
        self.fenced = self.made.copy()
        self.phase, self.expected, self.copied, self.needed, self.arrived, self.when, self.over = (
            np.zeros((0, shape[0]), int) for _ in range(7)
        )  # when, over: the epoch of the latest arrival; of the phases that have ended
        self.changes = 0  # arrivals, and boxes that set out
        self.seen = np.zeros((0, *shape), int)  # phases that a thread has waited for
        self.boxes: list[Issued] = []
        self.tickets = np.zeros((2, 1), int)  # (mbarrier, phase) of every box of every block, from 1
        shared.ordered = self.ordered

    # ---- the barriers themselves
    def init(self, lanes: Lanes, arrivals: int = 1) -> None:
        """Initialise mbarriers, one for each thread."""
        self._alone(lanes)
        self.shared.store(lanes, "i64", np.zeros((len(lanes.flat), 1), np.int64))
        for address, block in zip(lanes.address, lanes.block, strict=True):
            number = self.number.setdefault(int(address), len(self.number))
            if number == len(self.made):
                grown = np.zeros((1, *self.shape), int)
                self.seen = np.concatenate([self.seen, grown])
                for name in ("made", "fenced", "phase", "expected", "copied", "needed", "arrived", "when", "over"):
                    old = getattr(self, name)
                    setattr(self, name, np.concatenate([old, np.zeros((1, self.shape[0]), old.dtype)]))
            if self.made[number, block]:
                raise ScheduleError(f"the mbarrier at byte {address} of shared memory is initialised again")
            self.made[number, block], self.needed[number, block] = True, arrivals

    def fence(self, blocks: np.ndarray) -> None:
        """Make the mbarriers of these blocks visible to the TMA engine."""
        self.fenced[:, blocks] = self.made[:, blocks]

    def _of(self, lanes: Lanes) -> np.ndarray:
        """Return the mbarriers at some addresses, after a check that their initialisation is visible."""
        self.shared.load(lanes, "i64", 1)
        unknown = [int(a) for a in lanes.address if int(a) not in self.number]
        numbers = np.array([self.number.get(int(a), 0) for a in lanes.address], int)
        if unknown or not np.all(self.made[numbers, lanes.block]):
            raise ScheduleError(f"there is no mbarrier at byte {unknown[0] if unknown else lanes.address[0]}")
        return numbers

    def known(self, lanes: Lanes) -> None:
        """Raise ScheduleError if one of the addresses has no mbarrier."""
        self._of(lanes)

    def _alone(self, lanes: Lanes) -> None:
        own = lanes.block * self.cluster + self._own(lanes)
        if len(np.unique(own)) != len(own):
            raise ScheduleError("several threads of a block do what one should do for all")

    def expect(self, lanes: Lanes, count: int) -> None:
        """Arrive with one thread of a block, and announce the bytes for which its phase waits."""
        self._alone(lanes)
        at = self._of(lanes), lanes.block
        self._end(*at)
        self._arrived(*at)
        self.expected[at] += count
        self.changes += 1

    def arrive(self, lanes: Lanes) -> None:
        """Arrive with threads, once each."""
        at = self._of(lanes), lanes.block
        self._end(*at)
        np.add.at(self.arrived, at, 1)
        self._enough(*at)
        self.when[at] = self.shared.epoch
        self.changes += 1

    def _arrived(self, numbers: np.ndarray, blocks: np.ndarray) -> None:
        self.arrived[numbers, blocks] += 1
        self._enough(numbers, blocks)

    def _enough(self, numbers: np.ndarray, blocks: np.ndarray) -> None:
        if np.any(self.arrived[numbers, blocks] > self.needed[numbers, blocks]):
            raise ScheduleError("one arrival too many in a phase of an mbarrier")

    def told(self, lanes: Lanes) -> int:
        """Return the epoch of the arrivals of ended phases: waiting threads know that it is over."""
        return int(self.over[self._of(lanes), lanes.block].min(initial=1 << 40))

    def wait(self, lanes: Lanes, parity: np.ndarray) -> bool:
        """Return whether the phase of a parity, for which threads wait, has ended."""
        numbers = self._of(lanes)
        at = numbers, lanes.block
        waiting = (self.phase[at] & 1) == parity
        self._end(numbers[waiting], lanes.block[waiting])
        if np.any((self.phase[at] & 1) == parity):
            return False
        self.seen[numbers, lanes.block, lanes.thread] = self.phase[at]
        return True

    def _end(self, numbers: np.ndarray, blocks: np.ndarray) -> None:
        """Let phases end that are complete: their boxes land."""
        for number, block in sorted(set(zip(numbers.tolist(), blocks.tolist(), strict=True))):
            lacking = self.arrived[number, block] < self.needed[number, block]
            if lacking or self.expected[number, block] != self.copied[number, block]:
                continue
            for box in self.boxes:
                if box.barrier == number:
                    mine = (box.copy.lanes.block == block) & (
                        box.phase[box.copy.lanes.block] == self.phase[number, block]
                    )
                    if np.any(mine):
                        copy = Copy(box.copy.lanes.chosen(mine), box.copy.dtype, box.copy.values[mine])
                        self.shared.land(copy, nobody=True)
                        box.phase[block] = -1
            self.arrived[number, block] = 0
            self.over[number, block] = self.when[number, block]
            self.expected[number, block] = self.copied[number, block] = 0
            self.phase[number, block] += 1
        self.boxes = [box for box in self.boxes if np.any(box.phase >= 0)]

    # ---- boxes
    def _own(self, lanes: Lanes) -> np.ndarray:
        """Return the number of each thread's block in its cluster."""
        return lanes.thread // (self.shape[1] // self.cluster)

    def offsets(self, lanes: Lanes) -> list[np.ndarray]:
        """Return the byte offsets from the shared memory of a thread's block to those of its cluster."""
        own = self._own(lanes)
        return [(block - own) * self.span for block in range(self.cluster)]

    def copy(self, to: Lanes, barrier: Lanes, tensor: Map, at: list[np.ndarray]) -> None:
        """Copy the box that begins at an element, with one thread of a block.

        Elements outside of the tensor are zero.
        """
        self._alone(to)
        numbers = self._of(barrier)
        self._end(numbers, to.block)
        each = set(numbers.tolist())
        if len(each) > self.cluster:
            raise ScheduleError("one copy signals several mbarriers")
        own = self._own(to)
        for number, rank in sorted(set(zip(numbers.tolist(), own.tolist(), strict=True))):
            which = (numbers == number) & (own == rank)
            self._copy(to.chosen(which), numbers[which], tensor, [part[which] for part in at])

    def _copy(self, to: Lanes, numbers: np.ndarray, tensor: Map, at: list[np.ndarray]) -> None:
        """Copy the boxes of one mbarrier, with one thread of a block each."""
        if not np.all(self.fenced[numbers, to.block]):
            raise ScheduleError("a box is copied to an mbarrier that no FenceBarriers shows to the TMA engine")
        check_aligned(to.address, BOX_ALIGNMENT)
        lanes, values = self._cells(to, tensor, at)
        phase = np.full(self.shape[0], -1)
        phase[to.block] = self.phase[numbers, to.block]
        copy = Copy(lanes, tensor.dtype, bits_of(values, tensor.dtype))
        self.shared.begin(copy, self.dice.random() < 0.5, self._tickets(lanes, int(numbers[0]), phase))
        self.copied[numbers, to.block] += values.size // len(numbers) * DTYPE_BYTES[tensor.dtype]
        self.changes += 1
        self.boxes.append(Issued(int(numbers[0]), phase, copy))

    def _cells(self, to: Lanes, tensor: Map, at: list[np.ndarray]) -> tuple[Lanes, np.ndarray]:
        """Return the destination and the value of every element of a box: a row for each element of each block."""
        places = np.indices(tensor.box).reshape(len(tensor.box), -1)
        inside, flat = np.ones((len(to.flat), places.shape[1]), bool), np.zeros((len(to.flat), places.shape[1]), int)
        for extent, first, place in zip(tensor.shape, at, places, strict=True):
            index = first[:, None] + place
            inside &= (index >= 0) & (index < extent)
            flat = flat * extent + index
        values = np.where(inside, tensor.array[np.where(inside, flat, 0)], 0)
        offset = to.address[:, None] + np.arange(places.shape[1]) * DTYPE_BYTES[tensor.dtype]
        if tensor.swizzle:
            offset = offset ^ (((offset // ROW) & (tensor.swizzle // CHUNK - 1)) * CHUNK)
        who, block, thread = (
            np.broadcast_to(part[:, None], offset.shape).reshape(-1) for part in (to.flat, to.block, to.thread)
        )
        return Lanes(who, block, thread, offset.reshape(-1)), values.reshape(-1, 1).astype(KINDS[tensor.dtype])

    def _tickets(self, lanes: Lanes, number: int, phase: np.ndarray) -> np.ndarray:
        """Return a ticket for every block, which identifies the phase in which a cell arrived."""
        first = self.tickets.shape[1]
        self.tickets = np.concatenate([self.tickets, np.stack([np.full(self.shape[0], number), phase])], axis=1)
        return first + lanes.block

    def ordered(self, tickets: np.ndarray, lanes: Lanes) -> np.ndarray:
        """Return whether threads have waited for the phases in which cells arrived. tickets: a row for each thread."""
        if not np.any(tickets):
            return np.zeros(tickets.shape, bool)
        number, phase = self.tickets[0][tickets], self.tickets[1][tickets]
        waited: np.ndarray = (tickets > 0) & (self.seen[number, lanes.block[:, None], lanes.thread[:, None]] > phase)
        return waited

    def finished(self) -> bool:
        """Return whether nothing is in flight."""
        return not self.boxes
