"""The meaning of Kernel IR: all threads of some blocks in step, every access checked.

Threads run in step, one order of many. It stands for all of them, because what would make the order matter is an error:
conflicting accesses to shared memory between two barriers, a read of a copy in flight, a barrier that a part of the
threads reaches. Floats are float64, integers exact, shared memory is poison until it is written.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..expr import is_int
from ..facts.layout import DTYPE_BYTES
from ..functions import FUNCTIONS
from ..kernel import (  # fmt: skip
    SHARED,
    Advance,
    Assign,
    Barrier,
    Base,
    Branch,
    Butterfly,
    CheckPlace,
    Commit,
    CommitProducts,
    CopyAsync,
    Define,
    LastThreads,
    Launch,
    LoadFrom,
    LoadMatrix,
    Loop,
    Multiply,
    QueueProduct,
    Registers,
    Replicate,
    Shuffle,
    StoreTo,
    TensorMap,
    WaitGroup,
    WaitProducts,
)
from ..node import nodes
from ..program import Block, Kernel, Stmt
from ..text.print_statements import print_statement
from .kernel_aside import Aside
from .kernel_blocks import RunningBlocks
from .kernel_copies import COPIES
from .kernel_memory import bits_of, elements
from .kernel_products import PRODUCTS
from .kernel_values import both
from .scalar import KINDS, ScheduleError, as_kind, check_stores, empty, memory_of, seen_by

BATCH = 1 << 16  # threads that run at once
WARP = 32  # lanes
CELLS = 1 << 21  # cells of shared memory at once
TOGETHER = (
    Barrier,
    Commit,
    WaitGroup,
    Butterfly,
    Shuffle,
    LoadMatrix,
    Multiply,
    QueueProduct,
    CommitProducts,
    WaitProducts,
)


def run(
    kernels: tuple[Kernel, ...], inputs: Mapping[str, Any], seed: int = 0, blocks: Iterable[int] | None = None
) -> dict[str, np.ndarray]:
    """All buffers after the kernels, in order. Raises ScheduleError for what has no meaning.

    blocks: run only these (x varies fastest); elements that they do not store are NaN or 0. seed: which asynchronous
    copies land at once, and which at their WaitGroup.
    """
    memory, dice = memory_of(kernels, inputs), random.Random(seed)
    only = None if blocks is None else sorted(set(blocks))
    with np.errstate(all="ignore"):
        for kernel in kernels:
            counts = {}
            for param in kernel.outs:
                memory[param.name], counts[param.name] = empty(param)
            _launch(kernel, seen_by(kernel, memory), counts, dice, only)
            check_stores(counts if only is None else {n: np.maximum(c, 1) for n, c in counts.items()}, kernel, kernels)
    return memory


def _launch(kernel: Kernel, memory: Any, counts: Any, dice: random.Random, only: list[int] | None) -> None:
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], Launch):
        raise ScheduleError(f"the body of kernel `{kernel.name}` is not one Launch")
    launch = kernel.body[0]
    total, unit = math.prod(launch.grid) // launch.cluster, _smallest_element(kernel, launch)
    wanted = range(total) if only is None else sorted({b // launch.cluster for b in only})
    todo = np.array([b for b in wanted if b < total], int)
    size = min(BATCH // launch.block, CELLS * unit // max(launch.shared, 1)) // launch.cluster
    size = 1 if _blocks_part(launch.body) else max(size, 1)
    for first in range(0, len(todo), size):
        _MaskedBlocks(kernel, launch, memory, counts, dice, todo[first : first + size], unit).run()


def _smallest_element(kernel: Kernel, launch: Launch) -> int:
    """Bytes of the smallest element that may stand in shared memory."""
    dtypes = {param.dtype for param in kernel.ins} if any(nodes(launch.body, CopyAsync)) else set()
    dtypes |= {access.dtype for access in nodes(launch.body, LoadFrom, StoreTo)}  # type: ignore[type-var,attr-defined]
    dtypes |= {
        param.dtype for param in kernel.ins for tensor in nodes(launch.body, TensorMap) if tensor.src == param.name
    }
    return min((DTYPE_BYTES[dtype] for dtype in dtypes), default=4)


def _blocks_part(body: Block) -> bool:
    """Whether a barrier stands where blocks may take different ways, so that they cannot run in step."""
    for stmt in body:
        inner: Block = getattr(stmt, "body", ())
        parts = isinstance(stmt, Branch) or (isinstance(stmt, Loop) and not (is_int(stmt.start) and is_int(stmt.stop)))
        if (parts and any(nodes(inner, *TOGETHER))) or _blocks_part(inner):
            return True
    return False


class _MaskedBlocks(RunningBlocks):
    """The meaning of the statements that every kernel has, one a method. mask: as in `RunningBlocks`."""

    def run(self) -> None:
        try:
            self.block(self.launch.body, None)
            self.elsewhere(done=True)
        finally:
            if self.aside is not None:
                self.aside.abandon()
        if self.group or any(self.queue) or not self.barriers.finished():
            raise ScheduleError("the kernel ends with copies in flight", notes=(f"in kernel `{self.kernel.name}`",))
        if not self.products.finished():
            raise ScheduleError("the kernel ends with products in flight", notes=(f"in kernel `{self.kernel.name}`",))

    def block(self, block: Block, mask: Any) -> None:
        for stmt in block:
            try:
                self.statement(stmt, mask)
            except ScheduleError as error:
                if any(note.startswith("in `") for note in error.notes):
                    raise
                where = f"in `{print_statement(stmt).splitlines()[0].strip()}` of kernel `{self.kernel.name}`"
                raise ScheduleError(error.what, notes=(*error.notes, where)) from None

    def statement(self, stmt: Stmt, mask: Any) -> None:
        meaning = _MEANING.get(type(stmt))
        if meaning is None:
            raise ScheduleError(f"`{type(stmt).__name__}` has no meaning yet")
        meaning(self, stmt, mask)

    def last_threads(self, stmt: LastThreads, mask: Any) -> None:
        self.together(mask)
        last = self.launch.block - stmt.threads <= np.arange(self.shape[1]) % self.launch.block
        team = copy.copy(self)
        team.keep(last)
        self.keep(~last)
        self.aside = team.beside = Aside(lambda: team.block(stmt.body, None), self.shared.since)

    # ---- registers

    def define(self, stmt: Define, mask: Any) -> None:
        value = self.value(stmt.val, mask)
        if stmt.uniform:
            lanes = np.broadcast_to(value, self.shape).reshape(self.shape[0], -1, min(WARP, self.launch.block))
            if np.any(lanes != lanes[..., :1]):
                raise ScheduleError("the lanes of a warp differ in what should be uniform")
        self.registers.define(stmt.dst, stmt.dtype, value)

    def base(self, stmt: Base, mask: Any) -> None:
        root, start = self.root(stmt.root)
        self.bases[stmt.dst] = (root, start + self.value(stmt.offset, mask))

    def advance(self, stmt: Advance, mask: Any) -> None:
        root, old = self.root(stmt.base)
        new = old + self.value(stmt.by, mask)
        self.bases[stmt.base] = (root, new if mask is None else np.where(mask, new, old))

    def declare(self, stmt: Registers, mask: Any) -> None:
        self.registers.declare(stmt.dst, stmt.dtype, stmt.shape, stmt.fill)

    def assign(self, stmt: Assign, mask: Any) -> None:
        self.registers.put(self.registers.place(stmt.place), self.value(stmt.val, mask), mask)

    def butterfly(self, stmt: Butterfly, mask: Any) -> None:
        self.together(mask)
        place, lanes = self.registers.place(stmt.place), stmt.high
        while lanes >= stmt.low:
            value, other = self.partners(place, lanes)
            self.registers.put(place, FUNCTIONS[stmt.fn].numpy(value, other), None)
            lanes //= 2

    def shuffle(self, stmt: Shuffle, mask: Any) -> None:
        self.together(mask)
        place = self.registers.place(stmt.place)
        self.registers.put(place, self.partners(place, stmt.lanes)[1], None)

    def partners(self, place: Any, lanes: int) -> tuple[Any, Any]:
        """What every thread has in a register, and what the one has whose number differs in a bit."""
        partner = np.arange(self.shape[1]) ^ lanes
        if partner.max() >= self.shape[1]:
            raise ScheduleError(f"a lane has no partner: {self.shape[1]} threads, lanes {lanes} apart")
        value = np.broadcast_to(self.registers.get(place), self.shape)
        return value, value[:, partner]

    # ---- control

    def replicate(self, stmt: Replicate, mask: Any) -> None:
        back = stmt.reverse is not None and int(self.registers.scalar(stmt.reverse)) % 2 == 1
        for turn in range(stmt.extent):
            self.registers.env[stmt.var] = stmt.extent - 1 - turn if back else turn
            self.block(stmt.body, mask)

    def loop(self, stmt: Loop, mask: Any) -> None:
        for value, inner in self.trips(stmt, mask):
            self.registers.env[stmt.var] = value
            self.block(stmt.body, inner)

    def trips(self, stmt: Loop, mask: Any) -> Iterator[tuple[Any, Any]]:
        """(value of the variable, who takes part) of each turn; threads may start and stop at different values."""
        value, step = self.value(stmt.start, mask), self.value(stmt.step, mask)
        if np.any(np.asarray(step) <= 0):
            raise ScheduleError("a loop does not advance")
        while True:
            inside = np.asarray(value < self.value(stmt.stop, mask))
            taking = inside if mask is None else mask & inside
            if not np.any(taking):
                return
            yield value, mask if np.all(inside) else np.broadcast_to(taking, self.shape)
            value = value + step

    def branch(self, stmt: Branch, mask: Any) -> None:
        holds = np.asarray(self.value(stmt.cond, mask), bool)
        inner = both(mask, holds)
        if np.any(inner):
            self.block(stmt.body, mask if np.all(holds) else np.broadcast_to(inner, self.shape))

    def barrier(self, stmt: Barrier, mask: Any) -> None:
        self.together(mask)
        if self.aside is None and stmt.cluster != self.launch.cluster:
            raise ScheduleError("a barrier of one block, where the blocks of a cluster copy boxes for each other")
        self.shared.meet()

    # ---- memory

    def load(self, stmt: LoadFrom, mask: Any) -> None:
        places = self.registers.run(stmt.into, stmt.width)
        reads = mask if stmt.when is True else both(mask, np.asarray(self.value(stmt.when, mask), bool))
        root, lanes = self.lanes(stmt.address, reads)
        if root == SHARED:
            found = self.shared.load(lanes, stmt.dtype, stmt.width)
        elif root in self.counts:
            raise ScheduleError(f"`{root}` is read in the kernel that writes it")
        else:
            found = self.memory[root][elements(self.memory[root], lanes, stmt.dtype, stmt.width, "load")]
        for lane, place in enumerate(places):
            whole = np.full(math.prod(self.shape), stmt.other, KINDS[stmt.dtype])
            whole[lanes.flat] = found[:, lane]
            self.registers.put(place, whole.reshape(self.shape), mask)

    def check_place(self, stmt: CheckPlace, mask: Any) -> None:
        asked = mask if stmt.when is True else both(mask, np.asarray(self.value(stmt.when, mask), bool))
        place = np.asarray(self.value(stmt.place, asked))
        wrong = (place < 0) | (place >= stmt.extent)
        if np.any(wrong if asked is None else wrong & asked):
            raise ScheduleError(f"a place outside of an axis of {stmt.extent}")

    def store(self, stmt: StoreTo, mask: Any) -> None:
        root, lanes = self.lanes(stmt.address, mask)
        columns = [as_kind(self.value(value, mask), stmt.dtype) for value in stmt.values]
        rows = np.stack([np.broadcast_to(column, self.shape).reshape(-1)[lanes.flat] for column in columns], axis=1)
        if root == SHARED:
            self.shared.store(lanes, stmt.dtype, bits_of(rows, stmt.dtype))
            return
        if root not in self.counts:
            raise ScheduleError(f"`{root}` is an input")
        at = elements(self.memory[root], lanes, stmt.dtype, len(columns), "store")
        self.memory[root][at] = rows
        np.add.at(self.counts[root], at, 1)


_MEANING: dict[type[Stmt], Callable[[_MaskedBlocks, Any, Any], None]] = {
    Define: _MaskedBlocks.define,
    Base: _MaskedBlocks.base,
    Advance: _MaskedBlocks.advance,
    Registers: _MaskedBlocks.declare,
    Replicate: _MaskedBlocks.replicate,
    Loop: _MaskedBlocks.loop,
    Branch: _MaskedBlocks.branch,
    LastThreads: _MaskedBlocks.last_threads,
    LoadFrom: _MaskedBlocks.load,
    CheckPlace: _MaskedBlocks.check_place,
    StoreTo: _MaskedBlocks.store,
    Barrier: _MaskedBlocks.barrier,
    Assign: _MaskedBlocks.assign,
    Butterfly: _MaskedBlocks.butterfly,
    Shuffle: _MaskedBlocks.shuffle,
    **COPIES,
    **PRODUCTS,
}
