"""Shared shared_tiles: where they start, and the byte address of a cell under padding, xor and swizzle.

An xor layout flips bits of a row's 16-byte chunk number C by bits of the row number R: F(R) = sum of bit(R, b_n) << n.
With R and C written as thread part + immediate part, and no bit possible in both, F(Rt + Ri) = F(Rt) ^ F(Ri) and
C = Ct ^ Ci, so

    address = (base ^ (Ci ^ F(Ri))*16) + Ri*pitch        with base = Rt*pitch + (Ct ^ F(Rt))*16

(bits of Ci that rows are not aligned for are added), and all that remains for the access is constant. Where the parts
share bits the address is computed at the access: right, but slow.
"""

from __future__ import annotations

import functools
import math
import operator

from ...ir.diagnostic import DplcError, InternalError
from ...ir.expr import (
    Axis,
    Binary,
    Call,
    Var,
    add,
    extents_of,
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
from ...ir.facts.layout import CHUNK, cell_of, pitch, place_in_source, row_of, shared_tile_bytes
from ...ir.kernel import (
    SHARED,
    WARP,
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
from ...ir.ranges import interval
from ...ir.tile import Stage, Wait
from .expressions import (
    greatest,
    guarded,
    in_registers,
    least,
    level_of,
    nest,
    read,
    replicating,
    resolve,
    row_major,
    tidied,
)
from .lowering import Boxes, Cell, Key, Lowering, Path, Place, allocate, fresh, trip_count

SHARED_TILE_ALIGNMENT = 128  # so that an xor of chunk numbers stays within its row
SHARED_ALIGNMENT = 1024  # of shared memory as a whole: the prelude declares it so
UNUSED = 31  # in Stage.xor: this bit of the chunk number is not flipped
MOST_VALUES = 1 << 14  # beyond this many values of an atom its bits are taken to be all


def shared_tile_base(low: Lowering, stage: Stage) -> str:
    """Return the register with the address of a shared tile, which gets its memory at the first call."""
    if stage.dst not in low.shared_tiles:
        start = allocate(low, slot_bytes(low, stage) * stage.depth, alignment_of(stage))
        low.shared_tiles[stage.dst] = fresh(low, stage.dst), start
        low.top.head.append(Base(low.shared_tiles[stage.dst][0], SHARED, start))
    return low.shared_tiles[stage.dst][0]


def slot_bytes(low: Lowering, stage: Stage) -> int:
    """Return the bytes from one slot of a shared tile to the next. TMA puts boxes at aligned addresses only."""
    alignment = alignment_of(stage) if stage.via == "TMA" else 1
    return -(-shared_tile_bytes(low.kernel, stage) // alignment) * alignment


def alignment_of(stage: Stage) -> int:
    """Return the alignment of a shared tile in bytes.

    A swizzle takes the row from the address itself, and repeats after eight of its spans.
    """
    return max(SHARED_TILE_ALIGNMENT, 8 * stage.swizzle)


def shared_tile_element(low: Lowering, stage: Stage, idx: tuple[Expr, ...]) -> Expr:
    """Return the element of a shared tile that a load reads, without xor, which moves whole chunks."""
    cell = cell_of(stage, idx)
    words = slot_bytes(low, stage) // low.item(stage.dst)
    slot = idx[0] if stage.depth > 1 else 0
    return tidied(low, total((row_of(stage, cell), cell[-1], slot), (pitch(stage), 1, words)))


def shared_tile_address(low: Lowering, stage: Stage, idx: tuple[Expr, ...], hint: str) -> Address:
    """Return the address of a cell that a load names."""
    cell = cell_of(stage, idx)
    return cell_address(low, stage, tidied(low, row_of(stage, cell)), tidied(low, cell[-1]), idx[0], hint)


def cell_address(low: Lowering, stage: Stage, row: Expr, column: Expr, slot: Expr, hint: str) -> Address:
    """Return the address of an element of a row of a slot, in bytes."""
    root, flips = shared_tile_base(low, stage), flipped_by(stage, low.item(stage.dst))
    key = (stage.dst, row, column)  # copies and accesses of every slot share its parts
    if key not in low.cells:
        low.cells[key] = _cell(low, stage, row, column, flips)
    cell = low.cells[key]
    place = add(slot_start(low, stage, slot), cell.fixed)
    base, offset = resolve(low, root, place if flips else tidied(low, place), hint, shared=True)
    return Address(base, read(low, add(offset, cell.rest)), read(low, cell.flipped))


def slot_start(low: Lowering, stage: Stage, slot: Expr) -> Expr:
    """Return the byte at which a slot of a shared tile starts."""
    return multiply(slot, slot_bytes(low, stage)) if stage.depth > 1 else 0


def _cell(low: Lowering, stage: Stage, row: Expr, column: Expr, flips: dict[int, int]) -> Cell:
    """Return the parts of the address of a cell in a slot."""
    size = low.item(stage.dst)
    row_bytes = pitch(stage) * size
    if not flips:
        return Cell(total((row, column), (row_bytes, size)), 0, 0)
    unit = CHUNK << (max(flips) + 1)
    chunk, within = tidied(low, floordiv(column, CHUNK // size)), tidied(low, modulo(column, CHUNK // size))
    (row_t, row_i), (chunk_t, chunk_i), (within_t, within_i) = (parts(low, e) for e in (row, chunk, within))
    shared = possible_bits(low, row_t) & possible_bits(low, row_i)
    shared |= possible_bits(low, chunk_t) & possible_bits(low, chunk_i)
    if shared or row_bytes % unit or (stage.depth > 1 and slot_bytes(low, stage) % unit):
        # an address that does not come apart: all but the slot at the access
        flipped = multiply(xor(chunk, flip(low, flips, row)), CHUNK)
        return Cell(0, total((row, flipped, within), (row_bytes, 1, size)), 0)
    base = (row_t, xor(chunk_t, flip(low, flips, row_t)), within_t)
    chunk_i, beyond = within_unit(low, stage, chunk_i, unit // CHUNK)
    rest = total((row_i, within_i, beyond), (row_bytes, size, CHUNK))
    return Cell(total(base, (row_bytes, CHUNK, size)), rest, multiply(xor(chunk_i, flip(low, flips, row_i)), CHUNK))


def within_unit(low: Lowering, stage: Stage, chunk: Expr, unit: int) -> tuple[Expr, Expr]:
    """Return (the part of a chunk number that may be flipped into an address, the rest, to be added).

    All of it where the rows of the shared tile are aligned for it, and shared memory is, else its bits within the unit
    of the layout.
    """
    span = CHUNK << greatest(low, chunk).bit_length()
    pitches = (SHARED_ALIGNMENT, low.shared_tiles[stage.dst][1], pitch(stage) * low.item(stage.dst))
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
            raise InternalError(f"shared tile `{stage.dst}`: swizzle={stage.swizzle} on rows of {row_bytes} bytes")
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


@functools.cache
def multiples_mask(factor: int, highest: int) -> int:
    """Return the bits that occur in factor*0, factor*1, .. factor*highest."""
    return functools.reduce(operator.or_, range(0, factor * highest + 1, factor))


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
        times: int | None = 1
        body: Block = (stmt,)
        places: list[Key] = [(TOP, position)]
        if isinstance(stmt, For):
            times, body = trip_count(stmt), stmt.body
            places = [((*TOP, position), number) for number in range(len(body))]
        plain = [inner for inner in body if isinstance(inner, Stage | Wait)]
        whens = {inner.when for inner in plain if isinstance(inner, Stage)}
        if len(plain) != sum(1 for _ in nodes(body, Stage, Wait)) or len(whens) + looped > 1:
            return False
        if not plain:
            continue
        waits = [boxes.waits.get(place, 0) for place in places]
        copying = times if whens <= {True} else _copying(stmt, times, *whens)
        if times is None or copying is None or None in waits:
            return False
        copied += copying * sum(place in boxes.runs for place in places)
        waited += times * sum(count or 0 for count in waits)
        looped = looped or isinstance(stmt, For)
    return waited <= copied


def _copying(loop: Stmt, times: int | None, when: Expr) -> int | None:
    """Count the iterations k, from the first on, at which `k + n < N` holds; None for any other predicate."""
    if not isinstance(loop, For) or not isinstance(when, Binary) or when.op != "<" or loop.step != 1 or times is None:
        return None
    left = subtract(when.b, add(subtract(when.a, Var(loop.var)), loop.start))
    return min(max(int(left), 0), times) if is_int(left) else None


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


def plan_boxes(low: Lowering, runs: list[list[Key]], group: int) -> None:
    """Decide the groups and count the mbarriers. runs: the positions of neighbouring copies."""
    slots = sum(stage.depth for stage in low.stages.values() if stage.via == "TMA")
    enough = 1 << (max(slots // group, 1) - 1).bit_length()  # then `%` and `//` are masks and shifts
    low.boxes = boxes = Boxes(group, enough, {key: group for run in runs for key in run[::group]}, {})
    _count_waits(low, low.kernel.body, (), 0, boxes)
    boxes.empty_waited = not only_full_ones(low.tile.body, boxes)
    for stage in low.stages.values():  # the mbarriers have memory after all shared tiles
        shared_tile_base(low, stage)
    boxes.base = fresh(low, "barriers")
    low.top.head.append(Base(boxes.base, SHARED, allocate(low, BARRIER_BYTES * enough, BARRIER_BYTES)))
    boxes.issued, boxes.waited = fresh(low, "issued"), fresh(low, "waited")
    low.top.head += [Define(name, "i32", 0, 1) for name in (boxes.issued, boxes.waited)]


def first_of_all(low: Lowering) -> Block:
    """Return the first statements of a kernel: its tensor maps, and its mbarriers initialised by one thread."""
    if low.boxes is None:
        return ()
    made = [InitBarrier(_barrier(low.boxes, number)) for number in range(low.boxes.barriers)]
    maps = [TensorMap(name, *described) for described, name in low.maps.items()]
    ready = _by_one_thread(low, (*made, FenceBarriers()))
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
    if boxes is None or (at.path, at.position) not in boxes.runs:  # the first of its group copies it
        return ()
    group = [stmt for stmt in at.block[at.position : at.position + boxes.group] if isinstance(stmt, Stage)]
    barrier = _barrier(boxes, Var(boxes.issued))
    issue = tuple(box for stage in group for box in copies(low, stage, barrier))
    issue = (Expect(barrier, sum(shared_tile_bytes(low.kernel, stage) for stage in group)), *issue)
    when = in_registers(low, stmt.when)
    if boxes.empty_waited and when is not True:  # an empty group still ends a phase
        issue = (Branch(when, issue), Branch(Call("logical_not", (when,)), (Expect(barrier, 0),)))
    issue = _by_one_thread(low, issue, any_one=True)
    if not boxes.empty_waited:
        issue = guarded(when, issue)
    return (*issue, Assign(Var(boxes.issued), add(Var(boxes.issued), 1)))


def copies(low: Lowering, stage: Stage, barrier: Address) -> Block:
    """Return the boxes of one shared tile."""
    loops, box = split_axes(stage)
    whole = low.item(stage.dst) * math.prod(extents_of(box))
    _check(low, stage, box, whole, bool(loops))
    part, place, ways, behind = stage, part_of(low, stage), 1, 0
    if place is not None:
        cut, ways = stage.box[place], low.tile.cluster
        rank, origin = modulo(Var(_neighbours(low)), ways), list(stage.origin)
        cut = replace(cut, extent=cut.extent // ways)
        behind = multiply(rank, shared_tile_bytes(low.kernel, stage) // ways)
        origin[cut.dim or 0] = add(origin[cut.dim or 0], multiply(rank, cut.extent * cut.stride))
        box_of_part = (*stage.box[:place], cut, *stage.box[place + 1 :])
        part = replace(stage, origin=tuple(origin), box=box_of_part)
        loops, box = split_axes(part)
    sides = dict.fromkeys(range(len(stage.origin)), 1) | {axis.dim: axis.extent for axis in box}
    described = (stage.src, tuple(sides.values()), stage.swizzle)
    if described not in low.maps:
        low.maps[described] = fresh(low, f"{stage.src}_map")
    times = {fresh(low, axis.name): axis.extent for axis in loops}
    with replicating(low, times):
        number, start = row_major(times, times), slot_start(low, stage, stage.slot)
        offset = tidied(low, add(add(start, multiply(number, whole)), behind))
        base, rest = resolve(low, shared_tile_base(low, stage), offset, f"{stage.dst}_wr", shared=True)
        to = Address(base, read(low, rest))
        position = place_in_source(part, (*map(Var, times), *(0 for _ in box)))
        at = tuple(read(low, tidied(low, e)) for e in position)
        return nest(low, tuple(times), (CopyBox(to, low.maps[described], barrier, at, ways),))


def part_of(low: Lowering, stage: Stage) -> int | None:
    """Return the axis along which each block of a cluster copies a part of a shared tile that is equal for all blocks.

    It is the first axis with more than one element, if parts end where a pattern of swizzled rows does; else None, and
    one block copies everything.
    """
    ways, size = low.tile.cluster, shared_tile_bytes(low.kernel, stage)
    if ways == 1 or _neighbours(low) in free_names((stage.origin, stage.slot, stage.when)):
        return None
    place = next((number for number, axis in enumerate(stage.box[:-1]) if axis.extent > 1), 0)
    return place if stage.box[place].extent % ways == 0 and size // ways % SWIZZLE_REPEAT == 0 else None


def _neighbours(low: Lowering) -> str:
    """Return the axis along which blocks of a cluster are neighbours."""
    return [axis.name for axis in low.tile.axes if axis.role == "BLOCK"][-1]


def split_axes(stage: Stage) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Return (loops, box): the axes of the longest box at the end of a shared tile, and those before it."""
    cut, before = len(stage.box), len(stage.origin)
    while cut and stage.box[cut - 1].stride == 1 and (stage.box[cut - 1].dim or 0) < before:
        cut -= 1
        before = stage.box[cut].dim or 0
    return stage.box[:cut], stage.box[cut:]


def _check(low: Lowering, stage: Stage, box: tuple[Axis, ...], size: int, several: bool) -> None:
    """Raise DplcError for a shared tile that TMA cannot copy."""
    source, item = low.params[stage.src], low.item(stage.dst)
    inner = box[-1] if box else None
    if not low.target.boxes_by_tma:
        why = f"{low.target.name} has no TMA"
    elif inner is None or inner.dim != len(source.shape) - 1 or inner.extent * item % 16 or stage.pad:
        why = "its rows are not multiples of 16 bytes along the source's last dimension"
    elif len(source.shape) > 5 or any(axis.extent > 256 for axis in box):
        why = "a box has at most 5 dimensions and 256 elements a side"
    elif len(source.shape) > 1 and source.shape[-1] * item % 16:
        why = f"rows of `{stage.src}` are not multiples of 16 bytes"
    elif stage.swizzle and inner.extent * item != stage.swizzle:
        why = f"rows of {inner.extent * item} bytes do not fit swizzle={stage.swizzle}"
    elif several and size % BOX_ALIGNMENT:
        why = f"a box of {size} bytes would not end where the next may begin, at a multiple of {BOX_ALIGNMENT}"
    else:
        return
    raise DplcError(f"shared tile `{stage.dst}` cannot be copied by TMA: {why}", hint="use via=ASYNC")


# ---- waiting


def kept(low: Lowering, stmt: Wait) -> int:
    """Return the number of copies that a Wait leaves in flight; none if there are copies of both kinds."""
    return 0 if low.boxes and low.commits else stmt.keep


def lower_box_wait(low: Lowering, stmt: Wait, at: Place) -> Block:
    """Lower the phases that end at a Wait; how many is known but for a few programs, where a loop counts them."""
    boxes = low.boxes
    if boxes is None:
        return ()
    count = boxes.waits[at.path, at.position]
    if count is not None:
        one = (_wait(boxes, boxes.waited), Assign(Var(boxes.waited), add(Var(boxes.waited), 1)))
        return one * count
    number, last = fresh(low, "g"), subtract(Var(boxes.issued), kept(low, stmt) // boxes.group)
    every = Loop(number, Var(boxes.waited), last, (_wait(boxes, number),), 1, 1)
    return every, Assign(Var(boxes.waited), Call("maximum", (Var(boxes.waited), last)))


def _wait(boxes: Boxes, name: str) -> WaitPhase:
    return WaitPhase(_barrier(boxes, Var(name)), modulo(floordiv(Var(name), boxes.barriers), 2))


def _barrier(boxes: Boxes, number: Expr) -> Address:
    return Address(boxes.base, multiply(modulo(number, boxes.barriers), BARRIER_BYTES))


def _count_waits(low: Lowering, block: Block, path: Path, live: int | None, boxes: Boxes) -> int | None:
    """Count copies in flight after a block, given the number before it; None: it depends on the iteration of a loop."""
    for position, stmt in enumerate(block):
        inner, before = (*path, position), live
        if isinstance(stmt, Stage) and stmt.via == "TMA" and live is not None:
            live += 1
        elif isinstance(stmt, Wait):
            keep = kept(low, stmt)
            boxes.waits[inner[:-1], position] = None if live is None else max(live - keep, 0) // boxes.group
            live = min(live, keep) if live is not None else None if keep else 0
        elif hasattr(stmt, "body"):
            live = _count_waits(low, stmt.body, inner, live, boxes)
            if isinstance(stmt, For) and live != before and trip_count(stmt) != 1:
                _count_waits(low, stmt.body, inner, None, boxes)
                live = None
    return live
