"""The threads of a batch of blocks: groups that run to the next barrier in random order, and a Team beside them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any

import numpy as np

from ..expr import Axis
from ..facts.scopes import Path
from ..facts.structure import summary
from ..program import Block
from ..text.print_statements import print_statement
from ..tile import Team, Tile
from .block_memory import BlockMemory
from .groups import ThreadGroup
from .scalar import KINDS, ScheduleError

# Yields ("sync" or "settle", stmt), ("combine", "scan" or "mma", stmt, values), ("poll", stmt).
Program = Generator[tuple[Any, ...], Any, None]


class BlockThreads(BlockMemory, ABC):
    """Who runs, and until when. grid: of each BLOCK axis, where each block of the batch is; dtypes: of values; readers:
    the groups of the axes, not of a Team."""

    tile: Tile
    threads: list[Axis]
    registers: list[Axis]
    grid: dict[str, Any]
    dtypes: dict[str, str]
    readers: list[ThreadGroup]

    @abstractmethod
    def block(self, block: Block, path: Path, group: ThreadGroup, mask: Any) -> Program:
        """The program of a group."""

    def groups(self) -> dict[int, ThreadGroup]:
        count = math.prod(axis.extent for axis in self.threads)
        ids = list(range(count))
        self.dice.shuffle(ids)
        split = min(count, self.dice.choice((2, 3, 4))) if summary(self.tile.body).barriers else 1
        live = {}
        for g in range(split):
            threads = np.array(sorted(ids[g::split]))
            group = ThreadGroup(threads, {**self.grid, **self.axis_values(threads)})
            group.program = self.block(self.tile.body, (0,), group, None)
            live[g] = group
        for position, stmt in enumerate(self.tile.body):
            if isinstance(stmt, Team):
                one = np.zeros(1, int)  # copies alone: one of its threads does them
                team = ThreadGroup(one, {**self.grid, **self.axis_values(one)}, team=True)
                team.program = self.block(stmt.body, (0, position), team, None)
                live[len(live)] = team
        return live

    def axis_values(self, threads: np.ndarray) -> dict[str, Any]:
        values, rest = {}, threads
        for axis in reversed(self.threads):
            values[axis.name] = (rest % axis.extent).reshape(1, -1, *self.ones)
            rest = rest // axis.extent
        for place, axis in enumerate(self.registers):
            shape = [1, 1, *self.ones]
            shape[2 + place] = axis.extent
            values[axis.name] = np.arange(axis.extent).reshape(shape)
        return values

    def gathered(self, values: dict[int, Any], live: dict[int, ThreadGroup], dtype: str) -> Any:
        """The values of all threads, of those of each group: (blocks, threads, *registers)."""
        count = math.prod(axis.extent for axis in self.threads)
        inner = np.broadcast_shapes(self.ones, *(np.shape(value)[2:] for value in values.values()))
        whole = np.empty((self.blocks, count, *inner), KINDS[dtype])
        for g, value in values.items():
            whole[:, live[g].threads] = np.broadcast_to(value, (self.blocks, len(live[g].threads), *inner))
        return whole

    def to_next_barrier(self, live: dict[int, ThreadGroup]) -> tuple[dict[int, Any], list[int]]:
        todo, waiting, done, stuck = list(live), {}, [], 0
        self.dice.shuffle(todo)
        while todo:
            g = todo.pop(0)
            try:
                event = live[g].program.send(live[g].answer)
            except StopIteration:
                done.append(g)
                stuck = 0
                continue
            live[g].answer = None
            if event[0] == "poll":
                todo.append(g)
                stuck += 1
                if all(live[one].team for one in todo):  # it goes on when the others do
                    break
                if stuck > 2 * len(live) + 2:
                    raise at_statement(event[1], ScheduleError("deadlock: what is waited for never comes"))
            else:
                waiting[g], stuck = event, 0
        return waiting, done


def at_statement(stmt: Any, error: ScheduleError) -> ScheduleError:
    """The error with the statement it happened in; the innermost one stands."""
    if any(note.startswith("in `") for note in error.notes):
        return error
    return ScheduleError(error.what, notes=(*error.notes, f"in `{print_statement(stmt).splitlines()[0]}`"))
