"""Every schedule of a small space, each program's path once. Importing it adds the search `exhaustive`.

The bench of regret and tests of searches need the best schedule of a space. No real space is small enough for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from dplc.engine.rewrite.statements.driver import RuleSite
from dplc.engine.schedule.space import (
    DecisionPoint,
    ProgramCandidate,
    ProgramSpace,
    ScheduleCandidate,
    Space,
    State,
    Token,
)
from dplc.engine.store.store import Schedule
from dplc.engine.tune.search import SEARCHES, Search, options


class Exhaustive(Search):
    """Search depth first, and walk each state once.

    Times of kernels add up. So the search varies one kernel after the other, with the others as by default.
    """

    def __init__(self, space: ProgramSpace, dice: random.Random):
        super().__init__(space, dice)
        self._left = self._all()

    def propose(self) -> ProgramCandidate | None:
        return next(self._left, None)

    def _all(self) -> Iterator[ProgramCandidate]:
        for way in range(len(self.space.ways)):
            default = self.space.default(way)
            for number, (space, count) in enumerate(self.space.spaces(way)):
                state, _, schedule = space.root
                for candidate in every(space, state, schedule, (), set()):
                    parts = (*default.parts[:number], (candidate, count), *default.parts[number + 1 :])
                    yield replace(default, parts=parts)


def every(
    space: Space, state: State, schedule: Schedule, genome: tuple[tuple[DecisionPoint, Token], ...], known: set[State]
) -> Iterator[ScheduleCandidate]:
    """Yield every candidate below a state that is not below one of the known states."""
    if state in known:
        return
    known.add(state)
    if space.done(state):
        yield ScheduleCandidate(space, state.program, schedule, genome)
        return
    slot = space.slot(state)
    for token in tokens(space, state):
        move = space.after(state, token)
        if move.token == token:
            below = (*schedule, *move.decisions), (*genome, (slot, token))
            yield from every(space, move.state, *below, known)


def tokens(space: Space, state: State) -> Iterator[Token]:
    """Yield every complete decision at a state."""
    for option in options(space, state):
        if isinstance(option, RuleSite):
            yield from _filled(space, option)
        else:
            yield option


def _filled(space: Space, spot: RuleSite) -> Iterator[Token]:
    if spot.open is None:
        yield space.filled(spot, space.ordered)
        return
    for value in spot.open.values:
        made = spot.choose(value)
        if made is not None:
            yield from _filled(space, made)


SEARCHES["exhaustive"] = Exhaustive
