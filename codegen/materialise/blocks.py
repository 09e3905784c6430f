"""Blocks, guards, loops, loads, stores and cooperative copies.

Unrolled loops are one more replicated axis; the others are a level of the nest with address registers of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...ir import tile
from ...ir.diagnostic import InternalError
from ...ir.expr import Call, NameSet, Var, add, binary, extents_of, floordiv, free_names, modulo, multiply
from ...ir.facts.layout import (
    VECTOR_BYTES,
    adjacent_rows,
    copy_shape,
    is_vector,
    lanes_of,
    operand_of,
    place_in_source,
    vector_step,
    views_of,
)
from ...ir.facts.structure import accumulators_of, defines
from ...ir.functions import opmath
from ...ir.kernel import (
    Address,
    Assign,
    Branch,
    CheckPlace,
    Commit,
    CopyAsync,
    Element,
    LoadFrom,
    Loop,
    Registers,
    Replicate,
    StoreTo,
    WaitGroup,
)
from ...ir.loop import Accumulate, Carry, For, If, Let, Load, Merge, Scale, Store
from ...ir.node import Expr, Node, nodes
from ...ir.program import Block, Stmt
from ...ir.ranges import decide, interval
from ...ir.sizes import lowest
from ...ir.substitute import substitute
from ...ir.text.print_statements import print_head
from ...ir.tile import Stage, Sync, Wait
from .expressions import (
    axes_of,
    conjunction,
    counter_dtype,
    declared,
    dtype_in,
    extents,
    flat,
    global_address,
    greatest,
    guarded,
    in_chunks,
    in_registers,
    least,
    narrowed,
    nest,
    ranging,
    register_of,
    replicating,
    simplify_condition,
    tidied,
    varies,
    weaken,
)
from .lowering import AsynchronousOperand, Held, Key, Level, Lowering, Path, Place, fresh, trip_count
from .reductions import lower_combine, lower_combine_tuple, lower_scan
from .shared_memory import (
    cell_address,
    kept,
    lower_box_wait,
    lower_boxes,
    plan_boxes,
    shared_tile_address,
    shared_tile_element,
)
from .tensor_cores import lower_matrices, lower_mma, lower_wait_mma
from .values import initialised, lower_accumulate, lower_let, lower_merge, lower_scale, replicated_axes

# ---- loads and stores: one vector instruction where a VEC axis and the address allow it, else one for each element


def lower_load(low: Lowering, stmt: Load, at: Place) -> Block:
    """Lower a load into registers. Its guard is tested once per vector; if that is not possible, the load is scalar."""
    if any(stmt.buf == param.name for param in low.kernel.outs):
        raise InternalError(f"kernel `{low.kernel.name}` reads `{stmt.buf}`, which it writes")
    if stmt.buf in low.register_tiles:
        return lower_let(low, Let(stmt.dst, Element(low.register_tiles[stmt.buf], stmt.idx)), at)
    dtype = low.dtypes[stmt.buf]
    if stmt in views_of(low.kernel):
        low.env[stmt.dst] = AsynchronousOperand(stmt, axes_of(low, stmt.idx, at.bound), dtype)
        return ()
    stage, element, when = low.stages.get(stmt.buf), element_of(low, stmt), weaken(low, stmt.when)
    if isinstance(stage, Stage) and (operand := operand_of(stmt.dst, at.block[at.position + 1 :])) is not None:
        matrices = lower_matrices(low, stmt, stage, operand, at)
        if matrices is not None:
            return matrices
    guarded = axes_of(low, when, at.bound)
    vector = vector_axis(low, stmt.buf, element, [a for a in axes_of(low, stmt.idx, at.bound) if a not in guarded])
    idx, width, backwards = stmt.idx, 1, None
    if vector is None:
        when = stmt.when
    else:
        width = low.replicated[vector]
        if vector_step(element, vector, width) < 0:
            backwards = (vector, width)
        idx = substitute(idx, {vector: width - 1 if backwards else 0})
    axes = tuple(axis for axis in axes_of(low, (stmt.idx, when), at.bound) if axis != vector)
    address = address_of(low, stmt, idx, f"{stmt.dst}_rd")
    inner = (vector,) if vector else ()
    value = Held(fresh(low, stmt.dst), (*axes, *inner), opmath(dtype), backwards)
    into = register_of(low, value, skip=inner)
    load = LoadFrom(into, dtype, address, width, in_registers(low, simplify_condition(low, when)), stmt.other)
    checks = () if stage else place_checks(low, stmt, when, vector, at)
    low.env[stmt.dst] = value
    return (*checks, declared(low, value), *nest(low, axes, (load,)))


def lower_register_tile(low: Lowering, stmt: tile.RegisterTile, at: Place) -> Block:
    """Lower a register tile: registers with a dimension for each of its axes, in the dtype of computations."""
    name, dtype = fresh(low, stmt.dst), opmath(stmt.dtype)
    low.register_tiles[stmt.dst] = name
    low.env[name] = Held(name, (), dtype)
    low.registers[name] = dtype
    return (Registers(name, dtype, extents_of(stmt.box)),)


def place_checks(low: Lowering, stmt: Load, when: Expr, vector: str | None, at: Place) -> Block:
    """Return the checks before a load whose index depends on data, unless the ranges prove that the element exists.

    A check that fails stops the kernel.
    """
    checks: list[Stmt] = []
    for position, extent in zip(stmt.idx, low.params[stmt.buf].shape, strict=True):
        first, last = interval(tidied(low, position), low.ranges)
        if not free_names(position) & low.env.keys() or (first >= 0 and last < lowest(extent)):
            continue
        ends = [{vector: 0}, {vector: low.replicated[vector] - 1}] if vector in free_names(position) else [{}]
        for end in ends:
            place = substitute(position, end)
            check = CheckPlace(in_registers(low, place), extent, in_registers(low, simplify_condition(low, when)))
            checks += nest(low, axes_of(low, (place, when), at.bound), (check,))
    return tuple(checks)


def lower_store(low: Lowering, stmt: Store, at: Place) -> Block:
    """Lower a store to a buffer or a shared tile, converted to the dtype of its computation; the store rounds last."""
    if stmt.buf in low.register_tiles:
        place = in_registers(low, Element(low.register_tiles[stmt.buf], stmt.idx))
        return nest(low, axes_of(low, (stmt.idx, stmt.val), at.bound), (Assign(place, in_registers(low, stmt.val)),))
    dtype = low.dtypes[stmt.buf]
    converts = isinstance(stmt.val, Node) and dtype_in(low, stmt.val) != opmath(dtype)
    val = Call(opmath(dtype), (stmt.val,)) if converts else stmt.val
    element = element_of(low, stmt)
    vector = vector_axis(low, stmt.buf, element, axes_of(low, stmt.idx, at.bound), several=True)
    width = 1 if vector is None else low.vectors[vector]
    at_once = min(width, VECTOR_BYTES[-1] // low.item(stmt.buf))
    stores = []
    for first in range(0, width, at_once):
        lanes = [{}] if vector is None else [{vector: first + lane} for lane in range(at_once)]
        if vector is not None and vector_step(element, vector, at_once) < 0:
            lanes.reverse()
        idx = substitute(stmt.idx, lanes[0])
        values = tuple(in_registers(low, val, lane) for lane in lanes)
        stores.append(StoreTo(dtype, address_of(low, stmt, idx, f"{stmt.buf}_wr"), values))
    axes = axes_of(low, (stmt.idx, val), at.bound)
    return nest(low, tuple(axis for axis in axes if axis != vector), tuple(stores))


def address_of(low: Lowering, stmt: Load | Store, idx: tuple[Expr, ...], hint: str) -> Address:
    """Return the address of an access, or of one of several vectors of it."""
    stage = low.stages.get(stmt.buf)
    if stage:
        return shared_tile_address(low, stage, idx, hint)
    return global_address(low, stmt.buf, tidied(low, flat(low, stmt.buf, idx)))


def element_of(low: Lowering, stmt: Load | Store) -> Expr:
    """Return the element of an access, counted from the start of its buffer or shared tile."""
    stage = low.stages.get(stmt.buf)
    return shared_tile_element(low, stage, stmt.idx) if stage else flat(low, stmt.buf, stmt.idx)


def vector_axis(low: Lowering, buf: str, element: Expr, axes: Sequence[str], several: bool = False) -> str | None:
    """Return the innermost of the axes along which an access to a buffer is one vector instruction, or None.

    several: an access of several of the largest vectors counts too.
    """
    size, most = low.item(buf), VECTOR_BYTES[-1]
    for axis in reversed(axes):
        width = low.vectors.get(axis)
        if width is None or not (width * size in VECTOR_BYTES or (several and width * size % most == 0)):
            continue
        if is_vector(element, axis, width) and not varies(low, element, axis):
            return axis
    return None


# ---- cooperative copies to shared memory, and the groups by which asynchronous copies are waited for
#
# A chunk is 16 bytes where source and shared tile allow it, else one element. L lanes copy a row: thread t copies the
# rows t//L + r*(T//L), and in them the chunks t%L + L*c. r and c are replicated axes, so their addresses need no code.


def lower_stage(low: Lowering, stmt: Stage, at: Place) -> Block:
    """Lower one Stage.

    The predicate leaves out rows and chunks beyond the shared tile; no branch surrounds a cp.async.
    """
    if stmt.via == "TMA":
        return lower_boxes(low, stmt, at)
    width, chunks, rows, threads = copy_shape(low.kernel, stmt)
    lanes = min(lanes_of(low.kernel, stmt), threads)
    groups = threads // lanes  # rows that are copied at once
    row_axis, chunk_axis = "r", "c"
    while {row_axis, chunk_axis} & (low.taken | low.env.keys()):
        row_axis, chunk_axis = row_axis + "_", chunk_axis + "_"
    times = {row_axis: -(-rows // groups), chunk_axis: -(-chunks // lanes)}
    thread: Expr = low.thread if threads > 1 else 0
    run = adjacent_rows(stmt, rows, groups)
    row, chunk = multiply(floordiv(thread, lanes), run), modulo(thread, lanes)
    if times[row_axis] > 1:
        row = add(row, multiply(Var(row_axis), groups if run == 1 else 1))
    if times[chunk_axis] > 1:
        chunk = add(chunk, multiply(Var(chunk_axis), lanes))
    mine = [] if groups * lanes == threads else [binary("<", thread, groups * lanes)]
    mine += [binary("<", row, rows)] if rows % groups else []
    mine += [binary("<", chunk, chunks)] if chunks % lanes else []
    with replicating(low, times):
        axes = tuple(axis for axis, extent in times.items() if extent > 1)
        out = _copy(low, stmt, width, axes, tidied(low, row), tidied(low, multiply(chunk, width)), mine)
    grouped = stmt.via == "ASYNC" and (low.group == 1 or (at.path, at.position) in low.commits)
    return (*out, Commit()) if grouped else out


def _copy(
    low: Lowering, stmt: Stage, width: int, axes: tuple[str, ...], row: Expr, column: Expr, mine: list[Expr]
) -> Block:
    """Return the copies of chunks of some elements. mine: the conditions under which a thread has such a chunk."""
    position = source_position(low, stmt, row, column)
    ends, under = tuple(zip(position, low.params[stmt.src].shape, strict=True)), narrowed(low, stmt.when)
    conditions = [e for p, _ in ends if decide(e := binary(">=", p, 0), under) is not True]
    conditions += [in_chunks(low, p, m) for p, m in ends if decide(binary("<", p, m), under) is not True]
    when = in_registers(low, simplify_condition(low, conjunction([*mine, stmt.when])))
    inside = in_registers(low, conjunction(conditions))
    to = cell_address(low, stmt, row, column, stmt.slot, f"{stmt.dst}_wr")
    source = global_address(low, stmt.src, flat(low, stmt.src, position))
    size = width * low.item(stmt.dst)
    if stmt.via == "ASYNC" and size >= 4:
        return nest(low, axes, (CopyAsync(to, source, size, when, inside),))
    # one at a time, all loads before all stores: their latencies overlap
    held = Held(fresh(low, f"{stmt.dst}_cp"), axes, low.dtypes[stmt.dst])
    into = register_of(low, held)
    lanes = [Element(held.name, (*map(Var, axes), lane)) for lane in range(width)] if width > 1 else [into]
    load = LoadFrom(into, held.dtype, source, width, conjunction([when, inside]))
    stores = nest(low, axes, guarded(when, (StoreTo(held.dtype, to, tuple(lanes)),)))
    shape = (*extents(low, axes), *([width] if width > 1 else []))
    return (Registers(held.name, held.dtype, shape), *nest(low, axes, (load,)), *stores)


def source_position(low: Lowering, stmt: Stage, row: Expr, column: Expr) -> tuple[Expr, ...]:
    """Return the element of the source that goes to a cell, through the axes of the shared tile."""
    places: list[Expr] = []
    rest = math.prod(extents_of(stmt.box[:-1]))
    for number, axis in enumerate(stmt.box[:-1]):
        rest //= axis.extent
        place = floordiv(row, rest)
        places.append(tidied(low, modulo(place, axis.extent) if number else place))
    return tuple(tidied(low, p) for p in place_in_source(stmt, (*places, column)))


# ---- waiting


def plan_groups(low: Lowering) -> None:
    """Decide what a commit group is: a run of neighbouring asynchronous copies.

    Where runs differ in length, or a Wait cuts one, or there are copies of both kinds, each copy is a group of its own.
    """
    runs, boxes = runs_of(low.kernel.body, "ASYNC"), runs_of(low.kernel.body, "TMA")
    low.commits = frozenset(run[-1] for run in runs)
    low.group = 1 if boxes else group_size(low, runs)
    if boxes:
        plan_boxes(low, boxes, 1 if runs else group_size(low, boxes))


def group_size(low: Lowering, runs: list[list[Key]]) -> int:
    """Return the number of copies in each group."""
    size, *others = {len(run) for run in runs} or {1}
    return 1 if others or any(wait.keep % size for wait in nodes(low.kernel.body, Wait)) else size


def runs_of(block: Block, via: str, path: Path = ()) -> list[list[Key]]:
    """Return the positions of every run of neighbouring copies of one kind, under one condition.

    A run ends where its first buffer comes again: in a peeled prologue the runs touch.
    """
    found: list[list[Key]] = []
    run: list[Stage] = []
    for position, stmt in enumerate(block):
        if isinstance(stmt, Stage) and stmt.via == via:
            if not run or stmt.when != run[0].when or any(stmt.dst == copy.dst for copy in run):
                run = []
                found.append([])
            run.append(stmt)
            found[-1].append((path, position))
        else:
            run = []
            found += runs_of(getattr(stmt, "body", ()), via, (*path, position))
    return found


def lower_sync(low: Lowering, stmt: Sync, at: Place) -> Block:
    return (low.barrier,) if low.thread_count * low.tile.cluster > 1 else ()


def lower_wait(low: Lowering, stmt: Wait, at: Place) -> Block:
    groups = [WaitGroup(kept(low, stmt) // low.group)] if low.commits else []
    return (*groups, *lower_box_wait(low, stmt, at))


NONE: frozenset[int] = frozenset()


def lower_block(low: Lowering, block: Block, path: Path, bound: NameSet, done: frozenset[int] = NONE) -> Block:
    """Lower a block: its accumulators, then its statements (but for the positions in `done`).

    Its values end with it.
    """
    outer = dict(low.env)
    out: list[Stmt] = []
    for accumulator in low.accumulators.values():
        if accumulator.path == path:
            held = Held(fresh(low, accumulator.name), replicated_axes(low, accumulator, bound), accumulator.dtype)
            low.env[accumulator.name] = held
            if not accumulator.direct:
                out += initialised(low, accumulator, held)
    for position in range(len(block)):
        if position not in done:
            out += lower_statement(low, Place(block, position, path, bound))
    low.env = outer
    return tuple(out)


def lower_statement(low: Lowering, at: Place) -> Block:
    """Lower the statement at a place."""
    stmt = at.block[at.position]
    lower = LOWER.get(type(stmt))
    if lower is None:
        where = f"in `{print_head(stmt)}`"
        hint = "add one to LOWER in codegen/materialise/blocks.py"
        raise InternalError(f"`{type(stmt).__name__}` has no lowering to Kernel IR", hint=hint, notes=(where,))
    made = lower(low, stmt, at)
    if low.emitted is not None:
        low.emitted.append(((*at.path, at.position), made))
    return made


def lower_if(low: Lowering, stmt: If, at: Place) -> Block:
    """Lower a guard, tested once per vector where it does not depend on the position inside."""
    cond = weaken(low, stmt.cond)
    axes = axes_of(low, cond, at.bound)
    path = (*at.path, at.position)
    cond = simplify_condition(low, cond)
    if cond is False:
        return ()
    if cond is True:
        return lower_block(low, stmt.body, path, at.bound)
    cond = in_registers(low, cond)
    return nest(low, axes, (Branch(cond, lower_block(low, stmt.body, path, at.bound | set(axes))),))


def lower_for(low: Lowering, stmt: For, at: Place) -> Block:
    """Lower a loop of the program."""
    path = (*at.path, at.position)
    trips = trip_count(stmt)
    if trips == 0:
        return ()
    if trips == 1:
        return lower_block(low, substitute(stmt.body, {stmt.var: stmt.start}), path, at.bound)
    if trips is not None and (stmt.role == "VEC" or stmt.unroll == trips):
        return lower_replicated(low, stmt, trips, path, at.bound)
    start, stop = tidied(low, stmt.start), tidied(low, stmt.stop)
    low.levels.append(level := Level(stmt.var, start, stmt.step, outside=dict(low.env)))
    low.repeats += 1
    with ranging(low, {stmt.var: (least(low, start), max(least(low, start), greatest(low, stop) - 1))}):
        body = lower_block(low, stmt.body, path, at.bound)
    low.repeats -= 1
    low.levels.pop()
    # a serial loop holds barriers and is already as long as it should be; others are the assembler's to unroll
    unroll = stmt.unroll if stmt.unroll > 1 else int(stmt.role == "serial")
    whole, counter = (*level.head, *body, *level.tail), counter_dtype(low, start, stop, stmt.step)
    loop = Loop(stmt.var, in_registers(low, start), in_registers(low, stop), whole, stmt.step, unroll, counter)
    return (*level.before, loop)


def lower_replicated(low: Lowering, stmt: For, trips: int, path: Path, bound: NameSet) -> Block:
    """Lower a loop whose variable is an immediate.

    Along a VEC loop neighbours are loaded at once, ahead of its steps. If they add nothing up, it is an axis like those
    of the tile: each statement takes all of its steps in turn, and neighbours are stored at once, too.
    """
    body = stmt.body
    if stmt.start != 0 or stmt.step != 1:
        body = substitute(body, {stmt.var: add(multiply(Var(stmt.var), stmt.step), stmt.start)})
    outer = dict(low.env)
    low.repeats += 1
    ahead: Block = ()
    done = NONE
    with replicating(low, {stmt.var: trips}):
        if apart := stmt.role == "VEC" and all(isinstance(step, (Load, Let, Store)) for step in body):
            low.vectors[stmt.var] = trips
            inner = lower_block(low, body, path, bound)
            del low.vectors[stmt.var]
        else:
            if stmt.role == "VEC":
                ahead, done = load_ahead(low, stmt.var, trips, body, path, bound)
            inner = lower_block(low, body, path, bound | {stmt.var}, done)
    low.repeats -= 1
    low.env = outer
    return inner if apart else (*ahead, Replicate(stmt.var, trips, inner))


def load_ahead(
    low: Lowering, var: str, trips: int, body: Block, path: Path, bound: NameSet
) -> tuple[Block, frozenset[int]]:
    """Return the loads of a VEC loop that are one vector along it, and their positions in its body."""
    own = {name for stmt in body for name in (defines(stmt), *accumulators_of(stmt))}
    out: list[Stmt] = []
    done: set[int] = set()
    low.vectors[var] = trips
    for position, stmt in enumerate(body):
        if not isinstance(stmt, Load) or free_names((stmt.idx, stmt.when)) & own:
            continue
        if var in axes_of(low, weaken(low, stmt.when), bound):
            continue
        if vector_axis(low, stmt.buf, element_of(low, stmt), (var,)) is not None:
            out += lower_statement(low, Place(body, position, path, bound))
            done.add(position)
    del low.vectors[var]
    return tuple(out), frozenset(done)


def lower_nothing(low: Lowering, stmt: Stmt, at: Place) -> Block:
    """Return nothing: the uses of an accumulator start it, and the first use of a shared tile gives it memory."""
    return ()


LOWER: dict[type[Stmt], Callable[[Lowering, Any, Place], Block]] = {
    Load: lower_load,
    Store: lower_store,
    Let: lower_let,
    Accumulate: lower_accumulate,
    Merge: lower_merge,
    Scale: lower_scale,
    Carry: lower_nothing,
    tile.SharedTile: lower_nothing,
    tile.RegisterTile: lower_register_tile,
    If: lower_if,
    For: lower_for,
    tile.Stage: lower_stage,
    tile.Sync: lower_sync,
    tile.Wait: lower_wait,
    tile.Combine: lower_combine,
    tile.CombineTuple: lower_combine_tuple,
    tile.Scan: lower_scan,
    tile.ScanTuple: lower_scan,
    tile.Mma: lower_mma,
    tile.WaitMma: lower_wait_mma,
}
