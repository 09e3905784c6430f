"""Shared slabs: where they start, and the byte address of a cell under padding, xor and swizzle.

An xor layout flips bits of a row's 16-byte chunk number C by bits of the row number R: F(R) = sum of bit(R, b_n) << n.
With R and C written as thread part + immediate part, and no bit possible in both, F(Rt + Ri) = F(Rt) ^ F(Ri) and
C = Ct ^ Ci, so

    address = (base ^ (Ci ^ F(Ri))*16) + Ri*pitch        with base = Rt*pitch + (Ct ^ F(Rt))*16

(bits of Ci that rows are not aligned for are added), and all that remains for the access is constant. Where the parts
share bits the address is computed at the access: right, but slow.
"""

from __future__ import annotations

import math
from typing import cast

from ...ir.diagnostic import DplcError, InternalError
from ...ir.expr import (
    Axis,
    Binary,
    Call,
    Var,
    add,
    floordiv,
    free_names,
    from_linear,
    is_int,
    linear,
    modulo,
    multiply,
    subtract,
    total,
    xor,
)
from ...ir.facts.layout import DTYPE_BYTES, cell_of, pitch, row_of, slab_cells
from ...ir.kernel import (
    SHARED,
    WARP,
    Address,
    Arrive,
    Assign,
    Barrier,
    Base,
    Branch,
    CopyBox,
    Define,
    EnterTurn,
    Expect,
    FenceBarriers,
    InitBarrier,
    LastThreads,
    LeaveTurn,
    Loop,
    TensorMap,
    WaitPhase,
)
from ...ir.loop import For
from ...ir.node import Expr, nodes, replace
from ...ir.program import Block, Stmt
from ...ir.ranges import interval
from ...ir.tile import Acquire, Await, Relay, Release, Ring, Slab, Stage, Team, Wait
from .expressions import greatest, in_registers, least, level_of, nest, ranging, read, resolve, tidied
from .lowering import Boxes, Cell, Key, LowerBlock, Lowering, Path, Place, allocate, fresh, trip_count

CHUNK = 16  # bytes: the unit of every xor
SLAB_ALIGNMENT = 128  # so that an xor of chunk numbers stays within its row
SHARED_ALIGNMENT = 1024  # of shared memory as a whole: the prelude declares it so
UNUSED = 31  # in Stage.xor: this bit of the chunk number is not flipped
MOST_VALUES = 1 << 14  # beyond this many values of an atom its bits are taken to be all


def element_bytes(low: Lowering, stage: Stage) -> int:
    return DTYPE_BYTES[slab_dtype(low, stage)]


def slab_dtype(low: Lowering, stage: Stage) -> str:
    """Return the dtype of a slab's elements: its own for computed values, or that of what is copied there."""
    return stage.dtype if isinstance(stage, Slab) else low.params[stage.src].dtype


def slab_base(low: Lowering, stage: Stage) -> str:
    """Return the register with the address of a slab, which gets its memory at the first call."""
    if stage.dst not in low.slab_bases:
        start = allocate(low, slot_bytes(low, stage) * stage.depth, alignment_of(stage))
        name = low.slab_bases[stage.dst] = fresh(low, stage.dst)
        low.slab_starts[stage.dst] = start
        low.top.head.append(Base(name, SHARED, start))
    return low.slab_bases[stage.dst]


def slot_bytes(low: Lowering, stage: Stage) -> int:
    """Return the bytes from one slot of a slab to the next. TMA puts boxes at aligned addresses only."""
    size = element_bytes(low, stage) * slab_cells(stage)
    alignment = alignment_of(stage) if stage.via == "TMA" else 1
    return -(-size // alignment) * alignment


def alignment_of(stage: Stage) -> int:
    """Return the alignment of a slab in bytes.

    A swizzle takes the row from the address itself, and repeats after eight of its spans.
    """
    return max(SLAB_ALIGNMENT, 8 * stage.swizzle)


def slab_element(low: Lowering, stage: Stage, idx: tuple[Expr, ...]) -> Expr:
    """Return the element of a slab that a load reads, without xor: it moves whole chunks, so vectors do not see it."""
    cell = cell_of(stage, idx)
    words = slot_bytes(low, stage) // element_bytes(low, stage)
    slot = idx[0] if stage.depth > 1 else 0
    return tidied(low, total((row_of(stage, cell), cell[-1], slot), (pitch(stage), 1, words)))


def slab_address(low: Lowering, stage: Stage, idx: tuple[Expr, ...], hint: str) -> Address:
    """Return the address of a cell that a load names."""
    cell = cell_of(stage, idx)
    slot = idx[0] if stage.depth > 1 else 0
    return cell_address(low, stage, tidied(low, row_of(stage, cell)), tidied(low, cell[-1]), slot, hint)


def cell_address(low: Lowering, stage: Stage, row: Expr, column: Expr, slot: Expr, hint: str) -> Address:
    """Return the address of an element of a row of a slot, in bytes."""
    size, root = element_bytes(low, stage), slab_base(low, stage)
    whole = slot_bytes(low, stage)
    start = multiply(slot, whole) if stage.depth > 1 else 0
    flips = flipped_by(stage, size)
    if not flips:
        e = tidied(low, total((start, row, column), (1, pitch(stage) * size, size)))
        base, offset = resolve(low, root, e, hint, shared=True)
        return Address(base, read(low, offset))
    cell = cell_of_row(low, stage, row, column, flips)
    base, offset = resolve(low, root, add(start, cell.fixed), hint, shared=True)
    return Address(base, read(low, add(offset, cell.rest)), read(low, cell.flipped))


def cell_of_row(low: Lowering, stage: Stage, row: Expr, column: Expr, flips: dict[int, int]) -> Cell:
    """Return the parts of a cell under a xor layout: copies and accesses of every slot share them."""
    key = (stage.dst, row, column)
    known = low.cells.get(key)
    if known is None:
        known = low.cells[key] = _cell(low, stage, row, column, flips)
    return known


def _cell(low: Lowering, stage: Stage, row: Expr, column: Expr, flips: dict[int, int]) -> Cell:
    size = element_bytes(low, stage)
    row_bytes, whole = pitch(stage) * size, slot_bytes(low, stage)
    unit = CHUNK << (max(flips) + 1)
    chunk, within = tidied(low, floordiv(column, CHUNK // size)), tidied(low, modulo(column, CHUNK // size))
    (row_t, row_i), (chunk_t, chunk_i), (within_t, within_i) = (parts(low, e) for e in (row, chunk, within))
    aligned = not (row_bytes % unit or (stage.depth > 1 and whole % unit))
    if not aligned or _share_bits(low, row_t, row_i) or _share_bits(low, chunk_t, chunk_i):
        # an address that does not come apart: all but the slot at the access
        flipped = multiply(xor(chunk, flip(low, flips, row)), CHUNK)
        return Cell(0, add(add(multiply(row, row_bytes), flipped), multiply(within, size)), 0)
    base = add(multiply(row_t, row_bytes), multiply(xor(chunk_t, flip(low, flips, row_t)), CHUNK))
    chunk_i, beyond = within_unit(low, stage, chunk_i, unit // CHUNK)
    rest = add(multiply(row_i, row_bytes), add(multiply(within_i, size), multiply(beyond, CHUNK)))
    flipped = multiply(xor(chunk_i, flip(low, flips, row_i)), CHUNK)
    return Cell(add(base, multiply(within_t, size)), rest, flipped)


def _share_bits(low: Lowering, first: Expr, second: Expr) -> bool:
    return bool(possible_bits(low, first) & possible_bits(low, second))


def within_unit(low: Lowering, stage: Stage, chunk: Expr, unit: int) -> tuple[Expr, Expr]:
    """Return (the part of a chunk number that may be flipped into an address, the rest, to be added).

    All of it where the rows of the slab are aligned for it, and shared memory is, else its bits within the unit of the
    layout.
    """
    span = CHUNK << greatest(low, chunk).bit_length()
    pitches = (SHARED_ALIGNMENT, low.slab_starts[stage.dst], pitch(stage) * element_bytes(low, stage))
    starts = (*pitches, slot_bytes(low, stage)) if stage.depth > 1 else pitches
    if least(low, chunk) >= 0 and (span <= unit * CHUNK or not any(start % span for start in starts)):
        return chunk, 0
    return tidied(low, modulo(chunk, unit)), tidied(low, multiply(floordiv(chunk, unit), unit))


def flipped_by(stage: Stage, size: int) -> dict[int, int]:
    """Return {bit of the chunk number: bit of the row number that flips it}.

    TMA's swizzles repeat after rows of 128 bytes.
    """
    flips = {n: bit for n, bit in enumerate(stage.xor) if bit != UNUSED}
    if stage.swizzle:
        row_bytes = pitch(stage) * size
        if flips or row_bytes < stage.swizzle or 128 % row_bytes:
            raise InternalError(f"slab `{stage.dst}`: swizzle={stage.swizzle} on rows of {row_bytes} bytes")
        bits = (stage.swizzle // CHUNK).bit_length() - 1
        flips = {n: n + (128 // row_bytes).bit_length() - 1 for n in range(bits)}
    return flips


def flip(low: Lowering, flips: dict[int, int], row: Expr) -> Expr:
    """Return F(row): the bits of the row put where they flip the chunk number."""
    result: Expr = 0
    for n, bit in flips.items():
        result = add(result, multiply(tidied(low, modulo(tidied(low, floordiv(row, 1 << bit)), 2)), 1 << n))
    return result


def parts(low: Lowering, e: Expr) -> tuple[Expr, Expr]:
    """Return (what the kernel's top knows of a sum, the rest with the constant)."""
    terms, constant = linear(e)
    known = {atom: factor for atom, factor in terms.items() if level_of(low, atom) == 0}
    rest = {atom: factor for atom, factor in terms.items() if atom not in known}
    return from_linear(known, 0), from_linear(rest, constant)


def possible_bits(low: Lowering, e: Expr) -> int:
    """Return a mask of the bits that may be set in a sum; all of them where its terms may carry."""
    terms, constant = linear(e)
    mask = 0
    for atom, factor in terms.items():
        lowest, highest = interval(atom, low.ranges)
        if factor < 0 or lowest < 0 or highest > MOST_VALUES:
            return -1
        bits = multiples_mask(factor, highest)
        if mask & bits:
            return (1 << greatest(low, e).bit_length()) - 1
        mask |= bits
    return mask | constant if not mask & constant else (1 << greatest(low, e).bit_length()) - 1


def multiples_mask(factor: int, highest: int) -> int:
    """Return the bits that occur in factor*0, factor*1, .. factor*highest."""
    if factor & (factor - 1) == 0:
        return ((1 << highest.bit_length()) - 1) * factor
    mask = 0
    for value in range(highest + 1):
        mask |= factor * value
    return mask


# ---- the last copies of a ring: its loop may leave out their waits, and then no phase needs to end for them


TOP = (0,)  # the path of the body of the Tile


def only_full_ones(block: Block, boxes: Boxes) -> bool:
    """Return whether the body of a Tile shows that every Wait is for a group that copies.

    It does if it has copies, then one loop that copies under `k + n < N` for its iteration k, no copies after it, and
    no more waits in all than groups. Waits follow the order of the groups, and those that copy nothing are the last.
    """
    copied = waited = 0
    looped = False
    for position, stmt in enumerate(block):
        if not any(nodes((stmt,), Stage, Wait)):
            continue
        place = TOP, position
        if isinstance(stmt, For) and not looped:
            counted = _of_loop(stmt, boxes, position)
            if counted is None:
                return False
            copied, waited, looped = copied + counted[0], waited + counted[1], True
        elif isinstance(stmt, Stage) and stmt.when is True and not looped:
            copied += place in boxes.runs
        elif isinstance(stmt, Wait) and boxes.waits[place] is not None:
            waited += boxes.waits[place] or 0
        else:
            return False
    return waited <= copied


def _of_loop(loop: For, boxes: Boxes, position: int) -> tuple[int, int] | None:
    """Return (groups that copy, groups waited for) over all iterations of a loop; None if that is not plain."""
    turns, inner = trip_count(loop), (*TOP, position)
    plain = [stmt for stmt in loop.body if isinstance(stmt, Stage | Wait)]
    whens = {stmt.when for stmt in plain if isinstance(stmt, Stage)}
    if turns is None or len(whens) != 1 or len(plain) != sum(1 for _ in nodes(loop.body, Stage, Wait)):
        return None
    places = [(inner, number) for number in range(len(loop.body))]
    waits = [boxes.waits[place] for place in places if place in boxes.waits]
    groups, copying = sum(place in boxes.runs for place in places), _copying(loop, turns, *whens)
    if copying is None or None in waits:
        return None
    return groups * copying, turns * sum(count or 0 for count in waits)


def _copying(loop: For, turns: int, when: Expr) -> int | None:
    """Count the iterations k, from the first on, at which `k + n < N` holds; None for any other predicate."""
    if when is True:
        return turns
    if not isinstance(when, Binary) or when.op != "<" or loop.step != 1 or not is_int(loop.start):
        return None
    ahead = subtract(when.a, Var(loop.var))
    if not is_int(ahead) or not is_int(when.b):
        return None
    return min(max(int(when.b) - int(ahead) - int(loop.start), 0), turns)


# ---- copies by TMA: tensor maps, mbarriers, and the phase that a Wait waits for
#
# Thread 0 issues neighbouring copies as one group: it announces their bytes at an mbarrier, then copies the boxes.
# Group g uses mbarrier g % R, in the phase of parity g // R % 2. Between the wait for group g and group g + R every
# thread passes a barrier of the block: R + 1 groups use some slot twice, and a slot is reused only after a barrier. So
# no phase can end twice before a slow thread has looked.
#
# Blocks of a cluster that want the same box copy a part each into the shared memory of all of them. The announced bytes
# then come from all blocks, and every barrier is one of the cluster, so the argument above holds for it.


BARRIER_BYTES = 8
BOX_ALIGNMENT = 128
SWIZZLE_REPEAT = 1024  # bytes: eight rows of 128


def plan_boxes(low: Lowering, runs: list[tuple[int, Key]], mixed: bool) -> None:
    """Decide the groups, count the mbarriers, give them memory after all slabs. runs: as copies.async_runs says."""
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
    """Return the first statements of a kernel: its tensor maps, and its mbarriers initialised by one thread."""
    if not low.mbarriers:
        return ()
    maps = [TensorMap(name, *described) for described, name in low.maps.items()]
    ready = _by_one_thread(low, (*low.mbarriers, FenceBarriers()))
    return (*maps, *ready, *([Barrier(low.tile.cluster)] if low.thread_count * low.tile.cluster > 1 else []))


def _by_one_thread(low: Lowering, block: Block, any_one: bool = False) -> Block:
    """Return a block that one thread runs.

    any_one: it may be another thread of the first warp, all of whose lanes come here.
    """
    one = int(any_one and low.thread_count % WARP == 0)
    return (Branch(Binary("==", low.thread, 0), block, one),) if low.thread_count > 1 else block


# ---- copies


def lower_boxes(low: Lowering, stmt: Stage, at: Place) -> Block:
    """Return the copies of a whole group at its first copy, and nothing at the others."""
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
    """Return the boxes of one slab."""
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
    """Return how many blocks of a cluster each copy a part of a tile that is equal for all, and along which axis.

    It is the first axis of the slab with more than one element, if parts end where a pattern of swizzled rows does;
    else one block copies everything.
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
    """Return the axis along which blocks of a cluster are neighbours."""
    return [axis.name for axis in low.tile.axes if axis.role == "BLOCK"][-1]


def split_axes(stage: Stage) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Return (loops, box): the axes of the longest box at the end of a slab, and those before it."""
    cut, before = len(stage.slab), len(stage.origin)
    while cut and stage.slab[cut - 1].stride == 1 and (stage.slab[cut - 1].dim or 0) < before:
        cut -= 1
        before = stage.slab[cut].dim or 0
    return stage.slab[:cut], stage.slab[cut:]


def _check(low: Lowering, stage: Stage, box: tuple[Axis, ...], size: int, several: bool) -> None:
    """Raise DplcError for a slab that TMA cannot copy."""
    source, item = low.params[stage.src], element_bytes(low, stage)
    inner = box[-1] if box else None
    if not low.target.boxes_by_tma:
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
    """Lower the phases that end at a Wait; how many is known but for a few programs, where a loop counts them."""
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
    """Count copies in flight after a block, given the number before it; None: it depends on the iteration of a loop."""
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


# ---- rings of producer warps (Team): two mbarriers for each slot
#
# Phase n of the first mbarrier ends when the copies of the n-th iteration of the slot have landed. Phase n of the
# second ends when all consumer warps, of every block of a cluster, have released the slot. Iteration k waits for phase
# k // depth of the first, and fills the slot after phase k // depth - 1 of the second. The first iterations wait for
# none.


REGISTERS_OF_MULTIPROCESSOR, REGISTER_UNIT, MOST_REGISTERS = 65536, 8, 240  # 240: what is given to a thread at once


def plan_rings(low: Lowering) -> None:
    """Give the mbarriers of all rings memory after all slabs."""
    rings: list[Ring] = list(nodes(low.tile.body, Ring))  # type: ignore[arg-type]
    for stage in low.stages.values() if rings else ():
        slab_base(low, stage)
    for ring in rings:
        name = low.rings[ring.dst] = fresh(low, ring.dst)
        low.top.head.append(Base(name, SHARED, allocate(low, 2 * BARRIER_BYTES * ring.depth, BARRIER_BYTES)))
        low.depths[ring.dst] = ring.depth
        warps = low.thread_count // WARP * low.tile.cluster
        for number, arrivals in enumerate([1] * ring.depth + [warps] * ring.depth):
            low.mbarriers.append(InitBarrier(Address(name, BARRIER_BYTES * number), arrivals))


def lower_team(low: Lowering, stmt: Team, at: Place, lower_block: LowerBlock) -> Block:
    """Lower a team: one thread of it copies, and the others leave it the slots of their warps.

    Registers change hands if a multiprocessor has one block. The registers of the launch are handed out, as many for
    each thread as all of them can have.
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
    """Return the wait for a free slot, followed by the copies after the statement, as a group."""
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
    """Return a barrier, so that no block of a cluster ends while another may copy to it, or arrive there."""
    return (Barrier(low.tile.cluster),) if low.rings and low.tile.cluster > 1 else ()


def _slot(low: Lowering, ring: str, turn: Expr, given_back: bool = False) -> Address:
    depth = low.depths[ring]
    number = add(modulo(turn, depth), depth if given_back else 0)
    return Address(low.rings[ring], in_registers(low, tidied(low, multiply(number, BARRIER_BYTES))))


# ---- ordered barriers (Relay): an mbarrier for each group, at which the preceding group arrives
#
# Phase k of the mbarrier of a group ends when the preceding group has left iteration k; that of the first group when
# the last group has. Group g enters iteration k after phase k of its own, the first group after phase k - 1.


def plan_relays(low: Lowering) -> None:
    """Give the mbarriers of all groups memory after all slabs."""
    for stmt in cast(list[Relay], list(nodes(low.tile.body, Relay))):
        if stmt.over in low.relays:
            continue
        for stage in low.stages.values():
            slab_base(low, stage)
        groups = math.prod(axis.extent for axis in _axes(low, stmt))
        name = low.relays[stmt.over] = fresh(low, "relay")
        low.top.head.append(Base(name, SHARED, allocate(low, BARRIER_BYTES * groups, BARRIER_BYTES)))
        arrivals = low.thread_count // groups // WARP
        low.mbarriers += [InitBarrier(Address(name, BARRIER_BYTES * group), arrivals) for group in range(groups)]


def lower_enter(low: Lowering, stmt: Relay, at: Place) -> Block:
    group, groups = _group(low, stmt)
    later = floordiv(add(group, groups - 1), groups)  # 0 for the first group, else 1
    parity = modulo(add(stmt.turn, add(later, 1)), 2)
    return _when(low, stmt, (EnterTurn(_relay_barrier(low, stmt, group), in_registers(low, tidied(low, parity))),))


def lower_leave(low: Lowering, stmt: Relay, at: Place) -> Block:
    group, groups = _group(low, stmt)
    return _when(low, stmt, (LeaveTurn(_relay_barrier(low, stmt, modulo(add(group, 1), groups))),))


def _axes(low: Lowering, stmt: Relay) -> tuple[Axis, ...]:
    known = {axis.name: axis for axis in low.threads}
    return tuple(known[axis.name] for axis in stmt.over)


def _group(low: Lowering, stmt: Relay) -> tuple[Expr, int]:
    """Return the number of the group that a thread belongs to, and how many there are."""
    number: Expr = 0
    axes = _axes(low, stmt)
    for axis, name in zip(axes, stmt.over, strict=True):
        number = add(multiply(number, axis.extent), name)
    return number, math.prod(axis.extent for axis in axes)


def _relay_barrier(low: Lowering, stmt: Relay, group: Expr) -> Address:
    return Address(low.relays[stmt.over], in_registers(low, tidied(low, multiply(group, BARRIER_BYTES))))


def _when(low: Lowering, stmt: Relay, block: Block) -> Block:
    when = in_registers(low, tidied(low, stmt.when))
    return block if when is True else (Branch(when, block),)
