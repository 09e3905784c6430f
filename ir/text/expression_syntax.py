"""The syntax of expressions, and of items between brackets: what a text says, with its place, before any meaning."""

from __future__ import annotations

from dataclasses import dataclass

from ..diagnostic import Span
from ..expr import Size


@dataclass(frozen=True, slots=True)
class Syntax:
    span: Span


# ---- expressions


@dataclass(frozen=True, slots=True)
class NameOf(Syntax):
    text: str


@dataclass(frozen=True, slots=True)
class Number(Syntax):
    value: int | float


@dataclass(frozen=True, slots=True)
class SizeOf(Syntax):
    """The use of a name that the head of the unit declares as a size."""

    size: Size


@dataclass(frozen=True, slots=True)
class Text(Syntax):
    value: str


@dataclass(frozen=True, slots=True)
class Apply(Syntax):
    """`fn(items..)`: an op, a scalar function, a fact."""

    fn: str
    items: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Subscript(Syntax):
    """`base[items..]`: an access, a list element, a substitution."""

    base: Syntax
    items: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Member(Syntax):
    """`base.field`"""

    base: Syntax
    field: str


@dataclass(frozen=True, slots=True)
class Operation(Syntax):
    """`a op b`: arithmetic, comparison, `and`, `or`, `in`, `not in`."""

    op: str
    a: Syntax
    b: Syntax


@dataclass(frozen=True, slots=True)
class Prefix(Syntax):
    """`-a`, `not a`"""

    op: str
    a: Syntax


@dataclass(frozen=True, slots=True)
class Choice(Syntax):
    """`a if condition else b`"""

    a: Syntax
    condition: Syntax
    b: Syntax


@dataclass(frozen=True, slots=True)
class Group(Syntax):
    """`(a, b)`, `[a, b]` or `{a, b}`; `(a)` alone is `a` unless its sort is a list."""

    bracket: str
    items: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(Syntax):
    """`[element for variable in domain if condition]`, or with braces."""

    bracket: str
    element: Syntax
    variable: str
    domain: Syntax
    condition: Syntax | None


@dataclass(frozen=True, slots=True)
class Chosen(Syntax):
    """`choose n in domain if condition minimising cost`: the element that costs least, the first of several such.

    costs: what each element costs, as the comprehension that computes it. most: of `maximising`: the dearest wins.
    """

    costs: Comprehension
    most: bool


@dataclass(frozen=True, slots=True)
class Between(Syntax):
    """`a..b`, half open"""

    a: Syntax
    b: Syntax


# ---- items


@dataclass(frozen=True, slots=True)
class Keyword(Syntax):
    """`name=value`"""

    name: str
    value: Syntax


@dataclass(frozen=True, slots=True)
class Run(Syntax):
    """`base..`, with `=ROLE` behind it for axes."""

    base: Syntax
    role: str | None = None


@dataclass(frozen=True, slots=True)
class AxisItem(Syntax):
    """`name:extent=ROLE@dim by stride`"""

    name: str
    extent: Syntax
    role: str | None
    dim: Syntax | None
    stride: Syntax | None


@dataclass(frozen=True, slots=True)
class Substitution(Syntax):
    """`left := right`"""

    left: Syntax
    right: Syntax
