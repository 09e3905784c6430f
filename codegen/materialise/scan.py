"""Scan: each register takes over what stands before it in its thread, each thread what stands before it in the block.

From the fastest axis out. Along a replicated axis a running value goes from register to register. Along a THREAD axis
the lanes of a warp learn by a butterfly what those before them hold (Blelloch, "Prefix Sums and Their Applications",
1990, by bits of the lane's number), and warps by one exchange through shared memory.
"""

from __future__ import annotations

from ...ir.expr import Binary, Call, Var, floordiv, modulo
from ...ir.functions import identity
from ...ir.kernel import Assign
from ...ir.node import Expr
from ...ir.program import Block
from ...ir.tile import Scan
from .combine import Exchange, Split, split_axis, tree
from .lowering import Held, Lowering, Place
from .ranges import tidied
from .register_steps import RegisterSteps
from .registers import nest, register_of


def lower_scan(low: Lowering, stmt: Scan, at: Place) -> Block:
    """Every register along the axes gets the fold of all values up to its own."""
    outer, whole = dict(low.env), low.env[stmt.acc]
    assert isinstance(whole, Held)
    work = _ScanWork(low, stmt, at.bound, whole)
    for axis in reversed(stmt.over):
        if axis.name in low.replicated:
            work.along_registers(axis.name)
        else:
            work.along_threads(axis.name)
    low.env = outer
    return tuple(work.out)


class _ScanWork(RegisterSteps):
    """What is scanned so far: the axes in registers, and the total along all axes, once it is no register's own."""

    def __init__(self, low: Lowering, stmt: Scan, bound: frozenset[str], whole: Held):
        super().__init__(low, bound, whole.dtype)
        self.stmt, self.whole = stmt, whole
        self.inner: tuple[str, ...] = ()
        self.total: Held | None = None
        self.start = identity(stmt.fn, whole.dtype)

    def after(self, first: Expr, second: Expr) -> Expr:
        return Call(self.stmt.fn, (first, second))

    @property
    def rest(self) -> tuple[str, ...]:
        """The axes in registers that are not scanned."""
        return tuple(axis for axis in self.whole.axes if axis not in self.inner)

    def totals(self, fixed: dict[str, int]) -> Expr:
        """The fold along all scanned axes: what the last register has, until threads are folded too."""
        if self.total is not None:
            return register_of(self.low, self.total, fixed)
        last = {axis: self.low.replicated[axis] - 1 for axis in self.inner}
        return register_of(self.low, self.whole, last | fixed)

    def along_registers(self, axis: str) -> None:
        """Register after register; what is scanned already takes over the total of those before."""
        low, extent, rest = self.low, self.low.replicated[axis], tuple(a for a in self.rest if a != axis)
        if not self.inner and self.total is None:
            for n in range(1, extent):
                before, here = (register_of(low, self.whole, {axis: place}) for place in (n - 1, n))
                self.out += nest(low, rest, (Assign(here, self.after(before, here)),))
        else:
            running = self.named(f"{self.whole.name}_before", self.totals({axis: 0}), rest, mutable=True)
            before, others = register_of(low, running), tuple(a for a in self.whole.axes if a != axis)
            for n in range(1, extent):
                here = register_of(low, self.whole, {axis: n})
                self.out += nest(low, others, (Assign(here, self.after(before, here)),))
                # a register that has taken over what stands before is itself what the next one takes over
                found = self.totals({axis: n})
                found = found if self.total is None else self.after(before, found)
                self.out += nest(low, rest, (Assign(before, found),))
            self.total = self.total and running
        self.inner = (*self.inner, axis)

    def along_threads(self, axis: str) -> None:
        """Each thread takes over what the threads before it have in all."""
        low, split = self.low, split_axis(self.low, axis)
        total = self.named(f"{self.whole.name}_all", self.totals({}), self.rest, mutable=True)
        before = self.named(f"{self.whole.name}_before", self.start, self.rest, mutable=True)
        self.lanes(split, axis, total, before)
        if split.parts > 1:
            self.parts(split, axis, total, before)
        here = register_of(low, self.whole)
        self.out += nest(low, self.whole.axes, (Assign(here, self.after(register_of(low, before), here)),))
        self.total = total

    def lanes(self, split: Split, axis: str, total: Held, before: Held) -> None:
        """Neighbours, then pairs of them, and so on: the lane whose bit is set has the other's before its own."""
        low, lanes = self.low, split.stride
        while lanes < split.stride * split.lanes:
            other = register_of(low, self.of_partner(total, lanes))
            place, whole = register_of(low, before), register_of(low, total)
            bit = tidied(low, modulo(floordiv(Var(axis), lanes // split.stride), 2))
            taken = Call("where", (Binary("==", bit, 1), self.after(other, place), place))
            self.out += nest(low, total.axes, (Assign(place, taken), Assign(whole, self.after(whole, other))))
            lanes *= 2

    def parts(self, split: Split, axis: str, total: Held, before: Held) -> None:
        """Every thread reads the totals of all warps along the axis, and folds those before its own."""
        low = self.low
        exchange = Exchange(low, self.stmt.fn, total, Var(axis), split)
        self.exchanged([exchange])
        found = [register_of(low, held) for held in self.partials(exchange)]
        own, place = tidied(low, floordiv(Var(axis), split.lanes)), register_of(low, before)
        earlier = register_of(low, self.named(f"{self.whole.name}_earlier", self.start, total.axes, mutable=True))
        for number, part in enumerate(found[:-1]):
            taken = Call("where", (Binary("<", number, own), self.after(earlier, part), earlier))
            self.out += nest(low, total.axes, (Assign(earlier, taken),))
        self.out += nest(low, total.axes, (Assign(place, self.after(earlier, place)),))
        whole = tree(self.stmt.fn, list(found))
        self.out += nest(low, total.axes, (Assign(register_of(low, total), whole),))
