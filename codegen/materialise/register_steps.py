"""Values in registers that one statement of Tile IR takes several steps to make."""

from __future__ import annotations

from ...ir.expr import Var
from ...ir.kernel import Assign, Define, Element, Registers, Shuffle
from ...ir.node import Expr
from ...ir.program import Stmt
from .combine import Exchange
from .lowering import Held, Lowering, fresh
from .registers import extents, nest, register_of


class RegisterSteps:
    """Statements as they are put down. dtype: of all values that they name. Their names end with the statement."""

    def __init__(self, low: Lowering, bound: frozenset[str], dtype: str):
        self.low, self.bound, self.dtype = low, bound, dtype
        self.out: list[Stmt] = []

    def named(self, hint: str, val: Expr, axes: tuple[str, ...], mutable: bool = False) -> Held:
        """A value in registers of its own; val: what they hold at the current place of the axes."""
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
        """What the lane holds whose number differs in one bit."""
        other = self.named(f"{held.name}_x", register_of(self.low, held), held.axes, mutable=True)
        self.out += nest(self.low, other.axes, (Shuffle(register_of(self.low, other), lanes),))
        return other

    def exchanged(self, exchanges: list[Exchange]) -> None:
        """All store their partial values, and meet."""
        # in a loop the readers of the last turn must be done before the area is written again
        self.out += [self.low.barrier] if self.low.repeats else []
        for exchange in exchanges:
            self.out += exchange.put()
        self.out.append(self.low.barrier)

    def partials(self, exchange: Exchange) -> list[Held]:
        """Every partial value of this thread's group, in registers."""
        low, held = self.low, exchange.held
        name, here, inner = fresh(low, f"{held.name}_part"), tuple(map(Var, exchange.outer)), exchange.vector
        vector = (Var(inner),) if inner else ()
        width = (exchange.width,) if inner else ()
        self.out.append(Registers(name, self.dtype, (*extents(low, exchange.outer), exchange.split.parts, *width)))
        self.out += nest(low, exchange.outer, exchange.reads(name, here))
        places = [Element(name, (*here, number, *vector)) for number in range(exchange.split.parts)]
        return [self.named(f"{held.name}_part", place, held.axes, mutable=True) for place in places]
