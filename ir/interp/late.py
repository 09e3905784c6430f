"""Products of late atoms in Tile IR: made at any time between their Mma and the Settle that covers them.

Until then the accumulators are poison. Operands are views: loads of slabs that are made when the product is (a left
one may be a value, too). Each is read twice, at the Mma and at the Settle, with all that a load checks, and must find
what the same copies wrote: so an overwrite in between is an error in every run, not by luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loop import Load
from ..tile import Mma
from .block_memory import BlockMemory
from .groups import ThreadGroup
from .scalar import ScheduleError

POISON = np.full((), np.nan)


@dataclass
class SlabRead:
    """What a product will read of a slab, for the threads of a group."""

    stmt: Load
    idx: list[Any]
    group: ThreadGroup

    def read(self, memory: BlockMemory) -> tuple[Any, Any]:
        """The values now, and by which copies they came. Raises ScheduleError where this is no time to read them."""
        slab, block, word, thread = memory.words(self.stmt, self.idx, self.group, None)
        slab.read(block, word, thread, memory.epoch, self.group.waited)
        tickets = slab.ticket[block, word]
        if (tickets < 0).any():
            raise ScheduleError(f"{self.stmt.buf}: nothing shows late products what threads wrote there")
        return slab.values[block, word], tickets


@dataclass
class HeldOperand:
    """A left operand in registers, for the threads of a group: a value stays what it is until the product is made."""

    values: Any

    def read(self, memory: BlockMemory) -> tuple[Any, Any]:
        """The values; no copy has brought them."""
        return self.values, ()


Operands = dict[int, tuple[SlabRead | HeldOperand, SlabRead]]  # of each group of threads


@dataclass
class LateProduct:
    """A product that is not settled. tickets: of each view, the copies that it found when the product began."""

    stmt: Mma
    views: Operands
    early: bool
    product: Any = None
    tickets: Any = None

    def read(self, memory: BlockMemory) -> tuple[dict[int, Any], dict[int, Any]]:
        """The values of both operands, of each group. Raises ScheduleError where other copies came since it began."""
        found = {g: tuple(view.read(memory) for view in both) for g, both in self.views.items()}
        values, tickets = ({g: [part[n] for part in both] for g, both in found.items()} for n in range(2))
        if self.tickets is None:
            self.tickets = tickets
        elif any(not np.array_equal(a, b) for g in tickets for a, b in zip(tickets[g], self.tickets[g], strict=True)):
            raise ScheduleError(f"what a product on `{self.stmt.acc}` reads is overwritten before its Settle")
        return {g: both[0] for g, both in values.items()}, {g: both[1] for g, both in values.items()}


def reads_of(stmt: Mma, group: ThreadGroup) -> tuple[Any, ...]:
    """What a late product will read. Raises ScheduleError for a right operand that is held in registers."""
    left, right = (group.env[operand.name] for operand in (stmt.a, stmt.b))
    if not isinstance(right, SlabRead):
        raise ScheduleError(f"the product on `{stmt.acc}` reads a value where its atom reads shared memory")
    return left if isinstance(left, SlabRead) else HeldOperand(left), right


def begin(acc: str, group: ThreadGroup) -> None:
    """The accumulator of a thread holds nothing until its products are settled."""
    group.sums.setdefault(acc, group.env[acc])
    group.env[acc] = POISON


def settled(acc: str, group: ThreadGroup) -> None:
    """It holds its sum again. Raises ScheduleError where something has changed it meanwhile."""
    if group.env[acc] is not POISON:
        raise ScheduleError(f"`{acc}` is changed before the Settle of its products")
    group.env[acc] = group.sums.pop(acc)
