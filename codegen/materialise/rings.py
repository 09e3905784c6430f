"""Rings of a Team: a pair of mbarriers for each slot, who waits for which of them, and who arrives.

Phase n of a slot's first mbarrier ends when the copies of its n-th turn have landed, phase n of the second when all
warps of the axes have given it back, those of every block of a cluster: what one copies comes to all. So turn k waits
for phase k // depth of the first, and fills the slot behind phase k // depth - 1 of the second; the first turns need
none.
"""

from __future__ import annotations

from ...ir.expr import Binary, add, floordiv, modulo, multiply
from ...ir.kernel import SHARED, Address, Arrive, Barrier, Base, Branch, Expect, InitBarrier, LastThreads, WaitPhase
from ...ir.node import Expr, nodes
from ...ir.program import Block
from ...ir.tile import Acquire, Await, Release, Ring, Stage, Team
from .boxes import BARRIER_BYTES, copies, slab_bytes
from .lowering import LowerBlock, Lowering, Place, allocate, fresh
from .ranges import tidied
from .registers import in_registers
from .slabs import slab_base

LANES = 32
REGISTERS_OF_MULTIPROCESSOR, REGISTER_UNIT, MOST_REGISTERS = 65536, 8, 240  # 240: what is given to a thread at once


def plan_rings(low: Lowering) -> None:
    """Give the mbarriers of all rings memory behind all slabs."""
    rings: list[Ring] = list(nodes(low.tile.body, Ring))  # type: ignore[arg-type]
    for stage in low.stages.values() if rings else ():
        slab_base(low, stage)
    for ring in rings:
        name = low.rings[ring.dst] = fresh(low, ring.dst)
        low.top.head.append(Base(name, SHARED, allocate(low, 2 * BARRIER_BYTES * ring.depth, BARRIER_BYTES)))
        low.depths[ring.dst] = ring.depth
        warps = low.thread_count // LANES * low.tile.cluster
        for number, arrivals in enumerate([1] * ring.depth + [warps] * ring.depth):
            low.mbarriers.append(InitBarrier(Address(name, BARRIER_BYTES * number), arrivals))


def lower_team(low: Lowering, stmt: Team, at: Place, lower_block: LowerBlock) -> Block:
    """One thread of the team copies; the others leave it the slots of their warps.

    Registers change hands where a multiprocessor has one block: what is handed out is what it was launched with, as
    many for each thread as all of them can have.
    """
    body = lower_block(low, stmt.body, (*at.path, at.position), at.bound)
    own, others = stmt.registers if low.tile.resident == 1 else 0, 0
    if own:
        threads = low.thread_count + stmt.threads
        launched = REGISTERS_OF_MULTIPROCESSOR // threads // REGISTER_UNIT * REGISTER_UNIT * threads
        most = (launched - own * stmt.threads) // low.thread_count
        others = min(most // REGISTER_UNIT * REGISTER_UNIT, MOST_REGISTERS)
    one = Branch(Binary("==", low.thread, low.thread_count), body)
    return (LastThreads(stmt.threads, (one,), own, others),)


def lower_acquire(low: Lowering, stmt: Acquire, at: Place) -> Block:
    """The slot is free; then the copies behind, which come here as a group."""
    full, phase = _slot(low, stmt.ring, stmt.turn), floordiv(stmt.turn, low.depths[stmt.ring])
    free = in_registers(low, tidied(low, modulo(add(phase, 1), 2)))
    stages: list[Stage] = []
    for behind in at.block[at.position + 1 :]:
        if not isinstance(behind, Stage):
            break
        stages.append(behind)
    boxes = tuple(box for stage in stages for box in copies(low, stage, full))
    size = sum(slab_bytes(low, stage) for stage in stages)
    return (WaitPhase(_slot(low, stmt.ring, stmt.turn, given_back=True), free), Expect(full, size), *boxes)


def lower_await(low: Lowering, stmt: Await, at: Place) -> Block:
    phase = modulo(floordiv(stmt.turn, low.depths[stmt.ring]), 2)
    return (WaitPhase(_slot(low, stmt.ring, stmt.turn), in_registers(low, tidied(low, phase))),)


def lower_release(low: Lowering, stmt: Release, at: Place) -> Block:
    arrival = (Arrive(_slot(low, stmt.ring, stmt.turn, given_back=True), low.tile.cluster),)
    when = in_registers(low, tidied(low, stmt.when))
    return arrival if when is True else (Branch(when, arrival),)


def last_meeting(low: Lowering) -> Block:
    """No block of a cluster ends while another may copy to it, or arrive there."""
    return (Barrier(low.tile.cluster),) if low.rings and low.tile.cluster > 1 else ()


def _slot(low: Lowering, ring: str, turn: Expr, given_back: bool = False) -> Address:
    depth = low.depths[ring]
    number = add(modulo(turn, depth), depth if given_back else 0)
    return Address(low.rings[ring], in_registers(low, tidied(low, multiply(number, BARRIER_BYTES))))
