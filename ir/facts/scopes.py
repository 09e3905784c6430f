"""Where accumulators live: the innermost block that contains all mentions of one; it is set there to its identity."""

from __future__ import annotations

from typing import NamedTuple

from ..expr import free_names
from ..loop import Accumulate, Carry, Merge, Scale
from ..monoids import monoid
from ..node import memoised
from ..program import Block, Kernel
from ..tile import AlongAxes, Mma, TuplesAlongAxes

Path = tuple[int, ...]  # positions of statements from the kernel's body down to a block


class AccumulatorStart(NamedTuple):
    acc: str
    fn: str


@memoised
def accumulator_scopes(kernel: Kernel) -> dict[Path, tuple[AccumulatorStart, ...]]:
    """For each block, the accumulators that start on entry to it."""
    mentions: dict[str, list[Path]] = {}
    functions: dict[str, str] = {}
    parts: dict[str, str] = {}
    tuples: list[tuple[str, ...]] = []
    _collect(kernel.body, (), mentions, functions, tuples, parts)
    for accs in tuples:  # the parts of a tuple start together: one of them may not be read at all
        together = [path for acc in accs for path in mentions[acc]]
        mentions.update((acc, together) for acc in accs)
    functions.update((acc, part) for acc, part in parts.items() if acc in functions)
    scopes: dict[Path, tuple[AccumulatorStart, ...]] = {}
    for acc, fn in functions.items():
        path = _common(mentions[acc])
        scopes[path] = (*scopes.get(path, ()), AccumulatorStart(acc, fn))
    return scopes


def _collect(
    block: Block,
    path: Path,
    mentions: dict[str, list[Path]],
    functions: dict[str, str],
    tuples: list[tuple[str, ...]],
    parts: dict[str, str],
) -> None:
    for position, stmt in enumerate(block):
        names = set(free_names(tuple(getattr(stmt, f.name) for f in type(stmt).fields if f.name != "body")))
        if isinstance(stmt, Accumulate):
            functions[stmt.acc] = stmt.fn
        if isinstance(stmt, Merge):
            functions.update(_parts(stmt))
            names.update(stmt.accs)
            tuples.append(stmt.accs)
        if isinstance(stmt, TuplesAlongAxes):  # what is combined as a tuple starts as one, in whatever way it adds up
            parts.update(_parts(stmt))
            names.update(stmt.accs)
        if isinstance(stmt, Mma):
            functions[stmt.acc] = "add"
        if isinstance(stmt, Accumulate | AlongAxes | Scale | Carry | Mma):
            names.add(stmt.acc)
        for name in names:
            mentions.setdefault(name, []).append(path)
        if hasattr(stmt, "body"):
            _collect(stmt.body, (*path, position), mentions, functions, tuples, parts)


def _parts(stmt: Merge | TuplesAlongAxes) -> dict[str, str]:
    """The part of the monoid that each accumulator is."""
    return {acc: f"{stmt.fn}.{part}" for acc, part in zip(stmt.accs, monoid(stmt.fn).parts, strict=False)}


def _common(paths: list[Path]) -> Path:
    """The longest common beginning."""
    out: list[int] = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        out.append(steps[0])
    return tuple(out)
