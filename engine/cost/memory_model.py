"""The cost of memory accesses: sectors of global memory, bank conflicts of shared memory, hits in L1, and latency.

`sectors` and `wavefronts` count one instruction of a warp. `FirstCache` models the hits of a block in L1. `Waits`
collects the stalls of one block, and `alone` predicts how long the block runs by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...codegen.target import Target

LANES, BANKS, SECTOR, LINE = 32, 32, 32, 128


FAR = np.iinfo(np.int64).max  # stands where a lane is idle


def busy_warps(mask: Any) -> float:
    """Warps with a lane that is not idle."""
    return float(mask.any(axis=1).sum())


def sectors(places: Any, mask: Any) -> float:
    """Sectors that warps touch. places: the first byte of each lane (warps, lanes), aligned to what the lane moves."""
    return float(_first_ones(np.broadcast_to(places, mask.shape) // SECTOR, mask)[1].sum())


def wavefronts(words: Any, width: int, mask: Any) -> tuple[float, float]:
    """Wavefronts that warps take, and the least that they could. words: the first word of each lane (warps, lanes).

    width: words a lane. A warp goes in groups of 32 / width lanes, of twice as many where lanes of more than a word are
    read in pairs; a group takes as many as the most different words of one bank.
    """
    first = np.broadcast_to(words, mask.shape)
    pairs = paired(first, mask) if width > 1 else np.zeros(len(mask), bool)
    taken = fewest = 0.0
    for chosen, lanes in ((~pairs, LANES // width), (pairs, 2 * LANES // width)):
        if chosen.any():
            taken += _taken(first[chosen], width, mask[chosen], lanes)
            fewest += least(mask[chosen], 1, lanes)
    return taken, fewest


def paired(first: Any, mask: Any) -> Any:
    """Of each warp, whether all lanes n and n ^ 1, or all lanes n and n ^ 2, that are not idle have one address.

    What a load gives back then goes two lanes at a time: 16 bytes a lane take two wavefronts at best, not four. Source:
    an NVIDIA engineer on the developer forum (unexpected-shared-memory-bank-conflict/77228), of 7.0 and later.
    """
    lanes, found = np.arange(mask.shape[1]), np.zeros(len(mask), bool)
    for step in (1, 2):
        other = lanes ^ step
        apart = mask & mask[:, other] & (first != first[:, other])
        found |= ~apart.any(axis=1)
    return found


def _taken(first: Any, width: int, mask: Any, lanes: int) -> float:
    every = (first[..., None] + np.arange(width)).reshape(-1, lanes * width)
    here = np.repeat(mask[..., None], width, axis=2).reshape(-1, lanes * width)
    found, new = _first_ones(every, here)
    rows = np.broadcast_to(np.arange(len(found))[:, None], found.shape)
    banks = np.bincount(rows[new] * BANKS + found[new] % BANKS, minlength=len(found) * BANKS)
    return float(banks.reshape(-1, BANKS).max(axis=1).sum())


def _first_ones(values: Any, mask: Any) -> tuple[Any, Any]:
    """The values of each row in order, and where each of them that is not masked stands first."""
    found = np.sort(np.where(mask, values, FAR), axis=1)
    new = found != FAR
    new[:, 1:] &= found[:, 1:] != found[:, :-1]
    return found, new


def least(mask: Any, size: int, unit: int) -> float:
    """The least units (sectors, wavefronts) that `size` bytes a lane can take."""
    return float(np.ceil(mask.sum(axis=1) * size / unit).sum())


# ---- What L1 serves: sectors that the straight-line code of a block has asked for before, by any of its warps.
#
# Loads and copies of less than 16 bytes go through it (cp.async.ca); copies of 16 bytes and of boxes do not. What an
# earlier turn of a loop asked for may be gone.


WORD = 4  # bytes
KEPT_BELOW = 16  # bytes of a copy that L1 keeps


class FirstCache:
    """The sectors that a block has asked for, of each buffer."""

    def __init__(self) -> None:
        self._asked: dict[str, set[int]] = {}

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The body of a loop starts with nothing."""
        outside, self._asked = self._asked, {}
        yield
        self._asked = outside

    def served(self, buffer: str, copies: Iterable[Any], mask: Any) -> float:
        """Of the sectors that the copies of an unrolled access ask for, the share that was asked for before.

        copies: of each, the first byte of each lane (warps, lanes).
        """
        asked, touched, fresh = self._asked.setdefault(buffer, set()), 0.0, 0
        for places in copies:
            touched += sectors(places, mask)
            here = set(np.unique(np.broadcast_to(places, mask.shape)[mask] // SECTOR).tolist())
            fresh += len(here - asked)
            asked |= here
        return 1 - fresh / touched if touched else 0.0


# ---- How long one block takes by itself: its instructions and accesses, and what it waits for in between.
#
# Loads of one straight-line piece are issued together and waited for once; a barrier or the next turn of a loop begins
# a new piece. Copies that are ahead of their use by some turns of a ring are waited for in that many turns. Latencies
# are of the order that published micro-benchmarks of Ampere and Hopper give, not measured here.


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
