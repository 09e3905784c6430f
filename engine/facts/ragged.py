"""Facts about guards of ragged edges: what they hide, and whether it would show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

from ...ir.atoms import ATOMS
from ...ir.expr import Binary, Call, Var, add, free_names, subtract
from ...ir.facts.structure import used_names
from ...ir.loop import Accumulate, For, If, Let, Scale, Store
from ...ir.node import nodes
from ...ir.program import Block
from ...ir.tile import Combine, Mma
from ...ir.verify.loop import not_positive
from ..language.facts import fact
from .structure import TILE, axis_names, conjuncts


@fact("masked(name, expr) -> bool", TILE)
def masked(site: Any, value: Var, condition: Any) -> bool:
    """Whether a value `where(a, y, -inf)` is -inf where a condition fails: a and a guard around the site imply it."""
    chosen = _hidden(site, value)
    if chosen is None:
        return False
    allowed = chosen.args[0]
    if allowed.__class__ is Var:
        allowed = next((stmt.val for stmt in nodes(site.kernel.body, Let) if stmt.dst == allowed.name), None)
    around = [0, *chain.from_iterable(not_positive(stmt.cond) for stmt in site.enclosing if isinstance(stmt, If))]
    known = [add(a, b) for a in not_positive(allowed) for b in around]  # each is at most 0 where x is not -inf
    over = ([subtract(e, each) for each in known] for e in not_positive(condition))
    return condition.__class__ is Binary and all(any(n.__class__ is int and n <= 0 for n in each) for each in over)


@fact("only_products(name) -> bool", TILE)
def only_products(site: Any, value: Var) -> bool:
    """Whether a value is a sum of products of tensor cores, or -inf where a mask hides it: nothing is added to it."""
    if (chosen := _hidden(site, value)) is not None:
        return isinstance(chosen.args[1], Var) and only_products(site, chosen.args[1])
    return any(stmt.acc == value.name for stmt in nodes(site.kernel.body, Mma))


def _hidden(site: Any, value: Var) -> Call | None:
    """The one definition `where(a, y, -inf)` of a value."""
    lets = [stmt.val for stmt in nodes(site.kernel.body, Let) if stmt.dst == value.name]
    chosen = lets[0] if len(lets) == 1 else None
    found = isinstance(chosen, Call) and chosen.fn == "where" and chosen.args[2] == -math.inf
    return chosen if found else None


@fact("stays_apart(name, expr) -> bool", TILE)
def stays_apart(site: Any, acc: Var, condition: Any) -> bool:
    """Whether what an accumulator holds where a condition on axes fails reaches nothing but what fails it too: no
    other row is combined or multiplied with it, no place or guard is made of it, and no store is without the guard."""
    axes = free_names(condition)
    if not axes <= axis_names(site):
        return False
    tainted, before = {acc.name}, 0
    while len(tainted) > before:  # what a loop's turn makes, the next one reads
        before = len(tainted)
        if not all(_apart(*each, axes, tainted, condition) for each in _guarded(site.kernel.body, ())):
            return False
    return True


def _guarded(block: Block, have: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The statements of a block and of the blocks in it, with the conditions that hold there."""
    for stmt in block:
        yield stmt, have
        inner = (*have, *conjuncts(stmt.cond)) if isinstance(stmt, If) else have
        yield from _guarded(getattr(stmt, "body", ()), inner)


def _apart(stmt: Any, have: tuple[Any, ...], axes: frozenset[str], tainted: set[str], condition: Any) -> bool:
    """Whether a statement keeps rows apart; what it makes of a tainted value is tainted."""
    if hasattr(stmt, "body"):  # what is in it comes by itself
        own = (stmt.start, stmt.stop) if isinstance(stmt, For) else getattr(stmt, "cond", ())
        return tainted.isdisjoint(free_names(own))
    if isinstance(stmt, Mma):
        return _own_rows(stmt, axes, tainted)
    if tainted.isdisjoint(used_names(stmt)):
        return True
    if isinstance(stmt, Let):
        tainted.add(stmt.dst)
        return True
    if isinstance(stmt, Accumulate | Scale):
        tainted.add(stmt.acc)
        return True
    if isinstance(stmt, Combine):
        return axes.isdisjoint(free_names(stmt.over))
    guarded = set(conjuncts(condition)) <= set(have)
    return isinstance(stmt, Store) and guarded and tainted.isdisjoint(free_names(stmt.idx))


def _own_rows(stmt: Mma, axes: frozenset[str], tainted: set[str]) -> bool:
    """Whether the rows of a product's left operand are rows of its result, told apart by the axes of a condition."""
    if tainted.isdisjoint(free_names((stmt.a, stmt.b))):
        return True
    atom = ATOMS[stmt.atom]
    rows = {axis.name for axis, (name, _) in zip(stmt.axes, atom.axes, strict=True) if name in atom.rows}
    others = free_names((stmt.axes, stmt.over)) - rows
    if not tainted.isdisjoint(free_names(stmt.b)) or not axes.isdisjoint(others):
        return False
    tainted.add(stmt.acc)
    return True
