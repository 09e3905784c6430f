"""Facts about which axes of a Tile make tiles: what a product loads again for every element of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from ...ir.expr import Axis, Binary, Var, add, binary, free_names, multiply
from ...ir.facts.structure import dependencies, matmul_loops, summary
from ...ir.program import Block
from ...ir.ranges import interval, simplify
from ...ir.sizes import at_hint
from ..language.facts import fact
from ..language.policy import policy
from .along import TILE
from .schedule import as_one
from .structure import multiplies_values


@fact("reuse(run, name) -> int", TILE)
def reuse(site: Any, body: Block, axis: Var) -> int:
    """Elements that the loops of a run load, and load again for every element of an axis: of loads without it."""
    unknown = policy(site.target).unknown_turns
    extents = {loop.var: loop.stop if loop.stop.__class__ is int else unknown for loop in summary(body).loops}
    count = 0
    for load in summary(body).loads:
        varying = dependencies(load.idx, body)
        if axis.name not in varying and not varying.isdisjoint(extents):
            count += math.prod(extents[name] for name in varying & extents.keys())
    return count


@fact("walked_as_one(run, name, name, int) -> bool", TILE)
def walked_as_one(site: Any, body: Block, i: Var, j: Var, extent: int) -> bool:
    """Whether i and j stand in addresses only, and in those of loads as `c*(i*extent + j)`."""
    return as_one(site, body, summary(body).loads, i, j, extent)


@fact("widest_pair(name, name, run) -> bool", TILE)
def widest_pair(site: Any, i: Var, j: Var, body: Block) -> bool:
    """Whether no two other axes that a product can be tiled along have more outputs, up to a whole tile.

    Of pairs with as many, that with more axes along which memory runs on.
    """
    axes = {axis.name: axis for axis in site.tile.axes}
    side = policy(site.target).tile_side
    running = {name for place in _last_places(body) for name in free_names((place,))}

    def rank(pair: Iterable[Axis]) -> tuple[int, int]:
        return _outputs(pair, side), len(running & {axis.name for axis in pair})

    mine = rank((axes[i.name], axes[j.name]))
    return all(
        rank(pair) <= mine
        for pair in combinations(site.tile.axes, 2)
        if matmul_loops(body, frozenset(axis.name for axis in pair), multiplies_values(site))
    )


def _last_places(body: Block) -> list[Any]:
    """The last index of every load and store."""
    found = summary(body)
    return [idx[-1] for idx in (*(load.idx for load in found.loads), *(store.idx for store in found.stores)) if idx]


@fact("tiles_kept(name, name, run) -> int", TILE)
def tiles_kept(site: Any, i: Var, j: Var, body: Block) -> int:
    """How many sums a thread keeps for each place along two axes: those that vary with both."""
    sums = {stmt.acc for stmt in summary(body).sums}
    return sum({i.name, j.name} <= dependencies(Var(acc), body) for acc in sums)


@fact("sums_kept(run) -> int", TILE)
def sums_kept(site: Any, body: Block) -> int:
    """How many sums a thread keeps for each of its places."""
    return len({stmt.acc for stmt in summary(body).sums})


def _outputs(pair: Iterable[Axis], side: int) -> int:
    return math.prod(min(at_hint(axis.extent), side) for axis in pair)


# ---- dimensions of a buffer that are walked as one


@fact("joined_dim(name, [any], run) -> int", TILE)
def joined_dim(site: Any, buf: Var, shape: Any, body: Block) -> int:
    """The first dimension of a buffer that every load of a run walks together with the next as one run; -1 for none."""
    places = [load.idx for load in summary(body).loads if load.buf == buf.name]
    for dim in range(len(shape) - 1) if places else ():
        joined = [_joined(idx[dim], idx[dim + 1], shape[dim + 1]) for idx in places]
        if None not in joined and any(place.__class__ is not int for place in joined):
            return dim
    return -1


@fact("jumps(name, name, run) -> bool", TILE)
def jumps(site: Any, buf: Var, lane: Var, body: Block) -> bool:
    """Whether a load of a buffer goes on with an axis in other dimensions than the last: lanes along it jump."""
    places = [load.idx for load in summary(body).loads if load.buf == buf.name]
    return any(lane.name in free_names(idx[:-1]) and lane.name not in free_names(idx[-1]) for idx in places)


@fact("join_dims([any], int) -> [any]", TILE)
def join_dims(site: Any, dims: Any, dim: int) -> tuple[Any, ...]:
    """The dimensions of a buffer with one of them and the next made one."""
    return (*dims[:dim], dims[dim] * dims[dim + 1], *dims[dim + 2 :])


@fact("join_places([expr], int, int) -> [expr]", TILE)
def join_places(site: Any, idx: Any, dim: int, extent: int) -> tuple[Any, ...]:
    """An index of a buffer whose dimension `dim`, and the next of some extent, were made one; others divide once."""
    places = (*idx[:dim], _joined(idx[dim], idx[dim + 1], extent), *idx[dim + 2 :])
    return tuple(simplify(place, {}) for place in places)


@fact("walked_dim(name, [any], run) -> int", TILE)
def walked_dim(site: Any, buf: Var, shape: Any, body: Block) -> int:
    """The last dimension of a buffer that loops of a run walk, while others walk the next whole; -1 for none."""
    places = [load.idx for load in summary(body).loads if load.buf == buf.name]
    ends = {loop.var: (0, loop.stop - 1) for loop in summary(body).loops if loop.stop.__class__ is int}

    def walked(outer: Any, inner: Any, extent: int) -> bool:
        of_loops = all(free_names((e,)) and free_names((e,)) <= ends.keys() for e in (outer, inner))
        return of_loops and interval(inner, ends) == (0, extent - 1)

    for dim in reversed(range(len(shape) - 1)) if places else ():
        if all(walked(idx[dim], idx[dim + 1], shape[dim + 1]) for idx in places):
            return dim
    return -1


@fact("walked_places([expr], int, int) -> [expr]", TILE)
def walked_places(site: Any, idx: Any, dim: int, extent: int) -> tuple[Any, ...]:
    """An index of a buffer whose dimension `dim`, and the next of some extent, are one run."""
    return (*idx[:dim], add(multiply(idx[dim], extent), idx[dim + 1]), *idx[dim + 2 :])


def _joined(outer: Any, inner: Any, extent: int) -> Any:
    """`outer*extent + inner` of two numbers, of quotient and remainder of one number, or of a remainder; else None."""
    if outer.__class__ is int and inner.__class__ is int:
        return outer * extent + inner
    if inner.__class__ is not Binary or inner.op != "%" or inner.b != extent:
        return None
    whole = inner.a
    if outer is binary("//", whole, extent):
        return whole
    if outer.__class__ is Binary and outer.op == "%" and outer.a is binary("//", whole, extent):
        return binary("%", whole, outer.b * extent)
    return None
