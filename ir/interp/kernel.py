"""The meaning of Kernel IR: all threads of some blocks in step, every access checked.

Threads run in step, one order of many. It stands for all of them, because what would make the order matter is an error:
conflicting accesses to shared memory between two barriers, a read of a copy in flight, a barrier that a part of the
threads reaches. Floats are float64, integers exact, shared memory is poison until it is written.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..expr import is_int
from ..facts.layout import DTYPE_BYTES
from ..functions import FUNCTIONS
from ..kernel import (  # fmt: skip
    BLOCK_INDEX,
    SHARED,
    THREAD,
    Address,
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
    CopyBox,
    Define,
    Expect,
    FenceBarriers,
    FenceProducts,
    Fragment,
    InitBarrier,
    Launch,
    LoadFrom,
    LoadMatrix,
    Loop,
    Multiply,
    PackWord,
    QueueProduct,
    Registers,
    Replicate,
    Shuffle,
    StoreTo,
    TensorMap,
    WaitGroup,
    WaitPhase,
    WaitProducts,
)
from ..node import nodes
from ..program import Block, Kernel, Stmt
from ..text.print_statements import print_statement
from . import kernel_values
from .kernel_boxes import BARRIER_BYTES, Barriers, Map
from .kernel_fragments import Fragments
from .kernel_late import Products
from .kernel_memory import Copy, Lanes, SharedMemory, bits_of, check_aligned, elements
from .kernel_values import both
from .scalar import KINDS, ScheduleError, as_kind, check_stores, empty, memory_of, seen_by

BATCH = 1 << 16  # threads that run at once
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
    total, unit = math.prod(launch.grid), _smallest_element(kernel, launch)
    todo = np.arange(total) if only is None else np.array([b for b in only if b < total], int)
    size = min(BATCH // launch.block, CELLS * unit // max(launch.shared, 1))
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


class _MaskedBlocks:
    """A batch of blocks under execution. mask: the threads that take part, (blocks, threads); None for all."""

    def __init__(
        self, kernel: Kernel, launch: Launch, memory: Any, counts: Any, dice: random.Random, blocks: Any, unit: int
    ):
        self.kernel, self.launch, self.dice = kernel, launch, dice
        self.memory = {name: array.reshape(-1) for name, array in memory.items()}
        self.counts = {name: count.reshape(-1) for name, count in counts.items()}
        self.shape = (len(blocks), launch.block)
        places = np.unravel_index(blocks, launch.grid[::-1])[::-1]
        env = {name: place.reshape(-1, 1) for name, place in zip(BLOCK_INDEX, places, strict=True)}
        self.registers = kernel_values.RegisterValues({**env, THREAD: np.arange(launch.block).reshape(1, -1)})
        params = (*kernel.ins, *kernel.outs)
        self.buffer_dtypes = {param.name: param.dtype for param in params}
        self.bases: dict[str, tuple[str, Any]] = {param.name: (param.name, 0) for param in params}
        self.bases[SHARED] = (SHARED, 0)
        self.shared = SharedMemory(len(blocks), launch.shared, unit)
        self.barriers = Barriers(self.shared, self.shape, dice)
        self.fragments = Fragments(self.registers, self.shared, self.shape)
        self.products = Products(self.registers, self.shared, self.shape, dice)
        self.maps: dict[str, Map] = {}
        self.group: list[Copy] = []  # copies since the last commit
        self.queue: list[list[Copy]] = []  # groups that have not been waited for
        self.everyone = np.divmod(np.arange(math.prod(self.shape)), launch.block)

    def run(self) -> None:
        self.block(self.launch.body, None)
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

    def value(self, e: Any, mask: Any) -> Any:
        return self.registers.value(e, mask)

    # ---- registers

    def define(self, stmt: Define, mask: Any) -> None:
        self.registers.define(stmt.dst, stmt.dtype, self.value(stmt.val, mask))

    def base(self, stmt: Base, mask: Any) -> None:
        root, start = self.root(stmt.root)
        self.bases[stmt.dst] = (root, start + self.value(stmt.offset, mask))

    def root(self, name: str) -> tuple[str, Any]:
        if name not in self.bases:
            raise ScheduleError(f"`{name}` is no address")
        return self.bases[name]

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

    # ---- fragments

    def fragment(self, stmt: Fragment, mask: Any) -> None:
        self.fragments.declare(stmt)

    def load_matrix(self, stmt: LoadMatrix, mask: Any) -> None:
        self.together(mask)
        root, lanes = self.lanes(stmt.address, None)
        if root != SHARED:
            raise ScheduleError("matrices are loaded from shared memory")
        self.fragments.load(stmt, lanes)

    def pack(self, stmt: PackWord, mask: Any) -> None:
        self.fragments.pack(stmt, [self.value(value, mask) for value in stmt.values], mask)

    def multiply(self, stmt: Multiply, mask: Any) -> None:
        self.together(mask)
        self.fragments.multiply(stmt)

    def product(self, stmt: Stmt, mask: Any) -> None:
        self.together(mask)
        self.products.statement(stmt, lambda matrix: self.lanes(matrix.at, None))

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

    def together(self, mask: Any) -> None:
        if mask is not None and not np.all(mask):
            raise ScheduleError("divergent: a part of the threads comes here")

    def barrier(self, stmt: Barrier, mask: Any) -> None:
        self.together(mask)
        self.shared.epoch += 1

    # ---- memory

    def lanes(self, address: Address, mask: Any) -> tuple[str, Lanes]:
        """(what is accessed: a buffer or `smem`, by whom and where)."""
        root, base = self.root(address.base)
        flipped = base if is_int(address.xor) and address.xor == 0 else base ^ self.value(address.xor, mask)
        where = np.broadcast_to(flipped + self.value(address.offset, mask), self.shape).reshape(-1)
        block, thread = self.everyone
        lanes = Lanes(np.arange(len(where)), block, thread, where)
        return root, lanes if mask is None else lanes.chosen(np.broadcast_to(mask, self.shape).reshape(-1))

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

    def copy(self, stmt: CopyAsync, mask: Any) -> None:
        doing = mask if stmt.when is True else both(mask, np.asarray(self.value(stmt.when, mask), bool))
        (root, to), (source, lanes) = self.lanes(stmt.to, doing), self.lanes(stmt.source, doing)
        if root != SHARED or source not in self.buffer_dtypes or source in self.counts:
            raise ScheduleError("an asynchronous copy goes from an input to shared memory")
        dtype, array = self.buffer_dtypes[source], self.memory[source]
        inside = np.broadcast_to(self.value(stmt.inside, doing), self.shape).reshape(-1)[lanes.flat].astype(bool)
        values = np.zeros((len(lanes.flat), stmt.bytes // DTYPE_BYTES[dtype]), KINDS[dtype])
        values[inside] = array[elements(array, lanes.chosen(inside), dtype, values.shape[1], "copy")]
        check_aligned(lanes.address[inside] * DTYPE_BYTES[dtype], stmt.bytes)
        copy = Copy(to, dtype, bits_of(values, dtype))
        self.shared.begin(copy, early=self.dice.random() < 0.5)
        if len(to.flat):
            self.group.append(copy)

    def commit(self, stmt: Commit, mask: Any) -> None:
        self.together(mask)
        self.queue.append(self.group)
        self.group = []

    def wait(self, stmt: WaitGroup, mask: Any) -> None:
        self.together(mask)
        while len(self.queue) > stmt.keep:
            for copy in self.queue.pop(0):
                self.shared.land(copy)

    # ---- copies by TMA

    def tensor_map(self, stmt: TensorMap, mask: Any) -> None:
        (param,) = (param for param in self.kernel.ins if param.name == stmt.src)
        shape = tuple(int(extent) for extent in param.shape)
        self.maps[stmt.dst] = Map(self.memory[stmt.src], shape, param.dtype, stmt.box, stmt.swizzle)

    def barrier_lanes(self, address: Address, mask: Any) -> Lanes:
        root, lanes = self.lanes(address, mask)
        if root != SHARED:
            raise ScheduleError("an mbarrier stands in shared memory")
        check_aligned(lanes.address, BARRIER_BYTES)
        return lanes

    def init_barrier(self, stmt: InitBarrier, mask: Any) -> None:
        self.barriers.init(self.barrier_lanes(stmt.at, mask))

    def fence(self, stmt: FenceBarriers, mask: Any) -> None:
        taking = np.ones(self.shape, bool) if mask is None else np.broadcast_to(mask, self.shape)
        self.barriers.fence(np.flatnonzero(taking.any(axis=1)))

    def expect(self, stmt: Expect, mask: Any) -> None:
        self.barriers.expect(self.barrier_lanes(stmt.barrier, mask), stmt.bytes)

    def copy_box(self, stmt: CopyBox, mask: Any) -> None:
        root, to = self.lanes(stmt.to, mask)
        if root != SHARED or stmt.map not in self.maps:
            raise ScheduleError("a box goes from a tensor map to shared memory")
        at = [np.broadcast_to(self.value(e, mask), self.shape).reshape(-1)[to.flat] for e in stmt.at]
        self.barriers.copy(to, self.barrier_lanes(stmt.barrier, mask), self.maps[stmt.map], at)

    def wait_phase(self, stmt: WaitPhase, mask: Any) -> None:
        lanes = self.barrier_lanes(stmt.barrier, mask)
        parity = np.broadcast_to(self.value(stmt.parity, mask), self.shape).reshape(-1)[lanes.flat]
        self.barriers.wait(lanes, parity)


_MEANING: dict[type[Stmt], Callable[[_MaskedBlocks, Any, Any], None]] = {
    Define: _MaskedBlocks.define,
    Base: _MaskedBlocks.base,
    Advance: _MaskedBlocks.advance,
    Registers: _MaskedBlocks.declare,
    Replicate: _MaskedBlocks.replicate,
    Loop: _MaskedBlocks.loop,
    Branch: _MaskedBlocks.branch,
    LoadFrom: _MaskedBlocks.load,
    CheckPlace: _MaskedBlocks.check_place,
    StoreTo: _MaskedBlocks.store,
    CopyAsync: _MaskedBlocks.copy,
    Commit: _MaskedBlocks.commit,
    WaitGroup: _MaskedBlocks.wait,
    Barrier: _MaskedBlocks.barrier,
    Assign: _MaskedBlocks.assign,
    Butterfly: _MaskedBlocks.butterfly,
    TensorMap: _MaskedBlocks.tensor_map,
    InitBarrier: _MaskedBlocks.init_barrier,
    FenceBarriers: _MaskedBlocks.fence,
    Expect: _MaskedBlocks.expect,
    CopyBox: _MaskedBlocks.copy_box,
    WaitPhase: _MaskedBlocks.wait_phase,
    Shuffle: _MaskedBlocks.shuffle,
    Fragment: _MaskedBlocks.fragment,
    LoadMatrix: _MaskedBlocks.load_matrix,
    PackWord: _MaskedBlocks.pack,
    Multiply: _MaskedBlocks.multiply,
    FenceProducts: _MaskedBlocks.product,
    QueueProduct: _MaskedBlocks.product,
    CommitProducts: _MaskedBlocks.product,
    WaitProducts: _MaskedBlocks.product,
}
