"""Count the work of one launch in its Kernel IR: instructions, sectors, wavefronts, bytes.

All threads of the middle block are followed at once (of the first, if that does more: the grid may reach beyond the
output). Every statement is followed once, weighted with how often it runs. Addresses are those of the first iteration
of every loop; guards are evaluated at every iteration. So counts are exact if they depend neither on data nor on the
block. The emulator's counters of checked mode, which follow every access of a real run, test this.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from ...ir.atoms import ATOMS, Atom
from ...ir.diagnostic import DplcError
from ...ir.expr import free_names
from ...ir.facts.layout import DTYPE_BYTES, SECTOR
from ...ir.interp.scalar import ScheduleError, evaluate
from ...ir.kernel import (
    BLOCK_INDEX,
    SHARED,
    THREAD,
    Address,
    Assign,
    Barrier,
    Base,
    Branch,
    Butterfly,
    CopyAsync,
    CopyBox,
    Define,
    Expect,
    Fragment,
    Launch,
    LoadFrom,
    LoadMatrix,
    Loop,
    Matrix,
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
)
from ...ir.node import nodes
from ...ir.program import Block, Kernel, Stmt
from .limits import Replications, Work
from .memory_model import (
    KEPT_BELOW,
    LANES,
    LINE,
    WORD,
    FirstCache,
    Waits,
    busy_warps,
    least,
    sectors,
    wavefronts,
)

# ---- Atoms that some machines have no instruction for: the assembler emulates them by others, given in the atom's row.


Number = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
WordCounts = tuple[tuple[str, Amount, Amount], ...]  # of an atom: how often a warp has it, the words of its operands
HALVES = ATOMS["m16n8k16"]


class SpelledAtoms:
    """Counter of the atoms that some targets lack, and of the words in their operands."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._operands: dict[str, set[str]] = {}
        self._words: dict[str, float] = {}

    def made(self, fragment: str, words: float) -> None:
        """Record words of a fragment."""
        self._words[fragment] = self._words.get(fragment, 0.0) + words

    def multiplied(self, atom: Atom, statement: Multiply, times: float) -> None:
        """Record a product that a warp does a number of times."""
        if atom.spelled:
            self._times[atom.name] = self._times.get(atom.name, 0.0) + times
            self._operands.setdefault(atom.name, set()).update((statement.a.name, statement.b.name))

    def finish(self) -> WordCounts:
        """Return all of them."""
        words = {atom: sum(self._words.get(name, 0.0) for name in read) for atom, read in self._operands.items()}
        return tuple((atom, times, words[atom]) for atom, times in self._times.items())


class MoreWork(NamedTuple):
    """Work in addition to a product for each atom: instructions, those on the fp32 pipe, tensor core operations."""

    issued: float
    fma: float
    tensor: float


def beside(spelled: WordCounts, sm: int) -> MoreWork:
    """Return the additional work of a target that replaces the atoms that it lacks."""
    issued = fma = tensor = 0.0
    for name, times, words in spelled:
        other = ATOMS[name].spelling(sm)
        if other is not None:
            issued += times * (other.products + other.additions - 1) + words * other.conversions
            fma += times * other.additions
            tensor += times * (other.products - 1) * 2.0 * HALVES.m * HALVES.n * HALVES.k
    return MoreWork(issued, fma, tensor)


HALVES_IN_WORD = 2
LOOP_OVERHEAD = 3  # count, compare, branch
MATRIX_ROWS, MATRIX_ROW_BYTES = 8, 16
WARPS_OF_GROUP = 4  # that multiply together

Followed = Literal["none", "one", "all"]


@dataclass(frozen=True)
class InstructionCounts:
    """Counts of one launch. Sizes in bytes.

    blocks, threads (of a block), shared: as launched. registers of a thread, None if nothing assembled the kernel.
    dram: bytes of all buffers once, or the requested bytes if they are fewer. Of one block: sectors requested from L2
    and wavefronts of shared memory, each with the least that as many bytes can take; and in instructions of a warp:
    issued, fma (the fp32 pipe), special (the special function unit). tensor: operations of tensor cores, as many of
    16 bits; asynchronous: those of asynchronous atoms. hits: of the sectors, those in L1. spelled: atoms that some
    machines lack.
    waits: of one warp; block: the indices (x, y, z) of the block that was followed.
    """

    blocks: Number
    threads: Number
    shared: Number
    dram: Amount
    sectors: Amount = 0.0
    ideal_sectors: Amount = 0.0
    wavefronts: Amount = 0.0
    ideal_wavefronts: Amount = 0.0
    issued: Amount = 0.0
    fma: Amount = 0.0
    special: Amount = 0.0
    tensor: Amount = 0.0
    registers: Number | None = None
    waits: Waits = field(default_factory=Waits)
    block: tuple[Number, ...] = ()
    asynchronous: Amount = 0.0
    hits: Amount = 0.0
    spelled: WordCounts = ()

    @property
    def fill(self) -> float:
        """Bytes of the sectors that a block requests from L2."""
        return (self.sectors - self.hits) * SECTOR

    @property
    def lines(self) -> float:
        """Wavefronts of the memory that L1 and shared memory are."""
        return self.wavefronts + self.hits * SECTOR / LINE


def instruction_counts(kernel: Kernel, registers: int | None = None) -> InstructionCounts:
    """Count the instructions and accesses of a kernel of Kernel IR."""
    (launch,) = kernel.body
    assert isinstance(launch, Launch)
    counter = _counted(kernel, launch, tuple(extent // 2 for extent in launch.grid))
    if counter.idle:  # a guard that no thread of this block passes: the first block may do more
        first = _counted(kernel, launch, (0,) * len(launch.grid))
        counter = max(counter, first, key=lambda c: (c.work.issued, c.sectors))
    blocks, work = math.prod(launch.grid), counter.work
    asked = counter.sectors * SECTOR * blocks
    return InstructionCounts(
        blocks, launch.block, launch.shared, min(float(buffer_bytes(kernel)), asked),
        counter.sectors, counter.ideal_sectors, counter.wavefronts, counter.ideal_wavefronts,
        work.issued, work.fma, work.special, counter.tensor, registers, counter.waits.finish(), counter.followed,
        counter.asynchronous, counter.hits, counter.spelled.finish(),
    )  # fmt: skip


def _counted(kernel: Kernel, launch: Launch, block: tuple[int, ...]) -> _Counter:
    counter = _Counter(kernel, launch, block)
    with np.errstate(all="ignore"):  # lanes without an element compute, too
        counter.block(launch.body, 1.0, counter.alive)
    return counter


def buffer_bytes(kernel: Kernel) -> int:
    """Return the bytes of all buffers of a kernel, each read or written once."""
    return sum(DTYPE_BYTES[p.dtype] * math.prod(p.shape) for p in (*kernel.ins, *kernel.outs))


class _Counter:
    """Counts statements. Values are arrays over (warps, lanes); `mask` says which threads are there."""

    def __init__(self, kernel: Kernel, launch: Launch, block: tuple[int, ...]):
        warps = -(-launch.block // LANES)
        threads = np.arange(warps * LANES).reshape(warps, LANES)
        self.alive = threads < launch.block
        self.env: dict[str, Any] = {THREAD: threads, **dict(zip(BLOCK_INDEX, (*block, 0, 0), strict=False))}
        self.bases: dict[str, tuple[str, Any]] = {p.name: (p.name, 0) for p in (*kernel.ins, *kernel.outs)}
        self.bases[SHARED] = (SHARED, 0)
        self.items = {p.name: DTYPE_BYTES[p.dtype] for p in (*kernel.ins, *kernel.outs)}
        self.varying: frozenset[str] = frozenset()  # what differs between iterations of the innermost loop
        self.iterations: dict[str, Any] = {}  # {variable of the innermost loop, or a replicated one: all its values}
        self.followed = block
        self.idle = False  # some guard let no thread pass
        self.boxes: dict[str, int] = {}  # bytes that a tensor map copies at once
        self.scope, self.work, self.waits = Replications(), Work(), Waits()
        self.sectors = self.ideal_sectors = self.wavefronts = self.ideal_wavefronts = 0.0
        self.tensor = self.asynchronous = self.hits = 0.0
        self.cache, self.spelled = FirstCache(), SpelledAtoms()

    # ---- statements

    def block(self, block: Block, times: float, mask: Any) -> None:
        for statement in block:
            self.statement(statement, times, mask)

    def statement(self, statement: Stmt, times: float, mask: Any) -> None:
        if isinstance(statement, Replicate):
            self.env[statement.var] = 0
            outside, self.iterations = self.iterations, {**self.iterations, statement.var: np.arange(statement.extent)}
            with self.scope.replicated(statement.var, statement.extent):
                self.block(statement.body, times * statement.extent, mask)
            self.iterations = outside
        elif isinstance(statement, Loop):
            self.loop(statement, times, mask)
        elif isinstance(statement, Branch):
            self.compute((statement.cond,), times, mask)
            there, share = self.where(statement.cond, mask)
            self.idle |= share == 0.0 or not there.any()
            self.block(statement.body, times * share, there)
        elif isinstance(statement, Define | Assign | Registers | Fragment | Base):
            self.register(statement, times, mask)
        else:
            self.instruction(statement, times, mask)

    def loop(self, loop: Loop, times: float, mask: Any) -> None:
        start, stop, step = (self.value(e) for e in (loop.start, loop.stop, loop.step))
        iterations, outside = 1, self.iterations  # one iteration of a loop whose length depends on data
        if not (start is None or stop is None or step is None):
            each = np.broadcast_to(np.maximum(-((start - stop) // step), 0), mask.shape)
            iterations = int(each[mask].max(initial=0))
            self.env[loop.var] = start
            self.iterations = {loop.var: np.arange(iterations) * step + np.min(start)}
        self.issue(LOOP_OVERHEAD, times * iterations, mask)
        apart = any(True for _ in nodes(loop, Barrier))
        around, self.varying = self.varying, frozenset({loop.var, *(each.dst for each in nodes(loop.body, Define))})
        with self.scope.straight_line(), self.waits.loop(iterations, loop.unroll, apart), self.cache.apart():
            self.block(loop.body, times * iterations, mask)
        self.iterations, self.varying = outside, around

    def register(self, statement: Any, times: float, mask: Any) -> None:
        """Count a statement that gives a register a value, or an address a name."""
        if isinstance(statement, Registers | Fragment):
            self.scope.defined(statement.dst, self.scope.here)
        elif isinstance(statement, Base):
            self.digits((statement.offset,), times, mask)
            root, origin = self.bases[statement.root]
            offset = self.value(statement.offset)
            self.bases[statement.dst] = (root, None if origin is None or offset is None else origin + offset)
            self.issue(1, times, mask)
        elif isinstance(statement, Define):
            depends = self.compute((statement.val,), times, mask)
            self.scope.defined(statement.dst, depends)
            value = self.value(statement.val)
            self.env.pop(statement.dst, None)
            if value is not None:
                self.env[statement.dst] = value
        else:
            self.scope.changed(statement.place)
            self.compute((statement.val,), times, mask)

    def instruction(self, statement: Any, times: float, mask: Any) -> None:
        """Count a statement that is one instruction."""
        self.issue(1, times, mask)
        if isinstance(statement, LoadFrom):
            self.scope.changed(statement.into)
            size = DTYPE_BYTES[statement.dtype] * statement.width
            self.digits((statement.when, statement.address.offset), times, mask)
            self.access(statement.address, size, times, mask, statement.when, "all" if size < WORD else "one")
            self.waits.loads(self.bases[statement.address.base][0] == SHARED)
        elif isinstance(statement, LoadMatrix):
            rows = mask & (self.env[THREAD] % LANES < MATRIX_ROWS * statement.count)
            self.access(statement.address, MATRIX_ROW_BYTES, times, rows)
            self.waits.loads(shared=True)
            self.spelled.made(statement.into.name, statement.count * times * busy_warps(mask))
        elif isinstance(statement, Multiply):
            self.scope.changed(statement.acc)
            atom = ATOMS[statement.atom]
            pairs = atom.m * atom.n * atom.k / atom.per_word  # words take as long whatever is in them
            self.tensor += 2.0 * pairs * HALVES_IN_WORD * times * busy_warps(mask)
            self.spelled.multiplied(atom, statement, times * busy_warps(mask))
        elif isinstance(statement, QueueProduct):
            self.product(statement, times * busy_warps(mask) / WARPS_OF_GROUP)
        elif isinstance(statement, PackWord):
            self.compute(statement.values, times, mask)
            self.spelled.made(statement.into.name, times * busy_warps(mask))
        elif isinstance(statement, StoreTo):
            self.compute(statement.values, times, mask)
            self.access(statement.address, DTYPE_BYTES[statement.dtype] * len(statement.values), times, mask)
        elif isinstance(statement, CopyAsync):
            self.waits.copies()
            there, share = self.where(statement.when, mask)
            self.digits((statement.when, statement.inside, statement.source.offset), times, mask)
            kept: Followed = "all" if statement.bytes < KEPT_BELOW else "none"
            self.access(statement.source, statement.bytes, times * share, there, statement.inside, kept)
            self.access(statement.to, statement.bytes, times * share, there)
        elif isinstance(statement, Shuffle):
            self.scope.changed(statement.place)
            self.issue(1, times, mask)
        elif isinstance(statement, Butterfly):
            self.scope.changed(statement.place)
            steps = math.log2(2 * statement.high / statement.low)
            self.issue(2 * steps - 1, times, mask)
        else:
            self.box_or_barrier(statement, times, mask)

    def box_or_barrier(self, statement: Any, times: float, mask: Any) -> None:
        """Count a copy by TMA, or a wait."""
        if isinstance(statement, TensorMap):
            self.boxes[statement.dst] = math.prod(statement.box) * self.items[statement.src]
        elif isinstance(statement, Barrier):
            self.waits.barrier(statement.cluster > 1)
        elif isinstance(statement, WaitGroup):
            self.waits.waits(statement.keep)
        elif isinstance(statement, WaitPhase):
            self.waits.waits(self.waits.phases_kept())
        elif isinstance(statement, Expect):
            self.waits.phases += statement.bytes != 0
        elif isinstance(statement, CopyBox):
            self.waits.copies()
            touched = times * float(mask.sum()) * self.boxes[statement.map] / SECTOR
            self.sectors, self.ideal_sectors = self.sectors + touched, self.ideal_sectors + touched
        else:
            self.block(getattr(statement, "body", ()), times, mask)  # of a statement that this page does not know yet

    def product(self, statement: QueueProduct, times: float) -> None:
        """Count a product of a group of warps, which reads its matrices in whole rows of shared memory."""
        self.scope.changed(statement.acc)
        atom = ATOMS[statement.atom]
        flops = 2.0 * atom.m * atom.n * atom.k / atom.per_word * HALVES_IN_WORD * times
        lines = atom.n + (atom.m if isinstance(statement.a, Matrix) else 0)
        rows = lines * atom.k * DTYPE_BYTES[statement.dtype] / LINE * times
        self.tensor, self.asynchronous = self.tensor + flops, self.asynchronous + flops
        self.wavefronts, self.ideal_wavefronts = self.wavefronts + rows, self.ideal_wavefronts + rows

    # ---- memory

    def access(
        self, address: Address, size: int, times: float, mask: Any, guard: Any = True, kept: Followed = "none"
    ) -> None:
        """Count one instruction that moves `size` bytes a lane. What depends on data is taken to be as good as can be.

        kept: whether L1 keeps what it moves, and which copies of an unrolled one are followed there.
        """
        mask, share = self.where(guard, mask)
        times *= share
        root, base = self.bases[address.base]
        offset, flip = self.value(address.offset), self.value(address.xor)
        unknown = base is None or offset is None or flip is None
        unit = 1 if unknown else self.items.get(root, 1)
        place = self.env[THREAD] * size if unknown else ((base ^ flip) + offset) * unit
        if root == SHARED:
            taken, fewest = wavefronts(place // 4, max(size // 4, 1), mask)
            self.wavefronts, self.ideal_wavefronts = (
                self.wavefronts + times * taken,
                self.ideal_wavefronts + times * fewest,
            )
            return
        touched = sectors(place, mask)
        self.sectors += times * touched
        self.ideal_sectors += times * least(mask, size, SECTOR)
        if kept != "none" and not unknown:
            copies = ((base + at) * unit for at in self.unrolled(address.offset)) if kept == "all" else (place,)
            self.hits += times * touched * self.cache.served(root, copies, mask)

    def unrolled(self, offset: Any) -> Iterator[Any]:
        """Yield the values of an offset in all its replicated copies."""
        names = [name for name in self.iterations if name in free_names(offset) and name in self.scope.replicated_names]
        first = {name: self.env[name] for name in names}
        for point in itertools.product(*(self.iterations[name].tolist() for name in names)):
            self.env.update(zip(names, point, strict=True))
            yield self.value(offset)
        self.env.update(first)

    # ---- values

    def value(self, e: Any) -> Any:
        """Return an index, or None where it depends on data."""
        try:
            return evaluate(e, self.env)
        except (ScheduleError, KeyError, TypeError, AttributeError):
            return None

    def where(self, condition: Any, mask: Any) -> tuple[Any, float]:
        """Return the threads for which a condition holds at some iteration, and the share of these iterations.

        Iterations are those of the innermost loop and of replicated axes. The result is all threads if data decides.
        """
        if condition is True:
            return mask, 1.0
        free = free_names(condition)
        asked = {name: values for name, values in self.iterations.items() if name in free}
        first = {name: self.env[name] for name in asked}
        for place, (name, values) in enumerate(asked.items()):
            self.env[name] = values.reshape(-1, *[1] * (len(asked) - 1 - place), 1, 1)
        holds = self.value(condition)
        self.env.update(first)
        if holds is None:
            return mask, 1.0
        each = mask & np.asarray(holds, bool)
        iterations = each.reshape(-1, *mask.shape)
        return iterations.any(axis=0), float(iterations.any(axis=(1, 2)).mean()) if asked else 1.0

    # ---- instructions

    def issue(self, count: float, times: float, mask: Any) -> None:
        self.work.issued += count * times * busy_warps(mask)

    def digits(self, values: tuple[Any, ...], times: float, mask: Any) -> None:
        """Count the work of an iteration of the innermost loop on indices and guards that are digits of a number."""
        self.work.add(self.scope.digits(values, self.varying), times * busy_warps(mask))

    def compute(self, values: tuple[Any, ...], times: float, mask: Any) -> frozenset[int]:
        """Count the instructions of values; what they depend on."""
        work, depends = self.scope.work(values)
        self.work.add(work, times * busy_warps(mask))
        return depends


# ---- Instruction counts as plain data, stored with a measured time, so that later models can be compared with it.


Features = dict[str, Any]
WAITS, NAMES = ({field.name for field in dataclasses.fields(kind)} for kind in (Waits, InstructionCounts))


def features(counts: InstructionCounts) -> Features:
    """Return numbers by name.

    `waits` is a table of its own, `block` a list, `spelled` lists of a name and two numbers.
    """
    return msgspec.to_builtins(counts)  # type: ignore[no-any-return]


def counts_of(found: Mapping[str, Any]) -> InstructionCounts:
    """Return the counts read back. Raises DplcError for features of another model, or that are not numbers."""
    waits = found.get("waits")
    odd = set(found) ^ NAMES
    if isinstance(waits, dict):
        odd |= {f"waits.{name}" for name in set(waits) ^ WAITS}
    if odd:
        hint = "measure again: `dplc tune` keeps the features of what it measures"
        raise DplcError(f"features that are not those of this model: {', '.join(sorted(odd))}", hint=hint)
    try:
        counts = msgspec.convert(found, InstructionCounts, strict=False)
    except msgspec.ValidationError as error:
        raise DplcError(f"features that are not numbers: {error}") from None
    if not ATOMS.keys() >= {atom for atom, _, _ in counts.spelled}:
        raise DplcError("features of products that are not those of this model")
    return counts
