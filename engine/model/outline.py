"""A kernel before it has a schedule: what it loads, computes, folds and stores over its axes, and what that would take.

The census of a kernel needs its Kernel IR. Fusion asks earlier, for thousands of kernels that will never be built: here
the census is estimated for each tile of a small menu, and the same model (predict) says which tile is best. Axes are
bits of a mask. An outline that is no single loop nest has no price, but a reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...codegen.target import Target
from .accesses import LANES, SECTOR
from .census import Census
from .predict import predict
from .work import COSTS

THREADS = 256
FLAT = 1024  # elements that a block of a kernel without reductions computes
CHUNK = 16  # of a contracted axis, that is in shared memory at once
DEEPEST = 2  # contractions inside of each other
FOLDED = 3  # axes that one kernel reduces
ACCUMULATORS = 4  # contractions that share a kernel
ROWS = (1, 8, 64)
TILES = (16, 64, 128)
SLACK = 0.02  # of the sum of all bounds: so that a search sees progress where the largest bound does not move


@dataclass(frozen=True)
class Step:
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


@dataclass(frozen=True)
class Outline:
    """A kernel: its values in order, which of them it stores, the extents of its axes."""

    steps: tuple[Step, ...]
    stores: tuple[int, ...]
    extents: dict[int, int] = field(hash=False)
    sizes: dict[int, int] = field(default_factory=dict, hash=False, repr=False)  # remembered products of extents


@dataclass(frozen=True)
class Price:
    """What a kernel takes, predicted. score: seconds and a little of every bound; reason: why it has no price.

    form: what schedules tell kernels apart by: contraction, row or flat; folds, contractions, sweeps, whether rows that
    are folded are stored.
    """

    seconds: float
    score: float
    bytes: float
    kind: str
    reason: str = ""
    tile: tuple[tuple[int, int], ...] = ()
    form: tuple[object, ...] = ()

    @property
    def legal(self) -> bool:
        return not self.reason


def impossible(reason: str) -> Price:
    return Price(math.inf, math.inf, 0.0, "none", reason)


def bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


def price(outline: Outline, target: Target) -> Price:
    """The price of an outline with the best tile of the menu."""
    return Pricing(outline, target).best()


class Pricing:
    """One outline: what is contracted, how often rows are swept, what is carried from sweep to sweep."""

    def __init__(self, outline: Outline, target: Target):
        self.outline, self.target, self.steps = outline, target, outline.steps
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
        self.stored = sum(self.size(self.steps[n].axes) * self.steps[n].item for n in outline.stores)
        self._totals: dict[bool, dict[int, Load]] = {}

    def _space(self, step: Step) -> int:
        mask = step.axes | step.over
        for n in step.reads:
            mask |= self.steps[n].axes
        return mask

    def _contracted(self, n: int) -> int | None:
        """The product that a contraction sums: each factor lacks an axis of the result that the other has."""
        step = self.steps[n]
        if step.fn == "online.s" and len(step.reads) == 2:
            x, v = (self.steps[m].axes for m in step.reads)
            return n if step.axes & ~x and step.axes & ~v else None
        product = self.steps[step.reads[0]]
        if step.fn != "add" or product.fn != "multiply" or step.reads[0] in self.outline.stores:
            return None
        a, b = (self.steps[m].axes for m in product.reads)
        return step.reads[0] if step.axes & ~a and step.axes & ~b else None

    def size(self, mask: int) -> int:
        sizes = self.outline.sizes
        found = sizes.get(mask)
        if found is None:
            found = sizes[mask] = math.prod(self.outline.extents[bit] for bit in bits(mask))
        return found

    # ---- one loop nest?

    def best(self) -> Price:
        reason = self._refused()
        if reason:
            return impossible(reason)
        found: Price | None = None
        for tile in self._menu():
            for resident in (True, False) if self.again else (True,):
                if self._shared(tile, resident) > self.target.smem:
                    continue
                for split in self._splits(tile):
                    one = self._price(tile, resident, split)
                    if found is None or one.score < found.score:
                        found = one
        return found or impossible("a row does not fit and cannot be swept again")

    def _refused(self) -> str:
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
        return self._sweeps()

    def _sweeps(self) -> str:
        """Levels along every folded axis; sets `again` (the axis swept twice), `sweeps` and `carried`."""
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
            if step.over & axis or n in self.outline.stores or not mine:
                mine.add(own)
            for m in step.reads:
                if self.steps[m].axes & axis:
                    sweeps.setdefault(m, set()).update(mine)
        self.times = {n: len(found) for n, found in sweeps.items()}

    # ---- tiles

    def _menu(self) -> list[dict[int, int]]:
        extents, loads = self.outline.extents, [step for step in self.steps if step.is_load]
        options: Sequence[int] = ROWS
        axes = [
            bit
            for bit in bits(self.grid)
            if any(bit & ~load.axes for load in loads) or any(bit & ~self.space[n] for n in range(len(self.steps)))
        ]
        if self.products:
            options = TILES
            axes = [bit for bit in axes if any(self.space[n] & bit for n in self.products)]
        elif not self.folded:
            return [{}]
        elif not axes:  # nothing is shared between rows: several rows in a block only fill it
            axes = list(bits(self.grid))[-1:]
        chosen = sorted(axes, key=lambda bit: (-extents[bit], bit))[:2]
        sides = [sorted({min(o, extents[bit]) for o in options}) for bit in chosen]
        return [dict(zip(chosen, tile, strict=True)) for tile in itertools.product(*sides)]

    def _part(self, mask: int, tile: dict[int, int], whole: bool) -> int:
        """The elements of a value that a block holds: of folded axes all, or (streamed) a chunk."""
        count = 1
        for bit in bits(mask):
            extent = self.outline.extents[bit]
            if bit & self.grid:
                count *= min(tile.get(bit, 1), extent)
            else:
                count *= extent if whole or bit == self.again else min(CHUNK, extent)
        return count

    def _shared(self, tile: dict[int, int], resident: bool) -> float:
        """Bytes on chip: accumulators, and the rows that later sweeps read again."""
        held = sum(self._part(self.steps[n].axes & ~self.folded, tile, False) for n in self.folds)
        if resident and self.again:
            rows = [n for n, times in self.times.items() if times > 1]
            held += max((self._part(self.steps[n].axes, tile, False) for n in rows), default=0)
        return 4.0 * held

    def _blocks(self, tile: dict[int, int]) -> dict[int, int]:
        return {bit: -(-self.outline.extents[bit] // tile.get(bit, 1)) for bit in bits(self.grid)}

    def _splits(self, tile: dict[int, int]) -> tuple[int, ...]:
        """Into how many blocks a reduction may be cut where too few run: partials first, a second launch after."""
        blocks = math.prod(self._blocks(tile).values())
        wide = self.target.multiprocessors
        streams = self.folded and not (self.again and self.products)
        return (1, -(-2 * wide // blocks)) if streams and 2 * blocks <= wide else (1,)

    # ---- the estimate

    def _price(self, tile: dict[int, int], resident: bool, split: int) -> Price:
        counts = self._blocks(tile)
        flat = not self.folded
        blocks = max(1, -(-self.size(self.grid) // FLAT)) if flat else math.prod(counts.values()) * split
        fill = issued = fma = special = tensor = products = 0.0
        for missing, load in self._loads(resident).items():
            repeats = 1 if flat else math.prod(counts[bit] for bit in bits(missing))
            fill += load.fill * repeats
            issued, fma, special = (
                issued + load.issued * repeats,
                fma + load.fma * repeats,
                special + load.special * repeats,
            )
            tensor, products = tensor + load.tensor * repeats, products + load.products * repeats
        stored = self.stored * (9 if split > 1 else 1)  # partials in f32, written and read again
        dram = stored + self._from_memory(tile, resident, min(blocks, self.target.multiprocessors))
        sectors = (fill + stored) / blocks / SECTOR
        warps = blocks * LANES
        area = math.prod(tile.values()) if tile else 1
        wavefronts = products / warps / max(1.0, math.sqrt(area / THREADS))
        census = Census(
            blocks, THREADS, int(min(self._shared(tile, resident), self.target.smem)), dram, sectors, sectors,
            wavefronts, wavefronts, issued / warps, fma / warps, special / warps, tensor / blocks,
        )  # fmt: skip
        told = predict(census, self.target)
        more = self.target.launch_seconds + 2 * self.target.memory_latency_seconds if split > 1 else 0.0
        kind = "contraction" if self.products else "row" if self.folded else "flat"
        score = told.seconds + more + SLACK * sum(told.bounds.values())
        return Price(told.seconds + more, score, dram, kind, "", tuple(sorted(tile.items())), self._form(kind))

    def _form(self, kind: str) -> tuple[object, ...]:
        rows = any(self.steps[n].axes & self.folded for n in self.outline.stores)
        return kind, len(self.folds), len(self.products), self.sweeps, rows

    def _from_memory(self, tile: dict[int, int], resident: bool, running: int) -> float:
        """Bytes that come from memory: every buffer once, more often where its rows are swept and do not stay in L2."""
        once: dict[int, float] = {}
        for n, step in enumerate(self.steps):
            if not step.is_load or not step.item:
                continue
            sweeps = 1 if resident else self.times.get(n, 1)
            if sweeps > 1 and self._part(step.axes, tile, True) * step.item * running <= self.target.l2_bytes / 2:
                sweeps = 1
            size = min(self.size(step.axes) * step.item, step.whole) * sweeps
            once[step.buffer] = max(once.get(step.buffer, 0.0), size)
        return sum(once.values())

    def _evaluated(self, n: int, resident: bool) -> float:
        """How often a step is evaluated, if no block repeats it."""
        return self.size(self.space[n]) * (1 if resident else self.times.get(n, 1))

    def _loads(self, resident: bool) -> dict[int, Load]:
        """What is done in all, by the axes of the grid whose blocks repeat it."""
        known = self._totals.get(resident)
        if known is not None:
            return known
        totals = self._totals[resident] = {}
        inside = set(self.products.values()) - self.products.keys()
        for n, step in enumerate(self.steps):
            if n in inside:
                continue
            space = self.space[n]
            times = self._evaluated(n, resident)
            load = totals.setdefault(self.grid & ~space, Load())
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


@dataclass
class Load:
    """Work that so many blocks repeat: bytes asked of L2, instructions of threads, operations of tensor cores."""

    fill: float = 0.0
    issued: float = 0.0
    fma: float = 0.0
    special: float = 0.0
    tensor: float = 0.0
    products: float = 0.0
