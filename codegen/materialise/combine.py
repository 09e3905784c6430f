"""Combine: fold in registers, then a butterfly over the lane bits of a THREAD axis, then one exchange through shared memory."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from ...ir.expr import Binary, Call, Expr, Var, add, floordiv, modulo, multiply
from ...ir.facts.layout import DTYPE_BYTES
from ...ir.kernel import SHARED, Address, Assign, Barrier, Base, Branch, Butterfly, Define, Element, LoadFrom, Registers, StoreTo
from ...ir.program import Block, Stmt
from ...ir.tile import Combine
from .addresses import resolve
from .lowering import Held, Lowering, Value

if TYPE_CHECKING:
    from .statements import Place

WARP = 32
VECTOR_BYTES = 16


def lower_combine(low: Lowering, stmt: Combine, at: Place) -> Block:
    """All threads and registers along the axes get the combined value, in a fixed order."""
    whole = low.env[stmt.acc]
    over = [axis.name for axis in stmt.over]
    out: list[Stmt] = []
    if any(axis in over for axis in whole.axes):
        folded, held = fold(low, stmt, whole, over)
        out += folded
    else:
        assert isinstance(whole, Held)
        held = whole
    for axis in low.threads:
        if axis.name in over:
            out += combine_threads(low, stmt.fn, held, axis.name)
    if held is not whole:
        if at.path == low.accumulators[stmt.acc].path:
            low.env[stmt.acc] = held
        elif isinstance(whole, Held):  # read outside of this block too: every register gets the result
            out += low.nest(whole.axes, (Assign(low.register(whole), low.register(held)),))
    return tuple(out)


def fold(low: Lowering, stmt: Combine, value: Value, over: list[str]) -> tuple[Block, Held]:
    """What registers hold along the axes, folded as a tree."""
    kept = tuple(axis for axis in value.axes if axis not in over)
    gone = [axis for axis in value.axes if axis in over]
    places = itertools.product(*(range(low.replicated[axis]) for axis in gone))
    terms = [low.read(Var(stmt.acc), dict(zip(gone, place, strict=True))) for place in places]
    result = Held(low.fresh(f"{stmt.acc}_all"), kept, value.dtype)
    val = tree(stmt.fn, terms)
    if not kept:
        return (Define(result.name, value.dtype, val, 1),), result
    registers = Registers(result.name, value.dtype, low.extents(kept))
    return (registers, *low.nest(kept, (Assign(low.register(result), val),))), result


def tree(fn: str, terms: list[Expr]) -> Expr:
    """fn of all terms, neighbours first."""
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [Call(fn, tuple(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0]


class Split(NamedTuple):
    """A THREAD axis in the warp: threads from one of its values to the next, values inside a warp, and the rest."""

    stride: int
    lanes: int
    parts: int


def split_axis(low: Lowering, name: str) -> Split:
    """How much of a THREAD axis lanes of one warp cover. A butterfly flips bits, so both sizes must be powers of two."""
    position = next(i for i, axis in enumerate(low.threads) if axis.name == name)
    stride = math.prod(axis.extent for axis in low.threads[position + 1 :])
    extent = low.threads[position].extent
    lanes = math.gcd(extent, WARP // stride) if stride & (stride - 1) == 0 and stride < WARP else 1
    return Split(stride, lanes, extent // lanes)


def combine_threads(low: Lowering, fn: str, held: Held, name: str) -> Block:
    """All threads along one axis get the combined value."""
    split = split_axis(low, name)
    out: list[Stmt] = []
    if split.lanes > 1:
        lanes = Butterfly(low.register(held), fn, split.stride, split.stride * split.lanes // 2)
        out += low.nest(held.axes, (lanes,))
    if split.parts > 1:
        out += exchange(low, fn, held, name, split)
    return tuple(out)


def exchange(low: Lowering, fn: str, held: Held, name: str, split: Split) -> Block:
    """One partial value per warp (or thread) goes through shared memory; everybody reads all and combines them in order."""
    size = DTYPE_BYTES[held.dtype]
    axis = Var(name)
    count = math.prod(low.extents(held.axes))
    groups = low.thread_count // (split.lanes * split.parts)
    inner = split.stride == 1
    thread = low.thread
    group = low.tidy(
        add(
            multiply(floordiv(thread, split.stride * split.lanes * split.parts), split.stride),
            modulo(thread, split.stride) if split.stride > 1 else 0,
        )
    )
    # where the axis is not the innermost, neighbouring threads hold neighbouring groups: keep a vector of each together
    last = held.axes[-1] if held.axes and not inner else None
    vector = last if last in low.vectors and low.replicated[last] * size in (8, 16) else None
    outer = tuple(a for a in held.axes if a != vector)
    width = low.replicated[vector] if vector else 1
    element: Expr = 0
    for a in outer:
        element = add(multiply(element, low.replicated[a]), Var(a))

    def byte(part: Expr) -> Expr:
        if inner:
            word = add(multiply(add(multiply(group, count), element), split.parts), part)
        else:
            word = multiply(add(multiply(add(multiply(element, split.parts), part), groups), group), width)
        return low.tidy(multiply(word, size))

    area = low.fresh(f"{held.name}_x")
    low.top.head.append(Base(area, SHARED, low.allocate(size * count * split.parts * groups)))

    def address(part: Expr, hint: str) -> Address:
        return Address(*resolve(low, area, byte(part), f"{held.name}_{hint}", shared=True))

    def lane(i: int) -> Expr:
        return low.register(held, {vector: i} if vector else None)

    put: Block = (StoreTo(held.dtype, address(low.tidy(floordiv(axis, split.lanes)), "put"), tuple(map(lane, range(width)))),)
    put = low.nest(outer, put)
    if split.lanes > 1:
        put = (Branch(Binary("==", low.tidy(modulo(axis, split.lanes)), 0), put),)
    part_name = low.fresh(f"{held.name}_part")
    get: list[Stmt] = [Registers(part_name, held.dtype, (split.parts, width) if width > 1 else (split.parts,))]
    at_once = max(n for n in (4, 2, 1) if split.parts % n == 0 and n * size <= VECTOR_BYTES) if inner else width
    for part in range(0, split.parts, at_once if inner else 1):
        get.append(LoadFrom(Element(part_name, (part,)), held.dtype, address(part, "get"), at_once))
    for i in range(width):
        own = (i,) if width > 1 else ()
        terms: list[Expr] = [Element(part_name, (part, *own)) for part in range(split.parts)]
        get.append(Assign(lane(i), tree(fn, terms)))
    # in a loop the readers of the last turn must be done before the area is written again
    again: Block = (Barrier(),) if low.repeats else ()
    return (*again, *put, Barrier(), *low.nest(outer, tuple(get)))
