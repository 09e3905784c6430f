"""Combine: fold in registers, then a butterfly over lane bits of a THREAD axis, then one exchange through memory."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

from ...ir.expr import Binary, Call, Var, add, floordiv, modulo, multiply
from ...ir.facts.layout import DTYPE_BYTES
from ...ir.kernel import (  # fmt: skip
    SHARED,
    Address,
    Assign,
    Base,
    Branch,
    Butterfly,
    Define,
    Element,
    LoadFrom,
    Registers,
    StoreTo,
)
from ...ir.node import Expr
from ...ir.program import Block, Stmt
from ...ir.tile import Combine
from .addresses import resolve
from .lowering import Held, Lowering, Place, Value, allocate, fresh
from .ranges import tidied
from .registers import extents, in_registers, nest, register_of

WARP = 32
EXCHANGED_BYTES = (8, 16)  # what one instruction moves of several partial values


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
            out += nest(low, whole.axes, (Assign(register_of(low, whole), register_of(low, held)),))
    return tuple(out)


def fold(low: Lowering, stmt: Combine, value: Value, over: list[str]) -> tuple[Block, Held]:
    """What registers hold along the axes, folded as a tree."""
    kept = tuple(axis for axis in value.axes if axis not in over)
    gone = [axis for axis in value.axes if axis in over]
    places = itertools.product(*(range(low.replicated[axis]) for axis in gone))
    terms = [in_registers(low, Var(stmt.acc), dict(zip(gone, place, strict=True))) for place in places]
    result = Held(fresh(low, f"{stmt.acc}_all"), kept, value.dtype)
    val = tree(stmt.fn, terms)
    if not kept:
        return (Define(result.name, value.dtype, val, 1),), result
    registers = Registers(result.name, value.dtype, extents(low, kept))
    return (registers, *nest(low, kept, (Assign(register_of(low, result), val),))), result


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
    """How much of a THREAD axis one warp covers. A butterfly flips bits, so both sizes must be powers of two."""
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
        lanes = Butterfly(register_of(low, held), fn, split.stride, split.stride * split.lanes // 2)
        out += nest(low, held.axes, (lanes,))
    if split.parts > 1:
        out += Exchange(low, fn, held, Var(name), split).lower()
    return tuple(out)


@dataclass
class Exchange:
    """One partial value per warp (or per thread) goes through shared memory; all read all and combine them in order.

    Where the axis is the innermost, the partials of one group are neighbours, and are read as vectors. Elsewhere
    neighbouring threads hold neighbouring groups, and what one of them holds along a VEC axis is kept together.
    """

    low: Lowering
    fn: str
    held: Held
    axis: Var
    split: Split

    def __post_init__(self) -> None:
        low, (stride, lanes, parts) = self.low, self.split
        self.size = DTYPE_BYTES[self.held.dtype]
        self.inner = stride == 1
        self.groups = low.thread_count // (lanes * parts)
        last = self.held.axes[-1] if self.held.axes and not self.inner else ""
        fits = last in low.vectors and low.replicated[last] * self.size in EXCHANGED_BYTES
        self.vector = last if fits else None
        self.width = low.replicated[last] if fits else 1
        self.outer = tuple(axis for axis in self.held.axes if axis != self.vector)
        self.count = math.prod(extents(low, self.held.axes))
        group: Expr = multiply(floordiv(low.thread, stride * lanes * parts), stride)
        self.group = tidied(low, add(group, modulo(low.thread, stride)))
        self.area = fresh(low, f"{self.held.name}_x")
        offset = allocate(low, self.size * self.count * parts * self.groups)
        low.top.head.append(Base(self.area, SHARED, offset))

    def lower(self) -> Block:
        # in a loop the readers of the last turn must be done before the area is written again
        again: Block = (self.low.barrier,) if self.low.repeats else ()
        return (*again, *self.put(), self.low.barrier, *nest(self.low, self.outer, self.get()))

    def put(self) -> Block:
        """One lane of each group of lanes stores what they hold."""
        lanes = self.split.lanes
        to = self.address(tidied(self.low, floordiv(self.axis, lanes)), "put")
        store = StoreTo(self.held.dtype, to, tuple(map(self.element, range(self.width))))
        put = nest(self.low, self.outer, (store,))
        return (Branch(Binary("==", tidied(self.low, modulo(self.axis, lanes)), 0), put),) if lanes > 1 else put

    def get(self) -> Block:
        """Every thread reads all partials and combines them."""
        parts, dtype = self.split.parts, self.held.dtype
        name = fresh(self.low, f"{self.held.name}_part")
        dims = (parts, self.width) if self.width > 1 else (parts,)
        out: list[Stmt] = [Registers(name, dtype, dims), *self.reads(name, ())]
        for lane in range(self.width):
            own = (lane,) if self.width > 1 else ()
            terms: list[Expr] = [Element(name, (part, *own)) for part in range(parts)]
            out.append(Assign(self.element(lane), tree(self.fn, terms)))
        return tuple(out)

    def reads(self, name: str, here: tuple[Expr, ...]) -> Block:
        """Loads of all partials into registers, from the place `here` of an array on."""
        parts = self.split.parts
        wide = (n for n in (4, 2) if self.inner and parts % n == 0 and n * self.size in EXCHANGED_BYTES)
        step = next(wide, 1)
        width = step if self.inner else self.width
        sources = ((part, self.address(part, "get")) for part in range(0, parts, step))
        return tuple(LoadFrom(Element(name, (*here, part)), self.held.dtype, to, width) for part, to in sources)

    def element(self, lane: int) -> Expr:
        """What a thread holds at the current place of the outer axes."""
        return register_of(self.low, self.held, {self.vector: lane} if self.vector else None)

    def address(self, part: Expr, hint: str) -> Address:
        """Where a partial value of this thread's group stands."""
        element: Expr = 0
        for axis in self.outer:
            element = add(multiply(element, self.low.replicated[axis]), Var(axis))
        if self.inner:
            place = add(multiply(add(multiply(self.group, self.count), element), self.split.parts), part)
        else:
            place = add(multiply(add(multiply(element, self.split.parts), part), self.groups), self.group)
        byte = tidied(self.low, multiply(place, self.width * self.size))
        return Address(*resolve(self.low, self.area, byte, f"{self.held.name}_{hint}", shared=True))
