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
from ..facts.structure import summary
from ..facts.types import value_dtypes
from ..facts.views import views_of
from ..loop import Accumulate, Carry, For, If, Let, Load, Merge, Scale, Store
from ..monoids import monoid
from ..program import Block, Kernel
from ..tile import (
    Combine,
    CombineTuple,
    Mma,
    Put,
    Relay,
    Ring,
    RingStep,
    Scan,
    ScanTuple,
    Settle,
    Slab,
    Stage,
    Sync,
    Team,
    Tile,
    Wait,
)
from . import loop
from .block_memory import both, nothing
from .block_products import BlockProducts
from .block_threads import Program, at_statement
from .groups import ThreadGroup
from .late import SlabRead, reads_of
from .launches import in_step
from .relays import check_turns
from .rings import rings_of
from .scalar import ScheduleError, check_stores, empty, evaluate, fold, memory_of, seen_by, start_value
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
        for own in in_step(tile, places, len(blocks)):
            own_places = {name: values[own] for name, values in places.items()}
            _Blocks(kernel, tile, memory, counts, dice, own_places, int(own.sum())).run()


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
            event = next(iter(waiting.values()), None)
            check_turns(event, live.values())
            live = {g: group for g, group in live.items() if g not in done}
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
            elif isinstance(stmt, Scan | ScanTuple):
                group.env.update(zip(stmt.accs, (yield "scan", stmt, self.held_along(stmt, group)), strict=True))
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
            elif isinstance(stmt, Relay):
                self.relay(stmt, group)
            elif isinstance(stmt, RingStep):
                while not self.turn(stmt, group):
                    yield "poll", stmt
            elif isinstance(stmt, Wait):
                while len(group.queue) > stmt.keep:
                    while not group.queue[0]():
                        yield "poll", stmt
                    group.queue.pop(0)
            else:
                raise ScheduleError(f"{type(stmt).__name__} is not a statement of Tile IR")
        except ScheduleError as error:
            raise at_statement(stmt, error) from None

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
                raise ScheduleError(f"{type(stmt).__name__} is not a statement of Tile IR")
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
