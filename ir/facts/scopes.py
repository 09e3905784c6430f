"""Where accumulators live: the innermost block that contains all mentions of one; it is set there to its identity."""

from __future__ import annotations

from typing import NamedTuple

from ..expr import free_names
from ..loop import Accumulate
from ..node import memoised
from ..program import Block, Kernel
from ..tile import Combine

Path = tuple[int, ...]  # positions of statements from the kernel's body down to a block


class Start(NamedTuple):
    acc: str
    fn: str


@memoised
def accumulator_scopes(kernel: Kernel) -> dict[Path, tuple[Start, ...]]:
    """For each block, the accumulators that start on entry to it."""
    mentions: dict[str, list[Path]] = {}
    functions: dict[str, str] = {}
    _collect(kernel.body, (), mentions, functions)
    scopes: dict[Path, tuple[Start, ...]] = {}
    for acc, fn in functions.items():
        path = _common(mentions[acc])
        scopes[path] = (*scopes.get(path, ()), Start(acc, fn))
    return scopes


def _collect(block: Block, path: Path, mentions: dict[str, list[Path]], functions: dict[str, str]) -> None:
    for position, stmt in enumerate(block):
        names = set(free_names(tuple(getattr(stmt, f.name) for f in type(stmt).fields if f.name != "body")))
        if isinstance(stmt, Accumulate):
            functions[stmt.acc] = stmt.fn
        if isinstance(stmt, Accumulate | Combine):
            names.add(stmt.acc)
        for name in names:
            mentions.setdefault(name, []).append(path)
        if hasattr(stmt, "body"):
            _collect(stmt.body, (*path, position), mentions, functions)


def _common(paths: list[Path]) -> Path:
    """The longest common beginning."""
    out: list[int] = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        out.append(steps[0])
    return tuple(out)
