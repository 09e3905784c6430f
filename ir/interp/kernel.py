"""The meaning of Kernel IR: all threads of some blocks in step, every access checked.

The interpreter runs the threads in one of many possible orders. That order represents all others, because every
dependence on the order is an error: conflicting accesses to shared memory between two barriers, a read of a copy in
flight, a barrier that a part of the threads reaches. Floats are float64, integers exact, and shared memory is poison
until a thread writes it.
"""

from __future__ import annotations

import copy
import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..expr import is_int
from ..facts.layout import DTYPE_BYTES
from ..functions import FUNCTIONS
from ..kernel import (
    BLOCK_INDEX,
    SHARED,
    THREAD,
    WARP,
    Address,
    Advance,
    Arrive,
    Assign,
    Barrier,
    Base,
    Branch,
    Butterfly,
    CheckPlace,
    Commit,
    CopyAsync,
    CopyBox,
    Define,
    EnterTurn,
    Expect,
    FenceBarriers,
    Fragment,
    InitBarrier,
    LastThreads,
    Launch,
    LeaveTurn,
    LoadFrom,
    LoadMatrix,
    Loop,
    Multiply,
    PackWord,
    Registers,
    Replicate,
    Shuffle,
    StoreTo,
    TensorMap,
    Together,
    WaitGroup,
    WaitPhase,
    method_for_each,
)
from ..node import nodes
from ..program import Block, Kernel, Stmt
from ..text.print_statements import print_statement
from . import kernel_memory
from .kernel_memory import (
    BARRIER_BYTES,
    SWIZZLE_REPEAT,
    Barriers,
    Copy,
    Fragments,
    Lanes,
    Map,
    Products,
    SharedMemory,
    bits_of,
    both,
    check_aligned,
    elements,
)
from .scalar import KINDS, ScheduleError, as_kind, check_stores, empty, memory_of, seen_by

# ---- threads that run concurrently


class Abandoned(BaseException):
    """The other side has failed, and this one is not wanted any more."""


class Aside:
    """A thread for one side of a block, which runs only between `resume` and its next `pause`.

    since: the first epoch that is not known to be complete on this side.
    """

    def __init__(self, work: Callable[[], None], since: int) -> None:
        self.work, self.done, self.since = work, False, since
        self._error: BaseException | None = None
        self._unwanted = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Resume this side until it waits or ends. Raises the error of this side."""
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Wait on this side, so that the other side continues."""
        self._back.release()
        self._wait()

    def abandon(self) -> None:
        """End this side, wherever it waits."""
        self._unwanted = True
        self._go.release()
        self._thread.join()

    def _wait(self) -> None:
        self._go.acquire()
        if self._unwanted:
            raise Abandoned

    def _run(self) -> None:
        try:
            self._wait()
            with np.errstate(all="ignore"):
                self.work()
        except Abandoned:
            return
        except Exception as error:
            self._error = error
        self.done = True
        self._back.release()


# ---- a batch of blocks


class RunningBlocks:
    """The state of a batch of blocks, and a method for the meaning of each statement.

    mask: the threads that take part, (blocks, threads); None for all.

    The blocks of a cluster are one block of all their threads, whose shared memories are adjacent.
    """

    def __init__(
        self, kernel: Kernel, launch: Launch, memory: Any, counts: Any, dice: random.Random, blocks: Any, unit: int
    ):
        self.kernel, self.launch, self.dice = kernel, launch, dice
        self.memory = {name: array.reshape(-1) for name, array in memory.items()}
        self.counts = {name: count.reshape(-1) for name, count in counts.items()}
        self.shape = (len(blocks), launch.block * launch.cluster)
        x, y, z = launch.grid
        places = np.unravel_index(blocks, (z, y, x // launch.cluster))[::-1]
        env = {name: place.reshape(-1, 1) for name, place in zip(BLOCK_INDEX, places, strict=True)}
        rank, thread = np.divmod(np.arange(self.shape[1]).reshape(1, -1), launch.block)
        if launch.cluster > 1:
            env[BLOCK_INDEX[0]] = env[BLOCK_INDEX[0]] * launch.cluster + rank
        self.held = kernel_memory.RegisterValues({**env, THREAD: thread})
        params = (*kernel.ins, *kernel.outs)
        self.buffer_dtypes = {param.name: param.dtype for param in params}
        self.bases: dict[str, tuple[str, Any]] = {param.name: (param.name, 0) for param in params}
        span = -(-launch.shared // SWIZZLE_REPEAT) * SWIZZLE_REPEAT if launch.cluster > 1 else launch.shared
        self.bases[SHARED] = (SHARED, rank * span if launch.cluster > 1 else 0)
        self.shared = SharedMemory(len(blocks), span * launch.cluster, unit)
        self.barriers = Barriers(self.shared, self.shape, dice, launch.cluster, span)
        self.fragments = Fragments(self.held, self.shared, self.shape)
        self.products = Products(self.held, self.shared, self.fragments, dice)
        self.maps: dict[str, Map] = {}
        self.group: list[Copy] = []  # copies since the last commit
        self.queue: list[list[Copy]] = []  # groups that have not been waited for
        self.aside: Aside | None = None  # threads that run beside these
        self.beside: Aside | None = None  # what these are, if they run beside others
        self.everyone: Any = np.divmod(np.arange(math.prod(self.shape)), self.shape[1])

    def keep(self, which: np.ndarray) -> None:
        """Keep only some of the threads, with their numbers."""
        blocks = self.shape[0]
        self.everyone = tuple(part.reshape(self.shape)[:, which].reshape(-1) for part in self.everyone)
        self.held = self.held.of(which)
        self.bases = {name: (root, kernel_memory.chosen(at, which)) for name, (root, at) in self.bases.items()}
        self.shape = (blocks, int(which.sum()))
        self.fragments = Fragments(self.held, self.shared, self.shape)
        self.products = Products(self.held, self.shared, self.fragments, self.dice)

    def others_go_on(self) -> None:
        """Resume the concurrent threads until they wait, with the epochs that they themselves know to be over."""
        if self.aside is None or self.aside.done:
            return
        since = self.shared.since
        self.shared.since = self.aside.since
        self.aside.resume()
        self.aside.since, self.shared.since = self.shared.since, since

    def elsewhere(self, done: bool = False) -> None:
        """Resume the concurrent threads until they wait too. done: the current threads have ended.

        Raises ScheduleError if no thread can continue.
        """
        if self.beside is not None:
            self.beside.pause()
            return
        before = self.barriers.changes
        self.others_go_on()
        stuck = self.aside is None or self.barriers.changes == before
        unfinished = self.aside is not None and not self.aside.done
        if unfinished if done else stuck:
            raise ScheduleError("deadlock: a phase of an mbarrier lacks an arrival, or bytes that were announced")

    def value(self, e: Any, mask: Any) -> Any:
        """Return the value of an expression for each thread."""
        return self.held.value(e, mask)

    def root(self, name: str) -> tuple[str, Any]:
        """Return the memory of a base, and its offset: an element of a buffer, a byte of shared memory."""
        if name not in self.bases:
            raise ScheduleError(f"`{name}` is no address")
        return self.bases[name]

    def lanes(self, address: Address, mask: Any) -> tuple[str, Lanes]:
        """Return the accessed memory (a buffer or `smem`), and the threads with their addresses."""
        root, base = self.root(address.base)
        flipped = base if is_int(address.xor) and address.xor == 0 else base ^ self.value(address.xor, mask)
        where = np.broadcast_to(flipped + self.value(address.offset, mask), self.shape).reshape(-1)
        block, thread = self.everyone
        lanes = Lanes(np.arange(len(where)), block, thread, where)
        return root, lanes if mask is None else lanes.chosen(np.broadcast_to(mask, self.shape).reshape(-1))

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
        if isinstance(stmt, Together) and mask is not None and not np.all(mask):
            raise ScheduleError("divergent: a part of the threads comes here")
        MEANING[type(stmt)](self, stmt, mask)

    def last_threads(self, stmt: LastThreads, mask: Any) -> None:
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
        self.held.define(stmt.dst, stmt.dtype, value)

    def base(self, stmt: Base, mask: Any) -> None:
        root, start = self.root(stmt.root)
        self.bases[stmt.dst] = (root, start + self.value(stmt.offset, mask))

    def advance(self, stmt: Advance, mask: Any) -> None:
        root, old = self.root(stmt.base)
        new = old + self.value(stmt.by, mask)
        self.bases[stmt.base] = (root, new if mask is None else np.where(mask, new, old))

    def registers(self, stmt: Registers, mask: Any) -> None:
        self.held.declare(stmt.dst, stmt.dtype, stmt.shape, stmt.fill)

    def assign(self, stmt: Assign, mask: Any) -> None:
        self.held.put(self.held.place(stmt.place), self.value(stmt.val, mask), mask)

    def butterfly(self, stmt: Butterfly, mask: Any) -> None:
        place, lanes = self.held.place(stmt.place), stmt.high
        while lanes >= stmt.low:
            value, other = self.partners(place, lanes)
            self.held.put(place, FUNCTIONS[stmt.fn].numpy(value, other), None)
            lanes //= 2

    def shuffle(self, stmt: Shuffle, mask: Any) -> None:
        place = self.held.place(stmt.place)
        self.held.put(place, self.partners(place, stmt.lanes)[1], None)

    def partners(self, place: Any, lanes: int) -> tuple[Any, Any]:
        """Return the value of a register in every thread, and in the thread whose number differs in one bit."""
        partner = np.arange(self.shape[1]) ^ lanes
        if partner.max() >= self.shape[1]:
            raise ScheduleError(f"a lane has no partner: {self.shape[1]} threads, lanes {lanes} apart")
        value = np.broadcast_to(self.held.get(place), self.shape)
        return value, value[:, partner]

    # ---- control

    def replicate(self, stmt: Replicate, mask: Any) -> None:
        back = stmt.reverse is not None and int(self.held.scalar(stmt.reverse)) % 2 == 1
        for turn in range(stmt.extent):
            self.held.env[stmt.var] = stmt.extent - 1 - turn if back else turn
            self.block(stmt.body, mask)

    def loop(self, stmt: Loop, mask: Any) -> None:
        for value, inner in self.trips(stmt, mask):
            self.held.env[stmt.var] = value
            self.block(stmt.body, inner)

    def trips(self, stmt: Loop, mask: Any) -> Iterator[tuple[Any, Any]]:
        """Yield (value of the variable, mask of threads) of each iteration. Threads may have different bounds."""
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
        if self.aside is None and stmt.cluster != self.launch.cluster:
            raise ScheduleError("a barrier of one block, where the blocks of a cluster copy boxes for each other")
        self.shared.meet()

    # ---- memory

    def load_from(self, stmt: LoadFrom, mask: Any) -> None:
        places = self.held.run(stmt.into, stmt.width)
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
            self.held.put(place, whole.reshape(self.shape), mask)

    def check_place(self, stmt: CheckPlace, mask: Any) -> None:
        asked = mask if stmt.when is True else both(mask, np.asarray(self.value(stmt.when, mask), bool))
        place = np.asarray(self.value(stmt.place, asked))
        wrong = (place < 0) | (place >= stmt.extent)
        if np.any(wrong if asked is None else wrong & asked):
            raise ScheduleError(f"a place outside of an axis of {stmt.extent}")

    def store_to(self, stmt: StoreTo, mask: Any) -> None:
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

    # ---- asynchronous copies: cp.async in groups, boxes by TMA

    def copy_async(self, stmt: CopyAsync, mask: Any) -> None:
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
        self.queue.append(self.group)
        self.group = []

    def wait_group(self, stmt: WaitGroup, mask: Any) -> None:
        while len(self.queue) > stmt.keep:
            for landing in self.queue.pop(0):
                self.shared.land(landing)

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
        self.barriers.init(self.barrier_lanes(stmt.at, mask), stmt.arrivals)

    def fence_barriers(self, stmt: FenceBarriers, mask: Any) -> None:
        taking = np.ones(self.shape, bool) if mask is None else np.broadcast_to(mask, self.shape)
        self.barriers.fence(np.flatnonzero(taking.any(axis=1)))

    def expect(self, stmt: Expect, mask: Any) -> None:
        self.barriers.expect(self.barrier_lanes(stmt.barrier, mask), stmt.bytes)

    def arrive(self, stmt: Arrive, mask: Any) -> None:
        lanes = self.barrier_lanes(stmt.barrier, mask)
        if len(lanes.flat) % WARP:
            raise ScheduleError("a part of a warp arrives")
        self.shared.epoch += 1
        first = lanes.chosen(lanes.thread % WARP == 0)
        for there in self.barriers.offsets(first) if stmt.cluster > 1 else (0,):
            self.barriers.arrive(first.moved(there))
        self.others_go_on()  # as early as they may

    def copy_box(self, stmt: CopyBox, mask: Any) -> None:
        root, to = self.lanes(stmt.to, mask)
        if root != SHARED or stmt.map not in self.maps:
            raise ScheduleError("a box goes from a tensor map to shared memory")
        at = [np.broadcast_to(self.value(e, mask), self.shape).reshape(-1)[to.flat] for e in stmt.at]
        barrier = self.barrier_lanes(stmt.barrier, mask)
        for there in self.barriers.offsets(to) if stmt.cluster > 1 else (0,):
            self.barriers.copy(to.moved(there), barrier.moved(there), self.maps[stmt.map], at)

    def wait_phase(self, stmt: WaitPhase, mask: Any) -> None:
        lanes = self.barrier_lanes(stmt.barrier, mask)
        parity = np.broadcast_to(self.value(stmt.parity, mask), self.shape).reshape(-1)[lanes.flat]
        while not self.barriers.wait(lanes, parity):
            self.elsewhere()
        self.shared.since = max(self.shared.since, self.barriers.told(lanes))

    def enter_turn(self, stmt: EnterTurn | LeaveTurn, mask: Any) -> None:
        """Check that the mbarrier exists and that whole warps reach it. All threads run in step here."""
        lanes = self.barrier_lanes(stmt.barrier, mask)
        self.barriers.known(lanes)
        if len(lanes.flat) % WARP:
            raise ScheduleError("a part of a warp takes its turn")

    leave_turn = enter_turn

    # ---- tensor cores: fragments, products of a warp, queued products

    def fragment(self, stmt: Fragment, mask: Any) -> None:
        self.fragments.declare(stmt)

    def load_matrix(self, stmt: LoadMatrix, mask: Any) -> None:
        root, lanes = self.lanes(stmt.address, None)
        if root != SHARED:
            raise ScheduleError("matrices are loaded from shared memory")
        self.fragments.load(stmt, lanes)

    def pack_word(self, stmt: PackWord, mask: Any) -> None:
        self.fragments.pack(stmt, [self.value(value, mask) for value in stmt.values], mask)

    def multiply(self, stmt: Multiply, mask: Any) -> None:
        self.fragments.multiply(stmt)

    def product(self, stmt: Stmt, mask: Any) -> None:
        self.products.statement(stmt, lambda matrix: self.lanes(matrix.at, None))

    fence_products = queue_product = commit_products = wait_products = product


MEANING = method_for_each(RunningBlocks)
BATCH = 1 << 16  # threads that run at once
CELLS = 1 << 21  # cells of shared memory at once


def run(
    kernels: tuple[Kernel, ...], inputs: Mapping[str, Any], seed: int = 0, blocks: Iterable[int] | None = None
) -> dict[str, np.ndarray]:
    """Return all buffers after the kernels, which run in order. Raises ScheduleError for an operation without meaning.

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
        RunningBlocks(kernel, launch, memory, counts, dice, todo[first : first + size], unit).run()


def _smallest_element(kernel: Kernel, launch: Launch) -> int:
    """Return the bytes of the smallest element that shared memory may hold."""
    dtypes = {param.dtype for param in kernel.ins} if any(nodes(launch.body, CopyAsync)) else set()
    dtypes |= {access.dtype for access in nodes(launch.body, LoadFrom, StoreTo)}  # type: ignore[type-var,attr-defined]
    dtypes |= {
        param.dtype for param in kernel.ins for tensor in nodes(launch.body, TensorMap) if tensor.src == param.name
    }
    return min((DTYPE_BYTES[dtype] for dtype in dtypes), default=4)


def _blocks_part(body: Block) -> bool:
    """Return whether a barrier is in a branch or loop in which blocks may diverge, so that they cannot run in step."""
    for stmt in body:
        inner: Block = getattr(stmt, "body", ())
        parts = isinstance(stmt, Branch) or (isinstance(stmt, Loop) and not (is_int(stmt.start) and is_int(stmt.stop)))
        if (parts and any(nodes(inner, Together))) or _blocks_part(inner):
            return True
    return False
