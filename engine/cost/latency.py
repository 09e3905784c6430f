"""How long one block takes by itself: its instructions and accesses, and what it waits for in between.

Loads of one straight-line piece are issued together and waited for once; a barrier or the next turn of a loop begins
a new piece. Copies that are ahead of their use by some turns of a ring are waited for in that many turns. Latencies are
of the order that published micro-benchmarks of Ampere and Hopper give, not measured here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...codegen.target import Target

SHARED_CYCLES = 30  # a load from shared memory
BARRIER_CYCLES = 30  # all warps of a block, once they are there
CLUSTER_CYCLES = 200  # all blocks of a cluster: a round trip to another multiprocessor
L2_SHARE = 0.4  # of the latency of memory: what is read in a loop is mostly in L2
ASSEMBLER_UNROLLS = 4  # turns of a loop without barriers that the assembler has in flight by itself


class Waits:
    """Counts what each warp of a block waits for.

    memory, shared, barriers, clusters: times; ring: round trips to memory over the turns of lead. fills: how often a
    block begins to fill a ring, and ends with what it made of it; ahead: other threads fill it, through to the end.
    """

    def __init__(self) -> None:
        self.memory = self.shared = self.barriers = self.clusters = self.ring = self.fills = 0.0
        self.ahead = False
        self.phases = 0  # of mbarriers, begun and not yet waited for
        self._slots = 0  # of rings that other threads fill
        self._rounds = 1.0
        self._memory = self._shared = self._copies = self._waited = False

    def loads(self, shared: bool) -> None:
        """A load whose value something behind it needs."""
        self._shared, self._memory = self._shared or shared, self._memory or not shared

    def copies(self) -> None:
        """An asynchronous copy was begun in this turn."""
        self._copies = True

    def slot(self) -> None:
        """A slot of a ring is given back when it has been read."""
        self._slots += 1

    def phases_kept(self) -> int:
        """The phases that stay in flight at a wait: of a ring all slots but the one awaited and the one still read."""
        if self._slots:
            return max(self._slots - 2, 0)
        self.phases = max(self.phases - 1, 0)
        return self.phases

    def waits(self, keep: int) -> None:
        """Wait for all but the latest copies. Those of this very turn are waited for at full length."""
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
    def loop(self, turns: float, unroll: int, barriers: bool) -> Iterator[None]:
        """A loop around what is counted within. barriers: whether there are any in it, so that its turns stay apart."""
        outside = self._rounds
        self._flush()
        together = 1 if barriers else max(1.0, min(turns, unroll or ASSEMBLER_UNROLLS))
        self._rounds *= turns / together
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
        """The first round trip to memory is the kernel's prologue."""
        self._flush()
        self.fills = 1.0 if self.ahead else self.fills
        self.memory = max(self.memory - 1.0, 0.0)
        return self


def alone(busy: float, waits: Waits, target: Target) -> float:
    """Seconds that a block takes, however empty the machine is. busy: cycles in which it issues or moves something."""
    cycles = busy + waits.shared * SHARED_CYCLES + waits.barriers * BARRIER_CYCLES + waits.clusters * CLUSTER_CYCLES
    trip = L2_SHARE * target.memory_latency_seconds
    return max(cycles / target.clock + waits.memory * trip, waits.ring * trip)
