"""Rings of a Team in Tile IR: which turn fills a slot, who may read it, and when it is free again.

The state of a slot decides, not luck: to fill one that is not free, to read one that is not awaited, to give one back
that a product still reads is an error in every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..facts.layout import slab_cells
from ..facts.turns import filled
from ..loop import Load, Store
from ..node import nodes
from ..program import Block
from ..tile import Ring, Stage, Team
from .groups import RingTurns, ThreadGroup
from .scalar import ScheduleError
from .shared import SlabMemory


@dataclass
class RingState:
    """A ring of some blocks. fills: the copies of a turn, by slab; last: of each acquired turn, the first ticket of TMA
    that is not its own."""

    stmt: Ring
    fills: dict[str, Stage]
    last: list[int] = field(default_factory=list)

    @property
    def acquired(self) -> int:
        return len(self.last)

    def acquire(self, turn: int, readers: list[ThreadGroup], slabs: dict[str, SlabMemory], tickets: int) -> bool:
        """Whether the slot is free for a turn, which is taken then."""
        name, depth = self.stmt.dst, self.stmt.depth
        if turn != self.acquired:
            raise ScheduleError(f"turn {turn} of the ring {name} is acquired as number {self.acquired}")
        if any(self.of(group).released <= turn - depth for group in readers):
            return False
        for dst, stage in self.fills.items():
            if dst in slabs:  # all who read the slot have given it back
                size = slab_cells(stage)
                slabs[dst].read_epoch[:, turn % depth * size : (turn % depth + 1) * size] = -1
        self.last.append(tickets + len(self.fills))
        return True

    def awaits(self, turn: int, group: ThreadGroup, landing: list[Any]) -> bool:
        """Whether a turn has been filled; its copies have landed then, for a group."""
        have = self.of(group)
        if turn != have.awaited:
            raise ScheduleError(f"turn {turn} of the ring {self.stmt.dst} is awaited as number {have.awaited}")
        if turn >= self.acquired or self.last[turn] > len(landing):
            return False
        for ticket in range(self.last[turn] - len(self.fills), self.last[turn]):
            land, landing[ticket] = landing[ticket], None
            if land is not None:
                land()
        group.waited = max(group.waited, self.last[turn])
        group.turns[self.stmt.dst] = RingTurns(turn + 1, have.released)
        return True

    def release(self, turn: int, group: ThreadGroup, read: Iterable[tuple[Load, Any]]) -> None:
        """A group is done with a turn. read: loads that products under way will make, and the slots they name."""
        have, slot = self.of(group), turn % self.stmt.depth
        if turn != have.released or turn >= have.awaited:
            raise ScheduleError(
                f"turn {turn} of the ring {self.stmt.dst} is released after {have.released} of {have.awaited} awaited"
            )
        if any(load.buf in self.fills and np.any(np.asarray(at) == slot) for load, at in read):
            raise ScheduleError(f"turn {turn} of the ring {self.stmt.dst} is released before the Settle of its product")
        group.turns[self.stmt.dst] = RingTurns(have.awaited, turn + 1)

    def of(self, group: ThreadGroup) -> RingTurns:
        return group.turns.get(self.stmt.dst, RingTurns())

    def finish(self, readers: list[ThreadGroup]) -> None:
        """Raises ScheduleError where a turn was filled for nobody, or not given back."""
        for group in readers:
            have = self.of(group)
            if have != (self.acquired, self.acquired):
                raise ScheduleError(
                    f"the ring {self.stmt.dst} ends after {self.acquired} turns, "
                    f"{have.awaited} awaited and {have.released} released"
                )


def rings_of(body: Block) -> dict[str, RingState]:
    """The rings of a Tile. A turn's copies are those of the block that its Acquire stands in."""
    found = {ring.dst: RingState(ring, {}) for ring in nodes(body, Ring)}  # type: ignore[attr-defined, arg-type]
    for team in nodes(body, Team):
        for acquire, copies in filled(team.body):  # type: ignore[attr-defined]
            found[acquire.ring].fills.update((stage.dst, stage) for stage in copies)
    return found


def check_held(stmt: Load | Store, slot: Any, group: ThreadGroup, rings: Iterable[RingState]) -> None:
    """Raises ScheduleError where a group touches a slot of a ring that it has not awaited, or has given back."""
    for ring in rings:
        if stmt.buf in ring.fills:
            have, depth = ring.of(group), ring.stmt.depth
            mine = {turn % depth for turn in range(have.released, have.awaited)}
            if not set(np.unique(np.asarray(slot)).tolist()) <= mine:
                raise ScheduleError(f"{stmt.buf} is touched in a slot of the ring {ring.stmt.dst} that is not awaited")
