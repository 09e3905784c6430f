"""Statements of Kernel IR that copy to shared memory while threads go on: cp.async in groups, boxes by TMA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..facts.layout import DTYPE_BYTES
from ..kernel import (
    SHARED,
    Address,
    Arrive,
    Commit,
    CopyAsync,
    CopyBox,
    EnterTurn,
    Expect,
    FenceBarriers,
    InitBarrier,
    LeaveTurn,
    TensorMap,
    WaitGroup,
    WaitPhase,
)
from ..program import Stmt
from .kernel_blocks import RunningBlocks
from .kernel_boxes import BARRIER_BYTES, Map
from .kernel_memory import Copy, Lanes, bits_of, check_aligned, elements
from .kernel_values import both
from .scalar import KINDS, ScheduleError

WARP = 32  # lanes


def _copy(blocks: RunningBlocks, stmt: CopyAsync, mask: Any) -> None:
    doing = mask if stmt.when is True else both(mask, np.asarray(blocks.value(stmt.when, mask), bool))
    (root, to), (source, lanes) = blocks.lanes(stmt.to, doing), blocks.lanes(stmt.source, doing)
    if root != SHARED or source not in blocks.buffer_dtypes or source in blocks.counts:
        raise ScheduleError("an asynchronous copy goes from an input to shared memory")
    dtype, array = blocks.buffer_dtypes[source], blocks.memory[source]
    inside = np.broadcast_to(blocks.value(stmt.inside, doing), blocks.shape).reshape(-1)[lanes.flat].astype(bool)
    values = np.zeros((len(lanes.flat), stmt.bytes // DTYPE_BYTES[dtype]), KINDS[dtype])
    values[inside] = array[elements(array, lanes.chosen(inside), dtype, values.shape[1], "copy")]
    check_aligned(lanes.address[inside] * DTYPE_BYTES[dtype], stmt.bytes)
    copy = Copy(to, dtype, bits_of(values, dtype))
    blocks.shared.begin(copy, early=blocks.dice.random() < 0.5)
    if len(to.flat):
        blocks.group.append(copy)


def _commit(blocks: RunningBlocks, stmt: Commit, mask: Any) -> None:
    blocks.together(mask)
    blocks.queue.append(blocks.group)
    blocks.group = []


def _wait(blocks: RunningBlocks, stmt: WaitGroup, mask: Any) -> None:
    blocks.together(mask)
    while len(blocks.queue) > stmt.keep:
        for copy in blocks.queue.pop(0):
            blocks.shared.land(copy)


def _tensor_map(blocks: RunningBlocks, stmt: TensorMap, mask: Any) -> None:
    (param,) = (param for param in blocks.kernel.ins if param.name == stmt.src)
    shape = tuple(int(extent) for extent in param.shape)
    blocks.maps[stmt.dst] = Map(blocks.memory[stmt.src], shape, param.dtype, stmt.box, stmt.swizzle)


def _barrier_lanes(blocks: RunningBlocks, address: Address, mask: Any) -> Lanes:
    root, lanes = blocks.lanes(address, mask)
    if root != SHARED:
        raise ScheduleError("an mbarrier stands in shared memory")
    check_aligned(lanes.address, BARRIER_BYTES)
    return lanes


def _init_barrier(blocks: RunningBlocks, stmt: InitBarrier, mask: Any) -> None:
    blocks.barriers.init(_barrier_lanes(blocks, stmt.at, mask), stmt.arrivals)


def _fence(blocks: RunningBlocks, stmt: FenceBarriers, mask: Any) -> None:
    taking = np.ones(blocks.shape, bool) if mask is None else np.broadcast_to(mask, blocks.shape)
    blocks.barriers.fence(np.flatnonzero(taking.any(axis=1)))


def _expect(blocks: RunningBlocks, stmt: Expect, mask: Any) -> None:
    blocks.barriers.expect(_barrier_lanes(blocks, stmt.barrier, mask), stmt.bytes)


def _arrive(blocks: RunningBlocks, stmt: Arrive, mask: Any) -> None:
    lanes = _barrier_lanes(blocks, stmt.barrier, mask)
    if len(lanes.flat) % WARP:
        raise ScheduleError("a part of a warp arrives")
    blocks.shared.epoch += 1
    first = lanes.chosen(lanes.thread % WARP == 0)
    for there in blocks.barriers.offsets(first) if stmt.cluster > 1 else (0,):
        blocks.barriers.arrive(first.moved(there))
    blocks.others_go_on()  # as early as they may


def _copy_box(blocks: RunningBlocks, stmt: CopyBox, mask: Any) -> None:
    root, to = blocks.lanes(stmt.to, mask)
    if root != SHARED or stmt.map not in blocks.maps:
        raise ScheduleError("a box goes from a tensor map to shared memory")
    at = [np.broadcast_to(blocks.value(e, mask), blocks.shape).reshape(-1)[to.flat] for e in stmt.at]
    barrier = _barrier_lanes(blocks, stmt.barrier, mask)
    for there in blocks.barriers.offsets(to) if stmt.cluster > 1 else (0,):
        blocks.barriers.copy(to.moved(there), barrier.moved(there), blocks.maps[stmt.map], at)


def _wait_phase(blocks: RunningBlocks, stmt: WaitPhase, mask: Any) -> None:
    lanes = _barrier_lanes(blocks, stmt.barrier, mask)
    parity = np.broadcast_to(blocks.value(stmt.parity, mask), blocks.shape).reshape(-1)[lanes.flat]
    while not blocks.barriers.wait(lanes, parity):
        blocks.elsewhere()
    blocks.shared.since = max(blocks.shared.since, blocks.barriers.told(lanes))


def _turn(blocks: RunningBlocks, stmt: EnterTurn | LeaveTurn, mask: Any) -> None:
    """Nothing but that the mbarrier is there, and that whole warps come: all threads run in step here."""
    lanes = _barrier_lanes(blocks, stmt.barrier, mask)
    blocks.barriers.known(lanes)
    if len(lanes.flat) % WARP:
        raise ScheduleError("a part of a warp takes its turn")


COPIES: dict[type[Stmt], Callable[[Any, Any, Any], None]] = {
    CopyAsync: _copy,
    Commit: _commit,
    WaitGroup: _wait,
    TensorMap: _tensor_map,
    InitBarrier: _init_barrier,
    FenceBarriers: _fence,
    Expect: _expect,
    Arrive: _arrive,
    CopyBox: _copy_box,
    WaitPhase: _wait_phase,
    EnterTurn: _turn,
    LeaveTurn: _turn,
}
