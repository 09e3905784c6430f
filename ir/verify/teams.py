"""What must hold of a Team and its rings: who copies, where, and in which turn a slot is named."""

from __future__ import annotations

from collections.abc import Iterator

from ..expr import free_names, modulo
from ..facts.structure import uses
from ..facts.turns import filled
from ..loop import Carry, For
from ..node import nodes
from ..program import Block, Stmt
from ..text.print_statements import print_expr
from ..tile import Acquire, Release, Ring, RingStep, Slab, Stage, Team, Tile

WARP, GROUP = 32, 128  # threads; registers are given to groups of four warps
REGISTER_UNIT, LEAST_REGISTERS, MOST_REGISTERS = 8, 24, 256

Problem = tuple[Stmt, str]


def team_problems(tile: Tile, varying: frozenset[str]) -> Iterator[Problem]:
    """What is wrong with the Team of a Tile, a statement and a sentence each. varying: names that differ by thread."""
    teams: tuple[Team, ...] = tuple(nodes(tile.body, Team))  # type: ignore[arg-type]
    rings = {ring.dst: ring for ring in nodes(tile.body, Ring)}  # type: ignore[attr-defined]
    inside = {stmt for team in teams for stmt in nodes(team.body, Stage, RingStep)}
    for stmt in nodes(tile.body, RingStep):
        if stmt.ring not in rings:  # type: ignore[attr-defined]
            yield stmt, f"`{stmt.ring}` is no ring"  # type: ignore[attr-defined]
        if isinstance(stmt, Acquire) != (stmt in inside):
            yield stmt, "a Team acquires, and the threads of the axes await and release"
        asked = (stmt.turn, stmt.when) if isinstance(stmt, Release) else (stmt.turn,)  # type: ignore[attr-defined]
        if not free_names(asked).isdisjoint(varying):
            yield stmt, "the turn varies by thread"
    declared = [ring.dst for ring in nodes(tile.body, Ring)]  # type: ignore[attr-defined]
    for ring in rings.values():
        if ring.depth < 1 or ring not in tile.body or declared.count(ring.dst) > 1:
            yield ring, "a ring has a slot or more, and stands in the Tile, once"
    if len(teams) > 1:
        yield teams[1], "a Tile has one Team at most"
    for team in teams[:1]:
        yield from _of_team(team, tile, rings, varying)


def _of_team(team: Team, tile: Tile, rings: dict[str, Ring], varying: frozenset[str]) -> Iterator[Problem]:
    if team not in tile.body:
        yield team, "a Team stands in the Tile, in no loop and under no guard"
    elif any(not isinstance(stmt, Ring | Slab | Carry) for stmt in tile.body[: tile.body.index(team)]):
        yield team, "a Team stands before all that threads do: its own would do it, too"
    if team.threads < WARP or team.threads % WARP:
        yield team, f"a Team is whole warps of {WARP} threads"
    own = team.registers
    if own and (team.threads % GROUP or own % REGISTER_UNIT or not LEAST_REGISTERS <= own <= MOST_REGISTERS):
        yield (
            team,
            f"{GROUP} threads are given registers at once: {LEAST_REGISTERS} to {MOST_REGISTERS}, by {REGISTER_UNIT}",
        )
    yield from _only_copies(team.body)
    copies = set()
    for acquire, behind in filled(team.body):
        depth = rings[acquire.ring].depth if acquire.ring in rings else 0
        copies |= {id(stage) for stage in behind}
        for stage in behind:
            turning = modulo(acquire.turn, depth) if depth > 1 else 0
            if stage.depth != depth or (stage.slot if depth > 1 else 0) != turning or stage.when is not True:
                yield stage, f"it fills another slot than turn {print_expr(acquire.turn)} of `{acquire.ring}`"
    for stage in nodes(tile.body, Stage):
        if stage.via == "TMA" and id(stage) not in copies:  # type: ignore[attr-defined]
            yield stage, "beside a Team nothing is copied by TMA but behind its Acquire"
    if not uses(team.body).isdisjoint(varying):
        yield team, "a Team names an axis of the threads"


def _only_copies(block: Block) -> Iterator[Problem]:
    for stmt in block:
        if isinstance(stmt, For):
            yield from _only_copies(stmt.body)
        elif not isinstance(stmt, Acquire) and not (isinstance(stmt, Stage) and stmt.via == "TMA"):
            yield stmt, "a Team copies by TMA, and nothing else"
