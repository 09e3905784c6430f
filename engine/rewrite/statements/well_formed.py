"""What every rewrite must leave behind, cheap enough to ask after each firing of a test."""

from __future__ import annotations

from collections import Counter

from ....ir.expr import free_names
from ....ir.loop import For, Let, Load
from ....ir.node import nodes
from ....ir.program import Kernel
from ....ir.text.read_statements import dangling
from ....ir.tile import Tile
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
