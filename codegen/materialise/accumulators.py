"""Accumulators: where each one lives, what it is replicated over, and whether it needs a value to start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...ir.expr import free_names
from ...ir.facts.structure import accumulator_scopes, result_registers, summed_axes, value_dtypes
from ...ir.loop import Accumulate, If, Let, Load, Merge, Scale
from ...ir.monoids import monoid
from ...ir.node import Expr
from ...ir.program import Block, Stmt
from ...ir.tile import Combine, CombineTuple, Mma
from .guards import weaken
from .lowering import Accumulator, Lowering, Path


def replicated_axes(low: Lowering, accumulator: Accumulator, bound: frozenset[str]) -> tuple[str, ...]:
    """Tile axes it is replicated over. Of the axes a Combine folds only VEC ones remain, as independent chains."""
    own = {axis.name for axis in low.tile.axes} & accumulator.depends
    kept = [axis for axis in low.replicated if axis in own and axis not in bound]
    kept = [axis for axis in kept if axis not in accumulator.combined or axis in low.vectors]
    return (*(axis for axis in kept if axis not in accumulator.laid_out), *accumulator.laid_out)


def find_accumulators(low: Lowering) -> dict[str, Accumulator]:
    """Every accumulator of the kernel."""
    dtypes = value_dtypes(low.kernel)
    found = {
        start.acc: Accumulator(start.acc, start.fn, dtypes[start.acc], path)
        for path, starts in accumulator_scopes(low.kernel).items()
        for start in starts
    }
    values: dict[str, set[str]] = {}
    for path, conditions, stmt in _walk(low.kernel.body):
        if isinstance(stmt, Let):
            values.setdefault(stmt.dst, set()).update(free_names(stmt.val))
        elif isinstance(stmt, Load):
            values.setdefault(stmt.dst, set()).update(free_names((stmt.idx, stmt.when)))
        elif isinstance(stmt, Accumulate):
            found[stmt.acc].adds.append(path)
            found[stmt.acc].reads.update(free_names(stmt.val), *(free_names(weaken(low, c)) for c in conditions))
        elif isinstance(stmt, Merge):  # all parts change at once, so all are held for the same axes
            read = free_names(stmt.vals).union(*(free_names(weaken(low, c)) for c in conditions))
            for acc in stmt.accs:
                found[acc].adds += [path, path]  # read and written: never the first value as it is
                found[acc].reads.update(read)
        elif isinstance(stmt, Mma):
            found[stmt.acc].adds += [path, path]
            found[stmt.acc].reads.update(free_names((stmt.a, stmt.b)))
            found[stmt.acc].summed |= summed_axes(stmt)
            found[stmt.acc].laid_out |= dict.fromkeys(result_registers(stmt))
        elif isinstance(stmt, Scale):
            found[stmt.acc].reads.update(free_names(stmt.val))
        elif isinstance(stmt, Combine):
            found[stmt.acc].combines.append(path)
            found[stmt.acc].combined.update(axis.name for axis in stmt.over)
        elif isinstance(stmt, CombineTuple):
            known = monoid(stmt.fn)
            part_of = dict(zip(known.parts, stmt.accs, strict=True))
            for part, acc in part_of.items():
                found[acc].adds.append(path)  # read and written: it starts as what the part is of no elements
                found[acc].combines.append(path)
                found[acc].reads.update(part_of[other] for other in known.beside(part))
                found[acc].beside.update(stmt.accs)
                found[acc].merged.update(axis.name for axis in stmt.over)
    for name, accumulator in found.items():
        accumulator.depends = _own(accumulator, _closure(accumulator.reads, values, found, {name}, accumulator.beside))
    return found


def _own(accumulator: Accumulator, read: set[str]) -> set[str]:
    """What an accumulator varies with, of what its reads do: an Mma lays its results out anew."""
    return read - accumulator.summed | accumulator.laid_out.keys()


def _walk(
    block: Block, path: Path = (), conditions: tuple[Expr, ...] = ()
) -> Iterator[tuple[Path, tuple[Any, ...], Stmt]]:
    """Every statement with the path of its block and the guards above it."""
    for position, stmt in enumerate(block):
        yield path, conditions, stmt
        inner = (*conditions, stmt.cond) if isinstance(stmt, If) else conditions
        yield from _walk(getattr(stmt, "body", ()), (*path, position), inner)


def _closure(
    names: set[str],
    values: Mapping[str, set[str]],
    found: Mapping[str, Accumulator],
    seen: set[str],
    beside: set[str],
) -> set[str]:
    """All names that the given ones vary with. What a Combine folded is the same everywhere along the folded axes."""
    result: set[str] = set()
    for name in sorted(names - seen):
        seen = seen | {name}
        if name in found:
            folded = found[name].combined | (set() if name in beside else found[name].merged)
            result |= _own(found[name], _closure(found[name].reads, values, found, seen, beside)) - folded
        elif name in values:
            result |= _closure(values[name], values, found, seen, beside)
        else:
            result.add(name)
    return result
