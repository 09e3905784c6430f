"""Facts about operands that a product reads through a window: a place is made of an axis and a loop together."""

from __future__ import annotations

import math
from typing import Any

from ...ir.expr import Binary, Var, free_names, is_int
from ...ir.facts.layout import ranges_of, tidy
from ...ir.facts.structure import summary
from ...ir.node import nodes
from ...ir.program import Block
from ..language.facts import fact
from .schedule import TILE, as_one
from .structure import axis_names


@fact("windowed(run) -> bool", TILE)
def windowed(site: Any, body: Block) -> bool:
    """Whether a load of a run has a place that an axis of the Tile and a loop of a reduction make together."""
    axes = axis_names(site)
    places = [e for load in summary(body).loads for e in load.idx]
    return any(axes & names and not names <= axes for names in map(free_names, places))


@fact("run_of_an_operand(run, name, name, int) -> bool", TILE)
def run_of_an_operand(site: Any, body: Block, i: Var, j: Var, extent: int) -> bool:
    """Whether some load of a run mentions i and j as `i*extent + j` only."""
    loads = [load for load in summary(body).loads if {i.name, j.name} <= free_names(load.idx)]
    return any(as_one(site, (), (load,), i, j, extent) for load in loads)


@fact("along_the_same(run, name, name) -> bool", TILE)
def along_the_same(site: Any, body: Block, i: Var, j: Var) -> bool:
    """Whether every load of a run that mentions one of two axes mentions both, and some does."""
    mentioned = [{i.name, j.name} & free_names(load.idx) for load in summary(body).loads]
    return any(mentioned) and all(len(names) != 1 for names in mentioned)


@fact("digits(run, name) -> int", TILE)
def digits(site: Any, body: Block, k: Var) -> int:
    """The least number whose multiples can be taken out of k everywhere: of `k // 3 % 3` it is 9; 1 where places have k
    itself only."""
    known = ranges_of(site.kernel)
    places = [tidy(e, known) for load in summary(body).loads for e in load.idx]
    return math.lcm(*(_period(e, k.name) for e in places))


def _period(e: Any, name: str) -> int:
    """So many turns of a name after which an index is the same but for a number."""
    found = 1
    for part in nodes(e, Binary):
        if part.op in ("//", "%") and is_int(part.b) and name in free_names(part.a):
            inside = [inner.b for inner in nodes(part.a, Binary) if inner.op == "//" and name in free_names(inner.a)]
            found = math.lcm(found, part.b * math.prod(inside))
    return found
