"""What must hold of groups of threads that go one behind the other: which axes tell them apart, and in which turn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

from ..expr import Var, free_names
from ..node import nodes
from ..program import Stmt
from ..tile import Enter, Leave, Relay, Team, Tile

WARP = 32


def relay_problems(tile: Tile, varying: frozenset[str]) -> Iterator[tuple[Stmt, str]]:
    """What is wrong with the Enters and Leaves of a Tile. varying: names that differ by thread."""
    inside = {stmt for team in nodes(tile.body, Team) for stmt in nodes(team.body, Relay)}  # type: ignore[attr-defined]
    found = cast(tuple[Relay, ...], tuple(nodes(tile.body, Relay)))
    for stmt in found:
        if stmt in inside:
            yield stmt, "the threads of a Team are no group of the axes"
        if not free_names((stmt.turn, stmt.when)).isdisjoint(varying):
            yield stmt, "the turn varies by thread"
        yield from ((stmt, problem) for problem in _of_axes(stmt, tile))
        other = Leave if isinstance(stmt, Enter) else Enter
        if not any(isinstance(one, other) and one.over == stmt.over for one in found):
            yield stmt, f"a turn has an Enter and a Leave, and there is no {other.__name__}"


def _of_axes(stmt: Relay, tile: Tile) -> Iterator[str]:
    threads = [axis for axis in tile.axes if axis.role == "THREAD"]
    names = [axis.name for axis in threads]
    over = [axis.name if isinstance(axis, Var) else "" for axis in stmt.over]
    if not over or not {*over} <= {*names} or [name for name in names if name in over] != over:
        yield "groups are told apart by THREAD axes, in their order"
        return
    behind = threads[names.index(over[-1]) + 1 :]
    if math.prod(axis.extent for axis in behind) % WARP:
        yield f"a group is whole warps of {WARP} threads, which the axes behind `{over[-1]}` are not"
