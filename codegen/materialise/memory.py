"""Loads and stores: one vector instruction where a VEC axis and the address allow it, else element by element."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.diagnostic import InternalError
from ...ir.expr import Call, free_names
from ...ir.facts.layout import DTYPE_BYTES, VECTOR_BYTES, is_vector, operand_of
from ...ir.functions import opmath
from ...ir.kernel import CheckPlace, LoadFrom, Registers, StoreTo
from ...ir.loop import Load, Store
from ...ir.node import Expr, Node
from ...ir.program import Block, Stmt
from ...ir.ranges import interval
from ...ir.sizes import lowest
from ...ir.substitute import substitute
from ...ir.tile import Stage
from .addresses import flat, global_address
from .fragments import lower_matrices
from .guards import simplify_condition, weaken
from .lowering import Held, LateOperand, Lowering, Place, fresh
from .ranges import tidied
from .registers import axes_of, dtype_in, extents, in_registers, nest, register_of, varies
from .slabs import slab_address, slab_dtype, slab_element


def lower_load(low: Lowering, stmt: Load, at: Place) -> Block:
    """A load into registers. Its guard is tested once per vector, or else the load is no vector."""
    if stmt.buf in low.written:
        raise InternalError(f"kernel `{low.kernel.name}` reads `{stmt.buf}`, which it writes")
    if stmt in low.views:
        low.env[stmt.dst] = LateOperand(stmt, axes_of(low, stmt.idx, at.bound), dtype_of_buffer(low, stmt.buf))
        return ()
    stage, element, when = low.stages.get(stmt.buf), element_of(low, stmt), weaken(low, stmt.when)
    if isinstance(stage, Stage) and (operand := operand_of(stmt.dst, at.block[at.position + 1 :])) is not None:
        matrices = lower_matrices(low, stmt, stage, operand, at)
        if matrices is not None:
            return matrices
    guarded = axes_of(low, when, at.bound)
    vector = vector_axis(low, stmt.buf, element, [a for a in axes_of(low, stmt.idx, at.bound) if a not in guarded])
    idx, width = stmt.idx, 1
    if vector is None:
        when = stmt.when
    else:
        idx, width = substitute(idx, {vector: 0}), low.replicated[vector]
        element = tidied(low, substitute(element, {vector: 0}))
    axes = tuple(axis for axis in axes_of(low, (stmt.idx, when), at.bound) if axis != vector)
    address = slab_address(low, stage, idx, f"{stmt.dst}_rd") if stage else global_address(low, stmt.buf, element)
    inner = (vector,) if vector else ()
    dtype = dtype_of_buffer(low, stmt.buf)
    value = Held(fresh(low, stmt.dst), (*axes, *inner), opmath(dtype))
    into = register_of(low, value, skip=inner)
    load = LoadFrom(into, dtype, address, width, in_registers(low, simplify_condition(low, when)), stmt.other)
    checks = () if stage else place_checks(low, stmt, when, vector, at)
    low.env[stmt.dst] = value
    return (*checks, Registers(value.name, value.dtype, extents(low, value.axes)), *nest(low, axes, (load,)))


def place_checks(low: Lowering, stmt: Load, when: Expr, vector: str | None, at: Place) -> Block:
    """What stops the kernel before a load whose place the data says, where the ranges do not prove that it exists."""
    checks: list[Stmt] = []
    for position, extent in zip(stmt.idx, low.params[stmt.buf].shape, strict=True):
        first, last = interval(tidied(low, position), low.ranges)
        if not free_names(position) & low.env.keys() or (first >= 0 and last < lowest(extent)):
            continue
        lanes = (0, low.replicated[vector] - 1) if vector is not None and vector in free_names(position) else (0,)
        for lane in lanes:
            place = substitute(position, {vector: lane}) if vector is not None else position
            check = CheckPlace(
                in_registers(low, tidied(low, place)), extent, in_registers(low, simplify_condition(low, when))
            )
            checks += nest(low, axes_of(low, (place, when), at.bound), (check,))
    return tuple(checks)


def lower_store(low: Lowering, stmt: Store, at: Place) -> Block:
    """A store to a buffer or a slab, converted to what its dtype is computed in; the last rounding is the store's."""
    dtype = dtype_of_buffer(low, stmt.buf)
    converts = isinstance(stmt.val, Node) and dtype_in(low, stmt.val) != opmath(dtype)
    val = Call(opmath(dtype), (stmt.val,)) if converts else stmt.val
    vector = vector_axis(low, stmt.buf, element_of(low, stmt), axes_of(low, stmt.idx, at.bound), several=True)
    width = 1 if vector is None else low.vectors[vector]
    at_once = min(width, VECTOR_BYTES[-1] // DTYPE_BYTES[dtype_of_buffer(low, stmt.buf)])
    stores = []
    for first in range(0, width, at_once):
        idx = stmt.idx if vector is None else substitute(stmt.idx, {vector: first})
        lanes = [{}] if vector is None else [{vector: first + lane} for lane in range(at_once)]
        values = tuple(in_registers(low, val, lane) for lane in lanes)
        stores.append(StoreTo(dtype, _address_of_store(low, stmt, idx), values))
    axes = axes_of(low, (stmt.idx, val), at.bound)
    return nest(low, tuple(axis for axis in axes if axis != vector), tuple(stores))


def _address_of_store(low: Lowering, stmt: Store, idx: tuple[Expr, ...]) -> Expr:
    """Where a store, or one of several vectors of it, goes."""
    stage = low.stages.get(stmt.buf)
    if stage:
        return slab_address(low, stage, idx, f"{stmt.buf}_wr")
    return global_address(low, stmt.buf, tidied(low, flat(low, stmt.buf, idx)))


def element_of(low: Lowering, stmt: Load | Store) -> Expr:
    """The element of an access, counted from the start of its buffer or slab."""
    stage = low.stages.get(stmt.buf)
    return slab_element(low, stage, stmt.idx) if stage else flat(low, stmt.buf, stmt.idx)


def dtype_of_buffer(low: Lowering, buf: str) -> str:
    """The dtype of a buffer, or of the source of a slab."""
    stage = low.stages.get(buf)
    return slab_dtype(low, stage) if stage else low.params[buf].dtype


def vector_axis(low: Lowering, buf: str, element: Expr, axes: Sequence[str], several: bool = False) -> str | None:
    """The innermost of the axes along which an access to a buffer is one vector instruction, if there is one; or, if
    asked for, several of the largest."""
    size, most = DTYPE_BYTES[dtype_of_buffer(low, buf)], VECTOR_BYTES[-1]
    for axis in reversed(axes):
        width = low.vectors.get(axis)
        if width is None or not (width * size in VECTOR_BYTES or (several and width * size % most == 0)):
            continue
        if is_vector(element, axis, width) and not varies(low, element, axis):
            return axis
    return None
