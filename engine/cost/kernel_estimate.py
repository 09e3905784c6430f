"""A kernel before it has a schedule: what it loads, computes, folds and stores over its axes, and what that would take.

To count instructions needs Kernel IR. Fusion asks earlier, for thousands of kernels that will never be built: here
they are estimated for each tile of a small menu, and the same model (predict) says which tile is best. Axes are
bits of a mask. An estimate that is not a single loop nest has no price, but a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...codegen.target import Target
from ...ir.facts.dataflow import contracts
from ..language.policy import policy
from .fusing import blocks_across
from .work import COSTS

DEEPEST = 2  # contractions inside of each other
FOLDED = 3  # axes that one kernel reduces
ACCUMULATORS = 4  # contractions that share a kernel


def bits(mask: int) -> Iterator[int]:
    """The axes of a mask, one bit each."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


@dataclass
class BlockWork:
    """Work that so many blocks repeat: bytes asked of L2, instructions of threads, operations of tensor cores."""

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
        self._totals: dict[bool, dict[int, BlockWork]] = {}

    def _space(self, step: EstimatedValue) -> int:
        mask = step.axes | step.over
        for n in step.reads:
            mask |= self.steps[n].axes
        return mask

    def _contracted(self, n: int) -> int | None:
        """The product that a contraction sums."""
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
        """Why it is not a single loop nest; \"\" if it is one."""
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
        """How many blocks compute a fold that another fold needs, at most; beside it, they may."""
        needed = [False] * len(self.steps)
        most = 1
        for n in reversed(range(len(self.steps))):
            step = self.steps[n]
            if step.over and needed[n]:
                missing = (self.estimate.extents[bit] for bit in bits(self.grid & ~self.space[n]))
                most = max(most, blocks_across(missing, policy(self.target).tile_columns))
            for m in step.reads:
                needed[m] |= needed[n] or bool(step.over)
        return most

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
        """How often a step is evaluated, if no block repeats it."""
        return self.size(self.space[n]) * (1 if resident else self.times.get(n, 1))

    def loads(self, resident: bool) -> dict[int, BlockWork]:
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
