"""Where a rule matched: what its facts may look at."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from ....codegen.target import Target
from ....ir.facts.layout import bound_ranges, tile_of
from ....ir.node import Node, memoised
from ....ir.program import Kernel
from ....ir.ranges import Interval, Ranges
from ....ir.tile import Tile

Path = tuple[int, ...]  # positions from the module down: kernel, statement in its body, ...


class Site:
    """A block of a program: `program[path[0]].body[path[1]].body ...`. An empty path is the module itself."""

    __slots__ = ("path", "program", "target")

    def __init__(self, program: tuple[Kernel, ...], path: Path, target: Target):
        self.program, self.path, self.target = program, path, target

    @property
    def enclosing(self) -> tuple[Node, ...]:
        """The kernel and the statements around the block, outermost first."""
        return (self.program[self.path[0]], *self._scope[0]) if self.path else ()

    @property
    def ranges(self) -> Ranges:
        """The names in scope at the block: axes and loop variables with their intervals."""
        return self._scope[1] if self.path else {}

    @property
    def _scope(self) -> tuple[tuple[Node, ...], Ranges]:
        kernel = self.program[self.path[0]]
        scopes = _scopes(kernel)
        inner = self.path[1:]
        found = scopes.get(inner)
        if found is None:
            found = scopes[inner] = _scope(kernel, inner)
        return found

    @property
    def kernel(self) -> Kernel | None:
        return self.program[self.path[0]] if self.path else None

    @property
    def tile(self) -> Tile | None:
        """The Tile of the kernel, if it has one."""
        return tile_of(self.program[self.path[0]]) if self.path else None


@memoised
def _scopes(kernel: Kernel) -> dict[Path, tuple[tuple[Node, ...], Ranges]]:
    """What is around each block inside a kernel, as far as asked for: every rule asks again."""
    return {}


def _scope(kernel: Kernel, path: Path) -> tuple[tuple[Node, ...], Ranges]:
    around: list[Node] = []
    known: dict[str, Interval] = {}
    block: Any = kernel.body
    for position in path:
        around.append(block[position])
        known.update(bound_ranges(block[position], known))
        block = block[position].body
    return tuple(around), MappingProxyType(known)
