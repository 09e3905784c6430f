"""mbarriers and copies by TMA, for a batch of blocks.

A phase of an mbarrier ends when its arrivals have come and as many bytes have been copied as they announced. A box is
in flight from its issue until some thread of its block finds that the phase has ended. It is there then for the threads
that have waited for that phase, and behind the next barrier for all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from ..facts.layout import DTYPE_BYTES
from .kernel_memory import Copy, Lanes, SharedMemory, bits_of, check_aligned
from .scalar import KINDS, ScheduleError

BARRIER_BYTES = 8
BOX_ALIGNMENT = 128
CHUNK = 16  # bytes: what a swizzle moves
ROW = 128  # bytes: whose number decides where to
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

    Of clusters, each is a block here: `cluster` blocks whose shared memories, `span` bytes each, lie behind each other.
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
        """Threads make mbarriers, one each."""
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
        """What has been made in these blocks is there for the TMA engine."""
        self.fenced[:, blocks] = self.made[:, blocks]

    def _of(self, lanes: Lanes) -> np.ndarray:
        """The mbarriers at some addresses; that they were made is there to be read."""
        self.shared.load(lanes, "i64", 1)
        unknown = [int(a) for a in lanes.address if int(a) not in self.number]
        numbers = np.array([self.number.get(int(a), 0) for a in lanes.address], int)
        if unknown or not np.all(self.made[numbers, lanes.block]):
            raise ScheduleError(f"there is no mbarrier at byte {unknown[0] if unknown else lanes.address[0]}")
        return numbers

    def known(self, lanes: Lanes) -> None:
        """Raises ScheduleError where no mbarrier is at some of the addresses."""
        self._of(lanes)

    def _alone(self, lanes: Lanes) -> None:
        own = lanes.block * self.cluster + self._own(lanes)
        if len(np.unique(own)) != len(own):
            raise ScheduleError("several threads of a block do what one should do for all")

    def expect(self, lanes: Lanes, count: int) -> None:
        """One thread of a block arrives, and says how many bytes its phase waits for."""
        self._alone(lanes)
        at = self._of(lanes), lanes.block
        self._end(*at)
        self._arrived(*at)
        self.expected[at] += count
        self.changes += 1

    def arrive(self, lanes: Lanes) -> None:
        """Threads arrive, once each."""
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
        """What those who wait know to be over: the epoch that the arrivals of ended phases came in."""
        return int(self.over[self._of(lanes), lanes.block].min(initial=1 << 40))

    def wait(self, lanes: Lanes, parity: np.ndarray) -> bool:
        """Threads wait for the phase of a parity: whether it has ended."""
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
        """The number of each thread's block in its cluster."""
        return lanes.thread // (self.shape[1] // self.cluster)

    def offsets(self, lanes: Lanes) -> list[np.ndarray]:
        """What takes a place in the shared memory of each thread's own block to that in every block of its cluster."""
        own = self._own(lanes)
        return [(block - own) * self.span for block in range(self.cluster)]

    def copy(self, to: Lanes, barrier: Lanes, tensor: Map, at: list[np.ndarray]) -> None:
        """One thread of a block copies the box that begins at an element; what lies outside of the tensor is zero."""
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
        """The boxes of one mbarrier, of one thread of a block each."""
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
        """Where every element of a box goes, and what it is: a row for each element of each block."""
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
        """A ticket for every block: by it a reader finds which phase its cell came in."""
        first = self.tickets.shape[1]
        self.tickets = np.concatenate([self.tickets, np.stack([np.full(self.shape[0], number), phase])], axis=1)
        return first + lanes.block

    def ordered(self, tickets: np.ndarray, lanes: Lanes) -> np.ndarray:
        """Whether threads have waited for the phases that cells came in. tickets: a row for each thread."""
        if not np.any(tickets):
            return np.zeros(tickets.shape, bool)
        number, phase = self.tickets[0][tickets], self.tickets[1][tickets]
        waited: np.ndarray = (tickets > 0) & (self.seen[number, lanes.block[:, None], lanes.thread[:, None]] > phase)
        return waited

    def finished(self) -> bool:
        """Whether nothing is in flight."""
        return not self.boxes
