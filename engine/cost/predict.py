"""Analytic model of the time of a kernel.

T = waves x (max(DRAM, L2 fill, shared memory, issue, tensor, latency) + what is not hidden) + prologues + epilogues +
launch.
Blocks run in waves of as many as fit on the device at once. A wave takes as long as its busiest resource, and a
little of the time of the other resources (`UNHIDDEN`): no two overlap wholly, and of two schedules with the same
busiest resource the one that needs less of the rest is faster (a deeper ring, wider reads). How many fit is never a
price by itself: it only says how the blocks fall into waves. The last wave is as wide as what is left of the grid, so
one block too many costs a wave, but not a full one.

Rates are published peaks; of DRAM and of the slots in which instructions are issued, the share counts that copies and
products reach. L1 serves the sectors that a load of the same straight-line code of the block had requested, or one in
an iteration shortly before, if L1 has room for as much of all blocks of a multiprocessor at once. Other hits
and the order of blocks are not modelled, but for what a block sweeps again: that stays in L2 if the parts of all blocks
at once do. Latency is the time that one block takes by itself
(`memory_model.alone`): however little there is to do, no wave is shorter, and none is shorter than starting its blocks
(`CLOCKS_OF_BLOCK`). The model ranks variants of one kernel and shows what binds; it does not predict absolute times.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...codegen.target import Target
from ...ir.facts.layout import SECTOR
from .instruction_counts import InstructionCounts, substituted_work
from .limits import fixed_seconds
from .memory_model import LANES, alone

Array: TypeAlias = Any  # of numpy: a number or a truth value for each candidate

BLOCK_RESERVE = 1024  # bytes of shared memory that the driver takes of every block
MOST_REGISTERS = 255  # of one thread
REGISTER_GRAIN = 8
CLOCKS_OF_BLOCK = 1.27  # between the starts of two blocks of the device: 0.64 ns (H200, measured)
UNHIDDEN = 0.02  # share of all but the busiest resource: nothing overlaps completely
RESOURCES = ("DRAM", "L2", "shared", "issue", "latency", "tensor")


class Prediction(NamedTuple):
    """Predicted time of a launch.

    seconds in all, of which `fixed` is launch, prologue and epilogue. resident: blocks of a multiprocessor at once.
    bounds: {resource: the seconds it alone would take, summed over waves}; busiest: those of the resource that takes
    longest in each wave, summed; binding: the resource that takes longest over all waves.
    `seconds == fixed + busiest + UNHIDDEN * (sum(bounds.values()) - busiest)`, but for rounding.
    """

    seconds: float
    fixed: float
    waves: int
    resident: int
    bounds: dict[str, float]
    busiest: float

    @property
    def binding(self) -> str:
        variable = max(self.bounds, key=self.bounds.__getitem__)
        return variable if self.bounds[variable] > self.fixed else "launch"


def _most_blocks(launch: InstructionCounts, target: Target) -> dict[str, int]:
    """Return the blocks of one multiprocessor that each of its resources allows.

    Registers are known after assembly. Until then, there are enough for all threads.
    """
    registers = -(-(launch.registers or 1) // REGISTER_GRAIN) * REGISTER_GRAIN
    return {
        "blocks": target.blocks,
        "threads": target.threads // launch.threads,
        "shared": (target.smem + BLOCK_RESERVE) // (launch.shared + BLOCK_RESERVE),
        "registers": target.registers // (registers * launch.warps * LANES),
    }


def register_budget(threads: Array, target: Target) -> Array:
    """Return the registers that the compiler may give to a thread of a block, or of each of an array of blocks."""
    share = target.registers // (-(-threads // LANES) * LANES)
    return np.minimum(MOST_REGISTERS, share // REGISTER_GRAIN * REGISTER_GRAIN)


def resident_blocks(launch: InstructionCounts, target: Target) -> int:
    """Count the blocks that one multiprocessor holds at once. Registers count only where they are known."""
    return max(1, min(_most_blocks(launch, target).values()))


def occupancy(launch: InstructionCounts, target: Target) -> tuple[float, str]:
    """Return the warps that the busiest multiprocessor holds at once over those it could, and what holds it down."""
    resident = resident_blocks(launch, target)
    each = min(resident, -(-launch.blocks // target.multiprocessors))
    holds = (name for name, most in _most_blocks(launch, target).items() if most == resident)
    held = "grid" if each < resident else next(holds, "registers")
    return min(1.0, each * launch.warps * LANES / target.threads), held


def predict(launch: InstructionCounts, target: Target) -> Prediction:
    """Predict the seconds of one launch."""
    resident = resident_blocks(launch, target)
    wide = resident * target.multiprocessors
    full, rest = divmod(launch.blocks, wide)
    taken = [(wave(launch, target, blocks), times) for blocks, times in ((wide, full), (rest, 1)) if blocks and times]
    bounds = {name: sum(seconds[n] * times for seconds, times in taken) for n, name in enumerate(RESOURCES)}
    busiest = sum(max(seconds) * times for seconds, times in taken)
    variable = sum(times * (max(each) + UNHIDDEN * (sum(each) - max(each))) for each, times in taken)
    waves = full + bool(rest)
    # nothing hides the first loads of the first wave and the last stores of the last; with one block
    # on a multiprocessor nothing hides those of any wave, or of any ring that a block fills again
    ends = max(1.0, launch.waits.fills * waves) if resident == 1 else 1.0
    fixed = fixed_seconds(target, ends)
    return Prediction(variable + fixed, fixed, waves, resident, bounds, busiest)


def wave(launch: InstructionCounts, target: Target, blocks: int) -> tuple[float, ...]:
    """Return the seconds that each of RESOURCES needs for a wave of so many blocks."""
    multiprocessors, schedulers = target.multiprocessors, target.schedulers
    each = -(-blocks // multiprocessors)  # on the busiest multiprocessor
    cycle = 1.0 / target.clock
    more_issued, more_fma, more_tensor = substituted_work(launch.spelled, target.sm)
    issued, tensor = launch.issued + more_issued, launch.tensor + more_tensor
    issue = issued / (min(schedulers, each * launch.warps) * target.issue_share)
    shared = launch.l1_wavefronts * 128 / target.shared_bytes_per_clock
    busy = max(issued / min(schedulers, launch.warps), shared)
    fma = launch.fma + more_fma
    pipes = max(fma * LANES / target.fp32_per_clock, launch.special * LANES / target.special_per_clock)
    products = launch.asynchronous + (tensor - launch.asynchronous) / target.warp_product_share
    again = launch.again if launch.again * blocks / launch.blocks > target.l2_bytes else 0.0
    kept = launch.kept if each * (launch.kept_bytes + launch.shared) <= target.smem else 0.0
    return (
        (launch.dram + again) * blocks / launch.blocks / (target.dram_share * target.dram_bytes_per_second),
        each * (launch.fill - kept * SECTOR) * multiprocessors / target.l2_bytes_per_second,
        each * shared * cycle,
        each * max(issue, pipes) * cycle,
        max(alone(busy, launch.waits, target), blocks * CLOCKS_OF_BLOCK * cycle),
        each * products * multiprocessors / target.tensor_flops_per_second,
    )


# The model held against measurements: does it rank the variants of a kernel as a GPU does, and how far off is it?
#
# Kendall's tau over pairs of variants: 1 where all pairs have one order, 0 where the model does not help, -1 where it
# is always wrong; ties on one side count for neither (tau-b, Kendall, "The treatment of ties in ranking problems",
# 1945).


class MeasuredVariant(NamedTuple):
    """One variant of a kernel: measured and predicted, in seconds."""

    kernel: str
    measured: float
    predicted: float


class Agreement(NamedTuple):
    """Agreement of predictions with measurements of variants of kernels.

    tau, loss: means over the kernels, which differ by orders of magnitude; tau: None if all variants tie. error: the
    median of |predicted / measured - 1|; ratio: the median of predicted over measured. loss: measured time of the
    variant that the model prefers, over the fastest.
    """

    kernel: str
    variants: int
    tau: float | None
    error: float
    ratio: float
    loss: float


def agreement(points: Iterable[MeasuredVariant]) -> Agreement:
    """Return the agreement of the model with all points, under the name "all"."""
    kernel = attrgetter("kernel")
    every = sorted(points, key=kernel)
    groups = [list(group) for _, group in itertools.groupby(every, kernel)]
    taus = [kendall([p.measured for p in group], [p.predicted for p in group]) for group in groups]
    known = [tau for tau in taus if tau is not None]
    losses = (min(group, key=lambda p: p.predicted).measured / min(p.measured for p in group) for group in groups)
    ratios = [p.predicted / p.measured for p in every]
    return Agreement(
        "all", len(every), statistics.fmean(known) if known else None,
        statistics.median(abs(ratio - 1) for ratio in ratios), statistics.median(ratios),
        statistics.geometric_mean(losses),
    )  # fmt: skip


def kendall(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two lists of the same things; None where either has only ties."""
    first, second = (np.sign(np.subtract.outer(values, values)) for values in (one, other))
    pairs = np.count_nonzero(first) * np.count_nonzero(second)
    return float((first * second).sum() / math.sqrt(pairs)) if pairs else None
