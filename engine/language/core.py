"""The core of a rule: what everybody reads who reads rules.

Expressions and clauses are the nodes below, as the parser made them. A value on tensor or torch is resolved once into a
term: which operation it is, its operands, the axes and functions that it names. Who matches, builds, exports, draws or
proves rules takes terms by their class; what is not written as an operation is written is refused here, for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ...ir.diagnostic import DplcError, Span, did_you_mean
from ...ir.functions import FUNCTIONS
from ...ir.monoid_texts import PARTS
from ...ir.text.read_statements import CONSTANTS
from ...ir.text.syntax import *  # noqa: F403  (expressions and clauses, for all who read rules)
from ...ir.text.syntax import (
    Apply,
    Assign,
    AxisItem,
    Choice,
    Group,
    NameOf,
    Nodes,
    Number,
    Operation,
    Prefix,
    Run,
    Subscript,
    Syntax,
    syntax_node,
)
from ...ir.text.tensor import cannot_reduce, part_name
from .evaluate import facts_of

FORMS = {
    "Index": "Index(e)", "Case": "Case(condition, a, b)", "cast": "cast(x, dtype)", "place": "place(x, low, end)",
    "mat": "mat(x)", "Stacked": "Stacked(k, xs[is..])",
}  # fmt: skip
WRITTEN_OUT = {"+": "add", "-": "subtract", "*": "multiply", "//": "floor_divide", "%": "remainder"}
ON_TENSOR = ("Reduce", "Fold", "Index", "Case", "cast", "mat")
OPERATIONS = (*ON_TENSOR, "place", "Stacked")


@syntax_node
class ValueTerm:
    """A value of a pattern or a template. node: as it is written."""

    if TYPE_CHECKING:
        __slots__: ClassVar[tuple[str, ...]]

    node: Syntax

    @property
    def span(self) -> Span:
        return self.node.span


@syntax_node
class NumberTerm(ValueTerm):
    """A number, also `true`, `inf`, `nan` and negative ones."""

    value: int | float


@syntax_node
class NameTerm(ValueTerm):
    """A variable, or a value that another line defines; `_` in a pattern is any value."""

    name: str


@syntax_node
class RunTerm(ValueTerm):
    """`xs..`: any number of operands, or of axes."""

    name: str


@syntax_node
class AxisTerm(ValueTerm):
    """`k` or `k:8`; extent: a number, a variable, or None where it is not said."""

    name: str
    extent: int | str | None


@syntax_node
class MappedTerm(ValueTerm):
    """`x[is..]`: x under the index map `is`."""

    x: ValueTerm
    map: str


@syntax_node
class ReadTerm(ValueTerm):
    """`x[i, k + 1]`: the element of value x at these indices."""

    x: ValueTerm
    places: Nodes


@syntax_node
class MatTerm(ValueTerm):
    """`mat(x)`: x as it is stored."""

    x: ValueTerm


@syntax_node
class ReduceTerm(ValueTerm):
    """`Reduce(fn, axes.., x)`.

    fn: a function, or a variable for one. over: the axes in a rule on tensor; on torch they are read as brackets are.
    """

    fn: str
    over: tuple[AxisTerm | RunTerm, ...]
    x: ValueTerm


@syntax_node
class FoldTerm(ValueTerm):
    """`Fold(online.s, axes.., (x, v))`. part: of a monoid, or a variable for one."""

    part: str
    over: tuple[AxisTerm | RunTerm, ...]
    args: tuple[ValueTerm, ...]


@syntax_node
class CaseTerm(ValueTerm):
    """Selection by a condition: `Case(condition, a, b)`."""

    cond: Syntax
    a: ValueTerm
    b: ValueTerm


@syntax_node
class IndexTerm(ValueTerm):
    """Index as a value: `Index(expression)`."""

    expr: Syntax


@syntax_node
class CastTerm(ValueTerm):
    """Conversion to a dtype: `cast(x, dtype)`."""

    x: ValueTerm
    dtype: Syntax


@syntax_node
class PlaceTerm(ValueTerm):
    """Value x on torch whose elements are positions from `low` to `end`."""

    x: ValueTerm
    low: Syntax
    end: Syntax


@syntax_node
class StackedTerm(ValueTerm):
    """`Stacked(k, xs[is..])` on torch: element k of a list of tensors that are computed alike."""

    place: Syntax
    x: ReadTerm


@syntax_node
class EitherTerm(ValueTerm):
    """`a if condition else b` on torch: decided where the rule fires."""

    condition: Syntax
    a: ValueTerm
    b: ValueTerm


@syntax_node
class ComputedTerm(ValueTerm):
    """A calculation on torch: a fact, arithmetic with numbers."""


@syntax_node
class FunctionTerm(ValueTerm):
    """`add(x, y)`, or `f(xs..)` with a variable for the function."""

    fn: str
    operands: tuple[ValueTerm, ...]

    @property
    def known(self) -> bool:
        """Return whether it is a function, not a variable for one."""
        return self.fn in FUNCTIONS

    @property
    def runs(self) -> bool:
        return any(isinstance(operand, RunTerm) for operand in self.operands)


def says_slices(statement: Syntax) -> bool:
    """Return whether a line of a template on torch is `Stacked(j, xs[os..]) = y[os..]`: y has the tensors of a list."""
    target = statement.target if isinstance(statement, Assign) else None
    return isinstance(target, Apply) and target.fn == "Stacked"


def line_name(line: Syntax) -> str:
    """Return the name of the value that a line defines. Raises DplcError for another statement."""
    match line:
        case Assign(target=NameOf(text=name) | Subscript(base=NameOf(text=name))):
            return name
    raise DplcError("a line reads `name = value` or `name[axes] = value`", line, "name a value, as `y = exp(x)`")


def definitions(block: Nodes) -> dict[str, ValueTerm]:
    """Return the values of a pattern or template on tensor by their names, in order; the last one is the root."""
    values: dict[str, ValueTerm] = {}
    line: Any  # an assignment, as `line_name` asks
    for line in block:
        name = line_name(line)
        value = values[name] = term_of(line.value)
        for function in terms(value, FunctionTerm):
            if function.known and not function.runs and len(function.operands) != FUNCTIONS[function.fn].arity:
                raise DplcError(f"`{function.fn}` takes {FUNCTIONS[function.fn].arity} operands", function)
    return values


def lefts(block: Nodes) -> dict[str, tuple[AxisTerm, ...]]:
    """Return the axes between the brackets of left sides, by the value that has them."""
    return {
        line_name(line): tuple(axis_of(item, "on the left ") for item in line.target.items)
        for line in block
        if isinstance(line, Assign) and isinstance(line.target, Subscript)
    }


def term_of(node: Syntax, torch: bool = False) -> ValueTerm:
    """Return the term of a value on tensor, or in a template on torch. Raises DplcError for other syntax."""
    node = bare(node)
    number = constant_of(node)
    if number is not None:
        return NumberTerm(node, number)
    if isinstance(node, NameOf):
        return NameTerm(node, node.text)
    if isinstance(node, Run):
        return _run(node)
    if isinstance(node, Subscript):
        return _reading(node, torch)
    if isinstance(node, Apply):
        return _operation(node, torch)
    if torch and isinstance(node, Choice):
        return EitherTerm(node, node.condition, term_of(node.a, torch), term_of(node.b, torch))
    if torch:
        return ComputedTerm(node)
    name = WRITTEN_OUT.get(node.op) if isinstance(node, Operation) else None
    raise DplcError(
        "this is not a value", node, None if name is None else f"values are computed by functions: `{name}(a, b)`"
    )


def bare(node: Syntax) -> Syntax:
    """Return an expression without the parentheses around it."""
    while isinstance(node, Group) and node.bracket == "(" and len(node.items) == 1:
        node = node.items[0]
    return node


def constant_of(node: Syntax) -> int | float | None:
    """Return the value of a numeric literal, else None."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, NameOf):
        return CONSTANTS.get(node.text)
    if isinstance(node, Prefix) and node.op == "-":
        inner = constant_of(node.a)
        return None if inner is None else -inner
    return None


def axis_of(item: Syntax, where: str = "") -> AxisTerm:
    """Return the axis of `k` or `k:8`. Raises DplcError for anything else; where: how the message begins."""
    if isinstance(item, NameOf):
        return AxisTerm(item, item.text, None)
    if not isinstance(item, AxisItem) or (item.role, item.dim, item.stride) != (None, None, None):
        raise DplcError(f"{where}an axis is `k` or `k:8`", item, "leave out roles and strides")
    extent = item.extent
    if isinstance(extent, NameOf):
        return AxisTerm(item, item.name, extent.text)
    if isinstance(extent, Number):
        return AxisTerm(item, item.name, int(extent.value))
    raise DplcError(
        "an extent in a pattern is a number or a variable", extent, "bind a variable, and compare it in a `require`"
    )


def _run(node: Run) -> RunTerm:
    if isinstance(node.base, NameOf):
        return RunTerm(node, node.base.text)
    raise DplcError("a run is a variable", node.base, "write `xs..`")


def _reading(node: Subscript, torch: bool) -> ValueTerm:
    if torch and not isinstance(node.base, NameOf):
        raise DplcError("a tensor is read as `name[..]`", node, "define the value on a line of its own first")
    if torch or not any(isinstance(item, Run) for item in node.items):
        return ReadTerm(node, term_of(node.base, torch), node.items)
    match node.items:
        case (Run(base=NameOf(text=name)),):
            return MappedTerm(node, term_of(node.base), name)
    raise DplcError("this form is not known here", node, "write `x[is..]` for a value read under an index map")


def _over(items: Nodes, torch: bool) -> tuple[AxisTerm | RunTerm, ...]:
    return () if torch else tuple(_run(item) if isinstance(item, Run) else axis_of(item) for item in items)


def _operation(node: Apply, torch: bool) -> ValueTerm:
    fn, items = node.fn, node.items
    first, given = (items[0], items[-1]) if items else (node, node)
    if fn == "Reduce":
        if len(items) < 3 or not isinstance(first, NameOf):
            raise DplcError("a reduction reads `Reduce(function, axis.., value)`", node, "write `Reduce(add, k, x)`")
        if first.text in FUNCTIONS and FUNCTIONS[first.text].identity is None:
            raise cannot_reduce(first)
        return ReduceTerm(node, first.text, _over(items[1:-1], torch), term_of(given, torch))
    if fn == "Fold":
        part = first.text if isinstance(first, NameOf) else part_name(first)
        if part is not None and not isinstance(first, NameOf) and part not in PARTS:
            raise DplcError(f"there is no `{part}` to fold", node, did_you_mean(part, PARTS))
        if part is None or not isinstance(given, Group) or len(items) < 3:
            raise DplcError("this form is not known here", node, "write `Fold(monoid.part, axes.., (operands..))`")
        over = _over(items[1:-1], torch)
        return FoldTerm(node, part, over, tuple(term_of(item, torch) for item in given.items))
    operations = OPERATIONS if torch else ON_TENSOR
    if fn in operations:
        cls = _TERMS[fn]
        fields = cls.__slots__
        if len(items) != len(fields) or (fn == "Stacked" and not isinstance(bare(given), Subscript)):
            raise DplcError("this form is not known here", node, f"write `{FORMS[fn]}`")
        parts = (term_of(item, torch) if name in VALUES else item for name, item in zip(fields, items, strict=True))
        term: ValueTerm = cls(node, *parts)
        return term
    if torch and fn not in FUNCTIONS and fn in facts_of("torch"):
        return ComputedTerm(node)
    if fn[:1].isupper():
        raise DplcError(f"no operation `{fn}` on tensor", node, did_you_mean(fn, operations))
    return FunctionTerm(node, fn, tuple(term_of(item, torch) for item in items))


# The class of an operation, whose fields are its items in order: those of these names are values, others calculations.
_TERMS: dict[str, Any] = {
    "Index": IndexTerm, "Case": CaseTerm, "cast": CastTerm, "mat": MatTerm, "place": PlaceTerm, "Stacked": StackedTerm,
}  # fmt: skip
VALUES = ("x", "a", "b")


T = TypeVar("T", bound=ValueTerm)


def terms(value: object, kind: type[T]) -> Iterator[T]:
    """Yield the terms of a class in some values, outermost first."""
    if isinstance(value, kind):
        yield value
    for field in type(value).__slots__ if isinstance(value, ValueTerm) else ():
        yield from terms(getattr(value, field), kind)
    for item in value if isinstance(value, tuple) else ():
        yield from terms(item, kind)
