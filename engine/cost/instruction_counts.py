"""Count the work of one launch in its Kernel IR: instructions, sectors, wavefronts, bytes.

All threads of the middle block are followed at once (of the first, if that does more: the grid may reach beyond the
output). Every statement is followed once, weighted with how often it runs. Addresses are those of the first iteration
of every loop; guards are evaluated at every iteration. So counts are exact if they depend neither on data nor on the
block. The emulator's counters of checked mode, which follow every access of a real run, test this.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import log2, prod
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from ...ir.atoms import ATOMS
from ...ir.diagnostic import DplcError
from ...ir.expr import NameSet, Var, add, free_names, multiply, xor
from ...ir.facts.layout import DTYPE_BYTES, SECTOR, params
from ...ir.interp.scalar import ScheduleError, evaluate
from ...ir.kernel import (
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
from ...ir.node import Expr, immutable, nodes
from ...ir.program import Block, Kernel, Stmt
from .limits import Copies, Replications
from .memory_model import KEPT_BELOW, LANES, LINE, WORD, Mask, Waits, sectors, wavefronts

Number = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
WordCounts = tuple[tuple[str, Amount, Amount], ...]  # of an atom: how often a warp has it, the words of its operands
HALVES = ATOMS["m16n8k16"]
HALVES_IN_WORD = 2
LOOP_OVERHEAD = 3  # count, compare, branch
MATRIX_ROWS, MATRIX_ROW_BYTES = 8, 16
WARPS_OF_GROUP = 4  # that multiply together
LAGS = (1, 2, 4, 8)  # iterations after which a loop may read the neighbours of what it has read


def substituted_work(spelled: WordCounts, sm: int) -> tuple[float, float, float]:
    """Return the additional work of a target whose assembler replaces the atoms that it lacks.

    The result is instructions, those on the fp32 pipe, and tensor core operations.
    """
    issued = fma = tensor = 0.0
    for name, times, words in spelled:
        other = ATOMS[name].spelling(sm)
        if other is not None:
            issued += times * (other.products + other.additions - 1) + words * other.conversions
            fma += times * other.additions
            tensor += times * (other.products - 1) * 2.0 * HALVES.m * HALVES.n * HALVES.k
    return issued, fma, tensor


@immutable
class InstructionCounts:
    """Counts of one launch. Sizes in bytes.

    blocks, threads (of a block), shared: as launched. registers of a thread, None if nothing assembled the kernel.
    dram: bytes of all buffers once, or the requested bytes if they are fewer. Of one block: sectors requested from L2
    and wavefronts of shared memory, each with the least that as many bytes can take; and in instructions of a warp:
    issued, fma (the fp32 pipe), special (the special function unit). tensor: operations of tensor cores, as many of
    16 bits; asynchronous: those of asynchronous atoms. hits: of the sectors, those in L1. spelled: atoms that some
    machines lack.
    lines: of 128 bytes that loads through L1 touch, those of each warp. again: bytes of the buffers of which each block
    reads a part of its own in several loops, after the first. kept: further sectors that an iteration finds in L1 if
    that keeps kept_bytes of the iterations before. waits: of one warp; block: the indices (x, y, z) of the block that
    was followed.
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
    lines: Amount = 0.0
    again: Amount = 0.0
    kept: Amount = 0.0
    kept_bytes: Amount = 0.0
    spelled: WordCounts = ()

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // LANES)

    @property
    def fill(self) -> float:
        """Bytes of the sectors that a block requests from L2."""
        return (self.sectors - self.hits) * SECTOR

    @property
    def l1_wavefronts(self) -> float:
        """Wavefronts of the memory that L1 and shared memory are: a line that a warp looks up is one."""
        return self.wavefronts + self.lines


@np.errstate(all="ignore")  # lanes without an element compute, too
def instruction_counts(kernel: Kernel, registers: int | None = None) -> InstructionCounts:
    """Count the instructions and accesses of a kernel of Kernel IR."""
    (launch,) = kernel.body
    assert isinstance(launch, Launch)
    counter = _Counter(kernel, launch, tuple(extent // 2 for extent in launch.grid))
    if counter.idle:  # a guard that no thread of this block passes: the first block may do more
        first = _Counter(kernel, launch, (0, 0, 0))
        counter = max(counter, first, key=lambda each: (each.total["issued"], each.total["sectors"]))
    blocks, total, words = prod(launch.grid), counter.total, counter.words
    spelled = ((atom, times, sum(words[name] for name in read)) for atom, (times, read) in counter.spelled.items())
    return InstructionCounts(
        blocks, launch.block, launch.shared, min(float(buffer_bytes(kernel)), total["sectors"] * SECTOR * blocks),
        registers=registers, waits=counter.waits.finish(), block=counter.index, spelled=tuple(spelled),
        again=sum(swept_again(kernel, counter.swept, blocks)), **total,
    )  # fmt: skip


def buffer_bytes(kernel: Kernel) -> int:
    """Return the bytes of all buffers of a kernel, each read or written once."""
    return sum(DTYPE_BYTES[param.dtype] * prod(param.shape) for param in params(kernel).values())


def swept_again(kernel: Kernel, swept: Mapping[tuple[str, int], float], blocks: int) -> Iterator[int]:
    """Yield for each buffer the bytes that loops read after another loop has read them.

    swept: bytes of a block by buffer and loop. A loop counts if all blocks together read the buffer once: where they
    read more, they share its parts.
    """
    for name, param in params(kernel).items():
        size = DTYPE_BYTES[param.dtype] * prod(param.shape)
        sweeps = sum(abs(each * blocks - size) < size / 10 for (root, _), each in swept.items() if root == name)
        yield size * max(0, sweeps - 1)


class Gather(NamedTuple):
    """Loads through L1 of one statement: the element that a lane reads first, in each of the copies, and who reads."""

    root: str
    element: Expr
    copies: tuple[dict[str, int], ...]
    mask: Mask


class Surroundings(NamedTuple):
    """Context of the statements of a block.

    times: how often a warp runs them; mask: the threads that do. iterations: the values of the variable of the
    innermost loop, and of replicated ones. varying: names that differ between iterations of that loop. requested:
    sectors of each buffer that its straight-line code has asked for, by any warp: L1 serves them. What an earlier
    iteration of a loop requested may be evicted. gathers: the loads through L1 of that loop.
    """

    times: float
    mask: Mask
    replications: Replications
    iterations: dict[str, Any]
    varying: NameSet
    requested: defaultdict[str, set[int]]
    gathers: list[Gather]

    @property
    def warps(self) -> float:
        """Runs of the statements by all warps together that have a lane that is not idle."""
        return self.times * float(self.mask.any(axis=1).sum())


class _Counter:
    """Counts the statements of a launch in one block. Values are arrays over (warps, lanes)."""

    def __init__(self, kernel: Kernel, launch: Launch, index: tuple[int, ...]):
        threads = np.arange(-(-launch.block // LANES) * LANES).reshape(-1, LANES)
        self.index = index
        self.items = {SHARED: 1, **{name: DTYPE_BYTES[param.dtype] for name, param in params(kernel).items()}}
        self.roots = {name: name for name in self.items}  # of bases
        self.env: dict[str, Any] = {THREAD: threads, **dict(zip(BLOCK_INDEX, index, strict=True))}
        self.env |= dict.fromkeys(self.items, 0)
        self.boxes = dict[str, int]()  # bytes that a tensor map copies at once
        self.total = defaultdict[str, float](float)  # amounts of InstructionCounts
        self.waits = Waits()
        self.words = defaultdict[str, float](float)  # by fragment
        self.spelled = dict[str, tuple[float, NameSet]]()  # how often an atom is used, and its operands
        self.idle = False  # some guard let no thread pass
        self.loops = 0  # outermost ones until now
        # bytes of each buffer that L1 does not serve, by the number of the loop
        self.swept = defaultdict[tuple[str, int], float](float)
        alive = threads < launch.block
        self.here = Surroundings(1.0, alive, Replications(), {}, frozenset(), defaultdict(set), [])
        self.block(launch.body, self.here)

    def count(self, times: float, **amounts: float) -> None:
        for name, amount in amounts.items():
            self.total[name] += amount * times

    # ---- statements

    def block(self, block: Block, inside: Surroundings) -> None:
        outside, self.here = self.here, inside
        for statement in block:
            self.statement(statement)
        self.here = outside

    def statement(self, statement: Stmt) -> None:
        here, replications = self.here, self.here.replications
        match statement:
            case Replicate(name, extent, body):
                self.env[name] = 0
                iterations = {**here.iterations, name: np.arange(extent)}
                copies = replications.of(name, extent)
                inside = here._replace(times=here.times * extent, replications=copies, iterations=iterations)
                self.block(body, inside)
            case Loop():
                self.loop(statement)
            case Branch(condition, body):
                self.compute(condition)
                there = self.where(here, condition)
                self.idle |= not there.mask.any()
                self.block(body, there)
            case Registers(name) | Fragment(name):
                replications.depends[name] = frozenset(replications.extents)
            case Define(name, _, val):
                replications.depends[name] = self.compute(val)
                self.define(name, val)
            case Assign(place, val):
                replications.changed(place)
                self.compute(val)
            case _:
                self.count(here.warps, issued=1)
                self.instruction(statement, replications)

    def instruction(self, statement: Stmt, replications: Replications) -> None:
        """Count what a statement does besides its instruction."""
        here, waits = self.here, self.waits
        match statement:
            case Base(name, root, offset):
                self.compute(offset, varying=here.varying)
                self.roots[name] = self.roots[root]
                self.define(name, add(Var(root), offset))
            case LoadFrom(into, dtype, address, width, when):
                replications.changed(into)
                size = DTYPE_BYTES[dtype] * width
                self.compute(when, address.offset, varying=here.varying)
                self.access(self.where(here, when), address, size, kept=True, unrolled=True)
                waits.loads(self.roots[address.base] == SHARED)
            case LoadMatrix(into, address, count):
                rows = here.mask & (self.env[THREAD] % LANES < MATRIX_ROWS * count)
                self.access(here._replace(mask=rows), address, MATRIX_ROW_BYTES)
                waits.loads(shared=True)
                self.words[into.name] += count * here.warps
            case Multiply(total) | QueueProduct(total):
                replications.changed(total)
                self.product(statement)
            case PackWord(into, values):
                self.compute(*values)
                self.words[into.name] += here.warps
            case StoreTo(dtype, address, values):
                self.compute(*values)
                self.access(here, address, DTYPE_BYTES[dtype] * len(values))
            case CopyAsync(to, source, size, when, inside):
                waits.copies()
                self.compute(when, inside, source.offset, varying=here.varying)
                there = self.where(here, when)
                self.access(self.where(there, inside), source, size, kept=size < KEPT_BELOW, unrolled=True)
                self.access(there, to, size)
            case Shuffle(place):
                replications.changed(place)
                self.count(here.warps, issued=1)
            case Butterfly(place, _, low, high):
                replications.changed(place)
                self.count(here.warps, issued=2 * log2(2 * high / low) - 1)
            case TensorMap(name, buffer, box):
                self.boxes[name] = prod(box) * self.items[buffer]
            case CopyBox(map=name):
                waits.copies()
                touched = float(here.mask.sum()) * self.boxes[name] / SECTOR
                self.count(here.times, sectors=touched, ideal_sectors=touched)
            case Barrier(cluster):
                waits.barrier(cluster > 1)
            case WaitGroup(keep):
                waits.waits(keep)
            case WaitPhase():
                waits.waits(waits.phases_kept())
            case Expect(_, size):
                waits.phases += size != 0

    def loop(self, loop: Loop) -> None:
        here = self.here
        start, stop, step = bounds = [self.value(e) for e in (loop.start, loop.stop, loop.step)]
        rounds, iterations = 1, here.iterations  # one iteration of a loop whose length depends on data
        if all(bound is not None for bound in bounds):
            each = np.broadcast_to(np.maximum(-((start - stop) // step), 0), here.mask.shape)
            rounds = int(each[here.mask].max(initial=0))
            self.env[loop.var] = start
            iterations = {loop.var: np.arange(rounds) * step + np.min(start)}
        self.count(here.warps * rounds, issued=LOOP_OVERHEAD)
        self.loops += here.times == 1
        inside = Surroundings(
            here.times * rounds, here.mask, replace(here.replications, extents={}), iterations,
            frozenset({loop.var, *(each.dst for each in nodes(loop.body, Define))}), defaultdict(set), [],
        )  # fmt: skip
        with self.waits.loop(rounds, loop.unroll, any(nodes(loop, Barrier))):
            self.block(loop.body, inside)
        if rounds > 1 and inside.gathers:
            self.kept(loop, inside, iterations[loop.var])

    def kept(self, loop: Loop, inside: Surroundings, values: Any) -> None:
        """Count the sectors that an iteration in the middle of a loop shares with one of those shortly before it."""
        first = self.env

        def requested(iteration: int) -> set[tuple[str, int]]:
            self.env = {**first, loop.var: values[iteration]}
            for moved in nodes(loop.body, Advance):
                self.define(moved.base, add(Var(moved.base), multiply(iteration, moved.by)))
            for each in nodes(loop.body, Define, Base):
                self.define(each.dst, each.val if isinstance(each, Define) else add(Var(each.root), each.offset))
            found = set()
            for root, element, copies, mask in inside.gathers:
                for copy in copies:
                    if (place := self.value(element, copy)) is not None:
                        places = np.broadcast_to(place * self.items[root], mask.shape)[mask]
                        found |= {(root, sector) for sector in np.unique(places // SECTOR).tolist()}
            self.env = first
            return found

        middle = len(values) // 2
        now = requested(middle)
        shared = {lag: len(now & requested(middle - lag)) for lag in LAGS if lag <= middle}
        best = max(shared, key=lambda lag: (shared[lag], -lag))
        self.count(inside.times, kept=shared[best] * (1 - best / len(values)))  # not of the first iterations
        self.total["kept_bytes"] = max(self.total["kept_bytes"], best * len(now) * SECTOR if shared[best] else 0.0)

    def product(self, statement: Multiply | QueueProduct) -> None:
        """Count a product. Words take as long whatever is in them."""
        atom, warps = ATOMS[statement.atom], self.here.warps
        flops = 2.0 * atom.m * atom.n * atom.k / atom.per_word * HALVES_IN_WORD
        if isinstance(statement, QueueProduct):  # its matrices are read in whole rows of shared memory
            lines = atom.n + (atom.m if isinstance(statement.a, Matrix) else 0)
            rows = lines * atom.k * DTYPE_BYTES[statement.dtype] / LINE
            warps /= WARPS_OF_GROUP
            self.count(warps, asynchronous=flops, wavefronts=rows, ideal_wavefronts=rows)
        elif atom.spelled:
            times, operands = self.spelled.get(atom.name, (0.0, frozenset()))
            self.spelled[atom.name] = times + warps, operands | {statement.a.name, statement.b.name}
        self.count(warps, tensor=flops)

    # ---- memory

    def access(
        self, here: Surroundings, address: Address, size: int, kept: bool = False, unrolled: bool = False
    ) -> None:
        """Count one instruction that moves `size` bytes a lane. What depends on data is taken to be as good as can be.

        kept: whether L1 keeps what it moves. unrolled: whether all its replicated copies are followed there.
        """
        mask, root = here.mask, self.roots[address.base]
        element = add(xor(Var(address.base), address.xor), address.offset)
        first = self.value(element)
        place = self.env[THREAD] * size if first is None else first * self.items[root]
        if root == SHARED:
            taken, fewest = wavefronts(place // WORD, max(size // WORD, 1), mask)
            self.count(here.times, wavefronts=taken, ideal_wavefronts=fewest)
            return
        by_warp = sectors(place, mask)
        touched = sum(map(len, by_warp))
        fewest = sum(-(-lanes * size // SECTOR) for lanes in mask.sum(axis=1).tolist())
        self.count(here.times, sectors=touched, ideal_sectors=fewest)
        if kept:
            self.count(here.times, lines=sum(len({sector * SECTOR // LINE for sector in warp}) for warp in by_warp))
        if kept and first is not None:
            asked, fresh, known = 0, 0, here.requested[root]
            names = free_names(element) & here.replications.open if unrolled else ()
            along = {name: values.tolist() for name, values in here.iterations.items() if name in names}
            copies = tuple(dict(zip(along, point, strict=True)) for point in itertools.product(*along.values()))
            here.gathers.append(Gather(root, element, copies, mask))
            for copy in copies:
                by_warp = sectors(self.value(element, copy) * self.items[root], mask)
                together = set().union(*by_warp)
                asked += sum(map(len, by_warp))
                fresh += len(together - known)
                known |= together
            self.count(here.times * touched, hits=1 - fresh / asked if asked else 0.0)
            self.swept[root, self.loops] += here.times * touched * SECTOR * fresh / max(asked, 1)

    # ---- values

    def value(self, e: Expr, fixed: Mapping[str, Any] | None = None) -> Any:
        """Return an index, or None where it depends on data. fixed: names with other values than at first."""
        try:
            return evaluate(e, {**self.env, **fixed} if fixed else self.env)
        except (ScheduleError, KeyError, TypeError, AttributeError):
            return None

    def define(self, name: str, e: Expr) -> None:
        value = self.value(e)
        self.env.pop(name, None)
        if value is not None:
            self.env[name] = value

    def where(self, here: Surroundings, condition: Expr) -> Surroundings:
        """Return the threads for which a condition holds at some iteration, and the share of these iterations.

        Iterations are those of the innermost loop and of replicated axes. The result is all threads if data decides.
        """
        if condition is True:
            return here
        asked = [name for name in here.iterations if name in free_names(condition)]
        grid = np.ix_(*(here.iterations[name] for name in asked), (0,), (0,))
        holds = self.value(condition, dict(zip(asked, grid)))
        if holds is None:
            return here
        each = (here.mask & np.asarray(holds, bool)).reshape(-1, *here.mask.shape)
        share = float(each.any(axis=(1, 2)).mean()) if asked else 1.0
        return here._replace(times=here.times * share, mask=each.any(axis=0))

    def compute(self, *values: Expr, varying: NameSet | None = None) -> Copies:
        """Count the instructions of values, and return what they depend on.

        varying: the values are indices and guards, of which an iteration of a loop computes digits of these names.
        """
        work, depends = self.here.replications.work(values, varying)
        self.count(self.here.warps, **work._asdict())
        return depends


# ---- Instruction counts as plain data, stored with a measured time, so that later models can be compared with it.


Features = dict[str, Any]


def features(counts: InstructionCounts) -> Features:
    """Return numbers by name.

    `waits` is a table of its own, `block` a list, `spelled` lists of a name and two numbers.
    """
    plain: Features = msgspec.to_builtins(counts)
    return plain


def counts_of(found: Features) -> InstructionCounts:
    """Return the counts read back. Raises DplcError for features of another model, or that are not numbers."""
    known, waits = features(InstructionCounts(0, 0, 0, 0.0)), found.get("waits")
    odd = found.keys() ^ known.keys()
    if isinstance(waits, dict):
        odd |= {f"waits.{name}" for name in waits.keys() ^ known["waits"].keys()}
    if odd:
        hint = "measure again: a pack keeps the features of its kernels"
        raise DplcError(f"features that are not those of this model: {', '.join(sorted(odd))}", hint=hint)
    try:
        counts = msgspec.convert(found, InstructionCounts, strict=False)
    except msgspec.ValidationError as error:
        raise DplcError(f"features that are not numbers: {error}") from None
    if not ATOMS.keys() >= {atom for atom, _, _ in counts.spelled}:
        raise DplcError("features of products that are not those of this model")
    return counts
