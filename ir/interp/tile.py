"""The meaning of Tile IR, parallel and adversarial.

The threads of a block are split into random groups; the groups run to the next barrier in random order; an asynchronous
copy lands at once or only at its Wait; shared memory never written is poison. What a schedule may not do (races,
copies in divergent control flow, indices out of bounds, outputs stored twice or never) is raised as a ScheduleError.

A value is an array of the shape (blocks of a batch, threads of a group, *replicated axes), or broadcasts to it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..atoms import ATOMS, multiplied
from ..expr import Axis, extents_of, free_names
from ..facts.layout import tile_of, views_of
from ..facts.structure import Path, accumulator_scopes, summary, value_dtypes, variation
from ..loop import Accumulate, Carry, For, If, Let, Load, Merge, Scale, Store
from ..monoids import monoid
from ..node import nodes
from ..program import Block, Kernel, Module
from ..tile import (
    AlongAxes,
    Collective,
    Combine,
    CombineTuple,
    Mma,
    RegisterTile,
    Scan,
    ScanTuple,
    SharedTile,
    Stage,
    Sync,
    Tile,
    TuplesAlongAxes,
    Wait,
    WaitMma,
)
from . import loop
from .loop import combined, folded_tuples, lifted
from .scalar import (
    Memory,
    ScheduleError,
    as_kind,
    at_statement,
    both,
    chosen,
    evaluate,
    fold,
    folded,
    run_each,
    start_value,
)
from .tile_memory import (
    POLL,
    BlockMemory,
    BlockThreads,
    Program,
    ThreadGroup,
    nothing,
)

# ---- reductions and scans along axes of threads and registers


def running(stmt: Scan | ScanTuple, values: list[Any], dimensions: tuple[int, ...]) -> list[Any]:
    """Return the accumulators with each element combined with all elements before it along the dimensions.

    The first dimension is the slowest.
    """
    shape = np.broadcast_shapes(*(value.shape for value in values))
    last = tuple(range(len(shape) - len(dimensions), len(shape)))
    moved = [np.moveaxis(np.broadcast_to(value, shape), dimensions, last) for value in values]
    flat = [value.reshape(*value.shape[: last[0]], -1) for value in moved]
    found = [_accumulated(stmt.fn, flat[0])] if isinstance(stmt, Scan) else _tuples_accumulated(stmt.fn, flat)
    return [np.moveaxis(one.reshape(moved[0].shape), last, dimensions) for one in found]


def _accumulated(fn: str, values: np.ndarray) -> np.ndarray:
    found: np.ndarray = fold(fn).accumulate(values, axis=-1, dtype=values.dtype if values.dtype.kind in "iu" else None)
    return found


def _tuples_accumulated(name: str, parts: list[np.ndarray]) -> list[np.ndarray]:
    so_far = tuple(part[..., 0] for part in parts)
    found = [so_far]
    for place in range(1, parts[0].shape[-1]):
        so_far = combined(monoid(name), so_far, tuple(part[..., place] for part in parts))
        found.append(so_far)
    return [np.stack(part, axis=-1) for part in zip(*found, strict=True)]


def folded_along(stmt: Combine | CombineTuple, values: list[Any], axis: int) -> list[Any]:
    """Return the arrays of a statement's accumulators reduced along one dimension, which stays."""
    if isinstance(stmt, Combine):
        return [np.expand_dims(folded(stmt.fn, values[0], axis), axis)]
    return folded_tuples(monoid(stmt.fn), tuple(values), axis)


# ---- reductions and scans across threads


class BlockFolds(BlockThreads):
    """Combines and Scans, first of each thread's registers, then of all threads."""

    def fold_threads(self, stmt: Any, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Give every thread the reduction of the values of all threads along the axes, in the order of the axes.

        After a scan each register of a thread has the reduction of all values up to its own.

        Args:
            values: for each group, one array for each accumulator of the statement.
        """
        names, extents = [axis.name for axis in self.threads], extents_of(self.threads)
        wholes = []
        for number, acc in enumerate(stmt.accs):
            whole = self.gathered({g: value[number] for g, value in values.items()}, live, self.dtypes[acc])
            wholes.append(whole.reshape(self.blocks, *extents, *whole.shape[2:]))
        if isinstance(stmt, Scan | ScanTuple):
            every = [*names, *(axis.name for axis in self.registers)]
            wholes = running(stmt, wholes, tuple(1 + every.index(axis.name) for axis in stmt.over))
        else:
            for axis in (axis for axis in stmt.over if axis.name in names):
                folded = folded_along(stmt, wholes, 1 + names.index(axis.name))
                wholes = [np.broadcast_to(f, (self.blocks, *extents, *f.shape[1 + len(names) :])) for f in folded]
        wholes = [whole.reshape(self.blocks, -1, *whole.shape[1 + len(names) :]) for whole in wholes]
        for g in values:
            live[g].answer = tuple(whole[:, live[g].threads] for whole in wholes)

    def along_registers(self, stmt: Any, group: ThreadGroup) -> tuple[Any, ...]:
        """Return the accumulators with a value for each register along the axes; a Combine reduces these values."""
        values = [group.env[acc] for acc in stmt.accs]
        untouched = isinstance(stmt, Combine) and np.ndim(values[0]) == 0
        if untouched and values[0] == start_value(stmt.fn, self.dtypes[stmt.accs[0]]):
            return tuple(values)  # no thread of the group has folded anything
        for place, axis in enumerate(self.registers):
            if any(axis.name == over.name for over in stmt.over):
                values = [self.spread(acc, value, place) for acc, value in zip(stmt.accs, values, strict=True)]
                if isinstance(stmt, Combine | CombineTuple):
                    values = folded_along(stmt, values, 2 + place)
        return tuple(values)

    def spread(self, acc: str, value: Any, place: int) -> Any:
        """Return an accumulator as an array along a replicated axis."""
        axis = self.registers[place]
        if np.ndim(value) == 2 + len(self.registers) and value.shape[2 + place] == axis.extent:
            return value
        if axis.name not in self.folded_with(acc):
            raise ScheduleError(f"`{acc}` does not vary with the combined axis `{axis.name}`")
        # no thread of the group passed the guard of what varies: its start value, once per register
        value = np.reshape(value, np.shape(value) or (1,) * (2 + len(self.registers)))
        return np.repeat(value, axis.extent, axis=2 + place)

    def folded_with(self, acc: str) -> frozenset[str]:
        """Return the names with which the values that are folded into an accumulator vary."""
        body = self.tile.body
        values = tuple(stmt.val for stmt in summary(body).sums if stmt.acc == acc)
        return variation((*values, *(stmt.vals for stmt in summary(body).merges if acc in stmt.accs)), body)


# ---- Mma


def added(stmt: Mma, a: Any, b: Any, registers: Sequence[Axis]) -> Any:
    """Return the product that an Mma adds, from the values of all threads: arrays of (blocks, threads, *registers).

    registers: the replicated axes; along one that an operand does not vary with its dimension is 1. Raises
    ScheduleError where the axes are not the atom's, as those of a program that was made smaller.
    """
    atom, names = ATOMS[stmt.atom], [axis.name for axis in registers]
    if len(stmt.axes) != len(atom.axes):
        raise ScheduleError(f"`{stmt.atom}` has {len(atom.axes)} axes, an Mma names {len(stmt.axes)}")
    lanes = [extent for _, extent in atom.lanes]
    own = [2 + n for n in range(len(lanes))]
    own += [2 + len(lanes) + names.index(axis.name) for axis in stmt.axes[len(lanes) :]]
    last = range(-len(own), 0)

    def fragments(value: Any) -> Any:
        """Return a value with the warps of each block apart, and the atom's axes at the end."""
        blocks, threads, *inner = value.shape
        return np.moveaxis(value.reshape(blocks, threads // prod(lanes), *lanes, *inner), own, last)

    product = np.moveaxis(multiplied(atom, fragments(a), fragments(b)), last, own)
    over = tuple(2 + len(lanes) + names.index(axis.name) for axis in stmt.over)
    total = product.sum(axis=over, keepdims=True)
    blocks, warps = total.shape[:2]
    return total.reshape(blocks, warps * prod(lanes), *total.shape[2 + len(lanes) :])


# ---- asynchronous products (WGMMA): computed at any time between the Mma and its WaitMma
#
# Until then the accumulators are poison. An operand in shared memory is read twice, at the Mma and at the WaitMma, with
# all checks of a load, and must hold the bytes of the same copies: an overwrite in between is an error in every run.


POISON = np.full((), np.nan)


@dataclass
class SharedTileRead:
    """The elements of a shared-memory tile that a product reads later, for the threads of a group."""

    stmt: Load
    idx: list[Any]
    group: ThreadGroup

    def read(self, memory: BlockMemory) -> tuple[Any, Any]:
        """Return the current values, and the copies that brought them. Raises ScheduleError if they are not ready."""
        shared_tile, block, word, thread = memory.words(self.stmt, self.idx, self.group, None)
        shared_tile.read(block, word, thread, memory.epoch, self.group.waited)
        tickets = shared_tile.ticket[block, word]
        if (tickets < 0).any():
            raise ScheduleError(f"{self.stmt.buf}: nothing shows asynchronous products what threads wrote there")
        return shared_tile.values[block, word], tickets


def read_operand(operand: Any, memory: BlockMemory) -> tuple[Any, Any]:
    """Return the current values of an operand, and the copies that brought them: none for one in registers."""
    return operand.read(memory) if isinstance(operand, SharedTileRead) else (operand, ())


Operands = dict[int, tuple[Any, SharedTileRead]]  # of each group of threads; the left one may be values in registers


@dataclass
class AsynchronousMma:
    """A product that is not complete. tickets: of each view, the copies that it found when the product began."""

    stmt: Mma
    views: Operands
    early: bool
    product: Any = None
    tickets: Any = None

    def read(self, memory: BlockMemory) -> list[dict[int, Any]]:
        """Return the values of both operands, by group. Raises ScheduleError if other copies landed since it began."""
        found = [{g: read_operand(both[n], memory) for g, both in self.views.items()} for n in range(2)]
        values, tickets = ([{g: one[n] for g, one in of.items()} for of in found] for n in range(2))
        self.tickets = self.tickets or tickets
        if any(not np.array_equal(of[g], was[g]) for of, was in zip(tickets, self.tickets) for g in of):
            raise ScheduleError(f"what a product on `{self.stmt.acc}` reads is overwritten before its WaitMma")
        return values


def reads_of(stmt: Mma, group: ThreadGroup) -> tuple[Any, ...]:
    """Return the operands of an asynchronous MMA. Raises ScheduleError for a right operand in registers."""
    left, right = (group.env[operand.name] for operand in (stmt.a, stmt.b))
    if not isinstance(right, SharedTileRead):
        raise ScheduleError(f"the product on `{stmt.acc}` reads a value where its atom reads shared memory")
    return left, right


# ---- products


class BlockProducts(BlockFolds):
    """Products of a block. running: products that are not complete, in the order in which they began."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[AsynchronousMma] = []

    def multiply(self, stmt: Mma, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Multiply the fragments of every warp. values: both operands, by group.

        A warp's lanes come from several groups: nothing lets them rely on running together.
        """
        dtype = self.dtypes[stmt.acc]
        a, b = (self.gathered({g: value[n] for g, value in values.items()}, live, dtype) for n in range(2))
        product = added(stmt, a, b, self.registers)
        for g in values:
            live[g].answer = product[:, live[g].threads]

    def begin_product(self, stmt: Mma, views: Operands, live: dict[int, ThreadGroup]) -> None:
        """Begin an asynchronous product. It may read now or when it is complete, and both must be possible."""
        running = AsynchronousMma(stmt, views, early=self.dice.random() < 0.5)
        with at_statement(stmt):
            running.product = self.product_of(running, live)
        self.running.append(running)
        for g in views:  # the accumulators are undefined until their products are complete
            env = live[g].env
            live[g].sums.setdefault(stmt.acc, env[stmt.acc])
            env[stmt.acc] = POISON

    def wait_mma(self, stmt: WaitMma, live: dict[int, ThreadGroup]) -> None:
        """Complete the products that a WaitMma covers."""
        with at_statement(stmt):
            while len(self.running) > stmt.keep:
                running = self.running.pop(0)
                acc, now = running.stmt.acc, self.product_of(running, live)
                for group in live.values():
                    group.sums[acc] = group.sums[acc] + (running.product if running.early else now)[:, group.threads]
                    if any(other.stmt.acc == acc for other in self.running):
                        continue
                    if group.env[acc] is not POISON:
                        raise ScheduleError(f"`{acc}` is changed before the WaitMma of its products")
                    group.env[acc] = group.sums.pop(acc)

    def product_of(self, running: AsynchronousMma, live: dict[int, ThreadGroup]) -> Any:
        dtype = self.dtypes[running.stmt.acc]
        a, b = (self.gathered(values, live, dtype) for values in running.read(self))
        return added(running.stmt, a, b, self.registers)


# ---- batches: blocks that reach the same barriers


def in_step(tile: Tile, places: Mapping[str, Any], blocks: int) -> Iterator[np.ndarray]:
    """Yield masks of blocks that run equally many iterations of every loop around a barrier. Each block is in one mask.

    The mapping gives the index of each block along each BLOCK axis. Bounds of a loop that mention other loops are
    compared by the BLOCK axes in them.
    """
    keys = [np.zeros(blocks, int)]
    for stmt in nodes(tile.body, For):
        assert isinstance(stmt, For)
        bounds = stmt.start, stmt.stop, stmt.step
        mentioned = free_names(bounds)
        if mentioned.isdisjoint(places) or not summary((stmt,)).barriers:
            continue
        if mentioned <= places.keys():
            start, stop, step = (evaluate(e, dict(places)) for e in bounds)
            keys.append(np.broadcast_to(np.maximum(-((start - np.asarray(stop)) // step), 0), (blocks,)))
        else:
            keys += [places[name] for name in sorted(mentioned & places.keys())]
    _, batch = np.unique(np.stack(keys), axis=1, return_inverse=True)
    for number in range(int(batch.max()) + 1):
        yield batch.reshape(-1) == number


BATCH = 1 << 18  # lanes that run at once


def run(kernels: Module, inputs: Mapping[str, Any], seed: int = 0, stores: Memory | None = None) -> Memory:
    """Return all buffers after the kernels, which run in order. A kernel without a Tile runs as Loop IR.

    stores: as of `run_each`.
    """
    dice = random.Random(seed)

    def launch(kernel: Kernel, memory: Memory, counts: Memory) -> None:
        tile = tile_of(kernel)
        if tile is None:
            loop.launch(kernel, memory, counts)
        else:
            _launch(kernel, tile, memory, counts, dice)

    return run_each(kernels, inputs, stores, launch)


def _launch(kernel: Kernel, tile: Tile, memory: Any, counts: Any, dice: random.Random) -> None:
    if len(kernel.body) != 1:
        raise ScheduleError(f"kernel `{kernel.name}`: statements beside its Tile")
    grid = [axis for axis in tile.axes if axis.role == "BLOCK"]
    total = prod(extents_of(grid))
    lanes = prod(axis.extent for axis in tile.axes if axis.role != "BLOCK")
    size = max(1, BATCH // lanes)
    for first in range(0, total, size):
        blocks = np.arange(first, min(first + size, total))
        coordinates = np.unravel_index(blocks, extents_of(grid)) if grid else ()
        places = {axis.name: values for axis, values in zip(grid, coordinates, strict=True)}
        for own in in_step(tile, places, len(blocks)):
            own_places = {name: values[own] for name, values in places.items()}
            _Blocks(kernel, tile, memory, counts, dice, own_places, int(own.sum())).run()


def no_meaning(stmt: Any) -> ScheduleError:
    what = f"{type(stmt).__name__} is not a statement of Tile IR: add its meaning to ir/interp/tile.py"
    return ScheduleError(what)


class _Blocks(BlockProducts):
    """A batch of blocks under execution."""

    def __init__(
        self, kernel: Kernel, tile: Tile, memory: Any, counts: Any, dice: random.Random, grid: Any, blocks: int
    ):
        self.kernel, self.tile, self.memory, self.counts = kernel, tile, memory, counts
        self.dice, self.blocks = dice, blocks
        self.threads = [axis for axis in tile.axes if axis.role == "THREAD"]
        self.registers = [axis for axis in tile.axes if axis.role in ("REG", "VEC")]
        self.ones = (1,) * len(self.registers)
        self.grid = {name: value.reshape(-1, 1, *self.ones) for name, value in grid.items()}
        self.scopes, self.dtypes = accumulator_scopes(kernel), value_dtypes(kernel)
        self.views = views_of(kernel)
        super().__init__()

    def run(self) -> None:
        live = self.groups()
        while live:
            waiting, done = self.to_next_barrier(live)
            if waiting and done:
                raise ScheduleError("some threads end while others wait at a barrier")
            if len({id(stmt) for stmt, _ in waiting.values()}) > 1:
                raise ScheduleError("threads wait at different barriers")
            if any(copy is not nothing for g in done for copy in live[g].queue):
                raise ScheduleError("the kernel ends with copies in flight")
            if self.running and done:
                raise ScheduleError(
                    f"the kernel ends with products on `{self.running[0].stmt.acc}` that are not complete"
                )
            event, _ = next(iter(waiting.values()), (None, None))
            values = {g: value for g, (_, value) in waiting.items()}
            live = {g: group for g, group in live.items() if g not in done}
            if isinstance(event, AlongAxes | TuplesAlongAxes):
                self.fold_threads(event, values, live)
            elif isinstance(event, WaitMma):
                self.wait_mma(event, live)
            elif isinstance(event, Mma):
                (self.begin_product if ATOMS[event.atom].asynchronous else self.multiply)(event, values, live)
            else:  # a Combine may be shuffles only, so that it orders nothing in shared memory
                self.epoch += 1

    def block(self, block: Block, path: Path, group: ThreadGroup, mask: Any) -> Program:
        for acc, fn in self.scopes.get(path, ()):
            group.env[acc] = start_value(fn, self.dtypes[acc])
        for position, stmt in enumerate(block):
            inner = (*path, position)
            if isinstance(stmt, For):
                for value, inside in self.trips(stmt, group, mask):
                    group.env[stmt.var] = value
                    yield from self.block(stmt.body, inner, group, inside)
            elif isinstance(stmt, If):
                with at_statement(stmt):
                    condition = evaluate(stmt.cond, group.env)
                inside = mask if np.all(condition) else both(mask, condition)
                if summary(stmt.body).barriers or inside is None or np.any(inside):
                    yield from self.block(stmt.body, inner, group, inside)
            elif isinstance(stmt, Collective):
                yield from self.collective(stmt, group, mask)
            else:
                self.plain(stmt, group, mask)

    def collective(self, stmt: Any, group: ThreadGroup, mask: Any) -> Program:
        """Execute a statement that needs all threads of the block."""
        with at_statement(stmt):
            if mask is not None and not np.all(mask):
                raise ScheduleError(f"{type(stmt).__name__} in divergent control flow")
            if isinstance(stmt, Sync | WaitMma):
                yield stmt, None
            elif isinstance(stmt, AlongAxes | TuplesAlongAxes):
                value, names = self.along_registers(stmt, group), {axis.name for axis in self.threads}
                if isinstance(stmt, Scan | ScanTuple) or any(axis.name in names for axis in stmt.over):
                    value = yield stmt, value
                group.env.update(zip(stmt.accs, value, strict=True))
            elif isinstance(stmt, Mma) and ATOMS[stmt.atom].asynchronous:
                yield stmt, reads_of(stmt, group)
            elif isinstance(stmt, Mma):
                operands = evaluate(stmt.a, group.env), evaluate(stmt.b, group.env)
                group.env[stmt.acc] = group.env[stmt.acc] + (yield stmt, operands)
            elif isinstance(stmt, Stage):
                self.stage(stmt, group)
            elif isinstance(stmt, Wait):
                while len(group.queue) > stmt.keep:
                    while not group.queue[0]():
                        yield stmt, POLL
                    group.queue.pop(0)
            else:
                raise no_meaning(stmt)

    def plain(self, stmt: Any, group: ThreadGroup, mask: Any) -> None:
        """Execute a statement that every thread runs on its own."""
        env = group.env
        with at_statement(stmt):
            if isinstance(stmt, Load) and stmt in self.views:
                env[stmt.dst] = SharedTileRead(stmt, [np.asarray(evaluate(e, env)) for e in stmt.idx], group)
            elif isinstance(stmt, Load):
                env[stmt.dst] = self.load(stmt, group, mask)
            elif isinstance(stmt, Let):
                env[stmt.dst] = as_kind(evaluate(stmt.val, env), self.dtypes[stmt.dst])
            elif isinstance(stmt, Accumulate):
                env[stmt.acc] = chosen(mask, fold(stmt.fn)(env[stmt.acc], evaluate(stmt.val, env)), env[stmt.acc])
            elif isinstance(stmt, Merge):
                known, have = monoid(stmt.fn), tuple(env[acc] for acc in stmt.accs)
                made = combined(known, have, lifted(known, [evaluate(e, env) for e in stmt.vals]))
                env.update((acc, chosen(mask, *pair)) for acc, *pair in zip(stmt.accs, made, have, strict=True))
            elif isinstance(stmt, Scale):
                env[stmt.acc] = chosen(mask, env[stmt.acc] * evaluate(stmt.val, env), env[stmt.acc])
            elif isinstance(stmt, Store):
                self.store(stmt, group, mask)
            elif isinstance(stmt, SharedTile | RegisterTile):
                self.declare(stmt)
            elif not isinstance(stmt, Carry):
                raise no_meaning(stmt)

    def trips(self, stmt: For, group: ThreadGroup, mask: Any) -> Iterator[tuple[Any, Any]]:
        """Yield (value of the variable, mask of threads) of each iteration. Threads may have different bounds."""
        with at_statement(stmt):
            start, stop, step = (evaluate(e, group.env) for e in (stmt.start, stmt.stop, stmt.step))
        iterations = np.max(-((start - np.asarray(stop)) // step)) if np.size(start) else 0
        for iteration in range(max(int(iterations), 0)):
            value = start + iteration * step
            inside = value < stop
            if np.all(inside):
                yield value, mask
            elif np.any(inside):
                yield value, both(mask, inside)
