"""Shared memory of some blocks, byte-addressed, with all that orders accesses to it; and accesses to global memory.

Shared memory is counted in cells: as many bytes as the smallest element that a kernel keeps there. Every cell remembers
what starts in it, and who last wrote and read it in which epoch (the stretch between two barriers), so that finding a
race does not depend on luck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..facts.layout import DTYPE_BYTES
from .scalar import KINDS, ScheduleError

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
    """Values as 64 bits each, whatever their kind."""
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
        """The cells of an access, a row for each thread; and how many cells make an element."""
        item = DTYPE_BYTES[dtype]
        check_aligned(lanes.address, item * width)
        if np.any((lanes.address < 0) | (lanes.address + item * width > self.size)):
            raise ScheduleError(f"access outside of the {self.size} bytes of shared memory")
        first = lanes.block * self.cells_per_block + lanes.address // self.unit
        return first[:, None] + np.arange(width * item // self.unit), item // self.unit

    def stamp(self, lanes: Lanes, cells: np.ndarray) -> np.ndarray:
        """Who and when, for every cell of an access."""
        return np.broadcast_to((self.epoch * EPOCH + lanes.thread)[:, None], cells.shape)

    def of_others(self, marks: np.ndarray, stamp: np.ndarray) -> np.ndarray:
        """Which marks are of other threads, and of a time that is not known to be over."""
        others: np.ndarray = (marks >= self.since * EPOCH) & (marks % EPOCH != stamp % EPOCH)
        return others

    def meet(self) -> None:
        """All who run are here: what was done before is over."""
        self.epoch += 1
        self.since = self.epoch

    # ---- reading

    def load(self, lanes: Lanes, dtype: str, width: int) -> np.ndarray:
        """What threads read: a row for each."""
        cells, step = self.cells(lanes, dtype, width)
        self.check_readable(cells, dtype, width, step)
        stamp = self.stamp(lanes, cells)
        if np.any(self.written_by_others(lanes, cells, stamp)):
            raise ScheduleError("race: shared memory is read before a barrier after it was written")
        self.note_readers(cells, stamp)
        return values_of(self.bits[cells[:, ::step]], dtype)

    def written_by_others(self, lanes: Lanes, cells: np.ndarray, stamp: np.ndarray) -> np.ndarray:
        """Which cells another thread has written since the last barrier, other than a box that was waited for."""
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
        """What stands in `starts` where some elements are."""
        return np.tile(np.array([CODES[dtype]] + [INSIDE] * (step - 1), np.int8), width)

    # ---- writing

    def store(self, lanes: Lanes, dtype: str, bits: np.ndarray) -> None:
        """Threads write, each a row."""
        cells, step = self.cells(lanes, dtype, bits.shape[1])
        stamp = self.check_free(lanes, cells)
        self.put(cells, dtype, bits, step)
        self.writes[cells], self.tickets[cells] = stamp, 0

    def check_free(self, lanes: Lanes, cells: np.ndarray) -> np.ndarray:
        """May these threads overwrite these cells now? The stamp that they leave there."""
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
        """A copy sets out. Until it has landed the cells hold the new values, or what they held before.

        tickets: of a box, one for each row.
        """
        cells, step = self.cells(copy.lanes, copy.dtype, copy.values.shape[1])
        self.check_free(copy.lanes, cells)
        self.in_flight[cells], self.tickets[cells] = True, 0 if tickets is None else tickets[:, None]
        if early:
            self.put(cells, copy.dtype, copy.values, step)

    def land(self, copy: Copy, nobody: bool = False) -> None:
        """A copy has landed: its own thread may read, others after the next barrier. nobody: a box is no thread's."""
        cells, step = self.cells(copy.lanes, copy.dtype, copy.values.shape[1])
        self.put(cells, copy.dtype, copy.values, step)
        self.in_flight[cells] = False
        self.writes[cells] = self.epoch * EPOCH + SEVERAL if nobody else self.stamp(copy.lanes, cells)


def check_aligned(address: np.ndarray, size: int) -> None:
    """Raises ScheduleError where an access of `size` bytes does not start at a multiple of them."""
    if np.any(address % size):
        raise ScheduleError(f"misaligned: an access of {size} bytes at byte {address[address % size != 0][0]}")


def elements(array: np.ndarray, lanes: Lanes, dtype: str, width: int, what: str) -> np.ndarray:
    """The elements of a buffer that threads access, a row for each."""
    if np.any((lanes.address < 0) | (lanes.address + width > array.size)):
        wrong = lanes.address[(lanes.address < 0) | (lanes.address + width > array.size)][0]
        raise ScheduleError(f"{what} out of bounds: element {wrong} of {array.size}")
    check_aligned(lanes.address * DTYPE_BYTES[dtype], min(width * DTYPE_BYTES[dtype], FIRST_BYTES))
    return lanes.address[:, None] + np.arange(width)
