"""Facts about operands that a product reads through a window: a place is made of an axis and a loop together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...ir.expr import Binary, Var, free_names, is_int
from ...ir.facts.layout import ranges_of, tidy
from ...ir.facts.structure import summary
from ...ir.node import nodes
from ...ir.program import Block
from ..language.facts import fact
from .along import TILE
from .schedule import as_one
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


@fact("periods(run, name) -> [int]", TILE)
def periods(site: Any, body: Block, k: Var) -> tuple[int, ...]:
    """Numbers whose multiples can be taken out of the digits of k in places: the largest out of all of them, the next
    out of all but the slowest. Of `k // 3 // 3, k // 3 % 3, k % 3` they are 9 and 3; none where k stands alone."""
    known = ranges_of(site.kernel)
    places = [tidy(e, known) for load in summary(body).loads for e in load.idx]
    each = sorted({period for e in places for period in _periods(e, k.name)})
    return tuple(sorted({math.lcm(*each[:count]) for count in range(1, len(each) + 1)}, reverse=True))


def _periods(e: Any, name: str) -> Iterator[int]:
    """Of each quotient and remainder of a name: so many turns after which it is the same but for a number."""
    for part in nodes(e, Binary):
        if part.op in ("//", "%") and is_int(part.b) and name in free_names(part.a):
            inside = [inner.b for inner in nodes(part.a, Binary) if inner.op == "//" and name in free_names(inner.a)]
            yield part.b * math.prod(inside)
