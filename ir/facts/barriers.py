"""Check whether barriers alone order the accesses of threads to a shared tile, whichever thread copies a cell.

A thread may read its own copies without a barrier. So a program with fewer barriers may be correct, but it becomes
wrong as soon as the cells are distributed among the threads in another way.
"""

from __future__ import annotations

from ..expr import Binary, Var, free_names, is_int, linear, subtract
from ..loop import For, If, Load, Store
from ..node import Expr, nodes
from ..program import Block, Kernel, Stmt
from ..substitute import substitute_expr
from ..tile import Stage, Sync, Wait
from .structure import summary

Slot = Expr | None  # None: any slot


def ordered_by_barriers(kernel: Kernel, shared_tile: str) -> bool:
    """Return whether a Sync separates each copy from later accesses of its cells, and each access from a later copy."""
    stages = [stage for stage in summary(kernel.body).stages if stage.dst == shared_tile]
    walk = _Walk(shared_tile, stages)
    walk.block(kernel.body)
    return walk.ordered


class _Walk:
    """Walk of the statements in the execution order of a thread.

    seen: slots since the last barrier, each with whether it was copied to or accessed.
    """

    def __init__(self, shared_tile: str, stages: list[Stage]):
        self.shared_tile, self.depth = shared_tile, stages[0].depth if stages else 1
        self.asynchronous = any(stage.via == "ASYNC" for stage in stages)
        self.seen: frozenset[tuple[str, Slot]] = frozenset()
        self.ordered = True

    def block(self, body: Block) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, Sync):
            self.seen = frozenset()
        elif isinstance(stmt, Wait) and self.asynchronous:
            self.seen |= {("copied", None)}  # what was requested before is written now
        elif isinstance(stmt, Stage) and stmt.dst == self.shared_tile:
            self.meet("copied", stmt.slot)
        elif isinstance(stmt, Load | Store) and stmt.buf == self.shared_tile:
            self.meet("accessed", stmt.idx[0] if self.depth > 1 else 0)
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, If):
            before = self.seen
            self.block(stmt.body)
            self.seen |= before
        elif hasattr(stmt, "body"):
            self.block(stmt.body)

    def meet(self, how: str, slot: Slot) -> None:
        """Record a copy or an access, which must not meet the other of the same slot."""
        self.ordered &= all(how == other or self.differ(slot, there) for other, there in self.seen)
        self.seen |= {(how, slot)}

    def loop(self, loop: For) -> None:
        """Walk the body twice, so that an iteration meets the slots of the preceding iteration."""
        if not summary(loop.body).barriers:  # accesses only
            self.block(loop.body)
            self.leave(loop.var)
            return
        before = self.seen
        self.block(loop.body)
        self.shift(loop.var, loop.body)
        self.block(loop.body)
        self.leave(loop.var)
        if not (is_int(loop.start) and is_int(loop.stop) and loop.start < loop.stop):
            self.seen |= before

    def shift(self, var: str, body: Block) -> None:
        """Express the slots in terms of the next iteration's loop variable.

        Without a barrier in the body, slots of all preceding iterations remain.
        """
        if next(nodes(body, Sync), None) is None:
            self.leave(var)
        else:
            back = {var: subtract(Var(var), 1)}
            self.seen = frozenset((how, substitute_expr(slot, back)) for how, slot in self.seen)

    def leave(self, var: str) -> None:
        self.seen = frozenset((how, None if var in free_names(slot) else slot) for how, slot in self.seen)

    def differ(self, one: Slot, other: Slot) -> bool:
        """Return whether two slots are never the same."""
        if one is None or other is None:
            return False
        terms, constant = linear(subtract(self.plain(one), self.plain(other)))
        return not terms and constant % self.depth != 0

    def plain(self, slot: Expr) -> Expr:
        """Return a slot without `% depth`."""
        ring = isinstance(slot, Binary) and slot.op == "%" and slot.b == self.depth
        return slot.a if ring else slot
