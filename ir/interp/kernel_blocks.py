"""A batch of blocks of Kernel IR while it runs: what its threads hold, and where each of them reads and writes."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from ..expr import is_int
from ..kernel import BLOCK_INDEX, SHARED, THREAD, Address, Launch
from ..program import Kernel
from . import kernel_values
from .kernel_aside import Aside
from .kernel_boxes import SWIZZLE_REPEAT, Barriers, Map
from .kernel_fragments import Fragments
from .kernel_late import Products
from .kernel_memory import Copy, Lanes, SharedMemory
from .scalar import ScheduleError


class RunningBlocks:
    """The state of a batch. mask: the threads that take part, (blocks, threads); None for all.

    The blocks of a cluster are one block of all their threads, whose shared memories lie one behind the other.
    """

    def __init__(
        self, kernel: Kernel, launch: Launch, memory: Any, counts: Any, dice: random.Random, blocks: Any, unit: int
    ):
        self.kernel, self.launch, self.dice = kernel, launch, dice
        self.memory = {name: array.reshape(-1) for name, array in memory.items()}
        self.counts = {name: count.reshape(-1) for name, count in counts.items()}
        self.shape = (len(blocks), launch.block * launch.cluster)
        x, y, z = launch.grid
        places = np.unravel_index(blocks, (z, y, x // launch.cluster))[::-1]
        env = {name: place.reshape(-1, 1) for name, place in zip(BLOCK_INDEX, places, strict=True)}
        rank, thread = np.divmod(np.arange(self.shape[1]).reshape(1, -1), launch.block)
        if launch.cluster > 1:
            env[BLOCK_INDEX[0]] = env[BLOCK_INDEX[0]] * launch.cluster + rank
        self.registers = kernel_values.RegisterValues({**env, THREAD: thread})
        params = (*kernel.ins, *kernel.outs)
        self.buffer_dtypes = {param.name: param.dtype for param in params}
        self.bases: dict[str, tuple[str, Any]] = {param.name: (param.name, 0) for param in params}
        span = -(-launch.shared // SWIZZLE_REPEAT) * SWIZZLE_REPEAT if launch.cluster > 1 else launch.shared
        self.bases[SHARED] = (SHARED, rank * span if launch.cluster > 1 else 0)
        self.shared = SharedMemory(len(blocks), span * launch.cluster, unit)
        self.barriers = Barriers(self.shared, self.shape, dice, launch.cluster, span)
        self.fragments = Fragments(self.registers, self.shared, self.shape)
        self.products = Products(self.registers, self.shared, self.fragments, dice)
        self.maps: dict[str, Map] = {}
        self.group: list[Copy] = []  # copies since the last commit
        self.queue: list[list[Copy]] = []  # groups that have not been waited for
        self.aside: Aside | None = None  # threads that run beside these
        self.beside: Aside | None = None  # what these are, if they run beside others
        self.everyone: Any = np.divmod(np.arange(math.prod(self.shape)), self.shape[1])

    def keep(self, which: np.ndarray) -> None:
        """Only some of the threads are there from here on; they keep their numbers."""
        blocks = self.shape[0]
        self.everyone = tuple(part.reshape(self.shape)[:, which].reshape(-1) for part in self.everyone)
        self.registers = self.registers.of(which)
        self.bases = {name: (root, kernel_values.chosen(at, which)) for name, (root, at) in self.bases.items()}
        self.shape = (blocks, int(which.sum()))
        self.fragments = Fragments(self.registers, self.shared, self.shape)
        self.products = Products(self.registers, self.shared, self.fragments, self.dice)

    def others_go_on(self) -> None:
        """Those beside these go on until they wait, with what they themselves know to be over."""
        if self.aside is None or self.aside.done:
            return
        since = self.shared.since
        self.shared.since = self.aside.since
        self.aside.resume()
        self.aside.since, self.shared.since = self.shared.since, since

    def elsewhere(self, done: bool = False) -> None:
        """Those beside these go on, until they wait too. done: these have come to their end.

        Raises ScheduleError where nobody can go on.
        """
        if self.beside is not None:
            self.beside.pause()
            return
        before = self.barriers.changes
        self.others_go_on()
        stuck = self.aside is None or self.barriers.changes == before
        unfinished = self.aside is not None and not self.aside.done
        if unfinished if done else stuck:
            raise ScheduleError("deadlock: a phase of an mbarrier lacks an arrival, or bytes that were announced")

    def value(self, e: Any, mask: Any) -> Any:
        """An expression for each thread."""
        return self.registers.value(e, mask)

    def root(self, name: str) -> tuple[str, Any]:
        """(what a base points into, where: an element of a buffer, a byte of shared memory)."""
        if name not in self.bases:
            raise ScheduleError(f"`{name}` is no address")
        return self.bases[name]

    def together(self, mask: Any) -> None:
        """Raises ScheduleError where a part of the threads comes."""
        if mask is not None and not np.all(mask):
            raise ScheduleError("divergent: a part of the threads comes here")

    def lanes(self, address: Address, mask: Any) -> tuple[str, Lanes]:
        """(what is accessed: a buffer or `smem`, by whom and where)."""
        root, base = self.root(address.base)
        flipped = base if is_int(address.xor) and address.xor == 0 else base ^ self.value(address.xor, mask)
        where = np.broadcast_to(flipped + self.value(address.offset, mask), self.shape).reshape(-1)
        block, thread = self.everyone
        lanes = Lanes(np.arange(len(where)), block, thread, where)
        return root, lanes if mask is None else lanes.chosen(np.broadcast_to(mask, self.shape).reshape(-1))
