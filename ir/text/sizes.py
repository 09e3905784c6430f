"""Sizes in a text: declared in the head of a unit, `kernel f(s: 1..4096 by 16 hint 512, x: f32[s, 64]) -> ..`.

The names are settled in the syntax tree, before anybody reads it: a use becomes the size, or the number that a caller
binds it to. So a program at a binding is read as if its author had written the numbers, on every level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..diagnostic import DplcError, Span
from ..expr import Size
from ..node import Node
from ..sizes import Binding, sizes_in
from .parse import LARGEST_EXTENT
from .print_statements import print_expr
from .syntax import (
    AccumulateInto,
    Assign,
    AxisItem,
    ForLoop,
    NameOf,
    Nodes,
    Number,
    ParamItem,
    SizeItem,
    SizeOf,
    Subscript,
    Syntax,
    Unit,
    rebuilt,
)


def print_sizes(unit: Node) -> Iterator[str]:
    """Yield the declarations of the sizes on which a unit depends, by name."""
    for size in sizes_in(unit).values():
        step = f" by {size.multiple}" if size.multiple != 1 else ""
        hint = "" if size.hint == size.high // size.multiple * size.multiple else f" hint {size.hint}"
        yield f"{size.name}: {size.low}..{size.high}{step}{hint}"


def print_condition(condition: Any) -> str:
    """Print a condition that sizes leave open, for people: `s % 4 == 0 (s: 1..4096)`."""
    if not isinstance(condition, Node):
        return str(condition or "this compares what is not a number here")
    ranges = "; ".join(print_sizes(condition))
    return print_expr(condition) + (f" ({ranges})" if ranges else "")


def declared(units: Nodes) -> dict[str, Size]:
    """Return the sizes of a program by name. Raises DplcError if two units disagree."""
    found: dict[str, Size] = {}
    for item in (item for unit in units if isinstance(unit, Unit) for item in unit.ins):
        if isinstance(item, SizeItem):
            size = _size(item)
            if found.setdefault(item.name, size) is not size:
                raise DplcError(f"`{item.name}` has another range in a unit above", item)
    return found


def _size(item: SizeItem) -> Size:
    """Return a size as declared. Without a hint, its greatest number is the hint.

    Raises DplcError for an invalid range or hint.
    """
    name, low, high, multiple = item.name, item.low, item.high, item.multiple
    if not 1 <= low <= high <= LARGEST_EXTENT:
        raise DplcError(f"`{name}` goes from 1 or more up to 2^48 at most, not {low}..{high}", item)
    if multiple < 1 or high // multiple * multiple < low:
        raise DplcError(f"no number of {low}..{high} is a multiple of {multiple}", item)
    size = Size(name, low, high, multiple, high // multiple * multiple if item.hint is None else item.hint)
    why = refusal(size, size.hint)
    if why:
        raise DplcError(f"the hint of `{name}` is {size.hint}, {why}", item)
    return size


def refusal(size: Size, value: int) -> str:
    """Return the reason why a size cannot be a number, or "" if it can."""
    if not size.low <= value <= size.high:
        return f"which is not in {size.low}..{size.high}"
    return "" if value % size.multiple == 0 else f"which is not a multiple of {size.multiple}"


def settled(unit: Unit, binding: Binding | None) -> Unit:
    """Return a unit without declarations of sizes, in which each use is the size itself or its number.

    binding: None leaves all sizes open. Raises DplcError for a size without a number, for a number that it cannot be,
    and for another thing of its name.
    """
    sizes = declared((unit,))
    if not sizes:
        return unit
    for item in unit.ins:
        if isinstance(item, SizeItem) and binding is not None:
            _check(item.span, sizes[item.name], binding)
    rest = tuple(item for item in unit.ins if not isinstance(item, SizeItem))
    uses = _Uses(sizes, binding)
    found: Unit = uses(replace(unit, ins=rest))
    return found


def _check(place: Span, size: Size, binding: Binding) -> None:
    name = size.name
    if name not in binding:
        raise DplcError(f"`{name}` is a size: a number is needed for it", place, f"--size {name}={size.hint}")
    why = refusal(size, binding[name])
    if why:
        raise DplcError(f"`{name}` is {binding[name]}, {why}", place)


@dataclass
class _Uses:
    """Replacement of names by sizes, or by the numbers to which the sizes are bound."""

    sizes: Mapping[str, Size]
    binding: Binding | None

    def __call__(self, node: Any) -> Any:
        if isinstance(node, NameOf):
            return self._use(node) if node.text in self.sizes else node
        self._unshadowed(node)
        return rebuilt(node, self)

    def _use(self, node: NameOf) -> Syntax:
        if self.binding is None:
            return SizeOf(node.span, self.sizes[node.text])
        return Number(node.span, self.binding[node.text])

    def _unshadowed(self, node: Syntax) -> None:
        """Raise DplcError if something else has the name of a size."""
        binds: Any = ()
        if isinstance(node, ForLoop):
            binds = node.var
        elif isinstance(node, ParamItem | AxisItem):
            binds = node.name
        elif isinstance(node, Assign):
            base = node.target.base if isinstance(node.target, Subscript) else node.target
            binds = base.text if isinstance(base, NameOf) else ()
        elif isinstance(node, AccumulateInto) and isinstance(node.target, NameOf):
            binds = node.target.text
        if binds in self.sizes:
            raise DplcError(f"`{binds}` is a size: nothing else can have its name", node)
