"""Facts about rows: the loops that the threads of a block share out, and what is combined over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import Var, add, multiply, only_sizes
from ...ir.facts.structure import dependencies, summary, team_loops, uses
from ...ir.loop import Accumulate, For, Merge
from ...ir.program import Block
from ...ir.substitute import substitute
from ...ir.tile import Combine, CombineTuple
from ..language.facts import fact
from .structure import TILE


@fact("team(run) -> [name]", TILE)
def team(site: Any, body: Block) -> tuple[Var, ...]:
    """The loops that the threads of a block can share out among themselves: the outermost of each nest."""
    return tuple(Var(loop.var) for loop in team_loops(body))


@fact("team_free(run) -> [name]", TILE)
def team_free(site: Any, body: Block) -> tuple[Var, ...]:
    """Those of them whose turns are independent."""
    return tuple(Var(loop.var) for loop in team_loops(body) if loop.role == "free")


@fact("row_length(run) -> int", TILE)
def row_length(site: Any, body: Block) -> int:
    """The longest reduction among the loops that threads can share out; 0 if there is none."""
    stops = [loop.stop for loop in team_loops(body) if loop.role == "reduce"]
    return longest(stops) if stops else 0


def longest(stops: Sequence[Any]) -> Any:
    """The greatest of some extents. Raises Undecided where sizes leave it open."""
    return max(dict.fromkeys(stops))


@fact("defined_once(run) -> bool", TILE)
def defined_once(site: Any, body: Block) -> bool:
    """Whether blocks of a run could be one block: no value of one has the name of a value of another."""
    found = summary(body)
    names = [load.dst for load in found.loads] + [let.dst for let in found.lets]
    return len(set(names)) == len(names)


@fact("strided_extent(run, name) -> int", TILE)
def strided_extent(site: Any, body: Block, t: Var) -> int:
    """K if every loop of a run is `for k in t..K by T`, free or a reduction, with one K and one T; else 0.

    The loops stand at the top, mention t nowhere else, have no barrier: which thread has which column must not matter.
    """
    found = tuple(stmt for stmt in body if isinstance(stmt, For))
    if len(found) != len(summary(body).loops):
        return 0
    if any(t.name in uses(loop.body) or summary(loop.body).barriers for loop in found):
        return 0
    bounds = {(loop.start, loop.stop, loop.step) for loop in found}
    if len(bounds) != 1 or any(loop.step == 1 or loop.start is not t for loop in found):
        return 0
    if any(loop.role not in ("reduce", "free") for loop in found):
        return 0
    stop = found[0].stop
    return stop if only_sizes(stop) else 0


@fact("all_vary(run, int) -> bool", TILE)
def all_vary(site: Any, body: Block, width: int) -> bool:
    """Whether every accumulated value varies from one strip of so many turns to the next; else (`x[k % 16]`
    in strips of 32) its repetitions would be lost unrolled.
    """
    for loop in summary(body).loops:
        if loop.role == "reduce":
            strip = f"{loop.var}_strip"
            moved = substitute(loop.body, {loop.var: add(multiply(Var(strip), width), Var(loop.var))})
            if any(strip not in dependencies(stmt.val, moved) for stmt in summary(moved).sums):
                return False
    return True


@fact("rows_held(run) -> int", TILE)
def rows_held(site: Any, body: Block) -> int:
    """The rows that a thread holds its elements of: those that several sweeps read, and one that is read and used."""
    sweeps = [{load.buf for load in summary(loop.body).loads} for loop in body if isinstance(loop, For)]
    every = set().union(*sweeps)
    kept = sum(sum(buffer in sweep for sweep in sweeps) > 1 for buffer in every)
    return kept + (kept < len(every))


@fact("all_combined(run, name) -> bool", TILE)
def all_combined(site: Any, body: Block, t: Var) -> bool:
    """Whether what the reductions of a run fold, and nothing else that is folded, is combined alike over axis t."""
    found = summary(body)
    folded = [_fold(fold) for loop in found.loops if loop.role == "reduce" for fold in _folds(loop.body)]
    free = [fold for loop in found.loops if loop.role == "free" for fold in _folds(loop.body)]
    combined = {fold for stmt in found.combines if t in stmt.over for fold in _parts(stmt)}
    return set(folded) == combined and len(_folds(body)) == len(folded) + len(free)


def _folds(body: Block) -> tuple[Accumulate | Merge, ...]:
    found = summary(body)
    return (*found.sums, *found.merges)


def _fold(stmt: Accumulate | Merge) -> tuple[tuple[str, ...], str]:
    """(its accumulators, how they are folded)"""
    return (stmt.accs if isinstance(stmt, Merge) else (stmt.acc,)), stmt.fn


def _parts(stmt: Combine | CombineTuple) -> list[tuple[tuple[str, ...], str]]:
    """The same of what is combined: a tuple at once, others one by one."""
    return [(stmt.accs, stmt.fn)] if isinstance(stmt, CombineTuple) else [((acc,), stmt.fn) for acc in stmt.accs]
