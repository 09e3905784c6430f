"""What the threads of a batch of blocks tell each other of their accumulators: folds and running folds along axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..facts.structure import summary, variation
from ..tile import Combine, CombineTuple, Scan, ScanTuple
from .along_axes import folded_along, running
from .block_threads import BlockThreads
from .groups import ThreadGroup
from .scalar import ScheduleError, start_value


class BlockFolds(BlockThreads):
    """Combines and Scans, first of each thread's registers, then of all threads."""

    def combine(self, stmt: Combine | CombineTuple, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Every thread gets the fold of the values of all threads along the axes, in the order of the axes.

        values: of each group, one array for each accumulator of the statement.
        """
        count, wholes = math.prod(axis.extent for axis in self.threads), []
        for number, acc in enumerate(stmt.accs):
            whole = self.gathered({g: value[number] for g, value in values.items()}, live, self.dtypes[acc])
            wholes.append(whole.reshape(self.blocks, *[axis.extent for axis in self.threads], *whole.shape[2:]))
        names = [axis.name for axis in self.threads]
        for axis in stmt.over:
            if axis.name in names:
                folded = folded_along(stmt, wholes, 1 + names.index(axis.name))
                extents = [axis.extent for axis in self.threads]
                wholes = [np.broadcast_to(f, (self.blocks, *extents, *f.shape[1 + len(names) :])) for f in folded]
        wholes = [whole.reshape(self.blocks, count, *whole.shape[1 + len(names) :]) for whole in wholes]
        for g in values:
            live[g].answer = tuple(whole[:, live[g].threads] for whole in wholes)

    def scan(self, stmt: Scan | ScanTuple, values: dict[int, Any], live: dict[int, ThreadGroup]) -> None:
        """Every thread, and every register of it, gets the fold of what all up to it have. values: of each group."""
        names, wholes = ["", *(axis.name for axis in (*self.threads, *self.registers))], []
        for number, acc in enumerate(stmt.accs):
            whole = self.gathered({g: value[number] for g, value in values.items()}, live, self.dtypes[acc])
            wholes.append(whole.reshape(self.blocks, *[axis.extent for axis in self.threads], *whole.shape[2:]))
        found = running(stmt, wholes, tuple(names.index(axis.name) for axis in stmt.over))
        count = math.prod(axis.extent for axis in self.threads)
        found = [one.reshape(self.blocks, count, *one.shape[1 + len(self.threads) :]) for one in found]
        for g in values:
            live[g].answer = tuple(one[:, live[g].threads] for one in found)

    def fold_registers(self, stmt: Combine | CombineTuple, group: ThreadGroup) -> tuple[Any, ...]:
        """The fold along the replicated axes that a Combine names: in each thread's own registers."""
        values = [group.env[acc] for acc in stmt.accs]
        untouched = isinstance(stmt, Combine) and np.ndim(values[0]) == 0
        if untouched and values[0] == start_value(stmt.fn, self.dtypes[stmt.accs[0]]):
            return tuple(values)  # no thread of the group has folded anything
        for place, axis in enumerate(self.registers):
            if any(axis.name == over.name for over in stmt.over):
                values = [self.spread(acc, value, place) for acc, value in zip(stmt.accs, values, strict=True)]
                values = folded_along(stmt, values, 2 + place)
        return tuple(values)

    def held_along(self, stmt: Scan | ScanTuple, group: ThreadGroup) -> tuple[Any, ...]:
        """The accumulators, each with a value for each register along the axes of a scan."""
        values, names = [group.env[acc] for acc in stmt.accs], {axis.name for axis in stmt.over}
        for place, axis in enumerate(self.registers):
            if axis.name in names:
                values = [self.spread(acc, value, place) for acc, value in zip(stmt.accs, values, strict=True)]
        return tuple(values)

    def spread(self, acc: str, value: Any, place: int) -> Any:
        """An accumulator as an array along a replicated axis."""
        axis = self.registers[place]
        if np.ndim(value) == 2 + len(self.registers) and value.shape[2 + place] == axis.extent:
            return value
        if axis.name not in self.folded_with(acc):
            raise ScheduleError(f"`{acc}` does not vary with the combined axis `{axis.name}`")
        # no thread of the group passed the guard of what varies: its start value, once per register
        value = np.reshape(value, np.shape(value) or (1,) * (2 + len(self.registers)))
        return np.repeat(value, axis.extent, axis=2 + place)

    def folded_with(self, acc: str) -> frozenset[str]:
        """The names that what is folded into an accumulator varies with."""
        body = self.tile.body
        values = tuple(stmt.val for stmt in summary(body).sums if stmt.acc == acc)
        return variation((*values, *(stmt.vals for stmt in summary(body).merges if acc in stmt.accs)), body)
