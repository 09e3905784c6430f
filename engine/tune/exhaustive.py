"""Every schedule of a small space, each program's path once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import ClassVar

from ..match.choices import Spot
from .moves import options
from .protocol import Schedule
from .search import Proposal, Search
from .space import Candidate, Slot, Space, State, Token


class Exhaustive(Search):
    """Depth first; states that were reached before are not walked again."""

    name: ClassVar[str] = "exhaustive"

    def __init__(self, space: Space, dice: random.Random):
        super().__init__(space, dice)
        self._left = self._all()

    def propose(self, spent: float) -> Proposal | None:
        return next(self._left, None)

    def _all(self) -> Iterator[Proposal]:
        for number in range(len(self.space.starts)):
            state, _, schedule = self.space.root(number)
            for candidate in every(self.space, state, number, schedule, (), set()):
                yield Proposal(candidate)


def every(
    space: Space, state: State, start: int, schedule: Schedule, genome: tuple[tuple[Slot, Token], ...],
    known: set[State],
) -> Iterator[Candidate]:  # fmt: skip
    """Every candidate below a state that is not below one of the known states."""
    if state in known:
        return
    known.add(state)
    if space.done(state):
        yield Candidate(space.tools, space.target, space.starts[start], state.program, schedule, genome)
        return
    slot = space.slot(state)
    for token in tokens(space, state):
        move = space.after(state, token)
        if move.token == token:
            below = (*schedule, *move.decisions), (*genome, (slot, token))
            yield from every(space, move.state, start, *below, known)


def tokens(space: Space, state: State) -> Iterator[Token]:
    """Every complete decision at a state."""
    for option in options(space, state):
        if isinstance(option, Spot):
            yield from _filled(space, option)
        else:
            yield option


def _filled(space: Space, spot: Spot) -> Iterator[Token]:
    if spot.open is None:
        yield space.token(spot)
        return
    for value in spot.open.values:
        made = spot.choose(value)
        if made is not None:
            yield from _filled(space, made)
