"""Cooperative copies into shared slabs, and the groups in which asynchronous ones are waited for.

A chunk is 16 bytes where source and slab allow it, else one element. L lanes copy a row: thread t takes the rows
t//L + r*(T//L) and in them the chunks t%L + L*c. r and c are replicated axes, so addresses need nothing of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...ir.expr import Var, add, binary, floordiv, modulo, multiply
from ...ir.facts.layout import copy_shape, lanes_of, place_in_source, rows_in_turn
from ...ir.kernel import Branch, Commit, CopyAsync, Element, LoadFrom, Registers, StoreTo, WaitGroup
from ...ir.node import Expr
from ...ir.program import Block, Stmt
from ...ir.ranges import interval
from ...ir.tile import Put, Stage, Sync, Wait
from .addresses import flat, global_address
from .boxes import lower_box_wait, lower_boxes, plan_boxes
from .guards import conjunction, in_chunks, narrowed, simplify_condition
from .lowering import Lowering, Path, Place, fresh
from .ranges import ranging, tidied
from .registers import extents, in_registers, nest
from .relays import plan_relays
from .rings import plan_rings
from .slabs import cell_address, element_bytes


class ChunkShape(NamedTuple):
    """width: elements of a chunk; chunks of a row; rows; lanes of a row; groups: rows that are copied at once."""

    width: int
    chunks: int
    rows: int
    lanes: int
    groups: int


def shape_of(low: Lowering, stage: Stage) -> ChunkShape:
    """How the block's threads divide a slab: the same division that Tile IR's meaning has."""
    width, chunks, rows, threads = copy_shape(low.kernel, stage)
    lanes = min(lanes_of(low.kernel, stage), threads)
    return ChunkShape(width, chunks, rows, lanes, threads // lanes)


def lower_stage(low: Lowering, stmt: Stage, at: Place) -> Block:
    """One Stage. Rows and chunks beyond the slab are left out by the predicate, never by a branch around a cp.async."""
    if stmt.via == "TMA":
        return lower_boxes(low, stmt, at)
    shape = shape_of(low, stmt)
    row_axis, chunk_axis = "r", "c"
    while {row_axis, chunk_axis} & (low.taken | low.env.keys()):
        row_axis, chunk_axis = row_axis + "_", chunk_axis + "_"
    turns = {row_axis: -(-shape.rows // shape.groups), chunk_axis: -(-shape.chunks // shape.lanes)}
    low.replicated.update(turns)
    with ranging(low, {name: (0, extent - 1) for name, extent in turns.items()}):
        out = _copy(low, stmt, shape, row_axis, chunk_axis)
    for name in turns:
        del low.replicated[name]
    grouped = stmt.via == "ASYNC" and (low.group == 1 or (at.path, at.position) in low.commits)
    return (*out, Commit()) if grouped else out


def _copy(low: Lowering, stmt: Stage, shape: ChunkShape, row_axis: str, chunk_axis: str) -> Block:
    turns, axes = low.replicated, tuple(axis for axis in (row_axis, chunk_axis) if low.replicated[axis] > 1)
    thread: Expr = low.thread if low.thread_count > 1 else 0
    run = rows_in_turn(stmt, shape.rows, shape.groups)
    first, step = multiply(floordiv(thread, shape.lanes), run), shape.groups if run == 1 else 1
    row = add(first, multiply(Var(row_axis), step) if turns[row_axis] > 1 else 0)
    chunk = add(modulo(thread, shape.lanes), multiply(Var(chunk_axis), shape.lanes) if turns[chunk_axis] > 1 else 0)
    row, column = tidied(low, row), tidied(low, multiply(chunk, shape.width))
    position = source_position(low, stmt, row, column)
    ends, under = tuple(zip(position, low.params[stmt.src].shape, strict=True)), narrowed(low, stmt.when)
    inside = conjunction(
        [binary(">=", p, 0) for p, _ in ends if not _always((">=", p, 0), under)]
        + [in_chunks(low, p, m) for p, m in ends if not _always(("<", p, m), under)]
    )
    mine = [] if shape.groups * shape.lanes == low.thread_count else [binary("<", thread, shape.groups * shape.lanes)]
    mine += [binary("<", row, shape.rows)] if shape.rows % shape.groups else []
    mine += [binary("<", chunk, shape.chunks)] if shape.chunks % shape.lanes else []
    when = in_registers(low, simplify_condition(low, conjunction([*mine, stmt.when])))
    inside = in_registers(low, inside)
    to = cell_address(low, stmt, row, column, stmt.slot, f"{stmt.dst}_wr")
    source = global_address(low, stmt.src, flat(low, stmt.src, position))
    size = shape.width * element_bytes(low, stmt)
    if stmt.via == "ASYNC" and size >= 4:
        return nest(low, axes, (CopyAsync(to, source, size, when, inside),))
    # one at a time, all loads before all stores: their latencies overlap
    dtype, name = low.params[stmt.src].dtype, fresh(low, f"{stmt.dst}_cp")
    here = tuple(map(Var, axes))
    into: Expr = Element(name, here) if here else Var(name)
    lanes = [Element(name, (*here, lane)) for lane in range(shape.width)] if shape.width > 1 else [into]
    held = (*extents(low, axes), *([shape.width] if shape.width > 1 else []))
    early = int(stmt.via == "FETCH")
    load = LoadFrom(into, dtype, source, shape.width, conjunction([when, inside]), early=early)
    store: Stmt = StoreTo(dtype, to, tuple(lanes))
    if when is not True:
        store = Branch(when, (store,))
    loads, stores = (Registers(name, dtype, held), *nest(low, axes, (load,))), nest(low, axes, (store,))
    if stmt.via == "FETCH":
        low.fetched[stmt.dst] = stores
        return loads
    return (*loads, *stores)


def lower_put(low: Lowering, stmt: Put, at: Place) -> Block:
    """The stores of a fetch. Both stand in one block, so its registers and addresses are still there."""
    return low.fetched.pop(stmt.dst)


def source_position(low: Lowering, stmt: Stage, row: Expr, column: Expr) -> tuple[Expr, ...]:
    """The element of the source that goes to a cell, through the axes of the slab."""
    places: list[Expr] = []
    rest = math.prod(axis.extent for axis in stmt.slab[:-1])
    for number, axis in enumerate(stmt.slab[:-1]):
        rest //= axis.extent
        place = floordiv(row, rest)
        places.append(tidied(low, modulo(place, axis.extent) if number else place))
    return tuple(tidied(low, p) for p in place_in_source(stmt, (*places, column)))


def _always(edge: tuple[str, Expr, int], ranges: dict[str, tuple[int, int]]) -> bool:
    op, e, limit = edge
    lowest, highest = interval(e, ranges)
    return lowest >= limit if op == ">=" else highest < interval(limit, {})[0]


# ---- waiting


def plan_groups(low: Lowering) -> None:
    """Decide what a commit group is.

    A run of neighbouring asynchronous copies is one group, ended where its first buffer comes again (in a peeled
    prologue the runs touch). Where runs differ in length, or a Wait cuts one, each copy is a group of its own.
    """
    runs, boxes = list(runs_of(low.kernel.body, "ASYNC")), list(runs_of(low.kernel.body, "TMA"))
    plan_rings(low)
    plan_relays(low)
    if low.rings:  # every box is of some turn
        boxes = []
    plan_boxes(low, boxes, mixed=bool(runs and boxes))
    lengths = {length for length, _ in runs}
    low.group = lengths.pop() if len(lengths) == 1 else 1
    if boxes or any(wait.keep % low.group for wait in _waits(low.kernel.body)):
        low.group = 1
    low.commits = frozenset(end for _, end in runs)


def runs_of(block: Block, via: str, path: Path = ()) -> Iterator[tuple[int, tuple[Path, int]]]:
    """(length, (path, position) of the last copy) of every run of copies of one kind, under one condition."""
    seen: list[str] = []
    when: Expr = True
    for position, stmt in enumerate(block):
        copy = isinstance(stmt, Stage) and stmt.via == via
        if seen and (not copy or stmt.dst in seen or stmt.when != when):  # type: ignore[attr-defined]
            yield len(seen), (path, position - 1)
            seen = []
        if copy:
            seen.append(stmt.dst)  # type: ignore[attr-defined]
            when = stmt.when  # type: ignore[attr-defined]
        yield from runs_of(getattr(stmt, "body", ()), via, (*path, position))
    if seen:
        yield len(seen), (path, len(block) - 1)


def _waits(block: Block) -> Iterator[Wait]:
    for stmt in block:
        if isinstance(stmt, Wait):
            yield stmt
        yield from _waits(getattr(stmt, "body", ()))


def lower_sync(low: Lowering, stmt: Sync, at: Place) -> Block:
    return (low.barrier,) if low.thread_count * low.tile.cluster > 1 else ()


def lower_wait(low: Lowering, stmt: Wait, at: Place) -> Block:
    keep = 0 if low.boxes is not None else stmt.keep // low.group
    return (*([WaitGroup(keep)] if low.commits else []), *lower_box_wait(low, stmt, at))
