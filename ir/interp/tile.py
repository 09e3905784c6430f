"""The meaning of Tile IR, parallel and adversarial.

The threads of a block are split into random groups; the groups run to the next barrier in random order; an asynchronous
copy lands at once or only at its Wait; shared memory that nobody wrote is poison. What a schedule may not do (races,
copies in divergent control flow, indices out of bounds, outputs stored twice or never) is raised as a ScheduleError.

A value is an array of the shape (blocks of a batch, threads of a group, *replicated axes), or broadcasts to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..facts.layout import cell_of, owners, physical, slab_words, tile_of
from ..facts.scopes import Path, accumulator_scopes
from ..facts.structure import summary
from ..facts.types import value_dtypes
from ..loop import Accumulate, For, If, Let, Load, Store
from ..program import Block, Kernel
from ..text.print import print_statement
from ..tile import Combine, Stage, Sync, Tile, Wait
from . import loop
from .scalar import (
    KINDS,
    ScheduleError,
    check_stores,
    clipped,
    empty,
    evaluate,
    fold,
    in_bounds,
    memory_of,
    start_value,
)
from .shared import Cells, Slab, layout

BATCH = 1 << 18  # lanes that run at once

Program = Generator[tuple[Any, ...], Any, None]  # yields ("sync", stmt), ("combine", stmt, value) or ("poll",)


def run(kernels: tuple[Kernel, ...], inputs: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """All buffers after the kernels, in order. A kernel without a Tile runs as Loop IR."""
    memory, dice = memory_of(kernels, inputs), random.Random(seed)
    with np.errstate(all="ignore"):
        for kernel in kernels:
            tile = tile_of(kernel)
            if tile is None:
                made = loop.run((kernel,), {param.name: memory[param.name] for param in kernel.ins})
                memory.update((param.name, made[param.name]) for param in kernel.outs)
                continue
            counts = {}
            for param in kernel.outs:
                memory[param.name], counts[param.name] = empty(param)
            _launch(kernel, tile, memory, counts, dice)
            check_stores(counts, kernel)
    return memory


def _launch(kernel: Kernel, tile: Tile, memory: Any, counts: Any, dice: random.Random) -> None:
    if len(kernel.body) != 1:
        raise ScheduleError(f"kernel `{kernel.name}`: statements beside its Tile")
    grid = [axis for axis in tile.axes if axis.role == "BLOCK"]
    total = math.prod(axis.extent for axis in grid)
    lanes = math.prod(axis.extent for axis in tile.axes if axis.role != "BLOCK")
    size = max(1, BATCH // lanes)
    for first in range(0, total, size):
        blocks = np.arange(first, min(first + size, total))
        coordinates = np.unravel_index(blocks, [axis.extent for axis in grid]) if grid else ()
        places = {axis.name: values for axis, values in zip(grid, coordinates, strict=True)}
        _Blocks(kernel, tile, memory, counts, dice, places, len(blocks)).run()


@dataclass
class _Group:
    """Threads that run together between two barriers. queue: copies they issued and did not yet wait for."""

    threads: np.ndarray
    env: dict[str, Any]
    program: Any = None
    queue: list[Callable[[], bool]] = field(default_factory=list)
    issued: int = 0  # TMA copies in program order
    waited: int = 0
    answer: Any = None


class _Blocks:
    """A batch of blocks under execution."""

    def __init__(
        self, kernel: Kernel, tile: Tile, memory: Any, counts: Any, dice: random.Random, grid: dict[str, Any], blocks: int
    ):
        self.kernel, self.tile, self.memory, self.counts = kernel, tile, memory, counts
        self.dice, self.blocks = dice, blocks
        self.threads = [axis for axis in tile.axes if axis.role == "THREAD"]
        self.registers = [axis for axis in tile.axes if axis.role in ("REG", "VEC")]
        self.ones = (1,) * len(self.registers)
        self.grid = {name: value.reshape(-1, 1, *self.ones) for name, value in grid.items()}
        self.scopes, self.dtypes = accumulator_scopes(kernel), value_dtypes(kernel)
        self.slabs: dict[str, Slab] = {}
        self.tma: list[Callable[[], None] | None] = []
        self.epoch = 0

    # ---- groups and barriers
    def run(self) -> None:
        live = self.groups()
        while live:
            waiting, done = self.to_next_barrier(live)
            if waiting and done:
                raise ScheduleError("some threads end while others wait at a barrier")
            if len({id(event[1]) for event in waiting.values()}) > 1:
                raise ScheduleError("threads wait at different barriers")
            if any(copy is not _nothing for g in done for copy in live[g].queue):
                raise ScheduleError("the kernel ends with copies in flight")
            live = {g: group for g, group in live.items() if g not in done}
            event = next(iter(waiting.values()), None)
            if event is not None and event[0] == "combine":
                self.combine(event[1], {g: e[2] for g, e in waiting.items()}, live)
            else:  # a Combine may be shuffles only, so that it orders nothing in shared memory
                self.epoch += 1

    def groups(self) -> dict[int, _Group]:
        count = math.prod(axis.extent for axis in self.threads)
        ids = list(range(count))
        self.dice.shuffle(ids)
        split = min(count, self.dice.choice((2, 3, 4))) if summary(self.tile.body).barriers else 1
        live = {}
        for g in range(split):
            threads = np.array(sorted(ids[g::split]))
            group = _Group(threads, {**self.grid, **self.axis_values(threads)})
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

    def to_next_barrier(self, live: dict[int, _Group]) -> tuple[dict[int, Any], list[int]]:
        todo, waiting, done, stuck = list(live), {}, [], 0
        self.dice.shuffle(todo)
        while todo:
            g = todo.pop(0)
            try:
                event = live[g].program.send(live[g].answer)
            except StopIteration:
                done.append(g)
                stuck = 0
                continue
            live[g].answer = None
            if event[0] == "poll":
                todo.append(g)
                stuck += 1
                if stuck > 2 * len(live) + 2:
                    raise ScheduleError("deadlock: Wait for a copy that nobody issues")
            else:
                waiting[g], stuck = event, 0
        return waiting, done

    def combine(self, stmt: Combine, values: dict[int, Any], live: dict[int, _Group]) -> None:
        """Every thread gets the fold of the values of all threads along the axes, in the order of the axes."""
        inner = np.broadcast_shapes(*(np.shape(value)[2:] for value in values.values()))
        count = math.prod(axis.extent for axis in self.threads)
        whole = np.empty((self.blocks, count, *inner), KINDS[self.dtypes[stmt.acc]])
        for g, value in values.items():
            whole[:, live[g].threads] = np.broadcast_to(value, (self.blocks, len(live[g].threads), *inner))
        whole = whole.reshape(self.blocks, *[axis.extent for axis in self.threads], *inner)
        names = [axis.name for axis in self.threads]
        for axis in stmt.over:
            if axis.name in names:
                folded = fold(stmt.fn).reduce(whole, axis=1 + names.index(axis.name), keepdims=True)
                whole = np.broadcast_to(folded, whole.shape)
        whole = whole.reshape(self.blocks, count, *inner)
        for g in values:
            live[g].answer = whole[:, live[g].threads]

    # ---- statements
    def block(self, block: Block, path: Path, group: _Group, mask: Any) -> Program:
        self.start_accumulators(path, group)
        for position, stmt in enumerate(block):
            inner = (*path, position)
            if summary((stmt,)).barriers:
                yield from self.collective(stmt, inner, group, mask)
            else:
                self.plain(stmt, inner, group, mask)

    def start_accumulators(self, path: Path, group: _Group) -> None:
        for acc, fn in self.scopes.get(path, ()):
            group.env[acc] = start_value(fn, self.dtypes[acc])

    def collective(self, stmt: Any, path: Path, group: _Group, mask: Any) -> Program:
        """A statement in which all threads of the block must take part, or one that contains such."""
        if isinstance(stmt, For):
            for value, inner in self.trips(stmt, group, mask):
                group.env[stmt.var] = value
                yield from self.block(stmt.body, path, group, inner)
            return
        if isinstance(stmt, If):
            yield from self.block(stmt.body, path, group, _both(mask, evaluate(stmt.cond, group.env)))
            return
        if mask is not None and not np.all(mask):
            raise _at(stmt, ScheduleError(f"{type(stmt).__name__} in divergent control flow"))
        try:
            if isinstance(stmt, Sync):
                yield "sync", stmt
            elif isinstance(stmt, Combine):
                value = self.fold_registers(stmt, group)
                shared = any(axis.name in (a.name for a in self.threads) for axis in stmt.over)
                group.env[stmt.acc] = (yield "combine", stmt, value) if shared else value
            elif isinstance(stmt, Stage):
                self.stage(stmt, group)
            elif isinstance(stmt, Wait):
                while len(group.queue) > stmt.keep:
                    while not group.queue[0]():
                        yield ("poll",)
                    group.queue.pop(0)
        except ScheduleError as error:
            raise _at(stmt, error) from None

    def plain(self, stmt: Any, path: Path, group: _Group, mask: Any) -> None:
        """A statement that every thread runs on its own."""
        env = group.env
        try:
            if isinstance(stmt, For):
                for value, inner in self.trips(stmt, group, mask):
                    env[stmt.var] = value
                    self.plain_block(stmt.body, path, group, inner)
            elif isinstance(stmt, If):
                condition = evaluate(stmt.cond, env)
                if np.any(_both(mask, condition)):
                    inner = mask if np.all(condition) else _both(mask, condition)
                    self.plain_block(stmt.body, path, group, inner)
            elif isinstance(stmt, Load):
                env[stmt.dst] = self.load(stmt, group, mask)
            elif isinstance(stmt, Let):
                env[stmt.dst] = evaluate(stmt.val, env)
            elif isinstance(stmt, Accumulate):
                new = fold(stmt.fn)(env[stmt.acc], evaluate(stmt.val, env))
                env[stmt.acc] = new if mask is None else np.where(mask, new, env[stmt.acc])
            elif isinstance(stmt, Store):
                self.store(stmt, group, mask)
            else:
                raise ScheduleError(f"{type(stmt).__name__} is no statement of Tile IR")
        except ScheduleError as error:
            raise _at(stmt, error) from None

    def plain_block(self, block: Block, path: Path, group: _Group, mask: Any) -> None:
        self.start_accumulators(path, group)
        for position, stmt in enumerate(block):
            self.plain(stmt, (*path, position), group, mask)

    def trips(self, stmt: For, group: _Group, mask: Any) -> Iterator[tuple[Any, Any]]:
        """(value of the variable, who takes part) of each turn; threads may start and stop at different values."""
        start, stop, step = (evaluate(e, group.env) for e in (stmt.start, stmt.stop, stmt.step))
        turns = np.max(-((start - np.asarray(stop)) // step)) if np.size(start) else 0
        for turn in range(max(int(turns), 0)):
            value = start + turn * step
            inside = value < stop
            if np.all(inside):
                yield value, mask
            elif np.any(inside):
                yield value, _both(mask, inside)

    def fold_registers(self, stmt: Combine, group: _Group) -> Any:
        """The fold along the replicated axes that a Combine names: in each thread's own registers."""
        value = group.env[stmt.acc]
        for place, axis in enumerate(self.registers):
            if any(axis.name == over.name for over in stmt.over):
                if np.ndim(value) != 2 + len(self.registers) or value.shape[2 + place] != axis.extent:
                    raise ScheduleError(f"`{stmt.acc}` does not vary with the combined axis `{axis.name}`")
                value = fold(stmt.fn).reduce(value, axis=2 + place, keepdims=True)
        return value

    # ---- memory
    def stage(self, stmt: Stage, group: _Group) -> None:
        if stmt.when is not True and not self.uniform(stmt.when, group):
            if stmt.via != "SYNC":
                group.queue.append(_nothing)  # an empty copy still counts for Wait
            return
        origin = [self.uniform_of_block(e, group) for e in stmt.origin]
        slot = int(self.uniform(stmt.slot, group))
        if not 0 <= slot < stmt.depth:
            raise ScheduleError(f"{stmt.dst}: slot {slot} of {stmt.depth}")
        slab = self.slabs.get(stmt.dst)
        if slab is None:
            slab = self.slabs[stmt.dst] = Slab(self.blocks, stmt, self.memory[stmt.src].dtype.type)
        if layout(slab.stage) != layout(stmt):
            raise ScheduleError(f"{stmt.dst}: two layouts for one slab")
        if stmt.via == "TMA" and 0 not in group.threads:  # thread 0 issues, everybody waits
            self.enqueue_tma(group)
            return
        cells, threads = _copied(self.kernel, stmt, group.threads)
        words = physical(stmt, list(cells)) + slot * slab_words(stmt)
        if len(np.unique(words)) != len(words) or (words >= slab.values.shape[1]).any():
            raise ScheduleError(f"{stmt.dst}: the layout is not injective")
        self.copy(stmt, slab, Cells(words, threads), self.source(stmt, origin, cells), group)

    def copy(self, stmt: Stage, slab: Slab, cells: Cells, values: Any, group: _Group) -> None:
        slab.check_free(cells, self.epoch)
        if stmt.via == "SYNC":
            slab.land(cells, values)
            slab.written(cells, self.epoch)
            return
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

    def enqueue_tma(self, group: _Group) -> None:
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

    def source(self, stmt: Stage, origin: list[Any], cells: np.ndarray) -> Any:
        """The cells' values for every block; zero outside of the source."""
        array, idx = self.memory[stmt.src], []
        for dim, base in enumerate(origin):
            steps = [axis.stride * cell for axis, cell in zip(stmt.slab, cells, strict=True) if axis.dim == dim]
            idx.append(np.broadcast_to(base + sum(steps), (self.blocks, cells.shape[1])))
        return np.where(in_bounds(idx, array.shape), array[clipped(idx, array.shape)], 0)

    def uniform(self, e: Any, group: _Group) -> Any:
        """A value that is one for all threads and blocks of the batch."""
        value = np.unique(evaluate(e, group.env))
        if len(value) != 1:
            raise ScheduleError("the slot or predicate of a copy is not uniform")
        return value[0]

    def uniform_of_block(self, e: Any, group: _Group) -> Any:
        value = np.asarray(evaluate(e, group.env))
        if value.size not in (1, self.blocks) or (value.ndim and value.shape[0] != value.size):
            raise ScheduleError("the origin of a copy is not uniform in the block")
        return value.reshape(-1, 1)

    def load(self, stmt: Load, group: _Group, mask: Any) -> Any:
        when = None if stmt.when is True else np.asarray(evaluate(stmt.when, group.env))
        read = mask if when is None else _both(mask, when)
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

    def load_shared(self, stmt: Load, idx: list[Any], group: _Group, read: Any) -> Any:
        slab = self.slabs.get(stmt.buf)
        if slab is None:
            raise ScheduleError(f"load from {stmt.buf}, which nobody wrote")
        stage = slab.stage
        cell, slot = list(cell_of(stage, tuple(idx))), idx[0] if stage.depth > 1 else 0
        extents = tuple(axis.extent for axis in stage.slab)
        if len(cell) != len(extents):
            raise ScheduleError(f"{stmt.buf} has {len(extents)} dimensions")
        inside = in_bounds(cell, extents) & (np.asarray(slot) >= 0) & (np.asarray(slot) < stage.depth)
        if not np.all(inside if read is None else inside | ~np.asarray(read)):
            raise ScheduleError(f"load outside of the slab {stmt.buf}")
        base = np.clip(slot, 0, stage.depth - 1) * slab_words(stage)
        word = np.asarray(physical(stage, clipped(cell, extents)) + base)
        shape = np.broadcast_shapes(word.shape, (self.blocks, len(group.threads), *self.ones), np.shape(read))
        everyone = group.threads.reshape(1, -1, *self.ones), np.arange(self.blocks).reshape(-1, 1, *self.ones)
        word, thread, block = (np.broadcast_to(part, shape) for part in (word, *everyone))
        chosen = np.broadcast_to(True if read is None else read, shape)
        slab.read(block[chosen], word[chosen], thread[chosen], self.epoch, group.waited)
        return slab.values[block, word]

    def store(self, stmt: Store, group: _Group, mask: Any) -> None:
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


def _nothing() -> bool:
    return True


def _both(mask: Any, condition: Any) -> Any:
    return condition if mask is None else mask & condition


def _at(stmt: Any, error: ScheduleError) -> ScheduleError:
    """The error with the statement it happened in; the innermost one stands."""
    if any(note.startswith("in `") for note in error.notes):
        return error
    return ScheduleError(error.what, notes=(*error.notes, f"in `{print_statement(stmt).splitlines()[0]}`"))


def _copied(kernel: Kernel, stage: Stage, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(coordinates, thread) of the cells that these threads copy."""
    cells = np.indices([axis.extent for axis in stage.slab]).reshape(len(stage.slab), -1)
    if stage.via == "TMA":
        return cells, np.zeros(cells.shape[1], int)
    who = np.array(owners(kernel, stage))
    own = np.isin(who, threads)
    return cells[:, own], who[own]

