"""What the warps of a batch of blocks multiply on tensor cores, at once or late, and the turns of rings.

The two stand together because a slot is not given back while a late product reads it.
"""

from __future__ import annotations

from typing import Any

from ..tile import Acquire, Await, Mma, Relay, Release, RingStep, Settle
from .block_folds import BlockFolds
from .block_threads import at_statement
from .fragments import added
from .groups import ThreadGroup
from .late import LateProduct, Operands, SlabRead, begin, settled
from .relays import take_turn
from .scalar import ScheduleError


class BlockProducts(BlockFolds):
    """late: the products that are not settled, in the order they began."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[LateProduct] = []

    def multiply(self, stmt: Mma, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Every warp multiplies its fragments. values: of each group, both operands.

        A warp's lanes come from several groups: nothing lets them rely on running together.
        """
        dtype = self.dtypes[stmt.acc]
        a, b = (self.gathered({g: value[n] for g, value in values.items()}, live, dtype) for n in range(2))
        product = added(stmt, a, b, self.registers)
        for g in values:
            live[g].answer = product[:, live[g].threads]

    def begin_product(self, stmt: Mma, views: Operands, live: dict[int, ThreadGroup]) -> None:
        """A late product sets out: it reads now or when it is settled, and both must be possible."""
        late = LateProduct(stmt, views, early=self.dice.random() < 0.5)
        try:
            late.product = self.product_of(late, live)
        except ScheduleError as error:
            raise at_statement(stmt, error) from None
        self.late.append(late)
        for g in views:
            begin(stmt.acc, live[g])

    def settle(self, stmt: Settle, live: dict[int, ThreadGroup]) -> None:
        """The products that a Settle covers are done."""
        try:
            while len(self.late) > stmt.keep:
                late = self.late.pop(0)
                acc, now = late.stmt.acc, self.product_of(late, live)
                for group in (group for group in live.values() if not group.team):
                    group.sums[acc] = group.sums[acc] + (late.product if late.early else now)[:, group.threads]
                    if all(other.stmt.acc != acc for other in self.late):
                        settled(acc, group)
        except ScheduleError as error:
            raise at_statement(stmt, error) from None

    def product_of(self, late: LateProduct, live: dict[int, ThreadGroup]) -> Any:
        dtype = self.dtypes[late.stmt.acc]
        a, b = (self.gathered(values, live, dtype) for values in late.read(self))
        return added(late.stmt, a, b, self.registers)

    def relay(self, stmt: Relay, group: ThreadGroup) -> None:
        """A group enters or leaves a turn."""
        if self.uniform(stmt.when, group):
            take_turn(stmt, int(self.uniform(stmt.turn, group)), group)

    def turn(self, stmt: RingStep, group: ThreadGroup) -> bool:
        """Whether a ring lets a group go on."""
        ring, number = self.rings[stmt.ring], int(self.uniform(stmt.turn, group))
        if isinstance(stmt, Acquire):
            return ring.acquire(number, self.readers, self.slabs, len(self.tma))
        if isinstance(stmt, Await):
            return ring.awaits(number, group, self.tma)
        if isinstance(stmt, Release) and self.uniform(stmt.when, group):
            views = [view for late in self.late for both in late.views.values() for view in both]
            read = [(view.stmt, view.idx[0]) for view in views if isinstance(view, SlabRead)]
            ring.release(number, group, read)
        return True
