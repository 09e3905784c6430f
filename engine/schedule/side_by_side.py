"""Two kernels of a program under one set of names, so that a rule may look at both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.expr import Var
from ...ir.facts.layout import tile_of
from ...ir.facts.structure import Places, respelled
from ...ir.loop import Store
from ...ir.names import unused
from ...ir.node import names_in, replace
from ...ir.program import Kernel, Param
from ...ir.sizes import highest, sizes_in
from ...ir.substitute import substitute
from ...ir.tile import Tile
from ..rewrite.statements.changes import map_loads


def beside(
    kernel: Kernel, later: Kernel, both: Mapping[str, str], given: frozenset[str]
) -> tuple[Kernel | None, dict[str, str]]:
    """A kernel under names that a later one does not have, but for the buffers of both, which it sees under the same
    dimensions; and {the new name of a buffer: its own}. Of what it stores, only what the later one reads or what is
    given to the caller. both: {the later one's name of a buffer: its own}.

    None where these dimensions are made of sizes, and differ.
    """
    tile = tile_of(kernel)
    if tile is None:
        return None, {}
    kernel = _storing(kernel, tile, {*both.values(), *given})
    axes = {axis.name for axis in tile.axes}
    theirs = names_in(later)
    taken = {*theirs, *names_in(kernel)}
    new: dict[str, Any] = {mine: Var(other) for other, mine in both.items()}
    for name in sorted(names_in(kernel) - new.keys() - axes - sizes_in(kernel).keys()):
        if name in theirs:
            new[name] = Var(unused(name, taken))
            taken.add(new[name].name)
    names = {new[p.name].name if p.name in new else p.name: p.name for p in (*kernel.ins, *kernel.outs)}
    return _seen_as(substitute(kernel, new), {p.name: p.shape for p in later.ins}), names


def _storing(kernel: Kernel, tile: Tile, wanted: set[str]) -> Kernel:
    """A kernel that stores some of its results only."""
    body = tuple(stmt for stmt in tile.body if not isinstance(stmt, Store) or stmt.buf in wanted)
    outs = tuple(p for p in kernel.outs if p.name in wanted)
    rest = tuple(replace(stmt, body=body) if stmt is tile else stmt for stmt in kernel.body)
    return Kernel(kernel.name, kernel.ins, outs, rest)


def _seen_as(kernel: Kernel, shapes: Mapping[str, Places]) -> Kernel | None:
    """A kernel that sees some of its inputs under other dimensions; None where it cannot."""
    tile = tile_of(kernel)
    if tile is None:
        return None
    seen = {p.name: p.shape for p in kernel.ins}
    ranges = {axis.name: (0, highest(axis.extent) - 1) for axis in tile.axes}
    possible = True

    def again(load: Any) -> Any:
        nonlocal possible
        idx = respelled(load.idx, seen[load.buf], shapes[load.buf], ranges) if load.buf in shapes else load.idx
        possible = possible and idx is not None
        return load if idx is None else replace(load, idx=idx)

    body = map_loads(kernel.body, again)
    ins = tuple(Param(p.name, p.dtype, shapes.get(p.name, p.shape)) for p in kernel.ins)
    return Kernel(kernel.name, ins, kernel.outs, body) if possible else None
