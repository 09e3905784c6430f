"""Kernels without a schedule: the loads, computations, reductions and stores over their axes, and the estimated time.

To count instructions needs Kernel IR. Fusion needs an estimate earlier, for thousands of kernels that will never be
built. Here they are estimated for each tile of a small menu, and the same model (predict) says which tile is best.
Axes are bits of a mask. An estimate that is not a single loop nest has no price, but a reason.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from math import inf, prod, sqrt
from operator import and_, itemgetter, or_
from typing import NamedTuple

from ...codegen.target import Target
from ...ir.facts.dataflow import contracts
from ...ir.facts.layout import SECTOR
from ..language.rule import policy
from .instruction_counts import InstructionCounts
from .limits import COSTS, blocks_across
from .memory_model import LANES
from .predict import predict

THREADS = 256
FLAT = 1024  # elements that a block of a kernel without reductions computes
CHUNK = 16  # of a contracted axis, that is in shared memory at once
ROWS = (1, 8, 64)
SIDES = (16, 64, 128)
DEEPEST = 2  # contractions inside of each other
FOLDED = 3  # axes that one kernel reduces
ACCUMULATORS = 4  # contractions that share a kernel

Tile = Mapping[int, int]  # the sides along some axes; of all others a block has one index


def bits(mask: int) -> Iterator[int]:
    """Yield the axes of a mask, one bit each."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


def union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


class BlockWork(NamedTuple):
    """Work that a number of blocks repeat: bytes from L2, instructions of threads, operations of tensor cores.

    products: of contractions on the fp32 pipe.
    """

    fill: float = 0.0
    issued: float = 0.0
    special: float = 0.0
    tensor: float = 0.0
    products: float = 0.0

    def plus(self, more: BlockWork, times: int = 1) -> BlockWork:
        return BlockWork(*[one + other * times for one, other in zip(self, more)])


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
    """One estimate: what is contracted, how often rows are swept, what is carried from sweep to sweep.

    space: the axes of the loops around each step. products: of contractions, each with the step that multiplies.
    again: the axis that is swept repeatedly; times: how often a step is evaluated if nothing is carried.
    """

    def __init__(self, estimate: KernelEstimate, target: Target):
        self.steps, self.stores, self.extents, self.sizes = estimate
        self.target = target
        self.folds = [n for n, step in enumerate(self.steps) if step.over]
        self.folded = union(step.over for step in self.steps)
        self.space = [union((step.axes, step.over, *self._read(step))) for step in self.steps]
        self.grid = union(self.space) & ~self.folded
        self.products = {n: product for n in self.folds if (product := self._contracted(self.steps[n], n)) is not None}
        self.stored = sum(self.size(self.steps[n].axes) * self.steps[n].item for n in self.stores)
        self.again, self.sweeps, self.times = 0, 1, dict[int, int]()

    def _read(self, step: EstimatedValue) -> Iterator[int]:
        return (self.steps[n].axes for n in step.reads)

    def _contracted(self, step: EstimatedValue, place: int) -> int | None:
        """Return the product that a contraction sums."""
        product = step
        if step.fn != "online.s" or len(step.reads) != 2:
            place = step.reads[0]
            product = self.steps[place]
            if step.fn != "add" or product.fn != "multiply" or product.over or place in self.stores:
                return None
        return place if contracts(step.axes, *self._read(product)) else None

    def size(self, mask: int) -> int:
        if mask not in self.sizes:
            self.sizes[mask] = self.blocks({}, mask)
        return self.sizes[mask]

    # ---- one loop nest?

    def refused(self) -> str:
        """Return why it is not a single loop nest; \"\" if it is one. Finds the axis that is swept again."""
        depth = self._below(self.products)
        if any(depth[n] >= DEEPEST for n in self.products):
            return "a contraction inside a contraction inside a contraction"
        if len(self.products) > ACCUMULATORS:
            return "too many accumulators"
        if self.folded.bit_count() > FOLDED:
            return "too many reduced axes"
        if self._computed_again() > self.target.recompute:
            return "a fold that another one needs would be computed again by many blocks"
        for axis in bits(self.folded):
            level = self._below([n for n in self.folds if self.steps[n].over & axis])
            inside = [n for n, space in enumerate(self.space) if space & axis]
            most = max(level[n] for n in inside)
            if most and self.again:
                return "two axes are swept twice"
            if most:
                self.again, self.sweeps = axis, most + 1
                sweeps = defaultdict[int, set[int]](set)
                for n in reversed(inside):
                    step = self.steps[n]
                    if step.over & axis or n in self.stores or not sweeps[n]:
                        sweeps[n].add(level[n])
                    for m in step.reads:
                        if self.steps[m].axes & axis:
                            sweeps[m] |= sweeps[n]
                self.times = {n: len(found) for n, found in sweeps.items()}
        return ""

    def _below(self, counted: Iterable[int]) -> list[int]:
        """Return how many of some steps follow one another, at most, before each step."""
        found: list[int] = []
        for step in self.steps:
            found.append(max((found[n] + (n in counted) for n in step.reads), default=0))
        return found

    def _computed_again(self) -> int:
        """Return the largest number of blocks that compute a reduction that another reduction needs.

        Reductions that no other one needs may be repeated by any number of blocks.
        """
        needed: set[int] = set()
        most = 1
        for n, step in reversed([*enumerate(self.steps)]):
            if step.over and n in needed:
                missing = (self.extents[bit] for bit in bits(self.grid & ~self.space[n]))
                most = max(most, blocks_across(missing, policy(self.target).tile_side))
            if step.over or n in needed:
                needed.update(step.reads)
        return most

    def loads(self, resident: bool) -> dict[int, BlockWork]:
        """Return the work of the kernel, by the axes of the grid whose blocks repeat it."""
        evaluated = [self.size(axes) * (1 if resident else self.times.get(n, 1)) for n, axes in enumerate(self.space)]
        totals = defaultdict[int, BlockWork](BlockWork)
        inside = set(self.products.values()) - self.products.keys()
        for n, step in enumerate(self.steps):
            if n in inside:
                continue
            times = evaluated[n]
            if step.is_load:
                work = BlockWork(fill=times * step.item, issued=0.5 * times * bool(step.item))
            elif n in self.products and step.half:
                work = BlockWork(tensor=2 * times)
            else:
                cost, unit = COSTS.get(step.fn, (1, 0))
                # a running softmax has an exponential for each score, however many results it weighs
                scores = evaluated[step.reads[0]] if step.fn.startswith("online") else 0
                products = times * (n in self.products)
                work = BlockWork(0.0, 3 * scores + times * cost, scores + times * unit, 0.0, products)
            missing = self.grid & ~self.space[n] if self.folded else 0  # each block of a flat kernel has its own
            totals[missing] = totals[missing].plus(work)
        return totals

    # ---- tiles

    def menu(self) -> dict[int, list[int]]:
        """Return the sides that a tile may have along some axes: those whose indices share loads."""
        if not self.folded:
            return {}
        extents, options = self.extents, ROWS
        shared = self.grid & ~reduce(and_, (*self.space, *(step.axes for step in self.steps if step.is_load)))
        if self.products:
            options, shared = SIDES, shared & union(self.space[n] for n in self.products)
        elif not shared:  # nothing is shared between rows: several rows in a block only fill it
            shared = self.grid and 1 << self.grid.bit_length() - 1
        chosen = sorted(bits(shared), key=lambda bit: (-extents[bit], bit))[:2]
        return {bit: sorted({min(option, extents[bit]) for option in options}) for bit in chosen}

    def blocks(self, tile: Tile, mask: int) -> int:
        """Count the blocks along some axes."""
        return prod(-(-self.extents[bit] // tile.get(bit, 1)) for bit in bits(mask))

    def shared(self, tile: Tile, resident: bool) -> float:
        """Return the bytes on chip: accumulators, and the rows that later sweeps read again.

        Of rows, the axis that is swept again is there whole, and a chunk of the other reduced axes.
        """
        extents, held = self.extents, sum(_within(tile, self.steps[n].axes) for n in self.folds)
        if resident:
            kept = {bit: extents[bit] if bit == self.again else min(CHUNK, extents[bit]) for bit in bits(self.folded)}
            rows = (_within({**tile, **kept}, self.steps[n].axes) for n, times in self.times.items() if times > 1)
            held += max(rows, default=0)
        return 4.0 * held

    def splits(self, tile: Tile) -> tuple[int, ...]:
        """Return into how many blocks a reduction may be cut if too few run: partials first, a second launch after."""
        blocks, wide = self.blocks(tile, self.grid), self.target.multiprocessors
        streams = self.folded and not (self.again and self.products)
        return (1, -(-2 * wide // blocks)) if streams and 2 * blocks <= wide else (1,)

    def taken(self, tile: Tile, work: Mapping[int, BlockWork], resident: bool, split: int) -> tuple[float, float]:
        """Return the seconds of the tile, and the bytes that come from memory and go there."""
        target = self.target
        blocks = self.blocks(tile, self.grid) * split if self.folded else max(1, -(-self.size(self.grid) // FLAT))
        total = BlockWork()
        for missing, load in work.items():
            total = total.plus(load, self.blocks(tile, missing))
        stored = self.stored * (9 if split > 1 else 1)  # partials in f32, written and read again
        dram = stored + self._from_memory(tile, 0 if resident else min(blocks, target.multiprocessors))
        warps = blocks * LANES
        counts = InstructionCounts(
            blocks, THREADS, int(self.shared(tile, resident)), dram, (total.fill + stored) / blocks / SECTOR,
            wavefronts=total.products / warps / max(1.0, sqrt(prod(tile.values()) / THREADS)),
            issued=total.issued / warps, fma=total.products / warps, special=total.special / warps,
            tensor=total.tensor / blocks, asynchronous=total.tensor / blocks,
        )  # fmt: skip
        more = target.launch_seconds + 2 * target.memory_latency_seconds if split > 1 else 0.0
        return predict(counts, target).seconds + more, dram

    def _from_memory(self, tile: Tile, running: int) -> float:
        """Return the bytes that come from memory.

        Every buffer counts once, or more often if its rows are swept and do not stay in L2.
        """
        once = defaultdict[int, float](float)
        for n, step in enumerate(self.steps):
            if step.is_load:
                size = min(self.size(step.axes) * step.item, step.whole)
                row = self.size(step.axes & self.folded) * step.item
                if n in self.times and row * _within(tile, step.axes) * running > self.target.l2_bytes / 2:
                    size *= self.times[n]
                once[step.buffer] = max(once[step.buffer], size)
        return sum(once.values())


def _within(tile: Tile, mask: int) -> int:
    """Return the elements of a tile along some axes."""
    return prod(side for axis, side in tile.items() if axis & mask)


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
    return Price(inf, 0.0, "none", reason)


def price(estimate: KernelEstimate, target: Target) -> Price:
    """Return the price of a kernel with the best tile of the menu."""
    kernel = Pricing(estimate, target)
    if reason := kernel.refused():
        return impossible(reason)
    menu = kernel.menu()
    tiles = [dict(zip(menu, sides)) for sides in itertools.product(*menu.values())]
    work = {resident: kernel.loads(resident) for resident in ((True, False) if kernel.again else (True,))}
    seconds, size = min(
        (
            kernel.taken(tile, load, resident, split)
            for tile in tiles
            for resident, load in work.items()
            if kernel.shared(tile, resident) <= target.smem
            for split in kernel.splits(tile)
        ),
        key=itemgetter(0),
        default=(inf, 0.0),
    )
    if seconds == inf:
        return impossible("a row does not fit and cannot be swept again")
    kind = "contraction" if kernel.products else "row" if kernel.folded else "flat"
    rows = any(kernel.steps[n].axes & kernel.folded for n in kernel.stores)
    form = kind, len(kernel.folds), len(kernel.products), kernel.sweeps, rows
    return Price(seconds, size, kind, "", form)
