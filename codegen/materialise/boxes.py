"""Copies by TMA: tensor maps, mbarriers, and which of their phases a Wait waits for.

Thread 0 issues a run of neighbouring copies as one group: it announces their bytes at an mbarrier, then copies boxes.
Group g uses mbarrier g % R, in the phase of parity g // R % 2. Between the wait for group g and group g + R every
thread has passed a barrier of the block: R + 1 groups use some slot twice, and a slot is used again only behind one.
So no phase can end twice before a slow thread has looked.

Blocks of a cluster that want the same box copy a part each into the shared memory of all of them: the bytes that a
block announces come from all. Every barrier is one of the cluster then, so that what holds of the threads of a block
above holds of those of the cluster.

A box ends where a slab stops being one: axes to the left of the longest run of source dimensions in order, each with
stride 1, are loops over boxes.
"""

from __future__ import annotations

import math

from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Binary, Call, Var, add, floordiv, free_names, modulo, multiply, subtract
from ...ir.kernel import (  # fmt: skip
    SHARED,
    Address,
    Assign,
    Barrier,
    Base,
    Branch,
    CopyBox,
    Define,
    Expect,
    FenceBarriers,
    InitBarrier,
    Loop,
    TensorMap,
    WaitPhase,
)
from ...ir.loop import For
from ...ir.node import Expr, nodes, replace
from ...ir.program import Block, Stmt
from ...ir.tile import Stage, Wait
from .addresses import resolve
from .last_boxes import only_full_ones
from .lowering import Boxes, Key, Lowering, Path, Place, allocate, fresh
from .ranges import ranging, tidied
from .registers import in_registers, nest, read
from .slabs import element_bytes, slab_base, slot_bytes
from .trips import trip_count

BARRIER_BYTES = 8
LANES = 32
BOX_ALIGNMENT = 128
SWIZZLE_REPEAT = 1024  # bytes: eight rows of 128


def plan_boxes(low: Lowering, runs: list[tuple[int, Key]], mixed: bool) -> None:
    """Decide the groups, count the mbarriers, give them memory behind all slabs. runs: as copies.async_runs says."""
    if not runs:
        return
    lengths = {length for length, _ in runs}
    group = next(iter(lengths)) if len(lengths) == 1 and not mixed else 1
    if any(wait.keep % group for wait in nodes(low.kernel.body, Wait)):
        group = 1
    slots = sum(stage.depth for stage in low.stages.values() if stage.via == "TMA")
    first: dict[Key, int] = {}
    for length, (path, last) in runs:
        first |= {(path, last - length + 1 + offset): group for offset in range(0, length, group)}
    enough = 1 << (max(slots // group, 1) - 1).bit_length()  # then `%` and `//` are masks and shifts
    low.boxes = boxes = Boxes(group, enough, mixed, first, {})
    _count_waits(low.kernel.body, (), 0, boxes)
    boxes.empty_waited = not only_full_ones(low.tile.body, boxes)
    for stage in low.stages.values():
        slab_base(low, stage)
    boxes.base, boxes.issued, boxes.waited = fresh(low, "barriers"), fresh(low, "issued"), fresh(low, "waited")
    offset = allocate(low, BARRIER_BYTES * boxes.barriers, BARRIER_BYTES)
    low.mbarriers += [InitBarrier(Address(boxes.base, BARRIER_BYTES * number)) for number in range(boxes.barriers)]
    counters = [Define(name, "i32", 0, 1) for name in (boxes.issued, boxes.waited)]
    low.top.head += [Base(boxes.base, SHARED, offset), *counters]


def first_of_all(low: Lowering) -> Block:
    """What a kernel does before anything else: its tensor maps, and its mbarriers made ready by one thread."""
    if not low.mbarriers:
        return ()
    maps = [TensorMap(name, *described) for described, name in low.maps.items()]
    ready = _by_one_thread(low, (*low.mbarriers, FenceBarriers()))
    return (*maps, *ready, *([Barrier(low.tile.cluster)] if low.thread_count * low.tile.cluster > 1 else []))


def _by_one_thread(low: Lowering, block: Block, any_one: bool = False) -> Block:
    """any_one: it may be another thread of the first warp, all of whose lanes come here."""
    one = int(any_one and low.thread_count % LANES == 0)
    return (Branch(Binary("==", low.thread, 0), block, one),) if low.thread_count > 1 else block


# ---- copies


def lower_boxes(low: Lowering, stmt: Stage, at: Place) -> Block:
    """A whole group where its first copy stands, nothing at the others."""
    boxes = low.boxes
    if boxes is None:  # its Acquire copies it
        return ()
    length = boxes.runs.get((at.path, at.position))
    if length is None:
        return ()
    group: tuple[Stage, ...] = at.block[at.position : at.position + length]  # type: ignore[assignment]
    barrier = _barrier(boxes, boxes.issued)
    whole: list[Stmt] = []
    for stage in group:
        whole += copies(low, stage, barrier)
    size = sum(slab_bytes(low, stage) for stage in group)
    issue: Block = (Expect(barrier, size), *whole)
    when = in_registers(low, tidied(low, stmt.when))
    if when is not True and boxes.empty_waited:  # an empty group still ends a phase
        empty = Branch(Call("logical_not", (when,)), (Expect(barrier, 0),))
        issue = (Branch(when, issue), empty)
    issue = _by_one_thread(low, issue, any_one=True)
    if when is not True and not boxes.empty_waited:
        issue = (Branch(when, issue),)
    return (*issue, Assign(Var(boxes.issued), add(Var(boxes.issued), 1)))


def slab_bytes(low: Lowering, stage: Stage) -> int:
    return element_bytes(low, stage) * math.prod(int(axis.extent) for axis in stage.slab)


def copies(low: Lowering, stage: Stage, barrier: Address) -> Block:
    """The boxes of one slab."""
    loops, box = split_axes(stage)
    whole = element_bytes(low, stage) * math.prod(axis.extent for axis in box)
    _check(low, stage, box, whole, bool(loops))
    ways, place = part_of(low, stage)
    position, behind = list(stage.origin), 0
    if ways > 1:
        cut, rank = stage.slab[place], modulo(Var(_neighbours(low)), ways)
        cut = replace(cut, extent=cut.extent // ways)
        loops, box = split_axes(replace(stage, slab=(*stage.slab[:place], cut, *stage.slab[place + 1 :])))
        position[cut.dim or 0] = add(position[cut.dim or 0], multiply(rank, cut.extent * cut.stride))
        behind = multiply(rank, slab_bytes(low, stage) // math.prod(a.extent for a in stage.slab[:place]) // ways)
    sides = dict.fromkeys(range(len(stage.origin)), 1) | {axis.dim: axis.extent for axis in box}
    described = (stage.src, tuple(sides[dim] for dim in range(len(stage.origin))), stage.swizzle)
    name = low.maps.get(described)
    if name is None:
        name = low.maps[described] = fresh(low, f"{stage.src}_map")
    names = [fresh(low, axis.name) for axis in loops]
    turns = {name: axis.extent for name, axis in zip(names, loops, strict=True)}
    number_of: Expr = 0
    for turn, axis in zip(names, loops, strict=True):
        position[axis.dim or 0] = add(position[axis.dim or 0], multiply(Var(turn), axis.stride))
        number_of = add(multiply(number_of, axis.extent), Var(turn))
    low.replicated.update(turns)
    with ranging(low, {turn: (0, extent - 1) for turn, extent in turns.items()}):
        start = multiply(stage.slot, slot_bytes(low, stage)) if stage.depth > 1 else 0
        offset = tidied(low, add(add(start, multiply(number_of, whole)), behind))
        base, rest = resolve(low, slab_base(low, stage), offset, f"{stage.dst}_wr", shared=True)
        to = Address(base, read(low, rest))
        at = tuple(read(low, tidied(low, e)) for e in position)
        out = nest(low, tuple(turns), (CopyBox(to, name, barrier, at, ways),))
    for turn in turns:
        del low.replicated[turn]
    return out


def part_of(low: Lowering, stage: Stage) -> tuple[int, int]:
    """(how many blocks of a cluster copy a part each of what is the same for all, along which axis of the slab).

    The first axis that is no row of the slab, if parts end where a pattern of swizzled rows does; else one does it all.
    """
    ways = low.tile.cluster
    alike = ways > 1 and _neighbours(low) not in free_names((stage.origin, stage.slot, stage.when))
    for place in range(len(stage.slab) - 1) if alike else ():
        extents = [axis.extent for axis in stage.slab[: place + 1]]
        part = slab_bytes(low, stage) // math.prod(extents) * (extents[-1] // ways)
        if extents[-1] > 1:
            return (ways, place) if extents[-1] % ways == 0 and part % SWIZZLE_REPEAT == 0 else (1, 0)
    return 1, 0


def _neighbours(low: Lowering) -> str:
    """The axis along which blocks of a cluster are neighbours."""
    return [axis.name for axis in low.tile.axes if axis.role == "BLOCK"][-1]


def split_axes(stage: Stage) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """(loops, box): the axes of the longest box at the end of a slab, and those before it."""
    cut, before = len(stage.slab), len(stage.origin)
    while cut and stage.slab[cut - 1].stride == 1 and (stage.slab[cut - 1].dim or 0) < before:
        cut -= 1
        before = stage.slab[cut].dim or 0
    return stage.slab[:cut], stage.slab[cut:]


def _check(low: Lowering, stage: Stage, box: tuple[Axis, ...], size: int, several: bool) -> None:
    """Raises DplcError for a slab that TMA cannot copy."""
    source, item = low.params[stage.src], element_bytes(low, stage)
    inner = box[-1] if box else None
    if low.target.sm < 90:
        why = f"{low.target.name} has no TMA"
    elif inner is None or inner.dim != len(source.shape) - 1 or inner.extent * item % 16 or stage.pad:
        why = "its rows are no multiples of 16 bytes along the source's last dimension"
    elif len(source.shape) > 5 or any(axis.extent > 256 for axis in box):
        why = "a box has at most 5 dimensions and 256 elements a side"
    elif len(source.shape) > 1 and source.shape[-1] * item % 16:
        why = f"rows of `{stage.src}` are no multiples of 16 bytes"
    elif stage.swizzle and inner.extent * item != stage.swizzle:
        why = f"rows of {inner.extent * item} bytes do not fit swizzle={stage.swizzle}"
    elif several and size % BOX_ALIGNMENT:
        why = f"a box of {size} bytes would not end where the next may begin, at a multiple of {BOX_ALIGNMENT}"
    else:
        return
    raise DplcError(f"slab `{stage.dst}` cannot be copied by TMA: {why}", hint="use via=ASYNC")


# ---- waiting


def lower_box_wait(low: Lowering, stmt: Wait, at: Place) -> Block:
    """The phases that end at a Wait; how many is known but for a few programs, where a loop counts them."""
    boxes = low.boxes
    if boxes is None:
        return ()
    count = boxes.waits[at.path, at.position]
    if count is not None:
        one = (_wait(boxes, boxes.waited), Assign(Var(boxes.waited), add(Var(boxes.waited), 1)))
        return one * count
    kept = 0 if boxes.mixed else stmt.keep // boxes.group
    turn, last = fresh(low, "g"), subtract(Var(boxes.issued), kept)
    every = Loop(turn, Var(boxes.waited), last, (_wait(boxes, turn),), 1, 1)
    return every, Assign(Var(boxes.waited), Call("maximum", (Var(boxes.waited), last)))


def _wait(boxes: Boxes, number: str) -> WaitPhase:
    return WaitPhase(_barrier(boxes, number), modulo(floordiv(Var(number), boxes.barriers), 2))


def _barrier(boxes: Boxes, number: str) -> Address:
    return Address(boxes.base, multiply(modulo(Var(number), boxes.barriers), BARRIER_BYTES))


def _count_waits(block: Block, path: Path, live: int | None, boxes: Boxes) -> int | None:
    """Copies in flight behind a block, given how many were before it; None: it depends on the turn of a loop."""
    for position, stmt in enumerate(block):
        if isinstance(stmt, Stage) and stmt.via == "TMA" and live is not None:
            live += 1
        elif isinstance(stmt, Wait):
            keep = 0 if boxes.mixed else stmt.keep
            boxes.waits[path, position] = None if live is None else max(live - keep, 0) // boxes.group
            live = min(live, keep) if live is not None else None if keep else 0
        elif isinstance(stmt, For):
            live = _count_in_loop(stmt, (*path, position), live, boxes)
        elif hasattr(stmt, "body"):
            live = _count_waits(stmt.body, (*path, position), live, boxes)
    return live


def _count_in_loop(stmt: For, path: Path, live: int | None, boxes: Boxes) -> int | None:
    after = _count_waits(stmt.body, path, live, boxes)
    if after == live or trip_count(stmt) == 1:
        return after
    _count_waits(stmt.body, path, None, boxes)
    return None
