"""The guards under which a kernel computes values that several sides of its selections need."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from ...ir.dtypes import FLOATS
from ...ir.expr import Binary
from ...ir.tensor import Elementwise, Remap, dtype, operands

DIVISIONS = ("floor_divide", "remainder", "fmod")
Needed = tuple[Any, Any]  # a value, and the guard that a reader needs it under


def shared_guards(
    order: Sequence[Any],
    roots: Iterable[Needed],
    read: Container[Any],
    needed: Callable[[Any, Any], Sequence[Needed]],
) -> tuple[dict[Any, Any], set[Any]]:
    """Find one guard for each value that is needed under several.

    Selections whose sides read one value have as many paths to it as their links multiply to. A copy of the value on
    each path would double the kernel with every link.

    Args:
        order: the values of a kernel, operands before readers.
        roots: the values that it stores.
        read: the values that it reads from memory.
        needed: the values that a value is computed from under a guard.

    Returns:
        The guard of each shared value, and the values that are also computed where no reader needs them. Their elements
        may not exist there, so each of their loads must check that it is in bounds.
    """
    total: set[Any] = set()
    for term in order:
        if term in read or _is_total(term, total):
            total.add(term)
    guards: dict[Any, Any] = {}
    several: set[Any] = set()
    shared: dict[Any, Any] = {}
    beyond: set[Any] = set()

    def note(values: Iterable[Needed]) -> None:
        for value, guard in values:
            known = guards.get(value, guard)
            if known is not guard:
                several.add(value)
            guards[value] = _common_part(known, guard)

    note(roots)
    for term in reversed(order):
        if term not in guards:
            continue
        below = needed(term, guards[term])
        if term in several and term in total:
            shared[term] = guards[term]
            beyond.add(term)
        elif term in several:
            several.update(value for value, _ in below)
        if term in beyond:
            beyond.update(value for value, _ in below)
        note(below)
    return shared, beyond


def _is_total(term: Any, total: Container[Any]) -> bool:
    """Whether a value can be computed where no reader needs it.

    A skipped load gives 0. Integers are not divided by it, and no index is computed from it.
    """
    if term.__class__ is Remap:
        return len(operands(term)) == 1
    if term.__class__ is Elementwise and term.fn in DIVISIONS and dtype(term) not in FLOATS:
        return False
    return all(operand in total for operand in operands(term))


def _common_part(guard: Any, other: Any) -> Any:
    """The guard that two paths through selections begin with: the outer conditions of a guard are on the left."""
    parts = {guard}
    while guard.__class__ is Binary and guard.op == "and":
        guard = guard.a
        parts.add(guard)
    while other not in parts:
        if other.__class__ is not Binary or other.op != "and":
            return True
        other = other.a
    return other
