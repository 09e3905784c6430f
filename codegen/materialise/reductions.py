"""Reductions and scans across threads.

A Combine reduces in registers, then by a butterfly over the lane bits of a THREAD axis, then by one exchange through
shared memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ...ir.expr import Binary, Call, Var, add, floordiv, modulo, multiply
from ...ir.facts.layout import DTYPE_BYTES
from ...ir.functions import identity
from ...ir.kernel import (
    SHARED,
    WARP,
    Address,
    Assign,
    Base,
    Branch,
    Butterfly,
    Define,
    Element,
    LoadFrom,
    Registers,
    Shuffle,
    StoreTo,
)
from ...ir.loop import Let
from ...ir.monoid_texts import ORDERED
from ...ir.monoids import Monoid, monoid
from ...ir.node import Expr
from ...ir.program import Block, Stmt
from ...ir.substitute import substitute
from ...ir.tile import Combine, CombineTuple, Scan, ScanTuple
from .expressions import axes_of, extents, in_registers, nest, register_of, resolve, tidied, type_of
from .lowering import Held, Lowering, Place, Value, allocate, fresh, held_in
from .values import defined

EXCHANGED_BYTES = (8, 16)  # what one instruction moves of several partial values


def lower_combine(low: Lowering, stmt: Combine, at: Place) -> Block:
    """Give all threads and registers along the axes the combined value, in a fixed order."""
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
    """Reduce the registers along the axes as a tree."""
    kept = tuple(axis for axis in value.axes if axis not in over)
    gone = [axis for axis in value.axes if axis in over]
    places = itertools.product(*(range(low.replicated[axis]) for axis in gone))
    terms = [in_registers(low, Var(stmt.acc), dict(zip(gone, place, strict=True))) for place in places]
    result = Held(fresh(low, f"{stmt.acc}_all"), kept, value.dtype)
    val = tree_of_calls(stmt.fn, terms)
    if not kept:
        return (Define(result.name, value.dtype, val, 1),), result
    registers = Registers(result.name, value.dtype, extents(low, kept))
    return (registers, *nest(low, kept, (Assign(register_of(low, result), val),))), result


Item = TypeVar("Item")


def tree(combine: Callable[[Item, Item], Item], items: list[Item]) -> Item:
    """Combine all items, neighbours first."""
    while len(items) > 1:
        pairs = [items[i : i + 2] for i in range(0, len(items), 2)]
        items = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return items[0]


def tree_of_calls(fn: str, terms: list[Expr]) -> Expr:
    return tree(lambda a, b: Call(fn, (a, b)), terms)


class Split(NamedTuple):
    """A THREAD axis in the warp: threads from one of its values to the next, values inside a warp, and the rest."""

    stride: int
    lanes: int
    parts: int


def split_axis(low: Lowering, name: str) -> Split:
    """Return the split of a THREAD axis into warps. A butterfly flips bits, so both sizes must be powers of two."""
    position = next(i for i, axis in enumerate(low.threads) if axis.name == name)
    stride = math.prod(axis.extent for axis in low.threads[position + 1 :])
    extent = low.threads[position].extent
    lanes = math.gcd(extent, WARP // stride) if stride & (stride - 1) == 0 and stride < WARP else 1
    return Split(stride, lanes, extent // lanes)


def combine_threads(low: Lowering, fn: str, held: Held, name: str) -> Block:
    """Give all threads along one axis the combined value."""
    split = split_axis(low, name)
    out: list[Stmt] = []
    if split.lanes > 1:
        lanes = Butterfly(register_of(low, held), fn, split.stride, split.stride * split.lanes // 2)
        out += nest(low, held.axes, (lanes,))
    if split.parts > 1:
        out += Exchange(low, fn, held, Var(name), split).lower()
    return tuple(out)


def again(low: Lowering) -> Block:
    """Return a barrier in a loop: readers of the last iteration must be done before the area is written again."""
    return (low.barrier,) if low.repeats else ()


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
        return (*again(self.low), *self.put(), self.low.barrier, *nest(self.low, self.outer, self.get()))

    def put(self) -> Block:
        """Store the values of each group of lanes by one of its lanes."""
        lanes = self.split.lanes
        to = self.address(tidied(self.low, floordiv(self.axis, lanes)), "put")
        store = StoreTo(self.held.dtype, to, tuple(map(self.element, range(self.width))))
        put = nest(self.low, self.outer, (store,))
        return (Branch(Binary("==", tidied(self.low, modulo(self.axis, lanes)), 0), put),) if lanes > 1 else put

    def get(self) -> Block:
        """Read all partials in every thread, and combine them."""
        parts, dtype = self.split.parts, self.held.dtype
        name = fresh(self.low, f"{self.held.name}_part")
        dims = (parts, self.width) if self.width > 1 else (parts,)
        out: list[Stmt] = [Registers(name, dtype, dims), *self.reads(name, ())]
        for lane in range(self.width):
            own = (lane,) if self.width > 1 else ()
            terms: list[Expr] = [Element(name, (part, *own)) for part in range(parts)]
            out.append(Assign(self.element(lane), tree_of_calls(self.fn, terms)))
        return tuple(out)

    def reads(self, name: str, here: tuple[Expr, ...]) -> Block:
        """Return the loads of all partials into registers, from the index `here` of an array on."""
        parts = self.split.parts
        wide = (n for n in (4, 2) if self.inner and parts % n == 0 and n * self.size in EXCHANGED_BYTES)
        step = next(wide, 1)
        width = step if self.inner else self.width
        sources = ((part, self.address(part, "get")) for part in range(0, parts, step))
        return tuple(LoadFrom(Element(name, (*here, part)), self.held.dtype, to, width) for part, to in sources)

    def element(self, lane: int) -> Expr:
        """Return the register of a thread at the current index of the outer axes."""
        return register_of(self.low, self.held, {self.vector: lane} if self.vector else None)

    def address(self, part: Expr, hint: str) -> Address:
        """Return the address of a partial value of this thread's group."""
        element: Expr = 0
        for axis in self.outer:
            element = add(multiply(element, self.low.replicated[axis]), Var(axis))
        if self.inner:
            place = add(multiply(add(multiply(self.group, self.count), element), self.split.parts), part)
        else:
            place = add(multiply(add(multiply(element, self.split.parts), part), self.groups), self.group)
        byte = tidied(self.low, multiply(place, self.width * self.size))
        return Address(*resolve(self.low, self.area, byte, f"{self.held.name}_{hint}", shared=True))


# ---- values that one statement computes in several steps


class RegisterSteps:
    """Statements as they are put down. dtype: of all values that they name. Their names end with the statement."""

    def __init__(self, low: Lowering, bound: frozenset[str], dtype: str):
        self.low, self.bound, self.dtype = low, bound, dtype
        self.out: list[Stmt] = []

    def named(self, hint: str, val: Expr, axes: tuple[str, ...], mutable: bool = False) -> Held:
        """Return a value in registers of its own; val: their contents at the current index of the axes."""
        low = self.low
        held = Held(fresh(low, hint), axes, self.dtype)
        low.env[held.name] = held
        if axes:
            self.out.append(Registers(held.name, self.dtype, extents(low, axes)))
            self.out += nest(low, axes, (Assign(register_of(low, held), val),))
        else:
            self.out.append(Define(held.name, self.dtype, val, int(mutable)))
        return held

    def of_partner(self, held: Held, lanes: int) -> Held:
        """Return the values of the lane whose number differs in one bit."""
        other = self.named(f"{held.name}_x", register_of(self.low, held), held.axes, mutable=True)
        self.out += nest(self.low, other.axes, (Shuffle(register_of(self.low, other), lanes),))
        return other

    def exchanged(self, exchanges: list[Exchange]) -> None:
        """Store all partial values, then meet at a barrier."""
        self.out += again(self.low)
        for exchange in exchanges:
            self.out += exchange.put()
        self.out.append(self.low.barrier)

    def partials(self, exchange: Exchange) -> list[Held]:
        """Return every partial value of this thread's group, in registers."""
        low, held = self.low, exchange.held
        name, here, inner = fresh(low, f"{held.name}_part"), tuple(map(Var, exchange.outer)), exchange.vector
        vector = (Var(inner),) if inner else ()
        width = (exchange.width,) if inner else ()
        self.out.append(Registers(name, self.dtype, (*extents(low, exchange.outer), exchange.split.parts, *width)))
        self.out += nest(low, exchange.outer, exchange.reads(name, here))
        places = [Element(name, (*here, number, *vector)) for number in range(exchange.split.parts)]
        return [self.named(f"{held.name}_part", place, held.axes, mutable=True) for place in places]


# ---- CombineTuple: combine partial tuples of a monoid by its own definitions
#
# Like Combine: a tree in registers, a butterfly over the lanes of a warp, one exchange through shared memory. All parts
# take each step together, so a tuple costs one barrier however many parts it has.


Parts = Mapping[str, Held]  # the registers of each part of a tuple


def lower_combine_tuple(low: Lowering, stmt: CombineTuple, at: Place) -> Block:
    """Give all threads and registers along the axes the combined tuple, in a fixed order."""
    known, outer = monoid(stmt.fn), dict(low.env)
    accs = dict(zip(known.parts, stmt.accs, strict=True))
    over = [axis.name for axis in stmt.over]
    work = _TupleWork(low, known, at.bound, type_of(low, stmt.accs[0]))
    parts = work.fold(accs, over)
    for axis in low.threads:
        if axis.name in over:
            parts = work.across(parts, axis.name)
    out = work.out
    low.env = outer
    for part, acc in accs.items():
        whole, held = held_in(low, acc), parts[part]
        if at.path == low.accumulators[acc].path:
            low.env[acc] = held
        else:  # read outside of this block too: every register gets the result
            out += nest(low, whole.axes, (Assign(register_of(low, whole), register_of(low, held)),))
    return tuple(out)


class _TupleWork(RegisterSteps):
    """Statements that combine tuples. dtype: of all parts."""

    def __init__(self, low: Lowering, known: Monoid, bound: frozenset[str], dtype: str):
        super().__init__(low, bound, dtype)
        self.known = known

    def merged(self, left: Parts, right: Parts) -> dict[str, Held]:
        """Return the tuple of two partial ones."""
        low = self.low
        names: dict[str, Expr] = {f"{part}1": Var(held.name) for part, held in left.items()}
        names |= {f"{part}2": Var(held.name) for part, held in right.items()}
        for definition in self.known.combine:
            assert isinstance(definition, Let)
            val = substitute(definition.val, names)
            held = self.named(definition.dst, in_registers(low, val), axes_of(low, val, self.bound), mutable=True)
            names[definition.dst] = Var(held.name)
        return {part: low.env[names[part].name] for part in self.known.parts}  # type: ignore[union-attr,misc]

    def fold(self, accs: Mapping[str, str], over: list[str]) -> dict[str, Held]:
        """Combine the registers of a thread along the axes."""
        low = self.low
        held = {part: low.env[acc] for part, acc in accs.items()}
        gone = [axis for axis in low.replicated if axis in over and any(axis in v.axes for v in held.values())]
        tuples = []
        for place in itertools.product(*(range(low.replicated[axis]) for axis in gone)):
            fixed, one = dict(zip(gone, place, strict=True)), {}
            for part, acc in accs.items():
                axes = tuple(axis for axis in held[part].axes if axis not in over)
                one[part] = self.named(f"{acc}_all", in_registers(low, Var(acc), fixed), axes, mutable=True)
            tuples.append(one)
        return tree(self.merged, tuples)

    def across(self, parts: dict[str, Held], name: str) -> dict[str, Held]:
        """Combine along one THREAD axis."""
        low, split = self.low, split_axis(self.low, name)
        lanes = split.stride * split.lanes // 2
        while lanes >= split.stride:
            others = {part: self.of_partner(held, lanes) for part, held in parts.items()}
            parts = self.merged(parts, others)
            lanes //= 2
        if split.parts == 1:
            return parts
        exchanges = {part: Exchange(low, "", held, Var(name), split) for part, held in parts.items()}
        self.exchanged(list(exchanges.values()))
        read = {part: self.partials(exchange) for part, exchange in exchanges.items()}
        return tree(self.merged, [{part: values[n] for part, values in read.items()} for n in range(split.parts)])


# ---- Scan, ScanTuple: inclusive prefix sums along registers, lanes and warps
#
# From the fastest axis outwards. Along a replicated axis a running value goes from register to register. Along a THREAD
# axis lanes scan by a butterfly over the bits of the lane number (Blelloch, "Prefix Sums and Their Applications",
# 1990), and warps by one exchange through shared memory. All parts of a tuple take each step together.


Values = Mapping[str, Expr]  # one value of each part


def lower_scan(low: Lowering, stmt: Scan | ScanTuple, at: Place) -> Block:
    """Give every register along the axes the reduction of all values up to its own."""
    outer = dict(low.env)
    work = _ScanWork(low, stmt, at.bound)
    for axis in reversed(stmt.over):
        if axis.name in low.replicated:
            work.along_registers(axis.name)
        else:
            work.along_threads(axis.name)
    low.env = outer
    return tuple(work.out)


class _ScanWork(RegisterSteps):
    """The state of a scan: the scanned axes in registers, and the total along all axes in registers of its own."""

    def __init__(self, low: Lowering, stmt: Scan | ScanTuple, bound: frozenset[str]):
        self.fn, self.tuple = stmt.fn, isinstance(stmt, ScanTuple)
        names = monoid(stmt.fn).parts if self.tuple else (stmt.fn,)
        self.whole: Parts = {name: held_in(low, acc) for name, acc in zip(names, stmt.accs, strict=True)}
        first = next(iter(self.whole.values()))
        super().__init__(low, bound, first.dtype)
        self.axes = first.axes
        assert all(held.axes == self.axes for held in self.whole.values())  # an element changes all parts at once
        starts = monoid(stmt.fn).identity if self.tuple else (identity(stmt.fn, first.dtype),)
        self.start: Values = dict(zip(names, starts, strict=True))
        self.inner: tuple[str, ...] = ()
        self.total: Parts | None = None

    def after(self, steps: list[Stmt], first: Values, second: Values) -> Values:
        """Return the two combined, by definitions that are appended to the steps."""
        if not self.tuple:
            return {self.fn: Call(self.fn, (first[self.fn], second[self.fn]))}
        names = {f"{part}1": value for part, value in first.items()}
        names |= {f"{part}2": value for part, value in second.items()}
        made = defined(self.low, monoid(self.fn).combine, names, steps, self.dtype)
        return {part: made[part] for part in self.whole}

    def fold(self, axes: tuple[str, ...], to: Values, first: Values, second: Values, when: Expr = True) -> None:
        """Give registers the two folded, or stay as they are, for every value of the axes."""
        steps: list[Stmt] = []
        made = self.after(steps, first, second)
        for part, place in to.items():
            taken = made[part] if when is True else Call("where", (when, made[part], place))
            steps.append(Assign(place, taken))
        self.out += nest(self.low, axes, tuple(steps))

    def at(self, held: Parts, fixed: dict[str, int] | None = None) -> dict[str, Expr]:
        """Return the registers of all parts at the current index of the axes."""
        return {part: register_of(self.low, one, fixed) for part, one in held.items()}

    def all_named(self, hint: str, values: Values, axes: tuple[str, ...]) -> dict[str, Held]:
        """Return values of all parts, in registers of their own."""
        hints = {part: f"{held.name}_{hint}" for part, held in self.whole.items()}
        return {part: self.named(hints[part], value, axes, mutable=True) for part, value in values.items()}

    @property
    def rest(self) -> tuple[str, ...]:
        """The axes in registers that are not scanned."""
        return tuple(axis for axis in self.axes if axis not in self.inner)

    def totals(self, fixed: dict[str, int]) -> dict[str, Expr]:
        """Return the fold along all scanned axes: what the last register has, until threads are folded too."""
        if self.total is not None:
            return self.at(self.total, fixed)
        return self.at(self.whole, {axis: self.low.replicated[axis] - 1 for axis in self.inner} | fixed)

    def along_registers(self, axis: str) -> None:
        """Scan register after register; scanned registers get the total of those before."""
        extent, rest = self.low.replicated[axis], tuple(a for a in self.rest if a != axis)
        if not self.inner and self.total is None:
            for n in range(1, extent):
                before, here = (self.at(self.whole, {axis: place}) for place in (n - 1, n))
                self.fold(rest, here, before, here)
        else:
            running = self.all_named("before", self.totals({axis: 0}), rest)
            others = tuple(a for a in self.axes if a != axis)
            for n in range(1, extent):
                here = self.at(self.whole, {axis: n})
                self.fold(others, here, self.at(running), here)
                # a register that has taken over what stands before is itself what the next one takes over
                found = self.totals({axis: n})
                if self.total is not None:
                    self.fold(rest, self.at(running), self.at(running), found)
                else:
                    self.assign(rest, self.at(running), found)
            self.total = self.total and running
        self.inner = (*self.inner, axis)

    def assign(self, axes: tuple[str, ...], to: Values, values: Values) -> None:
        """Assign other values to registers."""
        self.out += nest(self.low, axes, tuple(Assign(place, values[part]) for part, place in to.items()))

    def along_threads(self, axis: str) -> None:
        """Give each thread the total of the threads before it."""
        split = split_axis(self.low, axis)
        total: Parts = self.all_named("all", self.totals({}), self.rest)
        before = self.all_named("before", self.start, self.rest)
        self.lanes(split, axis, total, before)
        if split.parts > 1:
            total = self.parts(split, axis, total, before)
        here = self.at(self.whole)
        self.fold(self.axes, here, self.at(before), here)
        self.total = total

    def lanes(self, split: Split, axis: str, total: Parts, before: Parts) -> None:
        """Scan neighbours, then pairs of them, and so on: the lane whose bit is set has the other's before its own."""
        lanes = split.stride
        while lanes < split.stride * split.lanes:
            partner = {part: self.of_partner(held, lanes) for part, held in total.items()}
            other, place, whole = self.at(partner), self.at(before), self.at(total)
            behind = Binary("==", tidied(self.low, modulo(floordiv(Var(axis), lanes // split.stride), 2)), 1)
            self.fold(self.rest, place, other, place, when=behind)
            self.fold(self.rest, whole, *self.in_order(behind, whole, other))
            lanes *= 2

    def in_order(self, behind: Expr, own: Values, other: Values) -> tuple[Values, Values]:
        """Return the values of two lanes in their order, if the order matters."""
        if self.fn not in ORDERED:
            return own, other
        first = {part: Call("where", (behind, other[part], own[part])) for part in own}
        return first, {part: Call("where", (behind, own[part], other[part])) for part in own}

    def parts(self, split: Split, axis: str, total: Parts, before: Parts) -> Parts:
        """Read the totals of all warps along the axis in every thread, and combine those before its own."""
        low = self.low
        exchanges = {part: Exchange(low, "", held, Var(axis), split) for part, held in total.items()}
        self.exchanged(list(exchanges.values()))
        read = {part: self.partials(exchange) for part, exchange in exchanges.items()}
        found = [dict(zip(read, held, strict=True)) for held in zip(*read.values(), strict=True)]
        own, place = tidied(low, floordiv(Var(axis), split.lanes)), self.at(before)
        earlier = self.at(self.all_named("earlier", self.start, self.rest))
        for number, part in enumerate(found[:-1]):
            self.fold(self.rest, earlier, earlier, self.at(part), when=Binary("<", number, own))
        self.fold(self.rest, place, earlier, place)
        return tree(self.take_over, found)

    def take_over(self, first: dict[str, Held], second: dict[str, Held]) -> dict[str, Held]:
        """Fold the second value into the registers of the first."""
        self.fold(self.rest, self.at(first), self.at(first), self.at(second))
        return first
