"""The meaning of Tile IR, parallel and adversarial.

The threads of a block are split into random groups; the groups run to the next barrier in random order; an asynchronous
copy lands at once or only at its Wait; shared memory never written is poison. What a schedule may not do (races,
copies in divergent control flow, indices out of bounds, outputs stored twice or never) is raised as a ScheduleError.

A value is an array of the shape (blocks of a batch, threads of a group, *replicated axes), or broadcasts to it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..atoms import ATOMS
from ..facts.layout import tile_of
from ..facts.scopes import Path, accumulator_scopes
from ..facts.structure import summary, variation
from ..facts.types import value_dtypes
from ..facts.views import views_of
from ..loop import Accumulate, Carry, For, If, Let, Load, Merge, Scale, Store
from ..monoids import monoid
from ..program import Block, Kernel
from ..tile import (  # fmt: skip
    IN_TURNS,
    Acquire,
    Await,
    Combine,
    CombineTuple,
    Mma,
    Put,
    Release,
    Ring,
    Scan,
    Settle,
    Slab,
    Stage,
    Sync,
    Team,
    Tile,
    Wait,
)
from . import loop
from .along_axes import folded_along, running
from .block_memory import both, nothing
from .block_threads import BlockThreads, Program, at_statement
from .fragments import added
from .groups import ThreadGroup
from .late import LateProduct, SlabRead, SlabReads, begin, reads_of, settled
from .rings import rings_of
from .scalar import KINDS, ScheduleError, check_stores, empty, evaluate, fold, memory_of, seen_by, start_value
from .tuples import combined, lifted

BATCH = 1 << 18  # lanes that run at once


def run(
    kernels: tuple[Kernel, ...], inputs: Mapping[str, Any], seed: int = 0, stores: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """All buffers after the kernels, in order. A kernel without a Tile runs as Loop IR.

    stores: where to put how often each element of an output was stored, for programs that need not store each once.
    """
    memory, dice = memory_of(kernels, inputs), random.Random(seed)
    with np.errstate(all="ignore"):
        for kernel in kernels:
            tile = tile_of(kernel)
            if tile is None:
                made = loop.run((kernel,), {param.name: memory[param.name] for param in kernel.ins}, stores)
                memory.update((param.name, made[param.name]) for param in kernel.outs)
                continue
            counts: dict[str, np.ndarray] = {}
            for param in kernel.outs:
                memory[param.name], counts[param.name] = empty(param)
            _launch(kernel, tile, seen_by(kernel, memory), counts, dice)
            if stores is None:
                check_stores(counts, kernel, kernels)
            else:
                stores.update(counts)
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


class _Blocks(BlockThreads):
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
        self.views, self.late = views_of(kernel), list[LateProduct]()
        super().__init__()
        self.rings = rings_of(tile.body)

    def run(self) -> None:
        live = self.groups()
        self.readers = [group for group in live.values() if not group.team]
        while live:
            waiting, done = self.to_next_barrier(live)
            done = [g for g in done if not live[g].team or live.pop(g) is None]
            if waiting and done:
                raise ScheduleError("some threads end while others wait at a barrier")
            if len({id(event[1]) for event in waiting.values()}) > 1:
                raise ScheduleError("threads wait at different barriers")
            if any(copy is not nothing for g in done for copy in live[g].queue):
                raise ScheduleError("the kernel ends with copies in flight")
            if self.late and done:
                raise ScheduleError(f"the kernel ends with products on `{self.late[0].stmt.acc}` that are not settled")
            live = {g: group for g, group in live.items() if g not in done}
            event = next(iter(waiting.values()), None)
            if event is None and any(group.team for group in live.values()) and len(live) == 1:
                raise ScheduleError("deadlock: a Team waits for a slot that nobody gives back")
            if event is not None and event[0] in ("combine", "scan"):
                work = self.combine if event[0] == "combine" else self.scan
                work(event[1], {g: e[2] for g, e in waiting.items()}, live)  # type: ignore[operator]
            elif event is not None and event[0] == "settle":
                self.settle(event[1], live)
            elif event is not None and event[0] == "mma" and ATOMS[event[1].atom].late:
                self.begin_product(event[1], {g: e[2] for g, e in waiting.items()}, live)
            elif event is not None and event[0] == "mma":
                self.multiply(event[1], {g: e[2] for g, e in waiting.items()}, live)
            else:  # a Combine may be shuffles only, so that it orders nothing in shared memory
                self.epoch += 1
        for ring in self.rings.values():
            try:
                ring.finish(self.readers)
            except ScheduleError as error:
                raise at_statement(ring.stmt, error) from None

    def combine(self, stmt: Combine | CombineTuple, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Every thread gets the fold of the values of all threads along the axes, in the order of the axes.

        values: of each group, one array for each accumulator of the statement.
        """
        count, wholes = math.prod(axis.extent for axis in self.threads), []
        for number, acc in enumerate(stmt.accs):
            whole = self.gathered({g: value[number] for g, value in values.items()}, live, self.dtypes[acc])
            wholes.append(whole.reshape(self.blocks, *[axis.extent for axis in self.threads], *whole.shape[2:]))
        names = [axis.name for axis in self.threads]
        for axis in stmt.over:
            if axis.name in names:
                folded = folded_along(stmt, wholes, 1 + names.index(axis.name))
                extents = [axis.extent for axis in self.threads]
                wholes = [np.broadcast_to(f, (self.blocks, *extents, *f.shape[1 + len(names) :])) for f in folded]
        wholes = [whole.reshape(self.blocks, count, *whole.shape[1 + len(names) :]) for whole in wholes]
        for g in values:
            live[g].answer = tuple(whole[:, live[g].threads] for whole in wholes)

    def scan(self, stmt: Scan, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Every thread, and every register of it, gets the fold of what all up to it have. values: of each group."""
        whole = self.gathered(values, live, self.dtypes[stmt.acc])
        threads = whole.reshape(self.blocks, *[axis.extent for axis in self.threads], *whole.shape[2:])
        names = ["", *(axis.name for axis in (*self.threads, *self.registers))]
        found = running(stmt.fn, threads, tuple(names.index(axis.name) for axis in stmt.over)).reshape(whole.shape)
        for g in values:
            live[g].answer = found[:, live[g].threads]

    def multiply(self, stmt: Mma, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Every warp multiplies its fragments. values: of each group, both operands.

        A warp's lanes come from several groups: nothing lets them rely on running together.
        """
        dtype = self.dtypes[stmt.acc]
        a, b = (self.gathered({g: value[n] for g, value in values.items()}, live, dtype) for n in range(2))
        product = added(stmt, a, b, self.registers)
        for g in values:
            live[g].answer = product[:, live[g].threads]

    def begin_product(self, stmt: Mma, views: SlabReads, live: dict[int, ThreadGroup]) -> None:
        """A late product sets out: it reads now or when it is settled, and both must be possible."""
        late = LateProduct(stmt, views, early=self.dice.random() < 0.5)
        try:
            late.product = self.product_of(late, live)
        except ScheduleError as error:
            raise at_statement(stmt, error) from None
        self.late.append(late)
        for g in views:
            begin(stmt.acc, live[g])

    def settle(self, stmt: Settle, live: dict[int, ThreadGroup]) -> None:
        """The products that a Settle covers are done."""
        try:
            while len(self.late) > stmt.keep:
                late = self.late.pop(0)
                acc, now = late.stmt.acc, self.product_of(late, live)
                for group in (group for group in live.values() if not group.team):
                    group.sums[acc] = group.sums[acc] + (late.product if late.early else now)[:, group.threads]
                    if all(other.stmt.acc != acc for other in self.late):
                        settled(acc, group)
        except ScheduleError as error:
            raise at_statement(stmt, error) from None

    def product_of(self, late: LateProduct, live: dict[int, ThreadGroup]) -> Any:
        dtype = self.dtypes[late.stmt.acc]
        a, b = (self.gathered(values, live, dtype) for values in late.read(self))
        return added(late.stmt, a, b, self.registers)

    def gathered(self, values: dict[int, Any], live: dict[int, ThreadGroup], dtype: str) -> Any:
        """The values of all threads, of those of each group: (blocks, threads, *registers)."""
        count = math.prod(axis.extent for axis in self.threads)
        inner = np.broadcast_shapes(self.ones, *(np.shape(value)[2:] for value in values.values()))
        whole = np.empty((self.blocks, count, *inner), KINDS[dtype])
        for g, value in values.items():
            whole[:, live[g].threads] = np.broadcast_to(value, (self.blocks, len(live[g].threads), *inner))
        return whole

    def block(self, block: Block, path: Path, group: ThreadGroup, mask: Any) -> Program:
        self.start_accumulators(path, group)
        for position, stmt in enumerate(block):
            inner = (*path, position)
            if summary((stmt,)).barriers:
                yield from self.collective(stmt, inner, group, mask)
            else:
                self.plain(stmt, inner, group, mask)

    def start_accumulators(self, path: Path, group: ThreadGroup) -> None:
        for acc, fn in self.scopes.get(path, ()):
            group.env[acc] = start_value(fn, self.dtypes[acc])

    def collective(self, stmt: Any, path: Path, group: ThreadGroup, mask: Any) -> Program:
        """A statement in which all threads of the block must take part, or one that contains such."""
        if isinstance(stmt, For):
            for value, inner in self.trips(stmt, group, mask):
                group.env[stmt.var] = value
                yield from self.block(stmt.body, path, group, inner)
            return
        if isinstance(stmt, If):
            yield from self.block(stmt.body, path, group, both(mask, evaluate(stmt.cond, group.env)))
            return
        if isinstance(stmt, Team):  # its threads run it, beside this
            return
        if mask is not None and not np.all(mask):
            raise at_statement(stmt, ScheduleError(f"{type(stmt).__name__} in divergent control flow"))
        try:
            if isinstance(stmt, Sync):
                yield "sync", stmt
            elif isinstance(stmt, Combine | CombineTuple):
                value = self.fold_registers(stmt, group)
                shared = any(axis.name in (a.name for a in self.threads) for axis in stmt.over)
                group.env.update(zip(stmt.accs, (yield "combine", stmt, value) if shared else value, strict=True))
            elif isinstance(stmt, Scan):
                group.env[stmt.acc] = yield "scan", stmt, self.held_along(stmt, group)
            elif isinstance(stmt, Settle):
                yield "settle", stmt
            elif isinstance(stmt, Mma) and ATOMS[stmt.atom].late:
                yield "mma", stmt, reads_of(stmt, group)
            elif isinstance(stmt, Mma):
                operands = evaluate(stmt.a, group.env), evaluate(stmt.b, group.env)
                group.env[stmt.acc] = group.env[stmt.acc] + (yield "mma", stmt, operands)
            elif isinstance(stmt, Stage):
                self.stage(stmt, group)
                if group.team:
                    group.queue.clear()  # an Await waits for it
            elif isinstance(stmt, Put):
                self.put(stmt, group)
            elif isinstance(stmt, IN_TURNS):
                while not self.turn(stmt, group):
                    yield "poll", stmt
            elif isinstance(stmt, Wait):
                while len(group.queue) > stmt.keep:
                    while not group.queue[0]():
                        yield "poll", stmt
                    group.queue.pop(0)
        except ScheduleError as error:
            raise at_statement(stmt, error) from None

    def turn(self, stmt: Acquire | Await | Release, group: ThreadGroup) -> bool:
        """Whether a ring lets a group go on."""
        ring, number = self.rings[stmt.ring], int(self.uniform(stmt.turn, group))
        if isinstance(stmt, Acquire):
            return ring.acquire(number, self.readers, self.slabs, len(self.tma))
        if isinstance(stmt, Await):
            return ring.awaits(number, group, self.tma)
        if self.uniform(stmt.when, group):
            read = [(view.stmt, view.idx[0]) for late in self.late for both in late.views.values() for view in both]
            ring.release(number, group, read)
        return True

    def plain(self, stmt: Any, path: Path, group: ThreadGroup, mask: Any) -> None:
        """A statement that every thread runs on its own."""
        env = group.env
        try:
            if isinstance(stmt, For):
                for value, inner in self.trips(stmt, group, mask):
                    env[stmt.var] = value
                    self.plain_block(stmt.body, path, group, inner)
            elif isinstance(stmt, If):
                condition = evaluate(stmt.cond, env)
                if np.any(both(mask, condition)):
                    inner = mask if np.all(condition) else both(mask, condition)
                    self.plain_block(stmt.body, path, group, inner)
            elif isinstance(stmt, Load) and stmt in self.views:
                env[stmt.dst] = SlabRead(stmt, [np.asarray(evaluate(e, env)) for e in stmt.idx], group)
            elif isinstance(stmt, Load):
                env[stmt.dst] = self.load(stmt, group, mask)
            elif isinstance(stmt, Let):
                env[stmt.dst] = evaluate(stmt.val, env)
            elif isinstance(stmt, Accumulate):
                new = fold(stmt.fn)(env[stmt.acc], evaluate(stmt.val, env))
                env[stmt.acc] = new if mask is None else np.where(mask, new, env[stmt.acc])
            elif isinstance(stmt, Merge):
                known, have = monoid(stmt.fn), tuple(env[acc] for acc in stmt.accs)
                made = combined(known, have, lifted(known, [evaluate(e, env) for e in stmt.vals]))
                made = made if mask is None else tuple(np.where(mask, *pair) for pair in zip(made, have, strict=True))
                env.update(zip(stmt.accs, made, strict=True))
            elif isinstance(stmt, Scale):
                new = env[stmt.acc] * evaluate(stmt.val, env)
                env[stmt.acc] = new if mask is None else np.where(mask, new, env[stmt.acc])
            elif isinstance(stmt, Store):
                self.store(stmt, group, mask)
            elif isinstance(stmt, Slab):
                self.declare(stmt)
            elif not isinstance(stmt, Carry | Ring):
                raise ScheduleError(f"{type(stmt).__name__} is no statement of Tile IR")
        except ScheduleError as error:
            raise at_statement(stmt, error) from None

    def plain_block(self, block: Block, path: Path, group: ThreadGroup, mask: Any) -> None:
        self.start_accumulators(path, group)
        for position, stmt in enumerate(block):
            self.plain(stmt, (*path, position), group, mask)

    def trips(self, stmt: For, group: ThreadGroup, mask: Any) -> Iterator[tuple[Any, Any]]:
        """(value of the variable, who takes part) of each turn; threads may start and stop at different values."""
        start, stop, step = (evaluate(e, group.env) for e in (stmt.start, stmt.stop, stmt.step))
        turns = np.max(-((start - np.asarray(stop)) // step)) if np.size(start) else 0
        for turn in range(max(int(turns), 0)):
            value = start + turn * step
            inside = value < stop
            if np.all(inside):
                yield value, mask
            elif np.any(inside):
                yield value, both(mask, inside)

    def fold_registers(self, stmt: Combine | CombineTuple, group: ThreadGroup) -> tuple[Any, ...]:
        """The fold along the replicated axes that a Combine names: in each thread's own registers."""
        values = [group.env[acc] for acc in stmt.accs]
        untouched = isinstance(stmt, Combine) and np.ndim(values[0]) == 0
        if untouched and values[0] == start_value(stmt.fn, self.dtypes[stmt.accs[0]]):
            return tuple(values)  # no thread of the group has folded anything
        for place, axis in enumerate(self.registers):
            if any(axis.name == over.name for over in stmt.over):
                values = [self.spread(acc, value, place) for acc, value in zip(stmt.accs, values, strict=True)]
                values = folded_along(stmt, values, 2 + place)
        return tuple(values)

    def held_along(self, stmt: Scan, group: ThreadGroup) -> Any:
        """An accumulator with a value for each register along the axes of a Scan."""
        value, names = group.env[stmt.acc], {axis.name for axis in stmt.over}
        for place, axis in enumerate(self.registers):
            value = self.spread(stmt.acc, value, place) if axis.name in names else value
        return value

    def spread(self, acc: str, value: Any, place: int) -> Any:
        """An accumulator as an array along a replicated axis."""
        axis = self.registers[place]
        if np.ndim(value) == 2 + len(self.registers) and value.shape[2 + place] == axis.extent:
            return value
        if axis.name not in self.folded_with(acc):
            raise ScheduleError(f"`{acc}` does not vary with the combined axis `{axis.name}`")
        # no thread of the group passed the guard of what varies: its start value, once per register
        value = np.reshape(value, np.shape(value) or (1,) * (2 + len(self.registers)))
        return np.repeat(value, axis.extent, axis=2 + place)

    def folded_with(self, acc: str) -> frozenset[str]:
        """The names that what is folded into an accumulator varies with."""
        body = self.tile.body
        values = tuple(stmt.val for stmt in summary(body).sums if stmt.acc == acc)
        return variation((*values, *(stmt.vals for stmt in summary(body).merges if acc in stmt.accs)), body)
