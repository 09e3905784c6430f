"""Where a rule matched: what its facts may look at."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from ...codegen.target import Target
from ...ir.loop import For
from ...ir.node import Node
from ...ir.program import Kernel
from ...ir.ranges import Interval, interval
from ...ir.tile import Tile

Path = tuple[int, ...]  # positions from the module down: kernel, statement in its body, ...


@dataclass
class Site:
    """A block of a program: `program[path[0]].body[path[1]].body ...`. An empty path is the module itself."""

    program: tuple[Kernel, ...]
    path: Path
    target: Target
    bindings: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def enclosing(self) -> tuple[Node, ...]:
        """The kernel and the statements around the block, outermost first."""
        out: list[Node] = []
        block: Any = self.program
        for position in self.path:
            out.append(block[position])
            block = block[position].body
        return tuple(out)

    @property
    def kernel(self) -> Kernel | None:
        return self.program[self.path[0]] if self.path else None

    @functools.cached_property
    def tile(self) -> Tile | None:
        """The Tile of the kernel, if it has one."""
        if not self.path:
            return None
        return next((s for s in self.program[self.path[0]].body if isinstance(s, Tile)), None)

    @functools.cached_property
    def ranges(self) -> dict[str, Interval]:
        """The names in scope at the block: axes and loop variables with their intervals."""
        known: dict[str, Interval] = {}
        for statement in self.enclosing:
            add_ranges(statement, known)
        return known


def add_ranges(statement: Node, known: dict[str, Interval]) -> None:
    """Add the names that a statement binds for its body."""
    if isinstance(statement, Tile):
        for axis in statement.axes:
            known[axis.name] = (0, interval(axis.extent, known)[1] - 1)
    elif isinstance(statement, For):
        low, high = interval(statement.start, known)[0], interval(statement.stop, known)[1] - 1
        known[statement.var] = (low, max(high, low))


__all__ = ["Path", "Site", "add_ranges"]
