"""How often a loop turns."""

from __future__ import annotations

from ...ir.expr import is_int
from ...ir.loop import For


def trip_count(stmt: For) -> int | None:
    """How often a loop turns, where that is known."""
    if not (is_int(stmt.start) and is_int(stmt.stop) and is_int(stmt.step)):
        return None
    return max(0, int(-(-(stmt.stop - stmt.start) // stmt.step)))
