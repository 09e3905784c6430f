"""Facts about Kernel IR: what a run of statements changes, and how addresses lie to each other."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Var, is_int, linear, subtract
from ...ir.facts.kernel_names import names_read
from ...ir.kernel import Advance, Assign, Base, Butterfly, Define, LoadFrom, Registers, Shuffle
from ...ir.node import Node, nodes
from ...ir.program import Block
from ..language.facts import fact


@fact("mentions(expr, name) -> bool", "kernel")
def mentions(site: Any, e: Any, name: Var) -> bool:
    """Whether an expression reads a name."""
    return isinstance(e, Node) and name.name in names_read(e)


@fact("changes(run, expr) -> bool", "kernel")
def changes(site: Any, body: Block, e: Any) -> bool:
    """Whether a run changes a register or an address that an expression reads."""
    places = {stmt.place.name for stmt in nodes(body, Assign, Butterfly, Shuffle)}  # type: ignore[type-var,attr-defined]
    places |= {stmt.into.name for stmt in nodes(body, LoadFrom)}
    places |= {stmt.base for stmt in nodes(body, Advance)}
    return isinstance(e, Node) and not places.isdisjoint(names_read(e))


@fact("clash(run, run) -> bool", "kernel")
def clash(site: Any, first: Block, second: Block) -> bool:
    """Whether two runs define the same name, so that they cannot stand in one block."""
    return not _defined(first).isdisjoint(_defined(second))


def _defined(body: Block) -> set[str]:
    return {stmt.dst for stmt in nodes(body, Define, Base, Registers)}  # type: ignore[type-var,attr-defined]


@fact("apart(expr, expr) -> int", "kernel")
def apart(site: Any, near: Any, far: Any) -> int:
    """How far one offset lies behind another where that is a number; 0 where it is not."""
    distance = subtract(far, near)
    return distance if is_int(distance) else 0


@fact("has_constant(expr) -> bool", "kernel")
def has_constant(site: Any, e: Any) -> bool:
    """Whether an offset ends in a number other than 0."""
    return linear(e)[1] != 0


@fact("computed(expr) -> bool", "kernel")
def computed(site: Any, e: Any) -> bool:
    """Whether an offset takes instructions: it is not a number."""
    return not is_int(e)
