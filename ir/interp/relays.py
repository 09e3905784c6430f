"""RelayTurns of groups of threads in Tile IR: one behind the other, each once, and no barrier of all within one.

What a group does in its turn means the same whenever it does it, so there is nothing to run in another order: a program
is wrong where it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tile import Enter, Relay
from .block_threads import at_statement
from .groups import RelayTurns, ThreadGroup
from .scalar import ScheduleError

BARRIERS = ("sync", "combine", "scan")  # what threads of all groups wait for


def take_turn(stmt: Relay, turn: int, group: ThreadGroup) -> None:
    """A group enters or leaves a turn. Raises ScheduleError where that is not the next thing it may do."""
    entered, left = group.relays.get(stmt.over, RelayTurns())
    enters = isinstance(stmt, Enter)
    if turn != (entered if enters else left) or (entered == left) != enters:
        verb = "entered" if enters else "left"
        raise ScheduleError(f"turn {turn} is {verb} where {entered} turns have been entered and {left} left")
    group.relays[stmt.over] = RelayTurns(entered + 1, left) if enters else RelayTurns(entered, left + 1)


def check_turns(event: Any, groups: Iterable[ThreadGroup]) -> None:
    """Raises ScheduleError where some threads are within a turn and all wait for each other, or the kernel ends.

    event: what they came to, and its statement; none at the end.
    """
    within = [over for group in groups for over, (entered, left) in group.relays.items() if entered != left]
    if within and event is None:
        raise ScheduleError(f"the kernel ends within a turn of `{', '.join(axis.name for axis in within[0])}`")
    if within and event[0] in BARRIERS:
        what = "a barrier of all threads within a turn: those who wait to enter it never come here"
        raise at_statement(event[1], ScheduleError(what))
