"""Facts about values that are chosen among by the place alone: the pieces of a stack."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ir.expr import Call, Var
from ...ir.facts.structure import defines, dependencies, summary
from ...ir.loop import Let
from ...ir.program import Block
from ...ir.substitute import substitute
from ..language.facts import fact
from .structure import TILE


@fact("chosen_at(run, expr, name, int) -> [expr]", TILE)
def chosen_at(site: Any, body: Block, value: Any, axis: Var, places: int) -> tuple[Any, ...]:
    """What a value is at each place of an axis, if `where` chooses it there among values that do not vary with the
    axis; else nothing."""
    lets = {stmt.dst: stmt.val for stmt in body if isinstance(stmt, Let)}
    fixed: dict[str, bool] = {}
    found = []
    for place in range(places):
        chosen = value
        while True:
            made = lets.get(getattr(chosen, "name", ""))
            if made.__class__ is not Call or made.fn != "where":
                break
            condition = lets.get(getattr(made.args[0], "name", ""), made.args[0])
            holds = substitute(condition, {axis.name: place})
            if holds is not True and holds is not False:
                return ()
            chosen = made.args[1 if holds else 2]
        name = getattr(chosen, "name", "")
        if name not in fixed:
            fixed[name] = axis.name not in dependencies(chosen, body)
        if not fixed[name]:
            return ()
        found.append(chosen)
    return tuple(found)


class StoredPiece(NamedTuple):
    """The value of one place, and what a run computes for it that earlier places have not asked for."""

    place: int
    value: Any
    run: Block


@fact("pieces(run, [expr]) -> [record]", TILE)
def pieces(site: Any, body: Block, values: tuple[Any, ...]) -> tuple[StoredPiece, ...]:
    """For each of some values `.value`, its number `.place`, and the statements `.run` of a run that only it and later
    ones depend on: each can be stored as soon as it is there."""
    left, out = list(body), []
    for place, value in enumerate(values):
        needed = dependencies(value, body)
        out.append(StoredPiece(place, value, tuple(stmt for stmt in left if defines(stmt) in needed)))
        left = [stmt for stmt in left if defines(stmt) not in needed]
    return tuple(out)


@fact("loads_without(run, name) -> int", TILE)
def loads_without(site: Any, body: Block, axis: Var) -> int:
    """The loads of a run that do not vary with an axis, neither by their place nor by their guard."""
    loads = summary(body).loads
    return sum(axis.name not in dependencies((load.idx, load.when), body) for load in loads)
