"""Patterns of torch rules. They are closed: a field that the rule does not mention must be at its default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....ir.compose import remap
from ....ir.diagnostic import DplcError, Span
from ....ir.expr import Axis, Var
from ....ir.interp import tensor as meaning
from ....ir.node import Expr, walk
from ....ir.schemas import Overload
from ....ir.substitute import with_sizes
from ....ir.tensor import Elementwise, Input, Output, TensorGraph, Term, axes, postorder
from ....ir.text.read_statements import CONSTANTS
from ....ir.text.torch import print_field
from ....ir.torch import TorchOp
from ...language import core as s
from ...language.evaluate import RESERVED, Environment
from ...language.typed_slots import names_in

# Torch values as terms, and axes that have no name yet.


Entry = Any  # the content of one position of a bracket: an index expression over unnamed axes, or a deferred term
Entries = tuple[Entry, ...]


class NotApplicable(Exception):
    """The rule does not apply; the text says why.

    saw: gives the values that its guard saw. undecided: the condition that sizes leave open, if that is the reason.
    """

    def __init__(self, reason: str, saw: Callable[[], str] = str, undecided: Any = None):
        super().__init__(reason)
        self.saw, self.undecided = saw, undecided

    @property
    def text(self) -> str:
        """The reason, with what the guard saw."""
        return f"{self} {self.saw()}".rstrip()


@dataclass(eq=False, slots=True)
class View:
    """A torch value: a term, and per torch dimension the axis that it varies with (None for size 1).

    An input that nothing has read has no term yet: its first reader names its axes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    term: Term | None = None
    dims: tuple[Axis | None, ...] = ()

    def along(self, name: Callable[[Any], Axis], entries: Sequence[Any]) -> tuple[Axis | None, ...]:
        """Return the axes that names give to the entries of its dimensions."""
        return tuple(None if n == 1 else name(entry) for entry, n in zip(entries, self.shape, strict=True))

    def own(self, name: Callable[[Any], Axis], entries: Sequence[Any]) -> Term:
        """Return the term, after naming the axes of an input that has none yet."""
        if self.term is None:
            self.dims = self.along(name, entries)
            self.term = Input(self.name, tuple(filter(None, self.dims)), self.dtype)
        return self.term

    def read_at(self, places: Sequence[Expr]) -> Term:
        """Return the value at an index in each dimension."""
        assert self.term is not None, self
        return remap(self.term, {dim: e for e, dim in zip(places, self.dims, strict=True) if dim is not None})

    def __repr__(self) -> str:
        return self.name


def views(*values: Any) -> list[View]:
    """Return the tensors in some values, the elements of lists and the operands of index expressions, in order."""
    return [part for part in walk(values) if isinstance(part, View)]


@dataclass
class AxisSlot:
    """Axis without a name yet. candidates: the axes at the positions that it indexes, and whether of a computed value.

    free: a bracket created it, and its extent is that of the positions, of which those of size 1 say nothing.
    """

    extent: int
    free: bool = False
    candidates: dict[Axis, bool] = field(default_factory=dict)
    axis: Axis | None = None
    bound: bool = False  # a Reduce sweeps it


@dataclass(frozen=True)
class Exactly:
    """An axis put at a position on purpose: it may be shorter than the dimension (the start of a slice)."""

    axis: Axis


@dataclass(frozen=True)
class Producer:
    """An op that gives several tensors; its results are read with Getitem."""

    statement: TorchOp


class OpCall(NamedTuple):
    """An op and what its fields are: numbers, text, lists, views. origin: the user's op that it is part of."""

    statement: TorchOp
    overload: Overload
    given: dict[str, Any]
    origin: TorchOp


# Patterns: a variable, a list of patterns, or the value itself.


class ListPattern(NamedTuple):
    """`[n, d, rest..]`. rest: the pattern of the rest, or none."""

    front: tuple[Any, ...]
    rest: tuple[Any, ...]


class StatementPattern:
    """`dst = Op(positional.., field=pattern, rest..)`, with types or without: `dst: f32[4, n] = ..`."""

    def __init__(self, statement: s.Syntax):
        match statement:
            case s.Assign(target=s.NameOf(text=dst), value=s.Apply(fn=op, items=items) as call, types=types):
                self.dst, self.op, self.reads = dst, op, names_in(call)
            case _:
                raise DplcError("a pattern on torch is `y = Op(field, ..)`", statement)
        self.types = [ListPattern((Var(one.dtype), _list(one.dims)), ()) for one in types]
        self.keywords = {item.name: _pattern(item.value) for item in items if isinstance(item, s.Keyword)}
        self.positional = [_pattern(item) for item in items if not isinstance(item, s.Keyword | s.Run)]
        self.open = any(isinstance(item, s.Run) for item in items)

    def match(self, call: OpCall, env: Environment) -> None:
        """Bind the pattern's variables to the types and fields of an op. Raises NotApplicable if it does not fit."""
        overload, given, types = call.overload, call.given, call.statement.types
        if self.op != call.statement.op:
            raise NotApplicable(f"expected {self.op}, found {call.statement.op}")
        if self.types and len(types) != len(self.types):
            raise NotApplicable(f"{len(types)} results, not {len(self.types)}")
        for pattern, found in zip(self.types, types, strict=False):
            _fit("type of the result", pattern, (Var(found.dtype), found.shape), env)
        fields = {name: default for name, _, default in overload.arguments}
        for name in self.keywords:
            if name not in fields:
                raise NotApplicable(f"{overload.name} has no field `{name}`")
        free = [name for name in fields if name not in self.keywords]
        if len(free) < len(self.positional):
            raise NotApplicable(f"{overload.name} has {len(free)} fields for {len(self.positional)} positions")
        patterns = self.keywords | dict(zip(free, self.positional, strict=False))
        for name, default in fields.items():
            if name in patterns:
                _fit(name, patterns[name], given.get(name, default), env)
        for name, value in given.items():
            if name not in patterns and not self.open:
                raise NotApplicable(f"the rule says nothing about {name}={print_field(value)}")


def _pattern(node: s.Syntax) -> Any:
    """Return the pattern of a field's value."""
    match node:
        case s.NameOf(text=name):
            return CONSTANTS.get(name, Var(name))
        case s.Text(value=text):
            return text
        case s.Group(items=items):
            return _list(items)
    number = s.constant_of(node)
    if number is None:
        raise DplcError("a pattern on torch holds variables, constants and lists", node)
    return number


def _list(items: s.Nodes) -> ListPattern:
    rest = [item.base for item in items[-1:] if isinstance(item, s.Run)]
    return ListPattern(tuple(map(_pattern, items[: len(items) - len(rest)])), tuple(map(_pattern, rest)))


def _fit(what: str, pattern: Any, found: Any, env: Environment) -> None:
    """Bind the variables of a pattern to a value. Raises NotApplicable, which says what does not fit."""
    if isinstance(pattern, ListPattern):
        if not isinstance(found, tuple):
            raise NotApplicable(f"{what}: {print_field(found)} is not a list")
        front, rest = pattern
        count = len(front)
        if len(found) < count or (len(found) > count and not rest):
            raise NotApplicable(f"{what}: a list of {len(found)}, not of {count}{' or more' if rest else ''}")
        for inner, value in zip(front + rest, (*found[:count], found[count:]), strict=False):
            _fit(what, inner, value, env)
    elif not isinstance(pattern, Var) or pattern.name in RESERVED:
        if not _same(found, pattern):
            raise NotApplicable(f"{what}: {print_field(found)} is not {print_field(pattern)}")
    elif pattern.name != "_" and not _same(env.setdefault(pattern.name, found), found):
        raise NotApplicable(f"{what}: two values for `{pattern.name}`")


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are equal, with numbers and truth values apart; nan equals nan."""
    return a is b or (isinstance(a, bool) is isinstance(b, bool) and a == b) or (a != a and b != b)


# Indices that ops write to: torch raises an error if one is out of range; dplc checks before the program runs.
#
# The op compares indices, so it would silently skip one out of range. A torch rule names such values by `place(ids[k],
# 0, n)`, which changes no value and no kernel. On the emulator dplc computes the indices that depend on integer inputs
# alone. On a GPU that would need a synchronisation, so dplc checks nothing there.


@dataclass(frozen=True)
class Bound:
    """Bound on the values of a term: indices from low to end-1, by the rule of an op, which the user wrote at span.

    low, end: numbers, or expressions of sizes.
    """

    term: Term
    low: Any
    end: Any
    op: str
    span: Span | None


def check_places(bounds: Iterable[Bound], tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Raise DplcError for the first index in these inputs that is out of range, with these sizes."""
    for bound in bounds:
        term, low, end = with_sizes((bound.term, bound.low, bound.end), sizes)
        inputs = {x.name: x for x in postorder((term,)) if isinstance(x, Input)}
        if not inputs.keys() <= tensors.keys():
            continue  # an input of exploration's, whose values it made
        arrays = {name: tensors[name].detach().cpu() for name in inputs}
        stored = Elementwise("copy", (term,))
        graph = TensorGraph("places", tuple(inputs.values()), (Output("places", axes(stored), stored),))
        (places,) = meaning.run(graph, arrays)
        outside = places[(places < low) | (places >= end)]
        if outside.size:
            raise DplcError(
                f"place {outside[0]} is out of range: `{bound.op}` takes {low} to {end - 1} here",
                bound,
                notes=(f"it is computed from {', '.join(f'`{name}`' for name in inputs)}",),
            )
