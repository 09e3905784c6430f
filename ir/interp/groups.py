"""Threads that run together between two barriers, and what they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..node import Expr


class RingTurns(NamedTuple):
    """How many turns of a ring a group has awaited, and released."""

    awaited: int = 0
    released: int = 0


class RelayTurns(NamedTuple):
    """How many turns of its own a group of a relay has entered, and left."""

    entered: int = 0
    left: int = 0


@dataclass
class ThreadGroup:
    """Threads that run together between two barriers. queue: copies they issued and did not yet wait for; held: what
    they fetched into registers for a slab and did not yet put there; team: they are a Team's, not of the axes."""

    threads: np.ndarray
    env: dict[str, Any]
    program: Any = None
    queue: list[Callable[[], bool]] = field(default_factory=list)
    held: dict[str, Callable[[], object]] = field(default_factory=dict)
    issued: int = 0  # TMA copies in program order
    waited: int = 0
    answer: Any = None
    sums: dict[str, Any] = field(default_factory=dict)  # accumulators of products that are not settled
    turns: dict[str, RingTurns] = field(default_factory=dict)  # of each ring
    relays: dict[tuple[Expr, ...], RelayTurns] = field(default_factory=dict)  # by the axes that tell groups apart
    team: bool = False
