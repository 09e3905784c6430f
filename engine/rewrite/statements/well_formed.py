"""What every rewrite must leave behind, cheap enough to ask after each firing of a test."""

from __future__ import annotations

from collections import Counter

from ....ir.expr import Var, free_names
from ....ir.kernel import BLOCK_INDEX, SHARED, THREAD, Launch
from ....ir.loop import Accumulate, For, Let, Load, Merge
from ....ir.node import nodes, walk
from ....ir.program import Kernel
from ....ir.tile import Mma, Slab, Stage, Tile
from .context import below


def wellformed(kernel: Kernel) -> str | None:
    """What is wrong with a kernel, or None: a block defines a value once, axes have one owner, values are defined,
    loops are a thread's."""
    for _, block in below(kernel):
        counts = Counter(statement.dst for statement in block if isinstance(statement, Let | Load))
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            return f"`{twice[0]}` is defined twice in one block"
    for tile in nodes(kernel.body, Tile):
        names = Counter(axis.name for axis in tile.axes)
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            return f"two axes of a tile are called `{twice[0]}`"
        registers = {axis.name for axis in tile.axes if axis.role in ("REG", "VEC")}
        for loop in nodes(tile.body, For):
            if not registers.isdisjoint(free_names((loop.start, loop.stop, loop.step))):
                return f"the bounds of loop `{loop.var}` vary with a register axis, so it is no one loop of a thread"
    unknown = dangling(kernel)
    return f"`{unknown[0]}` is used but nothing defines it" if unknown and kernel.ins + kernel.outs else None


def dangling(kernel: Kernel) -> tuple[str, ...]:
    """Names of values that are used and defined nowhere in the kernel, whichever of the IRs it is in."""
    parts = tuple(walk(kernel))
    bound = {name for part in parts for name in _names_given(part)}
    used = {part.name for part in walk(kernel.body) if isinstance(part, Var)}
    return tuple(sorted(used - bound))


def _names_given(part: object) -> tuple[str, ...]:
    """The names that a statement gives to values for others to read."""
    if isinstance(part, Launch):
        return (THREAD, SHARED, *BLOCK_INDEX)
    if isinstance(part, Tile):
        return tuple(axis.name for axis in part.axes)
    if isinstance(part, Stage | Slab):
        return tuple(axis.name for axis in part.slab)
    if isinstance(part, Accumulate | Mma):
        return (part.acc,)
    if isinstance(part, Merge):
        return part.accs
    return tuple(getattr(part, field) for field in ("dst", "var") if hasattr(part, field))
