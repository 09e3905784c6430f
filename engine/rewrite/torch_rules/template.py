"""Templates of torch rules, compiled: `y[bs.., j] = Reduce(add, k, multiply(x[bs.., k], w[j, k]))`.

Every part is compiled to an object with two methods: `scan` places its brackets, `build` makes its term once the axes
have names. A number stays a number until it meets a term, whose dtype it takes; so does one of sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ....ir import compose
from ....ir.diagnostic import DplcError, Span
from ....ir.dtypes import DTYPES
from ....ir.expr import Axis, Var
from ....ir.sizes import known_at_launch
from ....ir.stacked import stacked
from ...language import core as s
from ...language.questions import Closure
from .firing import TorchSite
from .values import Entry, NotApplicable, View


class Part(ABC):
    """A piece of a template."""

    def scan(self, firing: TorchSite) -> None:  # noqa: B027  (most parts have no brackets to place)
        """Place the brackets in it."""

    @abstractmethod
    def build(self, firing: TorchSite) -> Any:
        """Its term, or a number."""


class Value(Part):
    """A name or a calculation: a local value, a number, a rank-0 tensor."""

    def __init__(self, name: str | None, closure: Closure, node: s.Syntax):
        self.name, self.closure, self.node = name, closure, node

    def scan(self, firing: TorchSite) -> None:
        value = firing.env.get(self.name) if self.name is not None and self.name not in firing.locals else None
        if isinstance(value, View) and not value.shape:
            firing.place(self, value, (), False)

    def build(self, firing: TorchSite) -> Any:
        if self.name is not None and self.name in firing.locals:
            return firing.locals[self.name]
        if self in firing.placed:
            return firing.read(self)
        value = self.closure(firing.env)
        if isinstance(value, (bool, int, float)) or known_at_launch(value):
            return value
        raise DplcError(
            f"`{self.name or 'this'}` is neither a number nor a local value: a tensor is read with brackets",
            self.node.span,
        )


class IndexedRead(Part):
    """`x[os.., k]`. A number in the place of a tensor stands for itself."""

    def __init__(self, name: str, bracket: Bracket, short: bool):
        self.name, self.bracket, self.short = name, bracket, short

    def scan(self, firing: TorchSite) -> None:
        value = firing.env.get(self.name)
        if isinstance(value, View):
            firing.place(self, value, self.bracket.entries(firing, len(value.shape)), self.short)

    def build(self, firing: TorchSite) -> Any:
        if self in firing.placed:
            return firing.read(self)
        value = firing.env.get(self.name)
        if isinstance(value, (bool, int, float)) or known_at_launch(value):
            return value
        raise NotApplicable(f"`{self.name}` is no tensor")


class FunctionPart(Part):
    def __init__(self, fn: str, args: tuple[Part, ...]):
        self.fn, self.args = fn, args

    def scan(self, firing: TorchSite) -> None:
        for arg in self.args:
            arg.scan(firing)

    def build(self, firing: TorchSite) -> Any:
        return compose.elementwise(self.fn, *[arg.build(firing) for arg in self.args])


class Cast(Part):
    """`cast(x, dtype)`: dtype is calculated."""

    def __init__(self, x: Part, to: Closure, span: Span):
        self.x, self.to, self.span = x, to, span

    def scan(self, firing: TorchSite) -> None:
        self.x.scan(firing)

    def build(self, firing: TorchSite) -> Any:
        to = self.to(firing.env)
        if not isinstance(to, Var) or to.name not in DTYPES:
            raise DplcError("`cast` goes to a dtype: `f32`, `dtype(y)`", self.span)
        return compose.asked_cast(self.x.build(firing), to.name)


class PlaceOf(Part):
    """`place(x, low, end)`: x, whose elements are places of low..end-1. Torch raises an error for any other."""

    def __init__(self, x: Part, low: Closure, end: Closure):
        self.x, self.low, self.end = x, low, end

    def scan(self, firing: TorchSite) -> None:
        self.x.scan(firing)

    def build(self, firing: TorchSite) -> Any:
        term = self.x.build(firing)
        firing.lowering.bound(term, self.low(firing.env), self.end(firing.env))
        return term


class Reduction(Part):
    def __init__(self, fn: str, over: FoldedAxes, x: Part):
        self.fn, self.over, self.x = fn, over, x

    def scan(self, firing: TorchSite) -> None:
        self.x.scan(firing)
        for leaf in self.over.axes(firing):
            firing.slots[leaf].bound = True

    def build(self, firing: TorchSite) -> Any:
        over = (firing.resolve(leaf) for leaf in self.over.axes(firing))
        return compose.reduce(self.fn, (a for a in over if a.__class__ is Axis), self.x.build(firing))


class TupleReduction(Part):
    """`Fold(linear.h, k, (a, b))`"""

    def __init__(self, part: str, over: FoldedAxes, operands: tuple[Part, ...]):
        self.part, self.over, self.operands = part, over, operands

    def scan(self, firing: TorchSite) -> None:
        for operand in self.operands:
            operand.scan(firing)
        for leaf in self.over.axes(firing):
            firing.slots[leaf].bound = True

    def build(self, firing: TorchSite) -> Any:
        over = (firing.resolve(leaf) for leaf in self.over.axes(firing))
        return compose.fold(
            self.part, (a for a in over if a.__class__ is Axis), [operand.build(firing) for operand in self.operands]
        )


class StackedRead(Part):
    """`Stacked(k, xs[os..])`: operands that are the steps of a recurrence are stacked by an op of their own."""

    def __init__(self, name: str, place: Closure, bracket: Bracket):
        self.name, self.place, self.bracket = name, place, bracket

    def scan(self, firing: TorchSite) -> None:
        for number, view in enumerate(firing.env[self.name]):
            firing.place((self, number), view, self.bracket.entries(firing, len(view.shape)), False)

    def build(self, firing: TorchSite) -> Any:
        terms = tuple(firing.read((self, number)) for number in range(len(firing.env[self.name])))
        place = firing.resolve(self.place(firing.env))
        axis = place if place.__class__ is Axis else firing.lowering.fresh(len(terms))
        made = stacked(axis, terms, lambda others: firing.stack(axis, others))
        if made is None:
            raise NotApplicable(f"the tensors of `{self.name}` are not computed alike")
        return compose.remap(made, {axis: place})

    def note_slices(self, firing: TorchSite, whole: Any, bracket: Bracket) -> None:
        """Each tensor of the list is the whole, whose bracket this is, at its number along the place."""
        place, own = self.place(firing.env), firing.result_entries
        for number in range(len(firing.env[self.name])):
            view, entries = firing.placed[(self, number)]
            assert view.term is not None
            dims = dict(zip(entries, view.dims, strict=True))
            stands = zip(own, bracket.entries(firing, len(own)), view.shape, strict=True)
            where = {firing.named(to): dims[e] or 0 for to, e, n in stands if e is not place and n != 1}
            at = {firing.named(to): number for to, e in zip(own, bracket.entries(firing), strict=True) if e is place}
            firing.lowering.slice_of(view.term, whole, compose.remap(whole, where | at))


class IndexOf(Part):
    def __init__(self, e: Closure):
        self.e = e

    def build(self, firing: TorchSite) -> Any:
        return compose.index(firing.resolve(self.e(firing.env)))


class Select(Part):
    """`Case(condition, a, b)`"""

    def __init__(self, condition: Closure, a: Part, b: Part):
        self.condition, self.a, self.b = condition, a, b

    def scan(self, firing: TorchSite) -> None:
        self.a.scan(firing)
        self.b.scan(firing)

    def build(self, firing: TorchSite) -> Any:
        condition = firing.resolve(self.condition(firing.env))
        if isinstance(condition, bool):
            return (self.a if condition else self.b).build(firing)
        return compose.case(condition, self.a.build(firing), self.b.build(firing))


class Decide(Part):
    """`a if condition else b`: the condition is decided when the rule fires."""

    def __init__(self, condition: Closure, a: Part, b: Part):
        self.condition, self.a, self.b = condition, a, b

    def scan(self, firing: TorchSite) -> None:
        (self.a if self.condition(firing.env) else self.b).scan(firing)

    def build(self, firing: TorchSite) -> Any:
        return (self.a if self.condition(firing.env) else self.b).build(firing)


class Deferred:
    """A term in a bracket: a gather."""

    def __init__(self, part: Part):
        self.part = part

    def build(self, firing: TorchSite) -> Any:
        return self.part.build(firing)


class Item:
    """One item of a bracket. name: of an axis or a run that the bracket may bind; part: of a term."""

    def __init__(self, name: str | None, run: bool, closure: Closure, part: Part | None = None):
        self.name, self.run, self.closure = name, run, closure
        self.part = part
        self.deferred = (Deferred(part),) if part is not None else ()

    def values(self, firing: TorchSite) -> tuple[Entry, ...] | None:
        """What it stands for; None for a run that is not bound yet."""
        if self.part is not None:
            self.part.scan(firing)
            return self.deferred
        if self.name is not None and self.name not in firing.env:
            if self.run:
                return None
            firing.env[self.name] = firing.axis(1, free=True)
        value = self.closure(firing.env)
        return tuple(value) if self.run else (value,)


class Bracket:
    """The items between brackets: axes, runs of axes, index expressions, terms."""

    def __init__(self, items: tuple[Item, ...]):
        self.items = items

    def entries(self, firing: TorchSite, rank: int = 0) -> list[Entry]:
        """One entry per position. A run that is not bound gets what the rank leaves."""
        groups = [item.values(firing) for item in self.items]
        if None in groups:
            open_run = groups.index(None)
            count = rank - sum(len(group) for group in groups if group is not None)
            bound = tuple(firing.axis(1, free=True) for _ in range(max(count, 0)))
            firing.env[self.items[open_run].name or ""] = bound
            groups[open_run] = bound
        return [entry for group in groups if group is not None for entry in group]


class FoldedAxes:
    """What a fold goes over: axes and runs of them, nothing else."""

    def __init__(self, items: tuple[Item, ...], spans: tuple[Span, ...]):
        self.items = [(Bracket((item,)), span) for item, span in zip(items, spans, strict=True)]

    def axes(self, firing: TorchSite) -> list[Axis]:
        """The axes of all items. Raises DplcError at an item that is none."""
        found: list[Axis] = []
        for item, span in self.items:
            for entry in item.entries(firing):
                if entry.__class__ is not Axis or entry not in firing.slots:
                    raise DplcError("a fold goes over axes, and over lists of them with dots: `k..`", span)
                found.append(entry)
        return found
