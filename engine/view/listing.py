"""Kernels as lists of lines: one for the head, one for every statement, in the order of the dump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...ir.expr import Axis, Var
from ...ir.kernel import Address, Assign, Base, Element, LoadFrom, StoreTo
from ...ir.loop import Accumulate, For, If, Load, Merge, Scale, Store
from ...ir.node import Node, replace, values, walk
from ...ir.program import Kernel, Stmt
from ...ir.tile import Tile

Path = tuple[int, ...]


class Line(NamedTuple):
    """A statement of a program. head: without what is inside of it; path: positions from the kernel down."""

    head: Stmt
    stmt: Stmt
    path: Path

    @property
    def opens(self) -> bool:
        return "body" in type(self.stmt).by_name


def lines_of(kernel: Kernel) -> list[Line]:
    """The statements of a kernel in the order of its text, which has a line for each, after that of the kernel."""
    found: list[Line] = []
    _list(kernel.body, (), found)
    return found


def _list(block: Iterable[Stmt], path: Path, found: list[Line]) -> None:
    for position, stmt in enumerate(block):
        own = (*path, position)
        body = getattr(stmt, "body", None)
        found.append(Line(stmt if body is None else replace(stmt, body=()), stmt, own))
        if body:
            _list(body, own, found)


def written(head: Stmt) -> tuple[tuple[str, str], ...]:
    """What a statement is about: (kind, name) of all that it defines, adds to, stores or binds."""
    if isinstance(head, Tile):
        return (("tile", ""), *(("axis", axis.name) for axis in head.axes))
    if isinstance(head, Accumulate | Scale):
        return (("value", head.acc),)
    if isinstance(head, Merge):
        return tuple(("value", acc) for acc in head.accs)
    if isinstance(head, Store):
        return (("buffer", head.buf),)
    if isinstance(head, StoreTo):
        return (("buffer", head.address.base),)
    if isinstance(head, Assign | LoadFrom):
        place = head.place if isinstance(head, Assign) else head.into
        return (("value", place.name),) if isinstance(place, Var | Element) else ()
    if hasattr(head, "accs"):
        return tuple(("value", acc) for acc in head.accs)
    name = getattr(head, "dst", None) or getattr(head, "acc", None)
    if isinstance(name, str):
        return (("value", name),)
    if isinstance(head, For) or hasattr(head, "var"):
        return (("axis", head.var),)
    return ()


def buffers_read(head: Stmt) -> tuple[str, ...]:
    """The buffers and slabs that a statement reads, by name."""
    if isinstance(head, Load):
        return (head.buf,)
    if isinstance(head, Base):
        return (head.root,)
    source = getattr(head, "src", None)
    return (source,) if isinstance(source, str) and source else ()


def names_read(head: Stmt) -> Iterator[str]:
    """The names in the expressions of a statement: of values, of axes, of places in memory."""
    for field in type(head).fields:
        if field.sort in ("Name", "Block") or field.name == "body":
            continue
        yield from _names(getattr(head, field.name))


def _names(value: Any) -> Iterator[str]:
    for found in walk(value) if isinstance(value, Node | tuple) else ():
        if isinstance(found, Var | Element):
            yield found.name
        elif isinstance(found, Address):
            yield found.base


def is_control(head: Stmt) -> bool:
    """Whether a statement holds others: what it is for, they say."""
    return isinstance(head, For | If | Tile) or "body" in type(head).by_name


__all__ = ["Axis", "Line", "buffers_read", "is_control", "lines_of", "names_read", "values", "written"]
