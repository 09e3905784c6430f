"""Match locations: a block of a program with its context. Facts of a rule may look at it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ....codegen.target import Target
from ....ir import names
from ....ir.expr import Var
from ....ir.facts.layout import bound_ranges, tile_of
from ....ir.loop import For
from ....ir.node import Node, contents, memoised, names_in, replace
from ....ir.program import Block, Kernel
from ....ir.ranges import Interval, Ranges
from ....ir.tile import Tile
from ...language.evaluate import CONSTANTS, RESERVED, Environment, fact

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
    """Return the cache of the enclosing nodes and ranges of each block inside a kernel, which all rules share."""
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


# Blocks inside statements: one-hole contexts, splicing, and the contents of a kernel.


Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """Statements with a hole: `statements[path...].body[start:end]`."""

    statements: Block
    path: Place
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


def splice(block: Any, path: Place, start: int, end: int, new: Any) -> Any:
    """Return the block with `[start:end]` of the block at `path` replaced."""
    if not path:
        return (*block[:start], *new, *block[end:])
    position = path[0]
    inner = splice(block[position].body, path[1:], start, end, new)
    return (*block[:position], replace(block[position], body=inner), *block[position + 1 :])


def holes(block: Block) -> list[tuple[Place, Block]]:
    """Return the block itself and every block below it, pre-order."""
    out: list[tuple[Place, Block]] = [((), block)]
    for position, statement in enumerate(block):
        if "body" in type(statement).by_name:
            out += [((position, *path), inner) for path, inner in below(statement)]
    return out


@memoised
def below(statement: Any) -> tuple[tuple[Place, Block], ...]:
    """Return the blocks of a statement with a body, its own first, with paths from that block."""
    return tuple(holes(statement.body))


def places(kernel: Kernel, root: type[Node] | None) -> Sequence[tuple[Place, Block, int]]:
    """Return (path, block, position) of all statements, or of a class: block by block, pre-order."""
    if root is None:
        return _everywhere(kernel)
    known = _places(kernel)
    if root not in known:
        found = known[root] = list[tuple[Place, Block, int]]()
        _gather_places((), kernel.body, root, found)
    return known[root]


def _gather_places(path: Place, block: Block, root: type[Node], found: list[tuple[Place, Block, int]]) -> None:
    """Collect the statements of a class, and search only blocks that contain one.

    Most patterns begin with the Tile, which is not nested any deeper.
    """
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
def _everywhere(kernel: Kernel) -> list[tuple[Place, Block, int]]:
    """Return the positions of all statements."""
    return [(path, block, position) for path, block in holes(kernel.body) for position in range(len(block))]


@memoised
def _places(kernel: Kernel) -> dict[Any, list[tuple[Place, Block, int]]]:
    """Return the cache of positions by class."""
    return {}


# Names in use, and new ones: `k_o`, `i_r`, `p1`. The same program and hint give the same name.


NAMES = "@names"


def names_at(site: Site) -> frozenset[str]:
    """Return the names in use around a site: those of its kernel, or on a module those of all kernels."""
    if site.kernel is not None:
        return names_in(site.kernel)
    return frozenset().union(*map(names_in, site.program))


def unused(hint: str, used: Container[str]) -> str:
    """Return a new name that is not a word of the rule language either."""
    return names.unused(hint, used, RESERVED, CONSTANTS)


class Names:
    """The names that one rewrite may no longer choose."""

    def __init__(self, site: Site, env: Environment):
        self.site, self.bound = site, [value.name for value in env.values() if value.__class__ is Var]
        self.used: set[str] | None = None  # computed when the first name is needed

    def fresh(self, hint: str) -> Var:
        if self.used is None:
            self.used = {*names_at(self.site), *self.bound}
        name = unused(hint, self.used)
        self.used.add(name)
        return Var(name)


@fact("fresh(any, text?) -> name", levels="module loop tile kernel")
def fresh(site: Site, base: Any, suffix: Any = None) -> Var:
    """Return a name that is not in use: `fresh("t")` is `t`, `fresh(k, "o")` is `k_o`."""
    hint = _text(base) if suffix is None else f"{_text(base)}_{_text(suffix)}"
    return Var(unused(hint, names_at(site)))


def _text(value: Any) -> str:
    return value.name if value.__class__ is Var else str(value)
