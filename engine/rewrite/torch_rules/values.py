"""What a torch rule handles: torch values seen as terms, and axes that have no name yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....ir.expr import Axis
from ....ir.program import TensorType
from ....ir.schemas import Overload
from ....ir.tensor import Input, Term
from ....ir.torch import TorchOp

# Ops that read a value which is no term itself: one of several results, a part of complex numbers.
READERS = ("Getitem", "Real", "Imag", "ViewAsReal")

Entry = Any  # what stands at one position of a bracket: an index expression over unnamed axes, or a deferred term


class NotApplicable(Exception):
    """The rule does not apply; the text says why.

    saw: what its guard saw, made when somebody reads it; undecided: the condition that sizes leave open, if that is it.
    """

    def __init__(self, reason: str, saw: Callable[[], str] | None = None, undecided: Any = None):
        super().__init__(reason)
        self.saw, self.undecided = saw, undecided

    @property
    def told(self) -> str:
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
    """An axis in the making. candidates: (of a computed value, age, axis) of the positions it stands at.

    free: a bracket made it, and its extent is that of the positions, of which those of size 1 say nothing.
    """

    extent: int
    free: bool = False
    candidates: list[tuple[bool, int, Axis]] = field(default_factory=list)
    axis: Axis | None = None
    bound: bool = False  # a Reduce sweeps it


class Resolves(Protocol):
    """Gives an entry its named axes."""

    def resolve(self, entry: Entry) -> Any: ...


@dataclass(frozen=True)
class Exactly:
    """An axis put at a position on purpose: it may be shorter than the dimension (the start of a slice)."""

    axis: Axis

    def build(self, firing: Resolves) -> Any:
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
    """What a firing asks of the pass over a program that it belongs to. age: of every axis, in the order of making."""

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


# Unnamed axes stand in index expressions as leaves; `?` keeps them apart from every axis of a program.
_UNNAMED = [Axis(f"?{n}") for n in range(64)]


def unnamed(n: int) -> Axis:
    """The n-th unnamed axis of a firing."""
    return _UNNAMED[n] if n < len(_UNNAMED) else Axis(f"?{n}")


def views(value: Any) -> Iterable[View]:
    """The tensors among what an op was given."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for item in value:
            yield from views(item)
    elif isinstance(value, View):
        yield value
