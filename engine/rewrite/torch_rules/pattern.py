"""Patterns of torch rules, compiled. They are closed: a field that the rule does not mention must be at its default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....ir.diagnostic import DplcError, Span, did_you_mean
from ....ir.dtypes import FLOATS
from ....ir.expr import Axis, Var
from ....ir.functions import DTYPES
from ....ir.interp import tensor as meaning
from ....ir.program import TensorType
from ....ir.schemas import Overload, accepts, names, overloads
from ....ir.substitute import with_sizes
from ....ir.tensor import Elementwise, Fold, Input, Output, Reduce, TensorGraph, Term, axes, dtype, postorder
from ....ir.text.print_statements import print_value
from ....ir.torch import TorchOp
from ...language import core as s
from ...language.evaluate import CONSTANTS, RESERVED, Environment

# Torch values as terms, and axes that have no name yet.


# Ops that read a value which is not a term itself: one of several results, a part of complex numbers.
READERS = ("Getitem", "Real", "Imag", "ViewAsReal")

Entry = Any  # the content of one position of a bracket: an index expression over unnamed axes, or a deferred term


class NotApplicable(Exception):
    """The rule does not apply; the text says why.

    saw: the values that its guard saw, computed when first read. undecided: the condition that sizes leave open, if
    that is the reason.
    """

    def __init__(self, reason: str, saw: Callable[[], str] | None = None, undecided: Any = None):
        super().__init__(reason)
        self.saw, self.undecided = saw, undecided

    @property
    def text(self) -> str:
        """The reason, with what the guard saw."""
        return str(self) if self.saw is None else f"{self} {self.saw()}"


class View:
    """A torch value: a term, and per torch dimension the axis that it varies with (None for size 1).

    An input that nothing has read has no term yet: its first reader names its axes.
    """

    __slots__ = ("dims", "dtype", "name", "shape", "term")

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...], term: Term | None, dims: tuple[Axis | None, ...]):
        self.name, self.dtype, self.shape, self.term, self.dims = name, dtype, shape, term, dims

    @property
    def computed(self) -> bool:
        return self.term is not None and self.term.__class__ is not Input

    def own(self, dims: tuple[Axis | None, ...]) -> None:
        """Name the axes of an input."""
        self.term, self.dims = Input(self.name, tuple(a for a in dims if a is not None), self.dtype), dims

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass
class AxisSlot:
    """Axis without a name yet. candidates: (of a computed value, age, axis) for the positions that it indexes.

    free: a bracket created it, and its extent is that of the positions, of which those of size 1 say nothing.
    """

    extent: int
    free: bool = False
    candidates: list[tuple[bool, int, Axis]] = field(default_factory=list)
    axis: Axis | None = None
    bound: bool = False  # a Reduce sweeps it


@dataclass(frozen=True)
class Exactly:
    """An axis put at a position on purpose: it may be shorter than the dimension (the start of a slice)."""

    axis: Axis

    def build(self, firing: Any) -> Any:
        return firing.resolve(self.axis)


@dataclass(frozen=True)
class Producer:
    """An op that gives several tensors; its results are read with Getitem."""

    statement: TorchOp


@dataclass(frozen=True)
class OpCall:
    """An op and what its fields are: numbers, text, lists, views. origin: the user's op that it is part of."""

    statement: TorchOp
    overload: Overload
    given: dict[str, Any]
    origin: TorchOp


class Lowers(Protocol):
    """Interface of the pass over a program to a firing in it. age: of every axis, in the order of creation."""

    age: dict[Axis, int]
    matched: Mapping[str, Any]  # what the rule bound that fired last

    def fresh(self, extent: int) -> Axis: ...
    def own(self, view: View) -> None: ...
    def hint(self, value: Any, name: str) -> None: ...
    def bound(self, x: Any, low: int, end: int) -> None: ...
    def slice_of(self, part: Term, whole: Term, read: Term) -> None: ...
    def call(self, statement: TorchOp, origin: TorchOp | None = None) -> OpCall: ...
    def made_by(self, value: Any) -> TorchOp | None: ...
    def made(
        self, call: OpCall, name: str, op: str, fields: dict[str | int, Any], types: tuple[TensorType, ...]
    ) -> View: ...
    def several(self, op: str, fields: dict[str | int, Any], types: tuple[TensorType, ...]) -> Producer: ...


# Unnamed axes are leaves of index expressions; `?` keeps them apart from every axis of a program.
_UNNAMED = [Axis(f"?{n}") for n in range(64)]


def unnamed(n: int) -> Axis:
    """Return the n-th unnamed axis of a firing."""
    return _UNNAMED[n] if n < len(_UNNAMED) else Axis(f"?{n}")


def views(value: Any) -> Iterable[View]:
    """Return the tensors among the arguments of an op."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for item in value:
            yield from views(item)
    elif isinstance(value, View):
        yield value


Bind = Callable[[Any, Environment], str | None]  # None, or why the value does not fit


def show(value: Any) -> str:
    """Return a field's value as it is written in a rule."""
    if isinstance(value, View):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))})"
    return f'"{value}"' if isinstance(value, str) else print_value(value)


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal, with numbers and truth values apart; nan equals nan."""
    if a.__class__ is float and a != a:
        return b.__class__ is float and b != b
    return a is b or (isinstance(a, bool) is isinstance(b, bool) and type(a) is not View and a == b)


def _constant(value: Any) -> Bind:
    return lambda found, env: None if same(found, value) else f"{show(found)} is not {show(value)}"


def _variable(name: str) -> Bind:
    def bind(found: Any, env: Environment) -> str | None:
        if name not in env:
            env[name] = found
            return None
        return None if same(env[name], found) else f"two values for `{name}`"

    return bind


def _list(items: s.Nodes) -> Bind:
    rest = items[-1] if items and isinstance(items[-1], s.Run) else None
    binds = tuple(map(compile_value, items[:-1] if rest else items))
    tail = compile_value(rest.base) if rest else None
    many = len(binds)

    def bind(found: Any, env: Environment) -> str | None:
        if not isinstance(found, tuple):
            return f"{show(found)} is not a list"
        if len(found) < many or (tail is None and len(found) > many):
            return f"a list of {len(found)}, not of {many}{' or more' if tail else ''}"
        for part, value in zip(binds, found, strict=False):
            if (reason := part(value, env)) is not None:
                return reason
        return tail(found[many:], env) if tail else None

    return bind


def compile_value(node: s.Syntax) -> Bind:
    """Return the test and binding of one field's value."""
    if isinstance(node, s.NameOf):
        if node.text == "_":
            return lambda found, env: None
        if node.text in CONSTANTS:
            return _constant(CONSTANTS[node.text])
        if node.text == "nan":
            return _constant(float("nan"))
        return _constant(Var(node.text)) if node.text in RESERVED else _variable(node.text)
    if isinstance(node, s.Prefix) and node.op == "-" and isinstance(node.a, s.NameOf) and node.a.text == "inf":
        return _constant(-CONSTANTS["inf"])
    if isinstance(node, (s.Number, s.Text)):
        return _constant(node.value)
    if isinstance(node, s.Group):
        return _list(node.items)
    raise DplcError("a pattern on torch holds variables, constants and lists", node.span)


class TypePattern:
    """`f32[4, n, rest..]`, of one result."""

    def __init__(self, node: s.TypeOf):
        dtype = _constant(Var(node.dtype)) if node.dtype in DTYPES else compile_value(s.NameOf(node.span, node.dtype))
        self.dtype, self.dims = dtype, _list(node.dims)

    def match(self, found: TensorType, env: Environment) -> str | None:
        """Bind the variables of the type; or say why it does not fit."""
        return self.dtype(Var(found.dtype), env) or self.dims(tuple(found.shape), env)


class StatementPattern:
    """`dst = Op(positional.., field=pattern, rest..)`, with types or without: `dst: f32[4, n] = ..`."""

    def __init__(self, statement: s.Syntax):
        if (
            not isinstance(statement, s.Assign)
            or not isinstance(statement.target, s.NameOf)
            or not isinstance(statement.value, s.Apply)
        ):
            raise DplcError("a pattern on torch is `y = Op(field, ..)`", statement.span)
        items = statement.value.items
        self.types = tuple(map(TypePattern, statement.types))
        self.dst, self.op = statement.target.text, statement.value.fn
        given = (item.value if isinstance(item, s.Keyword) else item for item in items)
        self.reads = {value.text for value in given if isinstance(value, s.NameOf)}
        self.open = any(isinstance(item, s.Run) for item in items)
        self.keywords = {item.name: compile_value(item.value) for item in items if isinstance(item, s.Keyword)}
        self.positional = tuple(compile_value(item) for item in items if not isinstance(item, (s.Keyword, s.Run)))
        self._plans: dict[str, str | tuple[tuple[tuple[str, Any, Bind], ...], frozenset[str]]] = {}

    def typed(self, types: tuple[TensorType, ...], env: Environment) -> str | None:
        """Return the reason why the types of the results do not fit, if the pattern has types; else None."""
        if not self.types:
            return None
        if len(types) != len(self.types):
            return f"{len(types)} results, not {len(self.types)}"
        reasons = (pattern.match(found, env) for pattern, found in zip(self.types, types, strict=True))
        return next((f"type of the result: {reason}" for reason in reasons if reason is not None), None)

    def match(self, overload: Overload, given: dict[str, Any], env: Environment) -> str | None:
        """Bind the pattern's variables to the fields; or say why the op does not fit."""
        plan = self._plans.get(overload.name)
        if plan is None:
            plan = self._plans[overload.name] = self._plan(overload)
        if isinstance(plan, str):
            return plan
        fields, known = plan
        for name, default, bind in fields:
            if (reason := bind(given.get(name, default), env)) is not None:
                return f"{name}: {reason}"
        if not self.open:
            for name, value in given.items():
                if name not in known:
                    return f"the rule says nothing about {name}={show(value)}"
        return None

    def _plan(self, overload: Overload) -> str | tuple[tuple[tuple[str, Any, Bind], ...], frozenset[str]]:
        """Return the pattern of each field of an overload, or the reason why there is none."""
        arguments = {argument.name: argument for argument in overload.arguments}
        for name in self.keywords:
            if name not in arguments:
                return f"{overload.name} has no field `{name}`"
        free = [name for name in arguments if name not in self.keywords]
        if len(free) < len(self.positional):
            return f"{overload.name} has {len(free)} fields for {len(self.positional)} positions"
        binds = dict(zip(free, self.positional, strict=False)) | self.keywords
        fields = tuple((name, a.default, binds[name]) for name, a in arguments.items() if name in binds)
        return fields, frozenset(binds)


# The fields of an op that a template makes, by the names that an overload of torch gives them.


Arguments = tuple[tuple[str, Any], ...]


def arguments_of(op: str, fields: dict[str | int, Any]) -> Arguments:
    """Return the fields, given by position or by name, under the names of the first overload that accepts them.

    Raises DplcError for an unknown op, or if no overload of the op accepts them.
    """
    if op not in names():
        raise DplcError(f"unknown torch op `{op}`", hint=did_you_mean(op, names()))
    found = next(filter(None, (_bound(overload, fields) for overload in overloads(op))), None)
    if found is None:
        raise DplcError(
            f"no overload of `{op}` takes the fields that a template gives it: {', '.join(map(str, fields))}"
        )
    return found


def _bound(overload: Overload, given: dict[str | int, Any]) -> Arguments | None:
    """Return the fields of an overload, those given by position under their names; None if it does not take them."""
    order = [argument.name for argument in overload.arguments]
    if any(isinstance(key, int) and key >= len(order) for key in given):
        return None
    args = {order[key] if isinstance(key, int) else key: value for key, value in given.items()}
    return tuple(args.items()) if len(args) == len(given) and accepts(overload, args) else None


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
    span: Span | None = None

    @property
    def knowable(self) -> bool:
        """Return whether it is computed from integer inputs elementwise: reductions would be calculated twice."""
        below = postorder((self.term,))
        reads = [term for term in below if isinstance(term, Input)]
        whole = all(dtype(term) not in FLOATS for term in below)
        return bool(reads) and whole and not any(isinstance(term, (Reduce, Fold)) for term in below)


def check_places(bounds: Iterable[Bound], tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Raise DplcError for the first index in these inputs that is out of range, with these sizes."""
    for bound in bounds:
        place, low, end = with_sizes((bound.term, bound.low, bound.end), sizes)
        inputs = {term.name: term for term in postorder((place,)) if isinstance(term, Input)}
        if not inputs.keys() <= tensors.keys():
            continue  # an input of exploration's, whose values it made
        arrays = {name: tensors[name].detach().cpu().numpy() for name in inputs}
        stored = Elementwise("copy", (place,))
        graph = TensorGraph("places", tuple(inputs.values()), (Output("place", axes(stored), stored),), ())
        (places,) = meaning.run(graph, arrays)
        outside = places[(places < low) | (places >= end)]
        if outside.size:
            what = f"place {int(outside.flat[0])} is out of range: `{bound.op}` takes {low} to {end - 1} here"
            raise DplcError(what, bound.span, (f"it is computed from {', '.join(f'`{name}`' for name in inputs)}",))
