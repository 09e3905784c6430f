"""The names that statements and expressions of Kernel IR read: of registers, of bases, of buffers."""

from __future__ import annotations

from typing import Any

from ..expr import Var
from ..kernel import Address, Advance, Base, CopyBox, Element, Replicate, TensorMap
from ..node import CLASSES, Node, memoised

# The fields that hold the name of what is read.
NAMED: dict[type[Node], str] = {
    Element: "name", Address: "base", Advance: "base", Base: "root", TensorMap: "src", CopyBox: "map",
    Replicate: "reverse",
}  # fmt: skip


@memoised
def names_read(node: Any) -> frozenset[str]:
    """The names that a statement or an expression reads or changes, at any depth; not those it defines."""
    kind = node.__class__
    if kind is Var:
        return frozenset((node.name,))
    found: set[str] = set()
    if kind in NAMED and getattr(node, NAMED[kind]):
        found.add(getattr(node, NAMED[kind]))
    _gather(kind.read_inner(node), found)
    return frozenset(found)


def _gather(items: tuple[Any, ...], found: set[str]) -> None:
    for item in items:
        if item.__class__ is tuple:
            _gather(item, found)
        elif item.__class__ in CLASSES:
            found |= names_read(item)
