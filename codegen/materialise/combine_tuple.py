"""CombineTuple: partial tuples of a monoid become one, by the monoid's own definitions.

As a Combine: a tree in registers, a butterfly over the lanes of a warp, one exchange through shared memory. All parts
take each step together, so that a tuple costs one barrier however many parts it has.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from ...ir.expr import Var
from ...ir.kernel import Assign
from ...ir.loop import Let
from ...ir.monoids import Monoid, monoid
from ...ir.node import Expr
from ...ir.program import Block
from ...ir.substitute import substitute
from ...ir.tile import CombineTuple
from .combine import Exchange, split_axis
from .lowering import Held, Lowering, Place
from .register_steps import RegisterSteps
from .registers import axes_of, in_registers, nest, register_of, type_of

Parts = Mapping[str, Held]  # the registers of each part of a tuple


def lower_combine_tuple(low: Lowering, stmt: CombineTuple, at: Place) -> Block:
    """All threads and registers along the axes get the combined tuple, in a fixed order."""
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
        whole, held = low.env[acc], parts[part]
        assert isinstance(whole, Held)
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
        """The tuple of two partial ones."""
        low = self.low
        names: dict[str, Expr] = {f"{part}1": Var(held.name) for part, held in left.items()}
        names |= {f"{part}2": Var(held.name) for part, held in right.items()}
        for definition in self.known.combine:
            assert isinstance(definition, Let)
            val = substitute(definition.val, names)
            held = self.named(definition.dst, in_registers(low, val), axes_of(low, val, self.bound), mutable=True)
            names[definition.dst] = Var(held.name)
        return {part: low.env[names[part].name] for part in self.known.parts}  # type: ignore[union-attr,misc]

    def tree(self, tuples: list[dict[str, Held]]) -> dict[str, Held]:
        """Neighbours first."""
        while len(tuples) > 1:
            pairs = [tuples[i : i + 2] for i in range(0, len(tuples), 2)]
            tuples = [self.merged(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return tuples[0]

    def fold(self, accs: Mapping[str, str], over: list[str]) -> dict[str, Held]:
        """What a thread's registers hold along the axes, combined."""
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
        return self.tree(tuples)

    def across(self, parts: dict[str, Held], name: str) -> dict[str, Held]:
        """Combined along one THREAD axis."""
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
        return self.tree([{part: values[n] for part, values in read.items()} for n in range(split.parts)])
