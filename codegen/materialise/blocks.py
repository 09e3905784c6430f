"""Blocks, guards and loops.

Unrolled loops are one more replicated axis; the others are a level of the nest with address registers of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import tile
from ...ir.diagnostic import InternalError
from ...ir.expr import Var, add, free_names, multiply
from ...ir.kernel import Branch, Loop, Replicate
from ...ir.loop import Accumulate, Carry, For, If, Let, Load, Merge, Scale, Store
from ...ir.program import Block, Stmt
from ...ir.substitute import substitute
from ...ir.text.print_statements import print_statement
from .accumulators import replicated_axes
from .combine import lower_combine
from .combine_tuple import lower_combine_tuple
from .copies import lower_put, lower_stage, lower_sync, lower_wait
from .fragments import lower_mma
from .guards import simplify_condition, weaken
from .late import lower_settle
from .lowering import Held, Level, Lowering, Path, Place, fresh
from .memory import element_of, lower_load, lower_store, vector_axis
from .ranges import counter_dtype, greatest, least, ranging, tidied
from .registers import axes_of, in_registers, nest
from .relays import lower_enter, lower_leave
from .rings import lower_acquire, lower_await, lower_release, lower_team
from .scan import lower_scan
from .trips import trip_count
from .values import initialised, lower_accumulate, lower_let, lower_merge, lower_nothing, lower_scale

NONE: frozenset[int] = frozenset()


def lower_block(low: Lowering, block: Block, path: Path, bound: frozenset[str], done: frozenset[int] = NONE) -> Block:
    """A block: its accumulators, then its statements (but for the positions in `done`). Its values end with it."""
    outer = dict(low.env)
    out: list[Stmt] = []
    for accumulator in low.accumulators.values():
        if accumulator.path == path:
            held = Held(fresh(low, accumulator.name), replicated_axes(low, accumulator, bound), accumulator.dtype)
            low.env[accumulator.name] = held
            if not accumulator.direct:
                out += initialised(low, accumulator, held)
    for position, stmt in enumerate(block):
        if position not in done:
            lower = LOWER.get(type(stmt))
            if lower is None:
                where = f"in `{print_statement(stmt).splitlines()[0]}`"
                hint = "add one to LOWER in codegen/materialise/blocks.py"
                raise InternalError(f"`{type(stmt).__name__}` has no lowering to Kernel IR", None, (where,), hint)
            made = lower(low, stmt, Place(block, position, path, bound))
            if low.heard is not None:
                low.heard.append(((*path, position), made))
            out += made
    low.env = outer
    return tuple(out)


def lower_if(low: Lowering, stmt: If, at: Place) -> Block:
    """A guard, tested once per vector where it does not depend on the position inside."""
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
    """A loop of the program."""
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


def lower_replicated(low: Lowering, stmt: For, trips: int, path: Path, bound: frozenset[str]) -> Block:
    """A loop whose variable is an immediate. Along a VEC loop neighbours are loaded at once, ahead of its steps."""
    body = stmt.body
    if stmt.start != 0 or stmt.step != 1:
        body = substitute(body, {stmt.var: add(multiply(Var(stmt.var), stmt.step), stmt.start)})
    low.replicated[stmt.var] = trips
    outer = dict(low.env)
    low.repeats += 1
    ahead: Block = ()
    done = NONE
    with ranging(low, {stmt.var: (0, trips - 1)}):
        if stmt.role == "VEC":
            ahead, done = load_ahead(low, stmt.var, trips, body, path, bound)
        inner = lower_block(low, body, path, bound | {stmt.var}, done)
    low.repeats -= 1
    low.env = outer
    del low.replicated[stmt.var]
    return (*ahead, Replicate(stmt.var, trips, inner))


def load_ahead(
    low: Lowering, var: str, trips: int, body: Block, path: Path, bound: frozenset[str]
) -> tuple[Block, frozenset[int]]:
    """The loads of a VEC loop that are one vector along it, and their positions in its body."""
    own = {stmt.dst for stmt in body if isinstance(stmt, (Let, Load))}
    own |= {stmt.acc for stmt in body if isinstance(stmt, Accumulate)}
    own |= {acc for stmt in body if isinstance(stmt, Merge) for acc in stmt.accs}
    out: list[Stmt] = []
    done: set[int] = set()
    low.vectors[var] = trips
    for position, stmt in enumerate(body):
        if not isinstance(stmt, Load) or free_names((stmt.idx, stmt.when)) & own:
            continue
        if var in axes_of(low, weaken(low, stmt.when), bound):
            continue
        if vector_axis(low, stmt.buf, element_of(low, stmt), (var,)) is not None:
            made = lower_load(low, stmt, Place(body, position, path, bound))
            if low.heard is not None:
                low.heard.append(((*path, position), made))
            out += made
            done.add(position)
    del low.vectors[var]
    return tuple(out), frozenset(done)


LOWER: dict[type[Stmt], Callable[[Lowering, Any, Place], Block]] = {
    Load: lower_load,
    Store: lower_store,
    Let: lower_let,
    Accumulate: lower_accumulate,
    Merge: lower_merge,
    Scale: lower_scale,
    Carry: lower_nothing,
    tile.Slab: lower_nothing,
    If: lower_if,
    For: lower_for,
    tile.Stage: lower_stage,
    tile.Put: lower_put,
    tile.Sync: lower_sync,
    tile.Wait: lower_wait,
    tile.Combine: lower_combine,
    tile.CombineTuple: lower_combine_tuple,
    tile.Scan: lower_scan,
    tile.ScanTuple: lower_scan,
    tile.Mma: lower_mma,
    tile.Settle: lower_settle,
    tile.Ring: lower_nothing,
    tile.Team: lambda low, stmt, at: lower_team(low, stmt, at, lower_block),
    tile.Acquire: lower_acquire,
    tile.Await: lower_await,
    tile.Release: lower_release,
    tile.Enter: lower_enter,
    tile.Leave: lower_leave,
}
