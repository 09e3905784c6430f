"""The memory of a batch of blocks of Tile IR: loads, stores and cooperative copies, each with its checks."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..expr import Axis, Var, extents_of, free_names
from ..facts.layout import cell_of, item_bytes, owners, physical, shared_tile_cells
from ..facts.structure import Path, summary
from ..loop import Load, Store
from ..program import Block, Kernel
from ..tile import RegisterTile, Stage, Tile
from .scalar import KINDS, Memory, ScheduleError, at_statement, both, chosen, clipped, evaluate, in_bounds, within

# ---- groups of threads between two barriers


@dataclass
class ThreadGroup:
    """Threads that run together between two barriers.

    queue: copies that they issued and did not wait for.
    """

    threads: np.ndarray
    env: dict[str, Any]
    program: Any = None
    queue: list[Callable[[], bool]] = field(default_factory=list)
    issued: int = 0  # TMA copies in program order
    waited: int = 0
    answer: Any = None
    sums: dict[str, Any] = field(default_factory=dict)  # accumulators of products that are not complete


# ---- shared memory: every cell remembers who wrote and who read it since the last barrier, so races are always found


NOBODY, SEVERAL = -1, -2


class Cells(NamedTuple):
    """Words that some threads write, as an index of blocks and words, and the thread of each."""

    at: tuple[Any, np.ndarray]
    threads: np.ndarray


def layout(stage: Stage) -> tuple[Any, ...]:
    """Return the fields that all Stages of one shared-memory tile share."""
    return (stage.box, stage.depth, stage.pad, stage.swizzle, stage.xor)


class SharedTileMemory:
    """All slots of one shared tile, for a batch of blocks."""

    def __init__(self, blocks: int, stage: Stage, kind: Any):
        shape = (blocks, stage.depth * shared_tile_cells(stage))
        self.stage = stage
        self.values = np.zeros(shape, kind)
        self.poison = np.nan if kind is np.float64 else 0
        self.write_epoch, self.writer = np.full(shape, -1), np.full(shape, NOBODY)
        self.read_epoch, self.reader = np.full(shape, -1), np.full(shape, NOBODY)
        self.in_flight = np.zeros(shape, bool)
        self.ticket = np.full(shape, -1)  # the TMA copy that wrote a word: visible to who waited for it

    def check_free(self, cells: Cells, epoch: int) -> None:
        """Check that these threads may overwrite these words now. Raises ScheduleError if not."""
        at, who = cells
        name = self.stage.dst
        if self.in_flight[at].any():
            raise ScheduleError(f"{name}: copy into a slot whose copy is still in flight")
        if ((self.read_epoch[at] == epoch) & (self.reader[at] != who)).any():
            raise ScheduleError(f"race: {name} is overwritten while others may still read it: no barrier in between")
        if ((self.write_epoch[at] == epoch) & (self.writer[at] != who)).any():
            raise ScheduleError(f"race: {name} is written by two threads between two barriers")

    def check_boxes(self, cells: Cells) -> None:
        """Check that TMA may overwrite these words. Raises ScheduleError after unfenced writes of threads.

        A barrier orders TMA after reads. After writes of threads, only a fence would, and no statement is a fence (PTX
        ISA, "Async proxy").
        """
        if ((self.write_epoch[cells.at] >= 0) & (self.ticket[cells.at] < 0)).any():
            raise ScheduleError(f"{self.stage.dst}: nothing orders a copy by TMA after what threads wrote there")

    def launch(self, cells: Cells, values: Any, early: bool) -> None:
        """Begin an asynchronous copy. Until it lands, the words hold the new values or poison."""
        self.in_flight[cells.at] = True
        self.values[cells.at] = values if early else self.poison

    def land(self, cells: Cells, values: Any) -> None:
        self.values[cells.at] = values
        self.in_flight[cells.at] = False

    def written(self, cells: Cells, epoch: int, ticket: int = -1) -> None:
        self.write_epoch[cells.at] = epoch
        self.writer[cells.at] = cells.threads
        self.ticket[cells.at] = ticket

    def read(self, block: np.ndarray, word: np.ndarray, thread: np.ndarray, epoch: int, waited: int) -> None:
        """Check and record reads of words by threads, in arrays of one shape.

        waited: the TMA copies for which these threads have waited. Raises ScheduleError for a word that is not ready.
        """
        name = self.stage.dst
        if self.in_flight[block, word].any():
            raise ScheduleError(f"{name} is read while its copy is in flight: no Wait")
        if (self.write_epoch[block, word] < 0).any():
            raise ScheduleError(f"uninitialised shared memory: {name}")
        ticket = self.ticket[block, word]
        recent = (ticket < 0) & (self.write_epoch[block, word] == epoch)
        if (recent & (self.writer[block, word] != thread)).any():
            raise ScheduleError(f"race: {name} is read before a barrier after its copy")
        if (ticket >= waited).any():
            raise ScheduleError(f"{name} is read without waiting for its TMA copy")
        self._note_readers(block, word, thread, epoch)

    def store(self, block: np.ndarray, word: np.ndarray, thread: np.ndarray, value: np.ndarray, epoch: int) -> None:
        """Store words of threads, once each between two barriers, in arrays of one shape."""
        name = self.stage.dst
        if self.in_flight[block, word].any():
            raise ScheduleError(f"{name} is written while a copy into it is in flight: no Wait")
        cells = np.stack((block, word))
        if np.unique(cells, axis=1).shape[1] < cells.shape[1]:
            raise ScheduleError(f"race: two threads write one word of {name}")
        touched = (self.read_epoch, self.reader), (self.write_epoch, self.writer)
        if any(((when[block, word] == epoch) & (who[block, word] != thread)).any() for when, who in touched):
            raise ScheduleError(f"race: {name} is overwritten while others may use it: no barrier in between")
        written = Cells((block, word), thread)
        self.land(written, value)
        self.written(written, epoch)

    def _note_readers(self, block: np.ndarray, word: np.ndarray, thread: np.ndarray, epoch: int) -> None:
        new = self.read_epoch[block, word] != epoch
        self.reader[block[new], word[new]] = thread[new]
        self.read_epoch[block, word] = epoch
        other = self.reader[block, word] != thread
        self.reader[block[other], word[other]] = SEVERAL


class BlockMemory:
    """Global buffers and shared tiles as the threads of some blocks see them. `epoch` counts the barriers passed."""

    kernel: Kernel
    memory: Memory
    counts: Memory
    dice: random.Random
    blocks: int
    threads: list[Axis]
    ones: tuple[int, ...]  # one dimension for each replicated axis

    def __init__(self) -> None:
        self.shared_tiles: dict[str, SharedTileMemory] = {}
        self.register_tiles: Memory = {}  # elements by block, thread and place
        self.tma: list[Callable[[], None] | None] = []
        self.epoch = 0

    def stage(self, stmt: Stage, group: ThreadGroup) -> None:
        if stmt.when is not True and not self.uniform(stmt.when, group):
            if stmt.via != "SYNC":
                group.queue.append(nothing)  # an empty copy still counts for Wait
            return
        slot = int(self.uniform(stmt.slot, group))
        if not 0 <= slot < stmt.depth:
            raise ScheduleError(f"{stmt.dst}: slot {slot} of {stmt.depth}")
        shared_tile = self.shared_tiles.get(stmt.dst)
        if shared_tile is None:
            shared_tile = self.shared_tiles[stmt.dst] = SharedTileMemory(
                self.blocks, stmt, self.memory[stmt.src].dtype.type
            )
        if layout(shared_tile.stage) != layout(stmt):
            raise ScheduleError(f"{stmt.dst}: two layouts for one shared tile")
        if stmt.via == "TMA" and 0 not in group.threads:  # thread 0 issues, all wait
            self.enqueue_tma(group)
            return
        cells, threads = _copied(self.kernel, stmt, group.threads)
        words = physical(stmt, list(cells), item_bytes(self.kernel, stmt)) + slot * shared_tile_cells(stmt)
        if len(np.unique(words)) != len(words) or (words >= shared_tile.values.shape[1]).any():
            raise ScheduleError(f"{stmt.dst}: the layout is not injective")
        copied, values = Cells(np.s_[:, words], threads), self.source(stmt, self.origin(stmt, cells, group), cells)
        self.copy(stmt, shared_tile, copied, values, group)

    def declare(self, stmt: Any) -> None:
        """Declare memory for computed values: registers of each thread, or shared memory when the first arrives."""
        if isinstance(stmt, RegisterTile):
            threads = math.prod(extents_of(self.threads))
            extents = extents_of(stmt.box)
            self.register_tiles.setdefault(stmt.dst, np.full((self.blocks, threads, *extents), np.nan))
        elif stmt.dst not in self.shared_tiles:
            self.shared_tiles[stmt.dst] = SharedTileMemory(self.blocks, stmt, np.float64)

    def copy(self, stmt: Stage, shared_tile: SharedTileMemory, cells: Cells, values: Any, group: ThreadGroup) -> None:

        def land() -> bool:
            shared_tile.land(cells, values)
            shared_tile.written(cells, self.epoch)
            return True

        shared_tile.check_free(cells, self.epoch)
        if stmt.via == "SYNC":
            land()
            return
        if stmt.via == "TMA":
            shared_tile.check_boxes(cells)
        shared_tile.launch(cells, values, early=self.dice.random() < 0.5)
        if stmt.via == "TMA":
            shared_tile.written(cells, self.epoch, ticket=len(self.tma))
            self.tma.append(lambda: shared_tile.land(cells, values))
            self.enqueue_tma(group)
        else:
            group.queue.append(land)

    def enqueue_tma(self, group: ThreadGroup) -> None:
        ticket = group.issued
        group.issued += 1

        def landed() -> bool:
            if ticket >= len(self.tma):
                return False
            land, self.tma[ticket] = self.tma[ticket], None
            if land is not None:
                land()
            group.waited = ticket + 1
            return True

        group.queue.append(landed)

    def origin(self, stmt: Stage, cells: np.ndarray, group: ThreadGroup) -> list[Any]:
        """Return the origin of a copy for every block, or for every cell of a gather."""
        labels = {
            axis.name: cell.reshape(1, -1) for axis, cell in zip(stmt.box, cells, strict=True) if axis.dim is None
        }
        if not labels:
            return [self.uniform_of_block(e, group) for e in stmt.origin]
        names = free_names(stmt.origin) - labels.keys()
        around = {name: self.uniform_of_block(Var(name), group) for name in names}
        return [evaluate(e, {**around, **labels}) for e in stmt.origin]

    def source(self, stmt: Stage, origin: list[Any], cells: np.ndarray) -> Any:
        """Return the values of the cells for every block, with zero outside of the source."""
        array, idx = self.memory[stmt.src], []
        for dim, base in enumerate(origin):
            steps = [axis.stride * cell for axis, cell in zip(stmt.box, cells, strict=True) if axis.dim == dim]
            idx.append(np.broadcast_to(base + sum(steps), (self.blocks, cells.shape[1])))
        return np.where(in_bounds(idx, array.shape), array[clipped(idx, array.shape)], 0)

    def uniform(self, e: Any, group: ThreadGroup) -> Any:
        """Return a value that is the same for all threads and blocks of the batch."""
        value = np.unique(evaluate(e, group.env))
        if len(value) != 1:
            raise ScheduleError("the slot or predicate of a copy is not uniform")
        return value[0]

    def uniform_of_block(self, e: Any, group: ThreadGroup) -> Any:
        value = np.asarray(evaluate(e, group.env))
        if value.size not in (1, self.blocks) or (value.ndim and value.shape[0] != value.size):
            raise ScheduleError("the origin of a copy is not uniform in the block")
        return value.reshape(-1, 1)

    def load(self, stmt: Load, group: ThreadGroup, mask: Any) -> Any:
        when = None if stmt.when is True else np.asarray(evaluate(stmt.when, group.env))
        read = mask if when is None else both(mask, when)
        idx = [np.asarray(evaluate(e, group.env)) for e in stmt.idx]
        if self.is_shared(stmt):
            value = self.load_shared(stmt, idx, group, read)
        else:
            array, *at = self.place(stmt, idx, group)
            value = array[within(at, array.shape, read, f"load out of bounds of {stmt.buf}")]
        value = chosen(when, value, stmt.other)
        return value if value.dtype != np.float64 else chosen(mask, value, np.nan)

    def is_shared(self, stmt: Load | Store) -> bool:
        """Return whether an access is of a shared tile, which barriers protect."""
        return stmt.buf not in self.memory and stmt.buf not in self.register_tiles

    def everyone(self, group: ThreadGroup) -> tuple[Any, Any]:
        """Return the block and the thread of each lane, along the dimensions of values."""
        return np.arange(self.blocks).reshape(-1, 1, *self.ones), group.threads.reshape(1, -1, *self.ones)

    def place(self, stmt: Load | Store, idx: list[Any], group: ThreadGroup) -> tuple[Any, ...]:
        """Return the memory that no barrier protects, and the index there: a global buffer, or a thread's registers."""
        tile = self.register_tiles.get(stmt.buf)
        array, first = (self.memory[stmt.buf], ()) if tile is None else (tile, self.everyone(group))
        if len(idx) + len(first) != array.ndim:
            raise ScheduleError(f"{stmt.buf} has {array.ndim - len(first)} dimensions")
        return array, *first, *idx

    def load_shared(self, stmt: Load, idx: list[Any], group: ThreadGroup, read: Any) -> Any:
        shared_tile, block, word, thread = self.words(stmt, idx, group, read)
        chosen = np.broadcast_to(True if read is None else read, word.shape)
        shared_tile.read(block[chosen], word[chosen], thread[chosen], self.epoch, group.waited)
        return shared_tile.values[block, word]

    def words(
        self, stmt: Load | Store, idx: list[Any], group: ThreadGroup, mask: Any
    ) -> tuple[SharedTileMemory, Any, Any, Any]:
        """Return the shared tile of an access, and for each lane its block, word and thread.

        Raises ScheduleError if the access leaves the shared tile.
        """
        shared_tile = self.shared_tiles.get(stmt.buf)
        if shared_tile is None:
            raise ScheduleError(f"access to {stmt.buf}, which was never written")
        stage = shared_tile.stage
        cell, slot = list(cell_of(stage, tuple(idx))), idx[0] if stage.depth > 1 else 0
        extents = extents_of(stage.box)
        if len(cell) != len(extents):
            raise ScheduleError(f"{stmt.buf} has {len(extents)} dimensions")
        what = f"access outside of the shared tile {stmt.buf}"
        slot, *cell = within([slot, *cell], (stage.depth, *extents), mask, what)
        word = np.asarray(physical(stage, cell, item_bytes(self.kernel, stage)) + slot * shared_tile_cells(stage))
        shape = np.broadcast_shapes(word.shape, (self.blocks, len(group.threads), *self.ones), np.shape(mask))
        word, block, thread = (np.broadcast_to(part, shape) for part in (word, *self.everyone(group)))
        return shared_tile, block, word, thread

    def store(self, stmt: Store, group: ThreadGroup, mask: Any) -> None:
        idx, shared = [np.asarray(evaluate(e, group.env)) for e in stmt.idx], self.is_shared(stmt)
        where, *at = self.words(stmt, idx, group, mask) if shared else self.place(stmt, idx, group)
        parts = [*at, np.asarray(evaluate(stmt.val, group.env))]
        every = (self.blocks, len(group.threads), *self.ones)
        shape = np.broadcast_shapes(every, np.shape(mask), *(part.shape for part in parts))
        chosen = np.broadcast_to(True if mask is None else mask, shape)
        *at, value = (np.broadcast_to(part, shape)[chosen] for part in parts)
        if shared:
            where.store(*at, value, self.epoch)
            return
        place = within(at, where.shape, None, f"store out of bounds of {stmt.buf}")
        where[place] = value
        if stmt.buf in self.counts:
            np.add.at(self.counts[stmt.buf], place, 1)


def nothing() -> bool:
    return True


def _copied(kernel: Kernel, stage: Stage, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates and the thread of each cell that these threads copy."""
    cells = np.indices(extents_of(stage.box)).reshape(len(stage.box), -1)
    if stage.via == "TMA":
        return cells, np.zeros(cells.shape[1], int)
    who = np.array(owners(kernel, stage))
    own = np.isin(who, threads)
    return cells[:, own], who[own]


# ---- scheduling: groups of threads run to the next barrier in random order


# Yields a statement that waits for other threads, with the values of the group, or with POLL where it tests again.
Program = Generator[tuple[Any, Any], Any, None]
POLL = object()


class BlockThreads(BlockMemory, ABC):
    """The scheduler of thread groups.

    grid: the index of each block along each BLOCK axis. dtypes: of values.
    """

    tile: Tile
    threads: list[Axis]
    registers: list[Axis]
    grid: dict[str, Any]
    dtypes: dict[str, str]

    @abstractmethod
    def block(self, block: Block, path: Path, group: ThreadGroup, mask: Any) -> Program:
        """Run a block as the program of a group."""

    def groups(self) -> dict[int, ThreadGroup]:
        count = math.prod(extents_of(self.threads))
        ids = list(range(count))
        self.dice.shuffle(ids)
        split = min(count, self.dice.choice((2, 3, 4))) if summary(self.tile.body).barriers else 1
        live = {}
        for g in range(split):
            threads = np.array(sorted(ids[g::split]))
            group = ThreadGroup(threads, {**self.grid, **self.axis_values(threads)})
            group.program = self.block(self.tile.body, (0,), group, None)
            live[g] = group
        return live

    def axis_values(self, threads: np.ndarray) -> dict[str, Any]:
        values, rest = {}, threads
        for axis in reversed(self.threads):
            values[axis.name] = (rest % axis.extent).reshape(1, -1, *self.ones)
            rest = rest // axis.extent
        for place, axis in enumerate(self.registers):
            shape = [1, 1, *self.ones]
            shape[2 + place] = axis.extent
            values[axis.name] = np.arange(axis.extent).reshape(shape)
        return values

    def gathered(self, values: dict[int, Any], live: dict[int, ThreadGroup], dtype: str) -> Any:
        """Return the values of all threads from those of each group: (blocks, threads, *registers)."""
        count = math.prod(extents_of(self.threads))
        inner = np.broadcast_shapes(self.ones, *(np.shape(value)[2:] for value in values.values()))
        whole = np.empty((self.blocks, count, *inner), KINDS[dtype])
        for g, value in values.items():
            whole[:, live[g].threads] = np.broadcast_to(value, (self.blocks, len(live[g].threads), *inner))
        return whole

    def to_next_barrier(self, live: dict[int, ThreadGroup]) -> tuple[dict[int, Any], list[int]]:
        todo, waiting, done, stuck = list(live), {}, [], 0
        self.dice.shuffle(todo)
        while todo:
            g = todo.pop(0)
            try:
                stmt, value = live[g].program.send(live[g].answer)
            except StopIteration:
                done.append(g)
                stuck = 0
                continue
            live[g].answer = None
            if value is POLL:
                todo.append(g)
                stuck += 1
                if stuck > 2 * len(live) + 2:
                    with at_statement(stmt):
                        raise ScheduleError("deadlock: what is waited for never comes")
            else:
                waiting[g], stuck = (stmt, value), 0
        return waiting, done
