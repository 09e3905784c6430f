"""Facts about two kernels, one launched behind the other: what the later one reads of what the earlier one stores."""

from __future__ import annotations

import functools
from typing import Any

from ...ir.expr import Var, both, compare, free_names, linear
from ...ir.facts.dimensions import respelled
from ...ir.facts.structure import only, summary
from ...ir.loop import Accumulate, Let, Load, Merge, Store
from ...ir.node import nodes
from ...ir.program import Block
from ...ir.ranges import decide
from ...ir.sizes import highest
from ...ir.tile import Mma, Team
from ..language.facts import fact

Places = tuple[Any, ...]


@fact("alike_threads(run) -> bool", "module")
def alike_threads(site: Any, body: Block) -> bool:
    """Whether all threads of a block do the same: none of them copies for the others, no warp multiplies by atoms."""
    return not any(True for _ in nodes(body, Team)) and not any(True for _ in nodes(body, Mma))


@fact("read_where(run, [any], run, [any], [axis], [axis]) -> any", "module")
def read_where(site: Any, tail: Block, found: Any, body: Block, ins: Any, places: Any, axes: Any) -> Places | None:
    """Where a run loads what another one stores: what each axis of that one's kernel is there, in terms of the axes
    around the load. None if it loads nothing of it; if it does so at several places, under a guard of its own or by a
    loop's variable; or if the places may lie beyond the axes.

    found, ins: the buffers, as the kernel that stores and the one that loads see them.
    """
    stored = _stores(tail)
    seen = {param.name: param.shape for param in ins}
    kept = {param.name: param.shape for param in found}
    loads = [load for load in nodes(body, Load) if load.buf in stored]
    ranges = {axis.name: (0, highest(axis.extent) - 1) for axis in axes}
    at = {
        _places_of(store.idx, respelled(load.idx, seen[load.buf], kept[load.buf], ranges), places)
        for load in loads
        for store in (stored[load.buf],)
    }
    if len(at) != 1 or None in at or any(load.when is not True for load in loads) or _copies(body, stored):
        return None
    (where,) = at
    assert where is not None
    lengths = {Var(axis.name): axis.extent for axis in axes}
    inside = free_names(where) <= ranges.keys() and all(
        lengths.get(e) == axis.extent or decide(compare("<", e, axis.extent), ranges) is True
        for e, axis in zip(where, places, strict=True)
    )
    return where if inside else None


@fact("values_for(run, run) -> any", "module")
def values_for(site: Any, tail: Block, body: Block) -> dict[str, Any]:
    """{what a run loads: the value that another one stores there}"""
    stored = _stores(tail)
    return {load.dst: stored[load.buf].val for load in nodes(body, Load) if load.buf in stored}


@fact("only_folds(run) -> bool", "module")
def only_folds(site: Any, body: Block) -> bool:
    """Whether a run only computes values and folds them, singly or as tuples."""
    return only(body, Load, Let, Accumulate, Merge)


@fact("stores_values(run) -> bool", "module")
def stores_values(site: Any, tail: Block) -> bool:
    """Whether a run only computes values and stores such as have a name, each buffer once."""
    stores = [stmt for stmt in tail if isinstance(stmt, Store)]
    once = len({stmt.buf for stmt in stores}) == len(stores) > 0
    return once and only(tail, Load, Let, Store) and all(stmt.val.__class__ is Var for stmt in stores)


@fact("one_each([expr], [axis], [axis]) -> bool", "module")
def one_each(site: Any, at: Places, places: Any, axes: Any) -> bool:
    """Whether places, by axes around them, are each element of other axes once."""
    extents = {axis.name: axis.extent for axis in axes}
    used = [atom for e in at for atom in linear(e)[0]]
    if len(set(used)) < len(used) or any(atom.__class__ is not Var for atom in used):
        return False
    return all(_digits(e, axis.extent, extents) for e, axis in zip(at, places, strict=True))


@fact("first_of([axis], [expr]) -> expr", "module")
def first_of(site: Any, axes: Any, at: Places) -> Any:
    """The test that a block or a thread is the first along the axes that some places do not vary with."""
    others = (axis for axis in axes if axis.name not in free_names(at) and axis.role in ("BLOCK", "THREAD"))
    first = (compare("<", Var(axis.name), 1) for axis in others if axis.extent != 1)
    return functools.reduce(both, first, True)


def _stores(tail: Block) -> dict[str, Store]:
    return {stmt.buf: stmt for stmt in tail if isinstance(stmt, Store)}


def _copies(body: Block, buffers: Any) -> bool:
    return any(stage.src in buffers for stage in summary(body).stages)


def _places_of(stored: Places, loaded: Places | None, places: Any) -> Places | None:
    """What stands for each axis where the index of a store, made of the axes themselves, is that of a load."""
    if loaded is None:
        return None
    found = {}
    for mine, other in zip(stored, loaded, strict=True):
        if mine.__class__ is Var:
            found[mine.name] = other
        elif mine != 0:
            return None
    names = [axis.name for axis in places]
    return tuple(found[name] for name in names) if found.keys() == set(names) else None


def _digits(e: Any, extent: Any, extents: Any) -> bool:
    """Whether a place is made of digits, one for each of its axes, that count up to an extent."""
    terms, constant = linear(e)
    unit = 1
    for atom, n in sorted(terms.items(), key=lambda term: term[1]):
        if n != unit:
            return False
        unit = n * extents[atom.name]
    return bool(constant == 0 and unit == extent)
