"""Work counted in calls of functions: the same number on every machine, however busy it is."""

from __future__ import annotations

import contextlib
import cProfile
import pstats
from collections.abc import Iterator


@contextlib.contextmanager
def at_most_calls(limit: int) -> Iterator[None]:
    """Fail if this thread makes more than `limit` calls of functions, of Python or of C, in the block."""
    with cProfile.Profile() as calls:
        yield
    made = pstats.Stats(calls).total_calls  # type: ignore[attr-defined]
    assert made <= limit, f"{made:,} calls, more than {limit:,}"
