"""Reductions and scans across threads.

A Combine reduces in registers, then by a butterfly over the lane bits of a THREAD axis, then by one exchange through
shared memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ...ir.expr import Binary, Call, Var, add, floordiv, modulo, multiply
from ...ir.facts.layout import DTYPE_BYTES
from ...ir.functions import identity
from ...ir.kernel import SHARED, WARP, Address, Assign, Base, Butterfly, Element, LoadFrom, Registers, Shuffle, StoreTo
from ...ir.monoid_texts import ORDERED
from ...ir.monoids import monoid
from ...ir.node import Expr
from ...ir.program import Block, Stmt
from ...ir.substitute import substitute
from ...ir.tile import Combine, CombineTuple, Scan, ScanTuple
from .expressions import (
    assigned,
    axes_of,
    computed,
    extents,
    filled,
    guarded,
    in_registers,
    nest,
    register_of,
    resolve,
    row_major,
    tidied,
    type_of,
)
from .lowering import Held, Lowering, Place, Value, allocate, fresh, held_in
from .values import defined

EXCHANGED_BYTES = (8, 16)  # what one instruction moves of several partial values


def lower_combine(low: Lowering, stmt: Combine, at: Place) -> Block:
    """Give all threads and registers along the axes the combined value, in a fixed order."""
    whole = held = low.env[stmt.acc]
    over = [axis.name for axis in stmt.over]
    out: list[Stmt] = []
    if any(axis in over for axis in whole.axes):
        held = Held(fresh(low, f"{stmt.acc}_all"), tuple(axis for axis in whole.axes if axis not in over), whole.dtype)
        out += filled(low, held, fold(low, stmt, whole, over), 1)
    assert isinstance(held, Held)
    for axis in low.threads:
        if axis.name in over:
            out += combine_threads(low, stmt.fn, held, axis.name)
    return (*out, *handed_on(low, stmt.acc, held, at))


def handed_on(low: Lowering, acc: str, held: Held, at: Place) -> Block:
    """Make other registers those of an accumulator. If outer blocks read it too, return the copy to its own."""
    whole = low.env[acc]
    if held is whole or at.path == low.accumulators[acc].path:
        low.env[acc] = held
        return ()
    assert isinstance(whole, Held)
    return assigned(low, whole, register_of(low, held))


def fold(low: Lowering, stmt: Combine, value: Value, over: list[str]) -> Expr:
    """Return the reduction of the registers along the axes, as a tree."""
    gone = [axis for axis in value.axes if axis in over]
    places = itertools.product(*map(range, extents(low, gone)))
    terms = [in_registers(low, Var(stmt.acc), dict(zip(gone, place, strict=True))) for place in places]
    return tree(lambda a, b: computed(low, stmt.fn, (a, b), value.dtype), terms)


Item = TypeVar("Item")


def tree(combine: Callable[[Item, Item], Item], items: list[Item]) -> Item:
    """Combine all items, neighbours first."""
    while len(items) > 1:
        pairs = [items[i : i + 2] for i in range(0, len(items), 2)]
        items = [combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return items[0]


class Split(NamedTuple):
    """A THREAD axis in the warp: threads from one of its values to the next, values inside a warp, and the rest."""

    axis: Var
    stride: int
    lanes: int
    parts: int


def split_axis(low: Lowering, name: str) -> Split:
    """Return the split of a THREAD axis into warps. A butterfly flips bits, so both sizes must be powers of two."""
    extents = {axis.name: axis.extent for axis in low.threads}
    stride = math.prod([*extents.values()][[*extents].index(name) + 1 :])
    lanes = math.gcd(extents[name], WARP // stride) if stride & (stride - 1) == 0 and stride < WARP else 1
    return Split(Var(name), stride, lanes, extents[name] // lanes)


def combine_threads(low: Lowering, fn: str, held: Held, name: str) -> Block:
    """Give all threads along one axis the combined value."""
    split = split_axis(low, name)
    out: list[Stmt] = []
    if split.lanes > 1:
        lanes = Butterfly(register_of(low, held), fn, split.stride, split.stride * split.lanes // 2)
        out += nest(low, held.axes, (lanes,))
    if split.parts > 1:
        exchange = Exchange(low, held, split)
        out += (*put_all(low, [exchange]), *nest(low, exchange.outer, exchange.get(fn)))
    return tuple(out)


class Exchange:
    """One partial value per warp (or per thread) goes through shared memory; all read all and combine them in order.

    Where the axis is the innermost, the partials of one group are neighbours, and are read as vectors. Elsewhere
    neighbouring threads hold neighbouring groups, and what one of them holds along a VEC axis is kept together.
    """

    def __init__(self, low: Lowering, held: Held, split: Split):
        self.low, self.held, self.split = low, held, split
        _, stride, lanes, parts = split
        self.size = DTYPE_BYTES[held.dtype]
        self.inner = stride == 1
        self.groups = low.thread_count // (lanes * parts)
        last = held.axes[-1] if held.axes and not self.inner else ""
        fits = last in low.vectors and low.replicated[last] * self.size in EXCHANGED_BYTES
        self.vector = last if fits else None
        self.width = low.replicated[last] if fits else 1
        self.outer = tuple(axis for axis in held.axes if axis != self.vector)
        self.count = math.prod(extents(low, held.axes))
        group = multiply(floordiv(low.thread, stride * lanes * parts), stride)
        self.group = tidied(low, add(group, modulo(low.thread, stride)))
        self.area = fresh(low, f"{held.name}_x")
        low.top.head.append(Base(self.area, SHARED, allocate(low, self.size * self.count * parts * self.groups)))

    def put(self) -> Block:
        """Store the values of each group of lanes by one of its lanes."""
        axis, _, lanes, _ = self.split
        to = self.address(tidied(self.low, floordiv(axis, lanes)), "put")
        put = nest(self.low, self.outer, (StoreTo(self.held.dtype, to, tuple(map(self.element, range(self.width)))),))
        return guarded(Binary("==", tidied(self.low, modulo(axis, lanes)), 0) if lanes > 1 else True, put)

    def get(self, fn: str) -> Block:
        """Read all partials in every thread, and combine them."""
        loads, terms = self.read()
        folds = (tree(lambda a, b: Call(fn, (a, b)), places) for places in terms)
        return (*loads, *(Assign(self.element(lane), fold) for lane, fold in enumerate(folds)))

    def read(self) -> tuple[Block, list[list[Expr]]]:
        """Return the loads of all partials at the current index of the outer axes, and the registers of each lane."""
        name, parts = fresh(self.low, f"{self.held.name}_part"), range(self.split.parts)
        self.low.env[name] = Held(name, (), self.held.dtype)
        several = self.width > 1
        held = Registers(name, self.held.dtype, (len(parts), self.width) if several else (len(parts),))
        places = [[Element(name, (part, lane) if several else (part,)) for part in parts] for lane in range(self.width)]
        return (held, *self.reads(name, ())), places

    def reads(self, name: str, here: tuple[Expr, ...]) -> Block:
        """Return the loads of all partials into registers, from the index `here` of an array on."""
        parts = self.split.parts
        wide = (n for n in (4, 2) if self.inner and parts % n == 0 and n * self.size in EXCHANGED_BYTES)
        step = next(wide, 1)
        width = step if self.inner else self.width
        return tuple(
            LoadFrom(Element(name, (*here, part)), self.held.dtype, self.address(part, "get"), width)
            for part in range(0, parts, step)
        )

    def element(self, lane: int) -> Expr:
        """Return the register of a thread at the current index of the outer axes."""
        return register_of(self.low, self.held, {self.vector: lane} if self.vector else None)

    def address(self, part: Expr, hint: str) -> Address:
        """Return the address of a partial value of this thread's group."""
        element, parts = row_major(self.low.replicated, self.outer), self.split.parts
        if self.inner:
            place = add(multiply(add(multiply(self.group, self.count), element), parts), part)
        else:
            place = add(multiply(add(multiply(element, parts), part), self.groups), self.group)
        byte = tidied(self.low, multiply(place, self.width * self.size))
        return Address(*resolve(self.low, self.area, byte, f"{self.held.name}_{hint}", shared=True))


def put_all(low: Lowering, exchanges: Iterable[Exchange]) -> Block:
    """Return the stores of all partial values, and the barrier after them.

    In a loop another barrier precedes: readers of the last iteration must be done before the area is written again.
    """
    stores = [store for exchange in exchanges for store in exchange.put()]
    return (*([low.barrier] if low.repeats else []), *stores, low.barrier)


# ---- values that one statement computes in several steps


Parts = Mapping[str, Held]  # the registers of each part of a tuple
Values = Mapping[str, Expr]  # one value of each part


class RegisterSteps:
    """Statements as they are put down. dtype: of all values that they name. Their names end with the statement."""

    def __init__(self, low: Lowering, dtype: str):
        self.low, self.dtype = low, dtype
        self.out: list[Stmt] = []

    def named(self, hint: str, val: Expr, axes: tuple[str, ...]) -> Held:
        """Return a value in registers of its own; val: their contents at the current index of the axes."""
        held = Held(fresh(self.low, hint), axes, self.dtype)
        self.low.env[held.name] = held
        self.out += filled(self.low, held, val, 1)
        return held

    def of_partners(self, parts: Parts, lanes: int) -> dict[str, Held]:
        """Return the values of the lane whose number differs in one bit."""
        others = {}
        for part, held in parts.items():
            others[part] = other = self.named(f"{held.name}_x", register_of(self.low, held), held.axes)
            self.out += nest(self.low, other.axes, (Shuffle(register_of(self.low, other), lanes),))
        return others

    def exchanged(self, parts: Parts, split: Split) -> list[dict[str, Held]]:
        """Return every partial tuple of this thread's group, read through shared memory."""
        exchanges = {part: Exchange(self.low, held, split) for part, held in parts.items()}
        self.out += put_all(self.low, exchanges.values())
        read = {part: self.partials(exchange) for part, exchange in exchanges.items()}
        return [dict(zip(read, values)) for values in zip(*read.values(), strict=True)]

    def partials(self, exchange: Exchange) -> list[Held]:
        """Return every partial value of this thread's group, in registers."""
        low, held, parts = self.low, exchange.held, exchange.split.parts
        name, here, inner = fresh(low, f"{held.name}_part"), tuple(map(Var, exchange.outer)), exchange.vector
        vector, width = ((Var(inner),), (exchange.width,)) if inner else ((), ())
        self.out.append(Registers(name, self.dtype, (*extents(low, exchange.outer), parts, *width)))
        self.out += nest(low, exchange.outer, exchange.reads(name, here))
        places = [Element(name, (*here, number, *vector)) for number in range(parts)]
        return [self.named(f"{held.name}_part", place, held.axes) for place in places]


# ---- CombineTuple: combine partial tuples of a monoid by its own definitions
#
# Like Combine: a tree in registers, a butterfly over the lanes of a warp, one exchange through shared memory. All parts
# take each step together, so a tuple costs one barrier however many parts it has.


def lower_combine_tuple(low: Lowering, stmt: CombineTuple, at: Place) -> Block:
    """Give all threads and registers along the axes the combined tuple, in a fixed order."""
    known, outer = monoid(stmt.fn), dict(low.env)
    accs = dict(zip(known.parts, stmt.accs, strict=True))
    over = [axis.name for axis in stmt.over]
    steps = RegisterSteps(low, type_of(low, stmt.accs[0]))

    def merged(left: Parts, right: Parts) -> dict[str, Held]:
        """Return the tuple of two partial ones."""
        names: dict[str, Expr] = known.sides(*([Var(held.name) for held in side.values()] for side in (left, right)))
        for definition in known.combine:
            val = substitute(definition.val, names)
            held = steps.named(definition.dst, in_registers(low, val), axes_of(low, val, at.bound))
            names[definition.dst] = Var(held.name)
        return {part: held_in(low, names[part].name) for part in known.parts}

    whole = {acc: held_in(low, acc) for acc in stmt.accs}
    gone = [axis for axis in low.replicated if axis in over and any(axis in held.axes for held in whole.values())]
    tuples = []
    for place in itertools.product(*map(range, extents(low, gone))):
        fixed, one = dict(zip(gone, place, strict=True)), {}
        for part, acc in accs.items():
            axes = tuple(axis for axis in whole[acc].axes if axis not in over)
            one[part] = steps.named(f"{acc}_all", in_registers(low, Var(acc), fixed), axes)
        tuples.append(one)
    parts = tree(merged, tuples)
    for axis in low.threads:
        if axis.name in over:
            split = split_axis(low, axis.name)
            lanes = split.stride * split.lanes // 2
            while lanes >= split.stride:
                parts = merged(parts, steps.of_partners(parts, lanes))
                lanes //= 2
            if split.parts > 1:
                parts = tree(merged, steps.exchanged(parts, split))
    low.env = outer
    return (*steps.out, *(copy for part, acc in accs.items() for copy in handed_on(low, acc, parts[part], at)))


# ---- Scan, ScanTuple: inclusive prefix sums along registers, lanes and warps
#
# From the fastest axis outwards. Along a replicated axis a running value goes from register to register. Along a THREAD
# axis lanes scan by a butterfly over the bits of the lane number (Blelloch, "Prefix Sums and Their Applications",
# 1990), and warps by one exchange through shared memory. All parts of a tuple take each step together.


def lower_scan(low: Lowering, stmt: Scan | ScanTuple, at: Place) -> Block:
    """Give every register along the axes the reduction of all values up to its own."""
    outer = dict(low.env)
    work = _ScanWork(low, stmt)
    for axis in reversed(stmt.over):
        if axis.name in low.replicated:
            work.along_registers(axis.name)
        else:
            work.along_threads(axis.name)
    low.env = outer
    return tuple(work.out)


class _ScanWork(RegisterSteps):
    """The state of a scan: the scanned axes in registers, and the total along all axes in registers of its own."""

    def __init__(self, low: Lowering, stmt: Scan | ScanTuple):
        self.fn, self.tuple = stmt.fn, isinstance(stmt, ScanTuple)
        names = monoid(stmt.fn).parts if self.tuple else (stmt.fn,)
        self.whole: Parts = {name: held_in(low, acc) for name, acc in zip(names, stmt.accs, strict=True)}
        first = next(iter(self.whole.values()))
        super().__init__(low, first.dtype)
        self.axes = self.rest = first.axes  # rest: those in registers that are not scanned
        assert all(held.axes == self.axes for held in self.whole.values())  # an element changes all parts at once
        starts = monoid(stmt.fn).identity if self.tuple else (identity(stmt.fn, first.dtype),)
        self.start: Values = dict(zip(names, starts, strict=True))
        self.total: Parts | None = None

    def fold(self, axes: tuple[str, ...], to: Values, first: Values, second: Values, when: Expr = True) -> None:
        """Give registers the two folded, or leave them as they are, for every value of the axes."""
        steps: list[Stmt] = []
        if self.tuple:
            known = monoid(self.fn)
            names = known.sides(first.values(), second.values())
            made: Values = defined(self.low, known.combine, names, steps, self.dtype)
        else:
            made = {self.fn: Call(self.fn, (first[self.fn], second[self.fn]))}
        for part, place in to.items():
            taken = made[part] if when is True else Call("where", (when, made[part], place))
            steps.append(Assign(place, taken))
        self.out += nest(self.low, axes, tuple(steps))

    def at(self, held: Parts, fixed: dict[str, int] | None = None) -> dict[str, Expr]:
        """Return the registers of all parts at the current index of the axes."""
        return {part: register_of(self.low, one, fixed) for part, one in held.items()}

    def all_named(self, hint: str, values: Values, axes: tuple[str, ...]) -> dict[str, Held]:
        """Return values of all parts, in registers of their own."""
        return {part: self.named(f"{self.whole[part].name}_{hint}", value, axes) for part, value in values.items()}

    def totals(self, fixed: dict[str, int]) -> dict[str, Expr]:
        """Return the fold along all scanned axes: what the last register has, until threads are folded too."""
        if self.total is not None:
            return self.at(self.total, fixed)
        last = {axis: self.low.replicated[axis] - 1 for axis in self.axes if axis not in self.rest}
        return self.at(self.whole, last | fixed)

    def along_registers(self, axis: str) -> None:
        """Scan register after register; scanned registers get the total of those before."""
        extent, rest = self.low.replicated[axis], tuple(a for a in self.rest if a != axis)
        if self.rest == self.axes and self.total is None:
            for n in range(1, extent):
                before, here = (self.at(self.whole, {axis: place}) for place in (n - 1, n))
                self.fold(rest, here, before, here)
        else:
            running = self.all_named("before", self.totals({axis: 0}), rest)
            others, so_far = tuple(a for a in self.axes if a != axis), self.at(running)
            for n in range(1, extent):
                here = self.at(self.whole, {axis: n})
                self.fold(others, here, so_far, here)
                # a register that holds the fold up to here is the start of the next one
                found = self.totals({axis: n})
                if self.total is not None:
                    self.fold(rest, so_far, so_far, found)
                else:
                    self.out += nest(self.low, rest, tuple(Assign(so_far[part], e) for part, e in found.items()))
            self.total = self.total and running
        self.rest = rest

    def along_threads(self, axis: str) -> None:
        """Give each thread the total of the threads before it."""
        split = split_axis(self.low, axis)
        total = self.all_named("all", self.totals({}), self.rest)
        before = self.all_named("before", self.start, self.rest)
        self.lanes(split, total, self.at(before))
        if split.parts > 1:
            self.parts(split, total, before)
        here = self.at(self.whole)
        self.fold(self.axes, here, self.at(before), here)
        self.total = total

    def lanes(self, split: Split, total: Parts, before: Values) -> None:
        """Scan neighbours, then pairs of them, and so on: the lane whose bit is set has the other's before its own."""
        lanes, whole = split.stride, self.at(total)
        while lanes < split.stride * split.lanes:
            other = self.at(self.of_partners(total, lanes))
            behind = Binary("==", tidied(self.low, modulo(floordiv(split.axis, lanes // split.stride), 2)), 1)
            self.fold(self.rest, before, other, before, when=behind)
            self.fold(self.rest, whole, *self.in_order(behind, whole, other))
            lanes *= 2

    def in_order(self, behind: Expr, own: Values, other: Values) -> tuple[Values, Values]:
        """Return the values of two lanes in their order, if the order matters."""
        if self.fn not in ORDERED:
            return own, other
        first = {part: Call("where", (behind, other[part], own[part])) for part in own}
        return first, {part: Call("where", (behind, own[part], other[part])) for part in own}

    def parts(self, split: Split, total: Parts, before: Parts) -> None:
        """Read the totals of all warps along the axis, and combine those before its own: for one register at a time."""
        exchanges = {part: Exchange(self.low, held, split) for part, held in total.items()}
        self.out += put_all(self.low, exchanges.values())
        own, first = tidied(self.low, floordiv(split.axis, split.lanes)), next(iter(exchanges.values()))
        out, self.out = self.out, []
        read = {part: exchange.read() for part, exchange in exchanges.items()}
        self.out += [stmt for loads, _ in read.values() for stmt in loads]
        for lane in range(first.width):
            found = [
                dict(zip(read, places)) for places in zip(*(places[lane] for _, places in read.values()), strict=True)
            ]
            fixed = {first.vector: lane} if first.vector else {}
            whole, here = self.at(total, fixed), self.at(before, fixed)
            earlier = self.at(self.all_named("earlier", self.start, ()))
            for number, values in enumerate(found[:-1]):
                self.fold((), earlier, earlier, values, when=Binary("<", number, own))
            self.fold((), here, earlier, here)
            self.out += [Assign(place, found[0][part]) for part, place in whole.items()]
            for values in found[1:]:
                self.fold((), whole, whole, values)
        self.out = [*out, *nest(self.low, first.outer, tuple(self.out))]
