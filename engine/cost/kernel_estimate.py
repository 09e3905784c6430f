"""Kernels without a schedule: the loads, computations, reductions and stores over their axes, and the estimated time.

To count instructions needs Kernel IR. Fusion needs an estimate earlier, for thousands of kernels that will never be
built. Here they are estimated for each tile of a small menu, and the same model (predict) says which tile is best.
Axes are bits of a mask. An estimate that is not a single loop nest has no price, but a reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...codegen.target import Target
from ...ir.facts.dataflow import contracts
from ..language.rule import policy
from .limits import COSTS, blocks_across
from .memory_model import LANES, Waits
from .predict import Counts, predict

THREADS = 256
FLAT = 1024  # elements that a block of a kernel without reductions computes
CHUNK = 16  # of a contracted axis, that is in shared memory at once
ROWS = (1, 8, 64)
SIDES = (16, 64, 128)
NO_WAITS = Waits()
DEEPEST = 2  # contractions inside of each other
FOLDED = 3  # axes that one kernel reduces
ACCUMULATORS = 4  # contractions that share a kernel


def bits(mask: int) -> Iterator[int]:
    """Yield the axes of a mask, one bit each."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


@dataclass
class BlockWork:
    """Work that a number of blocks repeat: bytes from L2, instructions of threads, operations of tensor cores."""

    fill: float = 0.0
    issued: float = 0.0
    fma: float = 0.0
    special: float = 0.0
    tensor: float = 0.0
    products: float = 0.0


class EstimatedValue(NamedTuple):
    """One value of a kernel. reads: earlier steps; axes: of the value; over: the axes it folds; fn: what is computed.

    A load has no fn: buffer, item bytes and the bytes of the whole buffer instead (index values load nothing: item 0).
    half: whether tensor cores take its operands. key: how many operands of a fold make its key (online softmax: 1).
    """

    axes: int
    reads: tuple[int, ...] = ()
    over: int = 0
    fn: str = ""
    buffer: int = -1
    item: int = 4
    whole: float = 0.0
    half: bool = False

    @property
    def is_load(self) -> bool:
        return not self.fn


class KernelEstimate(NamedTuple):
    """A kernel: its values in order, which of them it stores, the extents of its axes, remembered products of these."""

    steps: tuple[EstimatedValue, ...]
    stores: tuple[int, ...]
    extents: dict[int, int]
    sizes: dict[int, int]


class Pricing:
    """One estimate: what is contracted, how often rows are swept, what is carried from sweep to sweep."""

    def __init__(self, estimate: KernelEstimate, target: Target):
        self.estimate, self.target, self.steps = estimate, target, estimate.steps
        self.folds = [n for n, step in enumerate(self.steps) if step.over]
        self.folded = 0
        for n in self.folds:
            self.folded |= self.steps[n].over
        self.space = [self._space(step) for step in self.steps]
        everything = 0
        for mask in self.space:
            everything |= mask
        self.grid = everything & ~self.folded
        self.products: dict[int, int] = {}
        for n in self.folds:
            product = self._contracted(n)
            if product is not None:
                self.products[n] = product
        self.stored = sum(self.size(self.steps[n].axes) * self.steps[n].item for n in estimate.stores)

    def _space(self, step: EstimatedValue) -> int:
        mask = step.axes | step.over
        for n in step.reads:
            mask |= self.steps[n].axes
        return mask

    def _contracted(self, n: int) -> int | None:
        """Return the product that a contraction sums."""
        step = self.steps[n]
        if step.fn == "online.s" and len(step.reads) == 2:
            x, v = (self.steps[m].axes for m in step.reads)
            return n if contracts(step.axes, x, v) else None
        product = self.steps[step.reads[0]]
        if step.fn != "add" or product.fn != "multiply" or product.over or step.reads[0] in self.estimate.stores:
            return None
        a, b = (self.steps[m].axes for m in product.reads)
        return step.reads[0] if contracts(step.axes, a, b) else None

    def size(self, mask: int) -> int:
        sizes = self.estimate.sizes
        found = sizes.get(mask)
        if found is None:
            found = sizes[mask] = math.prod(self.estimate.extents[bit] for bit in bits(mask))
        return found

    # ---- one loop nest?

    def refused(self) -> str:
        """Return why it is not a single loop nest; \"\" if it is one."""
        depth: list[int] = []
        for n, step in enumerate(self.steps):
            below = max((depth[m] for m in step.reads), default=0)
            depth.append(below + (n in self.products))
        if max(depth, default=0) > DEEPEST:
            return "a contraction inside a contraction inside a contraction"
        if len(self.products) > ACCUMULATORS:
            return "too many accumulators"
        if self.folded.bit_count() > FOLDED:
            return "too many reduced axes"
        if self._computed_again() > self.target.recompute:
            return "a fold that another one needs would be computed again by many blocks"
        return self._sweeps()

    def _computed_again(self) -> int:
        """Return the largest number of blocks that compute a reduction that another reduction needs.

        Reductions that no other one needs may be repeated by any number of blocks.
        """
        needed = [False] * len(self.steps)
        most = 1
        for n in reversed(range(len(self.steps))):
            step = self.steps[n]
            if step.over and needed[n]:
                missing = (self.estimate.extents[bit] for bit in bits(self.grid & ~self.space[n]))
                most = max(most, blocks_across(missing, policy(self.target).tile_side))
            for m in step.reads:
                needed[m] |= needed[n] or bool(step.over)
        return most

    def _sweeps(self) -> str:
        """Find levels along every reduced axis; set `again` (the axis swept twice), `sweeps` and `carried`."""
        self.again, self.sweeps = 0, 1
        self.times: dict[int, int] = {}  # how often a step is evaluated if nothing is carried
        for axis in bits(self.folded):
            level: list[int] = []
            most = 0
            for n, step in enumerate(self.steps):
                below = max((level[m] for m in step.reads), default=0)
                if self.space[n] & axis:
                    most = max(most, below)
                level.append(below + bool(step.over & axis))
            if most == 0:
                continue
            if self.again:
                return "two axes are swept twice"
            self.again, self.sweeps = axis, most + 1
            self._count_evaluations(axis, level)
        return ""

    def _count_evaluations(self, axis: int, level: list[int]) -> None:
        sweeps: dict[int, set[int]] = {}
        for n in reversed(range(len(self.steps))):
            step = self.steps[n]
            if not self.space[n] & axis:
                continue
            own = level[n] - bool(step.over & axis)
            mine = sweeps.setdefault(n, set())
            if step.over & axis or n in self.estimate.stores or not mine:
                mine.add(own)
            for m in step.reads:
                if self.steps[m].axes & axis:
                    sweeps.setdefault(m, set()).update(mine)
        self.times = {n: len(found) for n, found in sweeps.items()}

    def form(self, kind: str) -> tuple[object, ...]:
        rows = any(self.steps[n].axes & self.folded for n in self.estimate.stores)
        return kind, len(self.folds), len(self.products), self.sweeps, rows

    def _evaluated(self, n: int, resident: bool) -> float:
        """Count the evaluations of a step, if no block repeats it."""
        return self.size(self.space[n]) * (1 if resident else self.times.get(n, 1))

    def loads(self, resident: bool) -> dict[int, BlockWork]:
        """Return the work of the kernel, by the axes of the grid whose blocks repeat it."""
        totals: dict[int, BlockWork] = {}
        inside = set(self.products.values()) - self.products.keys()
        for n, step in enumerate(self.steps):
            if n in inside:
                continue
            space = self.space[n]
            times = self._evaluated(n, resident)
            load = totals.setdefault(self.grid & ~space, BlockWork())
            if step.is_load:
                load.fill += times * step.item
                load.issued += 0.5 * times * bool(step.item)
                continue
            if n in self.products and step.half:
                load.tensor += 2 * times
                continue
            cost, unit = COSTS.get(step.fn, (1, 0))
            if step.fn.startswith("online"):  # an exponential for each score, however many results it weighs
                cost, scores = 1, self._evaluated(step.reads[0], resident)
                load.issued += 3 * scores
                load.special += scores
            load.issued += times * cost
            load.special += times * unit
            if n in self.products:
                load.fma += times
                load.products += times
        return totals

    # ---- tiles
    #
    # A search needs this for thousands of kernels, by tile. All that sides do not change is computed before: tiles
    # have at most two of them, and a product over some axes is a number times one of four (of no side, the first, the
    # second, both).

    def prepare(self) -> None:
        """Compute what the tiles of the menu have in common."""
        menu = self._menu()
        self.axes, self.sides = tuple(menu), tuple(menu.values())
        first, second = (*self.axes, 0, 0)[:2]
        self.first, self.second, self.both = first, second, first | second
        steps, folded = self.steps, self.folded
        self.rest = self.size(self.grid & ~self.both)
        self.held = [self._which(steps[n].axes & ~folded) for n in self.folds]
        again = [steps[n].axes for n, times in self.times.items() if times > 1] if self.again else []
        self.rows = [(self._chunk(axes & folded), self._which(axes)) for axes in again]
        self.work = {
            resident: [
                (load, self.size(missing & ~self.both), self._which(missing))
                for missing, load in self.loads(resident).items()
            ]
            for resident in ((True, False) if self.again else (True,))
        }
        self.reads = [
            (step.buffer, min(self.size(step.axes) * step.item, step.whole), self.times.get(n, 1),
             self.size(step.axes & folded) * step.item, self._which(step.axes))
            for n, step in enumerate(steps)
            if step.is_load and step.item
        ]  # fmt: skip
        self.part = (1, 0, 0, 0)
        self.once = self._from_memory(0)

    def _menu(self) -> dict[int, list[int]]:
        """Return the sides that a tile may have along some axes: those whose indices share loads."""
        extents, loads = self.estimate.extents, [step for step in self.steps if step.is_load]
        options: Sequence[int] = ROWS
        axes = [
            bit
            for bit in bits(self.grid)
            if any(bit & ~load.axes for load in loads) or any(bit & ~space for space in self.space)
        ]
        if self.products:
            options = SIDES
            axes = [bit for bit in axes if any(self.space[n] & bit for n in self.products)]
        elif not self.folded:
            return {}
        elif not axes:  # nothing is shared between rows: several rows in a block only fill it
            axes = list(bits(self.grid))[-1:]
        chosen = sorted(axes, key=lambda bit: (-extents[bit], bit))[:2]
        return {bit: sorted({min(option, extents[bit]) for option in options}) for bit in chosen}

    def _which(self, mask: int) -> int:
        """Return which sides a set of axes has: the index of their product."""
        return bool(mask & self.first) + 2 * bool(mask & self.second)

    def _chunk(self, mask: int) -> int:
        """Return the number of elements of reduced axes on chip: all of the axis that is swept again, else a chunk."""
        extents, again = self.estimate.extents, self.again
        return math.prod(extents[bit] if bit == again else min(CHUNK, extents[bit]) for bit in bits(mask))

    # ---- one tile

    def take(self, sides: tuple[int, ...]) -> None:
        """Select the tile that later queries are about."""
        extents = self.estimate.extents
        a, b = (*sides, 1, 1)[:2]
        self.part = (1, a, b, a * b)
        a, b = (*(-(-extents[axis] // side) for axis, side in zip(self.axes, sides, strict=True)), 1, 1)[:2]
        self.count = (1, a, b, a * b)
        self.blocks = self.rest * a * b

    def shared(self, resident: bool) -> float:
        """Return the bytes on chip: accumulators, and the rows that later sweeps read again."""
        part = self.part
        held = sum([part[which] for which in self.held])
        if resident and self.rows:
            held += max([chunk * part[which] for chunk, which in self.rows])
        return 4.0 * held

    def splits(self) -> tuple[int, ...]:
        """Return into how many blocks a reduction may be cut if too few run: partials first, a second launch after."""
        blocks = self.blocks
        wide = self.target.multiprocessors
        streams = self.folded and not (self.again and self.products)
        return (1, -(-2 * wide // blocks)) if streams and 2 * blocks <= wide else (1,)

    def taken(self, resident: bool, split: int) -> tuple[float, float]:
        """Return the seconds of the tile, and the bytes that come from memory and go there."""
        target = self.target
        flat = not self.folded
        blocks = max(1, -(-self.size(self.grid) // FLAT)) if flat else self.blocks * split
        fill = issued = fma = special = tensor = products = 0.0
        for load, rest, which in self.work[resident]:
            repeats = 1 if flat else rest * self.count[which]
            fill += load.fill * repeats
            issued += load.issued * repeats
            fma += load.fma * repeats
            special += load.special * repeats
            tensor += load.tensor * repeats
            products += load.products * repeats
        stored = self.stored * (9 if split > 1 else 1)  # partials in f32, written and read again
        running = min(blocks, target.multiprocessors)
        dram = stored + (self.once if resident else self._from_memory(running))
        warps = blocks * LANES
        lines = products / warps / max(1.0, math.sqrt(self.part[3] / THREADS))
        counts = Counts(
            blocks, THREADS, int(min(self.shared(resident), target.smem)), dram, (fill + stored) / blocks, lines,
            issued / warps, fma / warps, special / warps, tensor / blocks, None, NO_WAITS, tensor / blocks,
        )  # fmt: skip
        told = predict(counts, target)
        more = target.launch_seconds + 2 * target.memory_latency_seconds if split > 1 else 0.0
        return told.seconds + more, dram

    def _from_memory(self, running: int) -> float:
        """Return the bytes that come from memory.

        Every buffer counts once, or more often if its rows are swept and do not stay in L2.
        """
        half = self.target.l2_bytes / 2
        once: dict[int, float] = {}
        for buffer, size, sweeps, row, which in self.reads:
            again = sweeps if row * self.part[which] * running > half else 1
            once[buffer] = max(once.get(buffer, 0.0), size * again)
        return sum(once.values())


# ---- The price of a kernel that has no schedule yet: its estimate with the best tile of the menu.


class Price(NamedTuple):
    """The predicted price of a kernel. reason: why it has no price.

    form: what schedules tell kernels apart by: contraction, row or flat; folds, contractions, sweeps, whether rows that
    are folded are stored.
    """

    seconds: float
    bytes: float
    kind: str
    reason: str = ""
    form: tuple[object, ...] = ()

    @property
    def legal(self) -> bool:
        return not self.reason


def impossible(reason: str) -> Price:
    return Price(math.inf, 0.0, "none", reason)


def price(estimate: KernelEstimate, target: Target) -> Price:
    """Return the price of a kernel with the best tile of the menu."""
    kernel = Pricing(estimate, target)
    reason = kernel.refused()
    if reason:
        return impossible(reason)
    kernel.prepare()
    kind = "contraction" if kernel.products else "row" if kernel.folded else "flat"
    found = math.inf, 0.0
    for sides in itertools.product(*kernel.sides):
        kernel.take(sides)
        for resident in (True, False) if kernel.again else (True,):
            if kernel.shared(resident) > target.smem:
                continue
            for split in kernel.splits():
                found = min(found, kernel.taken(resident, split), key=lambda one: one[0])
    if found[0] == math.inf:
        return impossible("a row does not fit and cannot be swept again")
    return Price(*found, kind, "", kernel.form(kind))
