"""The cost of memory accesses: sectors of global memory, bank conflicts of shared memory, and latency.

`sectors` and `wavefronts` are of one instruction. `Waits` collects the stalls of one block, and `alone` predicts how
long the block runs by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...codegen.target import Target
from ...ir.facts.layout import IDLE, SECTOR, lanes_at_once, warp_wavefronts

LANES, LINE = 32, 128
Mask = NDArray[np.bool_]  # of lanes, (warps, lanes)
OfLanes = NDArray[np.int64]  # a number for each lane, (warps, lanes)


def sectors(places: OfLanes, mask: Mask) -> list[set[int]]:
    """Return the sectors that each warp touches.

    The first argument is the first byte of each lane (warps, lanes), aligned to the bytes that the lane moves.
    """
    touched = np.broadcast_to(places // SECTOR, mask.shape)
    return [set(warp[busy].tolist()) for warp, busy in zip(touched, mask, strict=True)]


def wavefronts(words: OfLanes, width: int, mask: Mask) -> tuple[int, int]:
    """Return the wavefronts of warps, and the least possible number. words: the first word of each lane (warps, lanes).

    width: words a lane. A warp goes in groups of lanes (`lanes_at_once`); a group takes as many as the most different
    words of one bank.
    """
    taken = fewest = 0
    for warp in np.where(mask, words, IDLE).tolist():
        lanes = tuple(warp)
        taken += warp_wavefronts(lanes, width)
        fewest += -(-(LANES - lanes.count(IDLE)) // lanes_at_once(lanes, width))
    return taken, fewest


WORD = 4  # bytes
KEPT_BELOW = 16  # bytes of a copy that L1 keeps: cp.async.ca; copies of 16 bytes and of boxes do not go through it


# ---- How long one block takes by itself: its instructions and accesses, and what it waits for in between.
#
# Loads of one straight-line piece are issued together and waited for once; a barrier or the next iteration begins
# a new piece. A copy that is some iterations ahead of its use is waited for that many iterations later. Latencies
# are of the order that published micro-benchmarks of Ampere and Hopper give, not measured here.


SHARED_CYCLES = 30  # a load from shared memory
BARRIER_CYCLES = 30  # all warps of a block, once they are there
CLUSTER_CYCLES = 200  # all blocks of a cluster: a round trip to another multiprocessor
L2_SHARE = 0.4  # of the latency of memory: what is read in a loop is mostly in L2
ASSEMBLER_UNROLLS = 4  # iterations of a loop without barriers that the assembler overlaps by itself


@dataclass(eq=False)
class Waits:
    """Counter of the waits of each warp of a block.

    memory, shared, barriers, clusters: times; ring: round trips to memory over the iterations of lead. fills: how
    often a block begins to fill a ring, and ends with the work on its last contents.
    """

    memory: float = 0.0
    shared: float = 0.0
    barriers: float = 0.0
    clusters: float = 0.0
    ring: float = 0.0
    fills: float = 0.0
    phases: int = 0  # of mbarriers, begun and not yet waited for

    def __post_init__(self) -> None:
        self._rounds = 1.0
        self._memory = self._shared = self._copies = self._waited = False

    def loads(self, shared: bool) -> None:
        """Record a load whose value a later statement needs."""
        self._shared |= shared
        self._memory |= not shared

    def copies(self) -> None:
        """Record that an asynchronous copy began in this iteration."""
        self._copies = True

    def phases_kept(self) -> int:
        """Return the phases that stay in flight at a wait."""
        self.phases = max(self.phases - 1, 0)
        return self.phases

    def waits(self, keep: int) -> None:
        """Count a wait for all but the latest copies. A wait for copies of the same iteration has its full length."""
        if keep == 0 and self._copies:
            self._memory = True
            self._flush()
        else:
            self.ring += self._rounds / (keep + 1)
        self._copies, self._waited = False, True

    def barrier(self, cluster: bool = False) -> None:
        self._flush()
        if cluster:
            self.clusters += self._rounds
        else:
            self.barriers += self._rounds

    @contextmanager
    def loop(self, iterations: float, unroll: int, barriers: bool) -> Iterator[None]:
        """Count a loop around everything that the context counts.

        barriers: whether it contains barriers, so that its iterations stay apart.
        """
        outside = self._rounds
        self._flush()
        together = 1 if barriers else max(1.0, min(iterations, unroll or ASSEMBLER_UNROLLS))
        self._rounds *= iterations / together
        yield
        self._flush()
        if barriers and self._waited:  # a loop without one only waits, for a chunk of that around it
            self.fills, self._waited = self.fills + outside, False
        self._copies, self._rounds = False, outside

    def _flush(self) -> None:
        self.memory += self._memory * self._rounds
        self.shared += self._shared * self._rounds
        self._memory = self._shared = False

    def finish(self) -> Waits:
        """Finish the counts: the first round trip to memory is the kernel's prologue."""
        self._flush()
        self.memory = max(self.memory - 1.0, 0.0)
        return self


def alone(busy: float, waits: Waits, target: Target) -> float:
    """Return the seconds that a block takes on an empty machine. busy: cycles in which it issues or moves something."""
    cycles = busy + waits.shared * SHARED_CYCLES + waits.barriers * BARRIER_CYCLES + waits.clusters * CLUSTER_CYCLES
    trip = L2_SHARE * target.memory_latency_seconds
    return max(cycles / target.clock + waits.memory * trip, waits.ring * trip)
