"""Match locations: a block of a program with its context. Facts of a rule may look at it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ....codegen.target import Target
from ....ir import names
from ....ir.expr import Axis, Var
from ....ir.facts.layout import bound_ranges, tile_of
from ....ir.loop import For
from ....ir.node import Node, memoised, names_in, replace
from ....ir.program import Block, Kernel, Module
from ....ir.ranges import Ranges
from ....ir.sizes import Interval
from ....ir.text.read_statements import CONSTANTS
from ....ir.tile import Tile
from ...language.evaluate import RESERVED, Environment, fact

Path = tuple[int, ...]  # positions from the module down: kernel, statement in its body, ...; or from another block


def descended(block: Any, path: Path) -> tuple[tuple[Any, ...], Any]:
    """Return the statements on a path from a block, outermost first, and the block that it leads to."""
    around = []
    for position in path:
        around.append(block[position])
        block = block[position].body
    return tuple(around), block


@dataclass(eq=False, slots=True)
class Site:
    """A block of a program: `program[path[0]].body[path[1]].body ...`. An empty path is the module itself."""

    program: Module
    path: Path
    target: Target

    @property
    def enclosing(self) -> tuple[Node, ...]:
        """The kernel and the statements around the block, outermost first."""
        return descended(self.program, self.path)[0]

    @property
    def ranges(self) -> Ranges:
        """The names in scope at the block: axes and loop variables with their intervals."""
        if not self.path:
            return {}
        known, path = _ranges(self.program[self.path[0]]), self.path[1:]
        if path not in known:
            found: dict[str, Interval] = {}
            for statement in self.enclosing[1:]:
                found.update(bound_ranges(statement, found))
            known[path] = MappingProxyType(found)
        return known[path]

    @property
    def kernel(self) -> Kernel:
        """The kernel around the block. Raises IndexError for a module."""
        return self.program[self.path[0]]

    @property
    def tile(self) -> Tile | None:
        """The Tile of the kernel, if it has one."""
        return tile_of(self.kernel) if self.path else None

    @property
    def tile_axes(self) -> tuple[Axis, ...]:
        """The axes of the Tile, none without one."""
        return self.tile.axes if self.tile else ()

    @property
    def tile_body(self) -> Block:
        """The body of the Tile, empty without one."""
        return self.tile.body if self.tile else ()


@memoised
def _ranges(kernel: Kernel) -> dict[Path, Ranges]:
    """Return the cache of the ranges of each block inside a kernel, which all rules share."""
    return {}


# Blocks inside statements: one-hole contexts, splicing, and the contents of a kernel.


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
        return descended(self.statements, self.path)[0]

    @property
    def hole(self) -> Block:
        return descended(self.statements, self.path)[1][self.start : self.end]  # type: ignore[no-any-return]

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(statement for statement in self.around if isinstance(statement, For))


def splice(block: Any, path: Path, start: int, end: int, new: Any) -> Any:
    """Return the block with `[start:end]` of the block at `path` replaced."""
    if path:
        at, outer = path[0], block[path[0]]
        inner = splice(outer.body, path[1:], start, end, new)
        start, end, new = at, at + 1, (replace(outer, body=inner),)
    return (*block[:start], *new, *block[end:])


def holes(block: Block) -> list[tuple[Path, Block]]:
    """Return the block itself and every block below it, pre-order."""
    out: list[tuple[Path, Block]] = [((), block)]
    for position, statement in enumerate(block):
        if "body" in type(statement).by_name:
            out += [((position, *path), inner) for path, inner in below(statement)]
    return out


@memoised
def below(statement: Any) -> tuple[tuple[Path, Block], ...]:
    """Return the blocks of a statement with a body, its own first, with paths from that block."""
    return tuple(holes(statement.body))


@memoised
def places(kernel: Kernel) -> dict[type[Node] | None, list[tuple[Path, Block, int]]]:
    """Return (path, block, position) of all statements (at None), and of each class: block by block, pre-order."""
    by_class: dict[type[Node] | None, list[tuple[Path, Block, int]]] = {None: []}
    for path, block in holes(kernel.body):
        for position, statement in enumerate(block):
            place = path, block, position
            by_class[None].append(place)
            by_class.setdefault(statement.__class__, []).append(place)
    return by_class


# Names in use, and new ones: `k_o`, `i_r`, `p1`. The same program and hint give the same name.


NAMES = "@names"


def names_at(site: Site) -> frozenset[str]:
    """Return the names in use around a site: those of its kernel, or on a module those of all kernels."""
    return names_in(site.kernel) if site.path else frozenset().union(*map(names_in, site.program))


def unused(hint: str, used: Container[str]) -> str:
    """Return a new name that is not a word of the rule language either."""
    return names.unused(hint, used, RESERVED, CONSTANTS)


class Names:
    """The names that one rewrite may no longer choose."""

    def __init__(self, site: Site, env: Environment):
        self.site, self.bound = site, [value.name for value in env.values() if value.__class__ is Var]

    @cached_property
    def used(self) -> set[str]:
        return {*names_at(self.site), *self.bound}

    def fresh(self, hint: str) -> Var:
        name = unused(hint, self.used)
        self.used.add(name)
        return Var(name)


@fact("fresh(any, text?) -> name", levels="module loop tile kernel")
def fresh(site: Site, base: Any, suffix: Any = None) -> Var:
    """Return a name that is not in use: `fresh("t")` is `t`, `fresh(k, "o")` is `k_o`."""
    words = [part.name if part.__class__ is Var else str(part) for part in (base, suffix) if part is not None]
    return Var(unused("_".join(words), names_at(site)))
