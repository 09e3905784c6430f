"""Which copies fill a turn of a ring."""

from __future__ import annotations

from ..program import Block
from ..tile import Acquire, Stage


def filled(block: Block) -> list[tuple[Acquire, tuple[Stage, ...]]]:
    """Every Acquire of a block, at any depth, with the Stages right behind it: these fill its turn."""
    found: list[tuple[Acquire, tuple[Stage, ...]]] = []
    for position, stmt in enumerate(block):
        if isinstance(stmt, Acquire):
            behind = block[position + 1 :]
            count = next((n for n, one in enumerate(behind) if not isinstance(one, Stage)), len(behind))
            found.append((stmt, behind[:count]))  # type: ignore[arg-type]
        found += filled(getattr(stmt, "body", ()))
    return found
