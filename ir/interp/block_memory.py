"""What one batch of blocks does to memory: loads, stores and cooperative copies, each with its checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from ..expr import Var, free_names
from ..facts.layout import cell_of, item_bytes, owners, physical, reused, slab_cells
from ..loop import Load, Store
from ..program import Kernel
from ..tile import Put, Slab, Stage
from .groups import ThreadGroup
from .rings import RingState, check_held
from .scalar import ScheduleError, clipped, evaluate, in_bounds
from .shared import Cells, SlabMemory, layout


class BlockMemory:
    """Global buffers and slabs as the threads of some blocks see them. `epoch` counts the barriers passed."""

    kernel: Kernel
    memory: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]
    dice: random.Random
    blocks: int
    ones: tuple[int, ...]  # one dimension for each replicated axis

    def __init__(self) -> None:
        self.slabs: dict[str, SlabMemory] = {}
        self.tma: list[Callable[[], None] | None] = []
        self.epoch = 0
        self.rings: dict[str, RingState] = {}

    def stage(self, stmt: Stage, group: ThreadGroup) -> None:
        if stmt.when is not True and not self.uniform(stmt.when, group):
            if stmt.via == "FETCH":
                self.hold(stmt, nothing, group)
            elif stmt.via != "SYNC":
                group.queue.append(nothing)  # an empty copy still counts for Wait
            return
        slot = int(self.uniform(stmt.slot, group))
        if not 0 <= slot < stmt.depth:
            raise ScheduleError(f"{stmt.dst}: slot {slot} of {stmt.depth}")
        slab = self.slabs.get(stmt.dst)
        if slab is None:
            slab = self.slabs[stmt.dst] = SlabMemory(self.blocks, stmt, self.memory[stmt.src].dtype.type)
        if layout(slab.stage) != layout(stmt):
            raise ScheduleError(f"{stmt.dst}: two layouts for one slab")
        self.take_over(stmt)
        if stmt.via == "TMA" and 0 not in group.threads:  # thread 0 issues, all wait
            self.enqueue_tma(group)
            return
        cells, threads = _copied(self.kernel, stmt, group.threads)
        words = physical(stmt, list(cells), item_bytes(self.kernel, stmt)) + slot * slab_cells(stmt)
        if len(np.unique(words)) != len(words) or (words >= slab.values.shape[1]).any():
            raise ScheduleError(f"{stmt.dst}: the layout is not injective")
        copied, values = Cells(words, threads), self.source(stmt, self.origin(stmt, cells, group), cells)
        if stmt.via == "FETCH":
            self.hold(stmt, lambda: self.land(slab, copied, values), group)
        else:
            self.copy(stmt, slab, copied, values, group)

    def hold(self, stmt: Stage, put: Callable[[], object], group: ThreadGroup) -> None:
        """Registers hold a box until its Put."""
        if stmt.dst in group.held:
            raise ScheduleError(f"{stmt.dst} is fetched again before its Put")
        group.held[stmt.dst] = put

    def put(self, stmt: Put, group: ThreadGroup) -> None:
        if stmt.dst not in group.held:
            raise ScheduleError(f"{stmt.dst}: a Put of what was not fetched")
        group.held.pop(stmt.dst)()

    def land(self, slab: SlabMemory, cells: Cells, values: Any) -> None:
        """The threads store values themselves, now."""
        slab.check_free(cells, self.epoch)
        slab.land(cells, values)
        slab.written(cells, self.epoch)

    def declare(self, stmt: Any) -> None:
        """Shared memory for computed values: the first thread to come makes it."""
        if stmt.dst not in self.slabs:
            self.slabs[stmt.dst] = SlabMemory(self.blocks, stmt, np.float64)

    def take_over(self, slab: Stage | Slab) -> None:
        """What is copied takes the memory of slabs that reuse it, and they take that of what is copied."""
        for other in self.slabs.values():
            copied = isinstance(slab, Stage) != isinstance(other.stage, Stage)
            if copied and (reused(slab) or reused(other.stage)):
                other.give_way(slab, self.epoch)

    def copy(self, stmt: Stage, slab: SlabMemory, cells: Cells, values: Any, group: ThreadGroup) -> None:
        if stmt.via == "SYNC":
            self.land(slab, cells, values)
            return
        slab.check_free(cells, self.epoch)
        if stmt.via == "TMA":
            slab.check_boxes(cells)
        slab.launch(cells, values, early=self.dice.random() < 0.5)
        if stmt.via == "TMA":
            slab.written(cells, self.epoch, ticket=len(self.tma))
            self.tma.append(lambda: slab.land(cells, values))
            self.enqueue_tma(group)
            return

        def land() -> bool:
            slab.land(cells, values)
            slab.written(cells, self.epoch)
            return True

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
        """Where a copy begins, for every block; where its cells are gathered, for every cell."""
        labels = {
            axis.name: cell.reshape(1, -1) for axis, cell in zip(stmt.slab, cells, strict=True) if axis.dim is None
        }
        if not labels:
            return [self.uniform_of_block(e, group) for e in stmt.origin]
        names = free_names(stmt.origin) - labels.keys()
        around = {name: self.uniform_of_block(Var(name), group) for name in names}
        return [evaluate(e, {**around, **labels}) for e in stmt.origin]

    def source(self, stmt: Stage, origin: list[Any], cells: np.ndarray) -> Any:
        """The cells' values for every block; zero outside of the source."""
        array, idx = self.memory[stmt.src], []
        for dim, base in enumerate(origin):
            steps = [axis.stride * cell for axis, cell in zip(stmt.slab, cells, strict=True) if axis.dim == dim]
            idx.append(np.broadcast_to(base + sum(steps), (self.blocks, cells.shape[1])))
        return np.where(in_bounds(idx, array.shape), array[clipped(idx, array.shape)], 0)

    def uniform(self, e: Any, group: ThreadGroup) -> Any:
        """A value that is one for all threads and blocks of the batch."""
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
        shared = stmt.buf not in self.memory
        value = self.load_shared(stmt, idx, group, read) if shared else self.load_global(stmt, idx, read)
        if when is not None:
            value = np.where(when, value, stmt.other)
        return value if mask is None or value.dtype != np.float64 else np.where(mask, value, np.nan)

    def load_global(self, stmt: Load, idx: list[Any], read: Any) -> Any:
        array = self.memory[stmt.buf]
        if len(idx) != array.ndim:
            raise ScheduleError(f"{stmt.buf} has {array.ndim} dimensions")
        inside = in_bounds(idx, array.shape)
        if not np.all(inside if read is None else inside | ~np.asarray(read)):
            raise ScheduleError(f"load out of bounds of {stmt.buf}")
        return array[clipped(idx, array.shape)]

    def load_shared(self, stmt: Load, idx: list[Any], group: ThreadGroup, read: Any) -> Any:
        slab, block, word, thread = self.words(stmt, idx, group, read)
        chosen = np.broadcast_to(True if read is None else read, word.shape)
        slab.read(block[chosen], word[chosen], thread[chosen], self.epoch, group.waited)
        return slab.values[block, word]

    def words(
        self, stmt: Load | Store, idx: list[Any], group: ThreadGroup, mask: Any
    ) -> tuple[SlabMemory, Any, Any, Any]:
        """The slab of an access, and for each lane its block, word and thread. Raises where it leaves the slab."""
        slab = self.slabs.get(stmt.buf)
        if slab is None:
            raise ScheduleError(f"access to {stmt.buf}, which was never written")
        stage = slab.stage
        cell, slot = list(cell_of(stage, tuple(idx))), idx[0] if stage.depth > 1 else 0
        extents = tuple(axis.extent for axis in stage.slab)
        if len(cell) != len(extents):
            raise ScheduleError(f"{stmt.buf} has {len(extents)} dimensions")
        inside = in_bounds(cell, extents) & (np.asarray(slot) >= 0) & (np.asarray(slot) < stage.depth)
        if not np.all(inside if mask is None else inside | ~np.asarray(mask)):
            raise ScheduleError(f"access outside of the slab {stmt.buf}")
        check_held(stmt, slot, group, self.rings.values())
        base = np.clip(slot, 0, stage.depth - 1) * slab_cells(stage)
        word = np.asarray(physical(stage, clipped(cell, extents), item_bytes(self.kernel, stage)) + base)
        shape = np.broadcast_shapes(word.shape, (self.blocks, len(group.threads), *self.ones), np.shape(mask))
        everyone = group.threads.reshape(1, -1, *self.ones), np.arange(self.blocks).reshape(-1, 1, *self.ones)
        word, thread, block = (np.broadcast_to(part, shape) for part in (word, *everyone))
        return slab, block, word, thread

    def store_shared(self, stmt: Store, group: ThreadGroup, mask: Any) -> None:
        idx = [np.asarray(evaluate(e, group.env)) for e in stmt.idx]
        slab, block, word, thread = self.words(stmt, idx, group, mask)
        if reused(slab.stage):
            self.take_over(slab.stage)
        value = np.asarray(evaluate(stmt.val, group.env))
        shape = np.broadcast_shapes(word.shape, value.shape)
        chosen = np.broadcast_to(True if mask is None else mask, shape)
        block, word, thread, value = (np.broadcast_to(part, shape)[chosen] for part in (block, word, thread, value))
        slab.store(block, word, thread, value, self.epoch)

    def store(self, stmt: Store, group: ThreadGroup, mask: Any) -> None:
        if stmt.buf not in self.memory:
            self.store_shared(stmt, group, mask)
            return
        array = self.memory[stmt.buf]
        parts = [np.asarray(evaluate(e, group.env)) for e in (*stmt.idx, stmt.val)]
        every = (self.blocks, len(group.threads), *self.ones)
        shape = np.broadcast_shapes(every, np.shape(mask), *(part.shape for part in parts))
        chosen = np.broadcast_to(True if mask is None else mask, shape)
        *idx, value = (np.broadcast_to(part, shape)[chosen] for part in parts)
        if not np.all(in_bounds(idx, array.shape)):
            raise ScheduleError(f"store out of bounds of {stmt.buf}")
        array[tuple(idx)] = value
        np.add.at(self.counts[stmt.buf], tuple(idx), 1)


def nothing() -> bool:
    return True


def both(mask: Any, condition: Any) -> Any:
    return condition if mask is None else mask & condition


def _copied(kernel: Kernel, stage: Stage, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(coordinates, thread) of the cells that these threads copy."""
    cells = np.indices([axis.extent for axis in stage.slab]).reshape(len(stage.slab), -1)
    if stage.via == "TMA":
        return cells, np.zeros(cells.shape[1], int)
    who = np.array(owners(kernel, stage))
    own = np.isin(who, threads)
    return cells[:, own], who[own]
