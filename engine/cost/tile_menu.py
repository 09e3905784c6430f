"""What a kernel would take with each tile of a small menu: its instructions are estimated, and the model predicts.

For thousands of kernels this is asked tile by tile, so all that sides do not change is computed before: tiles have at
most two of them, and a product over some axes is a number times one of four (of no side, the first, the second, both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .accesses import LANES
from .kernel_estimate import Pricing, bits
from .latency import Waits
from .predict import Counts, predict

THREADS = 256
FLAT = 1024  # elements that a block of a kernel without reductions computes
CHUNK = 16  # of a contracted axis, that is in shared memory at once
ROWS = (1, 8, 64)
SIDES = (16, 64, 128)
NO_WAITS = Waits()


class Estimate(NamedTuple):
    """What a tile gives. sides: of the tile; dram: bytes."""

    seconds: float
    dram: float
    sides: tuple[int, ...]


class Tiles:
    """A menu of tiles for one kernel, and what each of them would take."""

    def __init__(self, kernel: Pricing):
        self.kernel, self.target = kernel, kernel.target
        menu = self._menu()
        self.axes, self.sides = tuple(menu), tuple(menu.values())
        first, second = (*self.axes, 0, 0)[:2]
        self.first, self.second, self.both = first, second, first | second
        steps, folded = kernel.steps, kernel.folded
        self.rest = kernel.size(kernel.grid & ~self.both)
        self.held = [self._which(steps[n].axes & ~folded) for n in kernel.folds]
        again = [steps[n].axes for n, times in kernel.times.items() if times > 1] if kernel.again else []
        self.rows = [(self._chunk(axes & folded), self._which(axes)) for axes in again]
        self.work = {
            resident: [
                (load, kernel.size(missing & ~self.both), self._which(missing))
                for missing, load in kernel.loads(resident).items()
            ]
            for resident in ((True, False) if kernel.again else (True,))
        }
        self.reads = [
            (step.buffer, min(kernel.size(step.axes) * step.item, step.whole), kernel.times.get(n, 1),
             kernel.size(step.axes & folded) * step.item, self._which(step.axes))
            for n, step in enumerate(steps)
            if step.is_load and step.item
        ]  # fmt: skip
        self.part = (1, 0, 0, 0)
        self.once = self._from_memory(0)

    def _menu(self) -> dict[int, list[int]]:
        """The sides that a tile may have along some axes: those whose places share what they read."""
        kernel = self.kernel
        extents, loads = kernel.estimate.extents, [step for step in kernel.steps if step.is_load]
        options: Sequence[int] = ROWS
        axes = [
            bit
            for bit in bits(kernel.grid)
            if any(bit & ~load.axes for load in loads) or any(bit & ~space for space in kernel.space)
        ]
        if kernel.products:
            options = SIDES
            axes = [bit for bit in axes if any(kernel.space[n] & bit for n in kernel.products)]
        elif not kernel.folded:
            return {}
        elif not axes:  # nothing is shared between rows: several rows in a block only fill it
            axes = list(bits(kernel.grid))[-1:]
        chosen = sorted(axes, key=lambda bit: (-extents[bit], bit))[:2]
        return {bit: sorted({min(option, extents[bit]) for option in options}) for bit in chosen}

    def _which(self, mask: int) -> int:
        """Which sides a set of axes has: the place of their product."""
        return bool(mask & self.first) + 2 * bool(mask & self.second)

    def _chunk(self, mask: int) -> int:
        """How much of folded axes is on chip: all of what is swept again, else a chunk."""
        extents, again = self.kernel.estimate.extents, self.kernel.again
        return math.prod(extents[bit] if bit == again else min(CHUNK, extents[bit]) for bit in bits(mask))

    # ---- one tile

    def take(self, sides: tuple[int, ...]) -> None:
        """The tile that is asked about from now on."""
        extents = self.kernel.estimate.extents
        a, b = (*sides, 1, 1)[:2]
        self.tile = sides
        self.part = (1, a, b, a * b)
        a, b = (*(-(-extents[axis] // side) for axis, side in zip(self.axes, sides, strict=True)), 1, 1)[:2]
        self.count = (1, a, b, a * b)
        self.blocks = self.rest * a * b

    def shared(self, resident: bool) -> float:
        """Bytes on chip: accumulators, and the rows that later sweeps read again."""
        part = self.part
        held = sum([part[which] for which in self.held])
        if resident and self.rows:
            held += max([chunk * part[which] for chunk, which in self.rows])
        return 4.0 * held

    def splits(self) -> tuple[int, ...]:
        """Into how many blocks a reduction may be cut where too few run: partials first, a second launch after."""
        kernel, blocks = self.kernel, self.blocks
        wide = self.target.multiprocessors
        streams = kernel.folded and not (kernel.again and kernel.products)
        return (1, -(-2 * wide // blocks)) if streams and 2 * blocks <= wide else (1,)

    def estimate(self, resident: bool, split: int) -> Estimate:
        kernel, target = self.kernel, self.target
        flat = not kernel.folded
        blocks = max(1, -(-kernel.size(kernel.grid) // FLAT)) if flat else self.blocks * split
        fill = issued = fma = special = tensor = products = 0.0
        for load, rest, which in self.work[resident]:
            repeats = 1 if flat else rest * self.count[which]
            fill += load.fill * repeats
            issued += load.issued * repeats
            fma += load.fma * repeats
            special += load.special * repeats
            tensor += load.tensor * repeats
            products += load.products * repeats
        stored = kernel.stored * (9 if split > 1 else 1)  # partials in f32, written and read again
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
        return Estimate(told.seconds + more, dram, self.tile)

    def _from_memory(self, running: int) -> float:
        """Bytes that come from memory: every buffer once, more often where its rows are swept and do not stay in L2."""
        half = self.target.l2_bytes / 2
        once: dict[int, float] = {}
        for buffer, size, sweeps, row, which in self.reads:
            again = sweeps if row * self.part[which] * running > half else 1
            once[buffer] = max(once.get(buffer, 0.0), size * again)
        return sum(once.values())
