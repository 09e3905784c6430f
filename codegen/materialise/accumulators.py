"""Accumulators: where each one lives, what it is replicated over, and whether it needs a value to start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...ir.expr import Var, free_names
from ...ir.functions import promote, result_dtype
from ...ir.loop import Accumulate, If, Let, Load
from ...ir.node import Expr, Node
from ...ir.program import Block, Stmt
from ...ir.tile import Combine, Stage, Tile
from ..dtypes import dtype_of

if TYPE_CHECKING:
    from .lowering import Lowering, Path


@dataclass
class Accumulator:
    """path: the innermost block with all mentions. adds: the blocks that add to it. guards: what decides whether they do.

    combined: axes that a Combine folds. depends: names that what it adds up varies with, followed through values.
    """

    name: str
    fn: str
    dtype: str
    path: Path
    adds: list[Path] = field(default_factory=list)
    depends: set[str] = field(default_factory=set)
    combined: set[str] = field(default_factory=set)

    @property
    def direct(self) -> bool:
        """Added to once and right where it lives: the first value needs nothing to be added to (saves an FADD each)."""
        return self.adds == [self.path]

    def axes(self, low: Lowering, bound: frozenset[str]) -> tuple[str, ...]:
        """Tile axes it is replicated over. Of the axes a Combine folds only VEC ones remain, as independent chains."""
        kept = [axis.name for axis in low.tile.axes if axis.name in low.replicated and axis.name in self.depends]
        chains = [axis for axis in kept if axis not in self.combined or axis in low.vectors]
        return tuple(axis for axis in low.replicated if axis in chains and axis not in bound)


def find_accumulators(low: Lowering) -> dict[str, Accumulator]:
    """Every accumulator of the kernel."""
    found: dict[str, Accumulator] = {}
    guards: dict[str, set[str]] = {}
    defined: dict[str, set[str]] = {}
    names = {stmt.acc for _, _, stmt in _walk(low.kernel.body) if isinstance(stmt, Accumulate)}
    _types(low, low.kernel.body, {}, found)
    for path, conditions, stmt in _walk(low.kernel.body):
        if isinstance(stmt, (Let, Load)):
            defined.setdefault(stmt.dst, set()).update(*(free_names(e) for e in _expressions(stmt)))
        for name in _mentions(stmt, names):
            found[name].path = path if name not in guards else _common(found[name].path, path)
            guards.setdefault(name, set())
        if isinstance(stmt, Accumulate):
            found[stmt.acc].adds.append(path)
            guards[stmt.acc].update(free_names(stmt.val), *(free_names(low_weaken(low, c)) for c in conditions))
        elif isinstance(stmt, Combine):
            found[stmt.acc].combined.update(axis.name for axis in stmt.over)
    for name, accumulator in found.items():
        accumulator.depends = _closure(guards[name], defined, guards, found, {name})
    return found


def low_weaken(low: Lowering, condition: Expr) -> Expr:
    from .guards import weaken

    return weaken(low, condition)


def _types(low: Lowering, block: Block, known: dict[str, str], found: dict[str, Accumulator]) -> None:
    """The dtype of every accumulator: that of what it adds up."""

    def type_of(name: str) -> str:
        return known.get(name) or (found[name].dtype if name in found else "i64")

    known = dict(known)
    for stmt in block:
        if isinstance(stmt, Load):
            source = low.stages[stmt.buf].src if stmt.buf in low.stages else stmt.buf
            known[stmt.dst] = low.params[source].dtype
        elif isinstance(stmt, Let):
            known[stmt.dst] = dtype_of(stmt.val, type_of, "i64")
        elif isinstance(stmt, Accumulate):
            dtype = dtype_of(stmt.val, type_of, "i64")
            dtype = result_dtype(stmt.fn, dtype, dtype)
            if stmt.acc in found:
                dtype = promote(dtype, found[stmt.acc].dtype)
            found[stmt.acc] = Accumulator(stmt.acc, stmt.fn, dtype, ())
        _types(low, getattr(stmt, "body", ()), known, found)


def _walk(block: Block, path: Path = (), conditions: tuple[Expr, ...] = ()) -> Iterator[tuple[Path, tuple[Expr, ...], Stmt]]:
    """Every statement with the path of its block and the guards above it."""
    for position, stmt in enumerate(block):
        yield path, conditions, stmt
        inner = (*conditions, stmt.cond) if isinstance(stmt, If) else conditions
        yield from _walk(getattr(stmt, "body", ()), (*path, position), inner)


def _expressions(stmt: Node) -> list[Any]:
    """The expressions of a statement itself, without its block."""
    if isinstance(stmt, (Tile, Stage)):
        return []
    return [getattr(stmt, f.name) for f in type(stmt).fields if f.sort == "Expr"]


def _mentions(stmt: Stmt, names: set[str]) -> list[str]:
    """Accumulators that a statement names, in a fixed order."""
    found = [stmt.acc] if isinstance(stmt, (Accumulate, Combine)) else []
    return found + sorted(set().union(*map(free_names, _expressions(stmt))) & names - set(found))


def _common(a: Path, b: Path) -> Path:
    """The longest common prefix: two blocks may agree further in and still be different ones."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return a[:length]


def _closure(
    names: set[str],
    defined: dict[str, set[str]],
    guards: dict[str, set[str]],
    found: dict[str, Accumulator],
    seen: set[str],
) -> set[str]:
    """All names that the given ones vary with. What a Combine folded is the same everywhere along the folded axes."""
    result: set[str] = set()
    for name in sorted(names - seen):
        seen = seen | {name}
        if name in found:
            result |= _closure(guards[name], defined, guards, found, seen) - found[name].combined
        elif name in defined:
            result |= _closure(defined[name], defined, guards, found, seen)
        else:
            result.add(name)
    return result


__all__ = ["Accumulator", "Var", "find_accumulators"]
