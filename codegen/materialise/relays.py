"""Groups of threads that go one behind the other: an mbarrier for each, where those before it arrive.

Phase k of a group's mbarrier ends when the group before it has left turn k; of the first group's, when the last group
has. So group g enters turn k behind phase k of its own, the first behind phase k - 1, of which turn 0 needs none.
"""

from __future__ import annotations

import math
from typing import cast

from ...ir.expr import Axis, add, floordiv, modulo, multiply
from ...ir.kernel import SHARED, Address, Base, Branch, EnterTurn, InitBarrier, LeaveTurn
from ...ir.node import Expr, nodes
from ...ir.program import Block
from ...ir.tile import Relay
from .boxes import BARRIER_BYTES
from .lowering import Lowering, Place, allocate, fresh
from .ranges import tidied
from .registers import in_registers
from .rings import LANES
from .slabs import slab_base


def plan_relays(low: Lowering) -> None:
    """Give the mbarriers of all groups memory behind all slabs."""
    for stmt in cast(list[Relay], list(nodes(low.tile.body, Relay))):
        if stmt.over in low.relays:
            continue
        for stage in low.stages.values():
            slab_base(low, stage)
        groups = math.prod(axis.extent for axis in _axes(low, stmt))
        name = low.relays[stmt.over] = fresh(low, "relay")
        low.top.head.append(Base(name, SHARED, allocate(low, BARRIER_BYTES * groups, BARRIER_BYTES)))
        arrivals = low.thread_count // groups // LANES
        low.mbarriers += [InitBarrier(Address(name, BARRIER_BYTES * group), arrivals) for group in range(groups)]


def lower_enter(low: Lowering, stmt: Relay, at: Place) -> Block:
    group, groups = _group(low, stmt)
    later = floordiv(add(group, groups - 1), groups)  # 0 for the first group, else 1
    parity = modulo(add(stmt.turn, add(later, 1)), 2)
    return _when(low, stmt, (EnterTurn(_barrier(low, stmt, group), in_registers(low, tidied(low, parity))),))


def lower_leave(low: Lowering, stmt: Relay, at: Place) -> Block:
    group, groups = _group(low, stmt)
    return _when(low, stmt, (LeaveTurn(_barrier(low, stmt, modulo(add(group, 1), groups))),))


def _axes(low: Lowering, stmt: Relay) -> tuple[Axis, ...]:
    known = {axis.name: axis for axis in low.threads}
    return tuple(known[axis.name] for axis in stmt.over)


def _group(low: Lowering, stmt: Relay) -> tuple[Expr, int]:
    """The number of the group that a thread belongs to, and how many there are."""
    number: Expr = 0
    axes = _axes(low, stmt)
    for axis, name in zip(axes, stmt.over, strict=True):
        number = add(multiply(number, axis.extent), name)
    return number, math.prod(axis.extent for axis in axes)


def _barrier(low: Lowering, stmt: Relay, group: Expr) -> Address:
    return Address(low.relays[stmt.over], in_registers(low, tidied(low, multiply(group, BARRIER_BYTES))))


def _when(low: Lowering, stmt: Relay, block: Block) -> Block:
    when = in_registers(low, tidied(low, stmt.when))
    return block if when is True else (Branch(when, block),)
