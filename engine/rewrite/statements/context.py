"""Blocks inside statements: one-hole contexts, splicing, and what a kernel holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.loop import For
from ....ir.node import Node, contents, memoised, replace
from ....ir.program import Block, Kernel

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """Statements with a hole: `statements[path...].body[start:end]`."""

    statements: Block
    path: Path
    start: int
    end: int

    def plug(self, new: Block) -> Block:
        return splice(self.statements, self.path, self.start, self.end, new)  # type: ignore[no-any-return]

    @property
    def around(self) -> tuple[Any, ...]:
        """The statements around the hole, outermost first."""
        out = []
        block: Any = self.statements
        for position in self.path:
            out.append(block[position])
            block = block[position].body
        return tuple(out)

    @property
    def hole(self) -> Block:
        block: Any = self.statements
        for position in self.path:
            block = block[position].body
        return block[self.start : self.end]  # type: ignore[no-any-return]

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(statement for statement in self.around if isinstance(statement, For))


def splice(block: Any, path: Path, start: int, end: int, new: Any) -> Any:
    """The block with `[start:end]` of the block at `path` replaced."""
    if not path:
        return (*block[:start], *new, *block[end:])
    position = path[0]
    inner = splice(block[position].body, path[1:], start, end, new)
    return (*block[:position], replace(block[position], body=inner), *block[position + 1 :])


def holes(block: Block) -> list[tuple[Path, Block]]:
    """The block itself and every block below it, pre-order."""
    out: list[tuple[Path, Block]] = [((), block)]
    for position, statement in enumerate(block):
        if "body" in type(statement).by_name:
            out += [((position, *path), inner) for path, inner in below(statement)]
    return out


@memoised
def below(statement: Any) -> tuple[tuple[Path, Block], ...]:
    """The blocks of a statement with a body, its own first, with paths from that block."""
    return tuple(holes(statement.body))


def places(kernel: Kernel, root: type[Node] | None) -> Sequence[tuple[Path, Block, int]]:
    """(path, block, position) of every statement of a class in a kernel, or of all: block by block, pre-order."""
    if root is None:
        return _everywhere(kernel)
    known = _places(kernel)
    if root not in known:
        found = known[root] = list[tuple[Path, Block, int]]()
        _gather_places((), kernel.body, root, found)
    return known[root]


def _gather_places(path: Path, block: Block, root: type[Node], found: list[tuple[Path, Block, int]]) -> None:
    """Only blocks that hold one are looked into: most patterns begin with the Tile, which is no deeper."""
    mark, inner = root.mark, []
    for position, statement in enumerate(block):
        if (statement._contents or contents(statement)) & mark:
            if statement.__class__ is root:
                found.append((path, block, position))
            if "body" in statement.__class__.by_name:
                inner.append(position)
    for position in inner:
        _gather_places((*path, position), block[position].body, root, found)  # type: ignore[attr-defined]


@memoised
def _everywhere(kernel: Kernel) -> list[tuple[Path, Block, int]]:
    """Of all."""
    return [(path, block, position) for path, block in holes(kernel.body) for position in range(len(block))]


@memoised
def _places(kernel: Kernel) -> dict[Any, list[tuple[Path, Block, int]]]:
    """By class, as far as asked for."""
    return {}
