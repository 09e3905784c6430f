"""Tile IR to Kernel IR. It decides nothing: roles of axes, fields of Stage and the order of statements say all.

If a fact forbids what a role requires (a VEC axis along which an access is not contiguous), that one access is scalar
and the kernel is still right. No branch here names a shape, or the purpose of an operation.
"""

from __future__ import annotations

from ...ir.facts.structure import names_read
from ...ir.kernel import Base, Define, Launch
from ...ir.node import replace
from ...ir.program import Block, Kernel, Stmt
from ..target import Target
from .blocks import lower_block, plan_groups
from .lowering import Emitted, Lowering, block_axes, check_axes, check_limits, prepare, thread_axes
from .shared_memory import first_of_all
from .values import find_accumulators

__all__ = ["materialise"]


def materialise(kernel: Kernel, target: Target, emitted: Emitted | None = None) -> Kernel:
    """Return the Kernel IR of a kernel whose body is a Tile, or a nest that one thread runs.

    The last argument is filled with what became of each of its statements.
    Raises DplcError if the launch exceeds the target's limits, or for a dtype or transport without code yet.
    """
    prepared, tile = prepare(kernel)
    check_axes(tile, target)
    low = Lowering(prepared, tile, target, emitted)
    low.accumulators = find_accumulators(low)
    plan_groups(low)
    body = lower_block(low, tile.body, (0,), frozenset())
    grid, blocks = block_axes(low)
    check_limits(kernel, target, low.thread_count, low.shared_bytes)
    whole = without_unused((*blocks, *thread_axes(low), *low.top.head, *first_of_all(low), *body))
    launch = Launch(grid, low.thread_count, whole, low.shared_bytes, tile.cluster)
    return replace(prepared, body=(launch,))


def without_unused(block: Block) -> Block:
    """Return the kernel's top without definitions that are not read: axes that only bases would have used, for one."""
    kept: list[Stmt] = []
    used: set[str] = set()
    for stmt in reversed(block):
        if isinstance(stmt, (Define, Base)) and stmt.dst not in used:
            continue
        kept.append(stmt)
        used |= names_read(stmt)
    return tuple(reversed(kept))
