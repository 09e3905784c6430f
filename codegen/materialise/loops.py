"""Loops: unrolled ones are one more replicated axis, the others are a level of the nest with address registers of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.expr import Var, add, free_names, is_int, multiply
from ...ir.facts.layout import DTYPE_BYTES
from ...ir.kernel import Loop, Replicate
from ...ir.loop import Accumulate, For, Let, Load
from ...ir.program import Block, Stmt
from ...ir.substitute import substitute
from .addresses import flat
from .guards import weaken
from .lowering import Level, Lowering
from .slabs import slab_element

if TYPE_CHECKING:
    from .statements import Place


def lower_for(low: Lowering, stmt: For, at: Place) -> Block:
    """A loop of the program."""
    from .statements import lower_block

    path = (*at.path, at.position)
    trips = constant_trips(stmt)
    if trips == 0:
        return ()
    if trips == 1:
        return lower_block(low, substitute(stmt.body, {stmt.var: stmt.start}), path, at.bound)
    if trips is not None and (stmt.role == "VEC" or stmt.unroll == trips):
        return lower_replicated(low, stmt, trips, path, at)
    start, stop = low.tidy(stmt.start), low.tidy(stmt.stop)
    low.levels.append(level := Level(stmt.var, start, stmt.step))
    low.repeats += 1
    with low.ranging({stmt.var: (low.low(start), max(low.low(start), low.high(stop) - 1))}):
        body = lower_block(low, stmt.body, path, at.bound)
    low.repeats -= 1
    low.levels.pop()
    # a serial loop holds barriers and is already as long as it should be; others are the assembler's to unroll
    unroll = stmt.unroll if stmt.unroll > 1 else int(stmt.role == "serial")
    loop = Loop(stmt.var, low.read(start), low.read(stop), (*level.head, *body, *level.tail), stmt.step, unroll)
    return (*level.before, loop)


def constant_trips(stmt: For) -> int | None:
    """How often a loop turns, where that is known."""
    if not (is_int(stmt.start) and is_int(stmt.stop) and is_int(stmt.step)):
        return None
    return max(0, -(-(stmt.stop - stmt.start) // stmt.step))


def lower_replicated(low: Lowering, stmt: For, trips: int, path: tuple[int, ...], at: Place) -> Block:
    """A loop whose variable is an immediate. Along a VEC loop neighbouring words are loaded at once, ahead of its steps."""
    from .statements import lower_block

    body = stmt.body
    if stmt.start != 0 or stmt.step != 1:
        body = substitute(body, {stmt.var: add(multiply(Var(stmt.var), stmt.step), stmt.start)})
    low.replicated[stmt.var] = trips
    outer = dict(low.env)
    low.repeats += 1
    ahead: tuple[Stmt, ...] = ()
    with low.ranging({stmt.var: (0, trips - 1)}):
        early: frozenset[int] = frozenset()
        if stmt.role == "VEC":
            ahead, early = load_ahead(low, stmt.var, trips, body, path, at)
        inner = lower_block(low, body, path, at.bound | {stmt.var}, early)
    low.repeats -= 1
    low.env = outer
    del low.replicated[stmt.var]
    return (*ahead, Replicate(stmt.var, trips, inner))


def load_ahead(low: Lowering, var: str, trips: int, body: Block, path: tuple[int, ...], at: Place) -> tuple[Block, frozenset[int]]:
    """The loads of a VEC loop that are one vector along it, and their positions in its body."""
    from .statements import Place, lower_load, vector_axis

    own = {stmt.dst for stmt in body if isinstance(stmt, (Let, Load))} | {s.acc for s in body if isinstance(s, Accumulate)}
    out: list[Stmt] = []
    positions: set[int] = set()
    low.vectors[var] = trips
    for position, stmt in enumerate(body):
        if not isinstance(stmt, Load) or free_names((stmt.idx, stmt.when)) & own or var in low.axes_of(weaken(low, stmt.when), at.bound):
            continue
        stage = low.stages.get(stmt.buf)
        element = slab_element(low, stage, stmt.idx) if stage else flat(low, stmt.buf, stmt.idx)
        size = DTYPE_BYTES[low.params[stage.src if stage else stmt.buf].dtype]
        if vector_axis(low, element, (var,), size) is not None:
            out += lower_load(low, stmt, Place(body, position, path, at.bound))
            positions.add(position)
    del low.vectors[var]
    return tuple(out), frozenset(positions)

