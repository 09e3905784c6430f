"""Work counted in calls of functions: the same number on every machine, however busy it is."""

from __future__ import annotations

import contextlib
import cProfile
import pstats
from collections.abc import Iterator

from dplc.codegen.kernel import Program, aligned, lifetimes


@contextlib.contextmanager
def at_most_calls(limit: int) -> Iterator[None]:
    """Fail if this thread makes more than `limit` calls of functions, of Python or of C, in the block."""
    with cProfile.Profile() as calls:
        yield
    made = pstats.Stats(calls).total_calls  # type: ignore[attr-defined]
    assert made <= limit, f"{made:,} calls, more than {limit:,}"


def most_alive(program: Program) -> int:
    """Return the bytes of the temporaries of the launch where most are alive: no plan takes less."""
    lives = lifetimes(program)
    change = [0] * (len(program.kernels) + 1)
    for buffer in program.temporaries:
        first, last = lives[buffer.name]
        change[first] += aligned(buffer)
        change[last + 1] -= aligned(buffer)
    alive = most = 0
    for step in change:
        alive += step
        most = max(most, alive)
    return most
