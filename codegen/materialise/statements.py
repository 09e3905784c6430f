"""Blocks and the statements that compute: loads, values, accumulations, stores, guards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ...ir.diagnostic import InternalError
from ...ir.expr import Binary, Call, Expr, Var, both, free_names
from ...ir.facts.layout import DTYPE_BYTES, is_vector
from ...ir.functions import identity
from ...ir.kernel import Address, Assign, Branch, Define, Element, LoadFrom, Registers, StoreTo
from ...ir.loop import Accumulate, For, If, Let, Load, Store
from ...ir.node import Node, memoised, nodes
from ...ir.program import Block, Stmt
from ...ir.substitute import substitute
from ...ir.tile import Combine, Stage, Sync, Wait
from . import combine, copies, loops
from .addresses import flat, global_address
from .guards import settle, weaken
from .lowering import Held, Inlined, Lowering, Path, Value
from .slabs import slab_address, slab_element

INLINE_CALLS = 6  # a longer expression gets a name of its own, for the reader: registers cost nothing
VECTOR_BYTES = (4, 8, 16)


class Place(NamedTuple):
    """Where a statement stands: its block, its position, the path of the block, axes that loops around it have fixed."""

    block: Block
    position: int
    path: Path
    bound: frozenset[str]


def lower_block(low: Lowering, block: Block, path: Path, bound: frozenset[str], skip: frozenset[int] = frozenset()) -> Block:
    """A block: its accumulators, then its statements (but for the positions in `skip`). Its values end with it."""
    outer = dict(low.env)
    out: list[Stmt] = []
    for accumulator in low.accumulators.values():
        if accumulator.path == path:
            axes = accumulator.axes(low, bound)
            name = low.fresh(accumulator.name)
            low.env[accumulator.name] = Held(name, axes, accumulator.dtype)
            if not accumulator.direct:
                out += initialised(low, low.env[accumulator.name], identity(accumulator.fn, accumulator.dtype))
    for position, stmt in enumerate(block):
        if position not in skip:
            out += LOWER[type(stmt)](low, stmt, Place(block, position, path, bound))
    low.env = outer
    return tuple(out)


def initialised(low: Lowering, held: Value, value: Any) -> Block:
    """The registers of an accumulator, all with one value."""
    assert isinstance(held, Held)
    if not held.axes or value == 0:
        return (Registers(held.name, held.dtype, low.extents(held.axes), value),)
    registers = Registers(held.name, held.dtype, low.extents(held.axes))
    return (registers, *low.nest(held.axes, (Assign(low.register(held), value),)))


# ---- memory


def lower_load(low: Lowering, stmt: Load, at: Place) -> Block:
    """A load, one vector instruction along the innermost VEC axis that its address allows."""
    stage = low.stages.get(stmt.buf)
    if stmt.buf in low.written:
        raise InternalError(f"kernel `{low.kernel.name}` reads `{stmt.buf}`, which it writes")
    dtype = low.params[stage.src if stage else stmt.buf].dtype
    element = slab_element(low, stage, stmt.idx) if stage else flat(low, stmt.buf, stmt.idx)
    when = weaken(low, stmt.when)
    vector = vector_axis(low, element, low.axes_of(stmt.idx, at.bound), DTYPE_BYTES[dtype], low.axes_of(when, at.bound))
    idx, width = stmt.idx, 1
    if vector is None:
        when = stmt.when
    else:
        idx, width = substitute(idx, {vector: 0}), low.replicated[vector]
        element = low.tidy(substitute(element, {vector: 0}))
    axes = low.axes_of((stmt.idx, when), at.bound)
    axes = tuple(axis for axis in axes if axis != vector) + ((vector,) if vector else ())
    name = low.fresh(stmt.dst)
    address = slab_address(low, stage, idx, f"{stmt.dst}_rd") if stage else global_address(low, stmt.buf, element)
    value = Held(name, axes, dtype)
    into = low.register(value, skip=(vector,) if vector else ())
    load = LoadFrom(into, dtype, address, width, low.read(settle(low, when)), stmt.other)
    low.env[stmt.dst] = value
    return (Registers(name, dtype, low.extents(axes)), *low.nest(axes[:-1] if vector else axes, (load,)))


def vector_axis(low: Lowering, element: Expr, axes: tuple[str, ...], size: int, guards: tuple[str, ...] = ()) -> str | None:
    """The innermost VEC axis along which an access is one instruction, if there is one and no guard varies along it."""
    for axis in reversed(axes):
        width = low.vectors.get(axis)
        if width is None or width * size not in VECTOR_BYTES or axis in guards:
            continue
        if is_vector(element, axis, width) and not low.varies(element, axis):
            return axis
    return None


def lower_store(low: Lowering, stmt: Store, at: Place) -> Block:
    """A store, one vector instruction along the innermost VEC axis that its address allows."""
    dtype = low.params[stmt.buf].dtype
    val = stmt.val if low.dtype(stmt.val) == dtype or not isinstance(stmt.val, Node) else Call(dtype, (stmt.val,))
    element = flat(low, stmt.buf, stmt.idx)
    axes = low.axes_of((stmt.idx, val), at.bound)
    vector = vector_axis(low, element, low.axes_of(stmt.idx, at.bound), DTYPE_BYTES[dtype])
    if vector is None:
        values: tuple[Expr, ...] = (low.read(val),)
    else:
        element = low.tidy(substitute(element, {vector: 0}))
        values = tuple(low.read(val, {vector: lane}) for lane in range(low.vectors[vector]))
    store = StoreTo(dtype, global_address(low, stmt.buf, element), values)
    return low.nest(tuple(axis for axis in axes if axis != vector), (store,))


# ---- values


def lower_let(low: Lowering, stmt: Let, at: Place) -> Block:
    """A value: in the expression that reads it if that is the only one, else in registers."""
    axes, dtype = low.axes_of(stmt.val, at.bound), low.dtype(stmt.val)
    inlined = Inlined(stmt.val, axes, dtype, accumulators_in(low, stmt.val), calls_in(low, stmt.val))
    if inlined.calls <= INLINE_CALLS and read_once(low, stmt.dst, inlined, at):
        low.env[stmt.dst] = inlined
        return ()
    name = low.fresh(stmt.dst)
    val = low.read(stmt.val)
    value = low.env[stmt.dst] = Held(name, axes, dtype)
    if not axes:
        return (Define(name, dtype, val),)
    return (Registers(name, dtype, low.extents(axes)), *low.nest(axes, (Assign(low.register(value), val),)))


def accumulators_in(low: Lowering, e: Expr) -> frozenset[str]:
    """The accumulators that an expression reads, also through inlined values."""
    found: set[str] = set()
    for name in free_names(e):
        value = low.env.get(name)
        if isinstance(value, Inlined):
            found |= value.accumulators
        elif name in low.accumulators:
            found.add(name)
    return frozenset(found)


def calls_in(low: Lowering, e: Expr) -> int:
    """The number of function calls in an expression with its inlined values written out."""
    values = (low.env.get(name) for name in free_names(e))
    return sum(1 for _ in nodes(e, Call)) + sum(value.calls for value in values if isinstance(value, Inlined))


def read_once(low: Lowering, name: str, value: Inlined, at: Place) -> bool:
    """Whether the one reader is a later computation of this block, runs as often, and nothing the value reads changes before.

    Per block, since peeled copies of a loop reuse names; a product that kept an array of its own would not become an FFMA.
    """
    later = at.block[at.position + 1 :]
    readers = [(n, stmt) for n, stmt in enumerate(later) if name in mentions(stmt)]
    if len(readers) != 1 or mentions(readers[0][1])[name] != 1:
        return False
    position, reader = readers[0]
    if not isinstance(reader, (Let, Accumulate, Store)) or name not in free_names(reader.val):
        return False
    changed = {s.acc for s in nodes(later[:position], Accumulate, Combine)}
    if changed & value.accumulators:
        return False
    axes = low.axes_of((reader.val, getattr(reader, "idx", ()), value.val), at.bound)
    return isinstance(reader, Accumulate) or set(axes) <= set(value.axes)


@memoised
def mentions(stmt: Node) -> Counter[str]:
    """How often a statement reads each name, at any depth."""
    fields = [getattr(stmt, field.name) for field in type(stmt).fields]
    counts = Counter(var.name for e in fields for var in nodes(e, Var) if not isinstance(e, tuple) or not _is_block(e))
    for block in filter(_is_block, fields):
        for inner in block:
            counts += mentions(inner)
    return counts


def _is_block(value: Any) -> bool:
    return value.__class__ is tuple and bool(value) and isinstance(value[0], Stmt)


def lower_accumulate(low: Lowering, stmt: Accumulate, at: Place) -> Block:
    """acc <- fn(acc, val), for every value of the axes that either varies with."""
    accumulator = low.accumulators[stmt.acc]
    held = low.env[stmt.acc]
    assert isinstance(held, Held)
    axes = low.axes_of((stmt.val, Var(stmt.acc)), at.bound)
    place, val = low.register(held), low.read(stmt.val)
    if not accumulator.direct:
        snake = bool(low.tile.snake) and len(axes) > 1 and not accumulator.combined & low.replicated.keys()
        return low.nest(axes, (Assign(place, Call(stmt.fn, (place, val))),), snake)
    first: Expr = True
    for axis in axes:
        if axis not in held.axes:
            first = both(first, Binary("==", Var(axis), 0))
    if not axes:
        return (Define(held.name, held.dtype, val, 1),)
    if first is True and accumulator.combines == [at.path] and accumulator.combined.issuperset(held.axes):
        # the Combine folds what is added up: no registers of its own in between
        low.env[stmt.acc] = Inlined(stmt.val, held.axes, held.dtype, accumulators_in(low, stmt.val), calls_in(low, stmt.val))
        return ()
    registers = Registers(held.name, held.dtype, low.extents(held.axes))
    steps: list[Stmt] = []
    if first is not True:
        if isinstance(val, Call):  # a name for what stands on both sides of the select
            name = low.fresh(stmt.val.name if isinstance(stmt.val, Var) else f"{stmt.acc}_next")
            steps.append(Define(name, held.dtype, val))
            val = Var(name)
        val = Call("where", (first, val, Call(stmt.fn, (place, val))))
    return (registers, *low.nest(axes, (*steps, Assign(place, val))))


# ---- control


def lower_if(low: Lowering, stmt: If, at: Place) -> Block:
    """A guard, tested once per vector where it does not depend on the position inside."""
    cond = weaken(low, stmt.cond)
    axes = low.axes_of(cond, at.bound)
    path = (*at.path, at.position)
    cond = settle(low, cond)
    if cond is False:
        return ()
    if cond is True:
        return lower_block(low, stmt.body, path, at.bound)
    cond = low.read(cond)
    return low.nest(axes, (Branch(cond, lower_block(low, stmt.body, path, at.bound | set(axes))),))


LOWER: dict[type[Stmt], Callable[[Lowering, Any, Place], Block]] = {
    Load: lower_load,
    Store: lower_store,
    Let: lower_let,
    Accumulate: lower_accumulate,
    If: lower_if,
    For: loops.lower_for,
    Stage: copies.lower_stage,
    Sync: copies.lower_sync,
    Wait: copies.lower_wait,
    Combine: combine.lower_combine,
}

__all__ = ["Address", "Element", "Place", "lower_block", "lower_load"]
