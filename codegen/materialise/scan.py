"""Scan, ScanTuple: a register takes over what stands before it in its thread, a thread what stands before in the block.

From the fastest axis out. Along a replicated axis a running value goes from register to register. Along a THREAD axis
the lanes of a warp learn by a butterfly what those before them hold (Blelloch, "Prefix Sums and Their Applications",
1990, by bits of the lane's number), and warps by one exchange through shared memory. A tuple is scanned as its parts
are combined: all of them take each step together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.expr import Binary, Call, Var, floordiv, modulo
from ...ir.functions import identity
from ...ir.kernel import Assign
from ...ir.monoid_texts import ORDERED
from ...ir.monoids import monoid
from ...ir.node import Expr
from ...ir.program import Block, Stmt
from ...ir.tile import Scan, ScanTuple
from .combine import Exchange, Split, split_axis
from .lowering import Held, Lowering, Place
from .ranges import tidied
from .register_steps import RegisterSteps
from .registers import nest, register_of
from .values import defined

Parts = Mapping[str, Held]  # the registers of each part of what is scanned
Values = Mapping[str, Expr]  # one value of each part


def lower_scan(low: Lowering, stmt: Scan | ScanTuple, at: Place) -> Block:
    """Every register along the axes gets the fold of all values up to its own."""
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
    """What is scanned so far: the axes in registers, and the total along all axes, once it is no register's own."""

    def __init__(self, low: Lowering, stmt: Scan | ScanTuple, bound: frozenset[str]):
        self.fn, self.tuple = stmt.fn, isinstance(stmt, ScanTuple)
        names = monoid(stmt.fn).parts if self.tuple else (stmt.fn,)
        self.whole: Parts = {name: _held(low, acc) for name, acc in zip(names, stmt.accs, strict=True)}
        first = next(iter(self.whole.values()))
        super().__init__(low, bound, first.dtype)
        self.axes = first.axes
        assert all(held.axes == self.axes for held in self.whole.values())  # an element changes all parts at once
        starts = monoid(stmt.fn).identity if self.tuple else (identity(stmt.fn, first.dtype),)
        self.start: Values = dict(zip(names, starts, strict=True))
        self.inner: tuple[str, ...] = ()
        self.total: Parts | None = None

    def after(self, steps: list[Stmt], first: Values, second: Values) -> Values:
        """The two folded, by definitions that are put behind the steps."""
        if not self.tuple:
            return {self.fn: Call(self.fn, (first[self.fn], second[self.fn]))}
        names = {f"{part}1": value for part, value in first.items()}
        names |= {f"{part}2": value for part, value in second.items()}
        made = defined(self.low, monoid(self.fn).combine, names, steps, self.dtype)
        return {part: made[part] for part in self.whole}

    def fold(self, axes: tuple[str, ...], to: Values, first: Values, second: Values, when: Expr = True) -> None:
        """Registers get the two folded, or stay as they are, for every value of the axes."""
        steps: list[Stmt] = []
        made = self.after(steps, first, second)
        for part, place in to.items():
            taken = made[part] if when is True else Call("where", (when, made[part], place))
            steps.append(Assign(place, taken))
        self.out += nest(self.low, axes, tuple(steps))

    def at(self, held: Parts, fixed: dict[str, int] | None = None) -> dict[str, Expr]:
        """The registers of all parts at the current place of the axes."""
        return {part: register_of(self.low, one, fixed) for part, one in held.items()}

    def all_named(self, hint: str, values: Values, axes: tuple[str, ...]) -> dict[str, Held]:
        """Values of all parts, in registers of their own."""
        hints = {part: f"{held.name}_{hint}" for part, held in self.whole.items()}
        return {part: self.named(hints[part], value, axes, mutable=True) for part, value in values.items()}

    @property
    def rest(self) -> tuple[str, ...]:
        """The axes in registers that are not scanned."""
        return tuple(axis for axis in self.axes if axis not in self.inner)

    def totals(self, fixed: dict[str, int]) -> dict[str, Expr]:
        """The fold along all scanned axes: what the last register has, until threads are folded too."""
        if self.total is not None:
            return self.at(self.total, fixed)
        return self.at(self.whole, {axis: self.low.replicated[axis] - 1 for axis in self.inner} | fixed)

    def along_registers(self, axis: str) -> None:
        """Register after register; what is scanned already takes over the total of those before."""
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
        """Registers take other values."""
        self.out += nest(self.low, axes, tuple(Assign(place, values[part]) for part, place in to.items()))

    def along_threads(self, axis: str) -> None:
        """Each thread takes over what the threads before it have in all."""
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
        """Neighbours, then pairs of them, and so on: the lane whose bit is set has the other's before its own."""
        lanes = split.stride
        while lanes < split.stride * split.lanes:
            partner = {part: self.of_partner(held, lanes) for part, held in total.items()}
            other, place, whole = self.at(partner), self.at(before), self.at(total)
            behind = Binary("==", tidied(self.low, modulo(floordiv(Var(axis), lanes // split.stride), 2)), 1)
            self.fold(self.rest, place, other, place, when=behind)
            self.fold(self.rest, whole, *self.in_order(behind, whole, other))
            lanes *= 2

    def in_order(self, behind: Expr, own: Values, other: Values) -> tuple[Values, Values]:
        """What stands first of two lanes, and what second, where that matters."""
        if self.fn not in ORDERED:
            return own, other
        first = {part: Call("where", (behind, other[part], own[part])) for part in own}
        return first, {part: Call("where", (behind, own[part], other[part])) for part in own}

    def parts(self, split: Split, axis: str, total: Parts, before: Parts) -> Parts:
        """Every thread reads the totals of all warps along the axis, and folds those before its own."""
        low = self.low
        exchanges = {part: Exchange(low, "", held, Var(axis), split) for part, held in total.items()}
        self.exchanged(list(exchanges.values()))
        read = {part: self.partials(exchange) for part, exchange in exchanges.items()}
        found = list(_each(read))
        own, place = tidied(low, floordiv(Var(axis), split.lanes)), self.at(before)
        earlier = self.at(self.all_named("earlier", self.start, self.rest))
        for number, part in enumerate(found[:-1]):
            self.fold(self.rest, earlier, earlier, self.at(part), when=Binary("<", number, own))
        self.fold(self.rest, place, earlier, place)
        while len(found) > 1:  # neighbours first
            pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
            for first, *second in pairs:
                if second:
                    self.fold(self.rest, self.at(first), self.at(first), self.at(second[0]))
            found = [pair[0] for pair in pairs]
        return found[0]


def _each(read: Mapping[str, list[Held]]) -> Iterator[dict[str, Held]]:
    """All parts of one partial value after the other."""
    for held in zip(*read.values(), strict=True):
        yield dict(zip(read, held, strict=True))


def _held(low: Lowering, acc: str) -> Held:
    held = low.env[acc]
    assert isinstance(held, Held)
    return held
