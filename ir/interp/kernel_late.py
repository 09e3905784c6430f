"""The meaning of queued products in Kernel IR: groups of warps that multiply matrices of shared memory, later.

A product reads its matrices when it is queued and again when it is waited for: both must be possible, and find what the
same boxes brought. Meanwhile its registers hold nothing, and who changes them is told so.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..atoms import ATOMS, WORD_BYTES, Atom, multiplied, numbers
from ..kernel import SHARED, CommitProducts, Matrix, QueueProduct, WaitProducts
from ..program import Stmt
from .kernel_fragments import Fragments
from .kernel_memory import Lanes, SharedMemory
from .kernel_values import Place, RegisterValues
from .scalar import KINDS, ScheduleError

ROW, CHUNK, REPEAT = 128, 16, 1024  # bytes: of a row, of what is swizzled, after which a swizzle comes again


@dataclass
class Queued:
    """A product on its way. lanes: what each thread reads of both operands, None of a fragment; words: those of the
    fragment, and held: what they were when the product was queued; tickets: the boxes that brought the others."""

    stmt: QueueProduct
    lanes: tuple[Lanes | None, Lanes | None]
    places: list[Place]
    words: list[list[Place]]
    held: Any = None
    product: Any = None
    tickets: Any = None


class Products:
    """The products of the threads of some blocks that are not done. dice: which read when they are queued."""

    def __init__(
        self, registers: RegisterValues, shared: SharedMemory, fragments: Fragments, dice: random.Random
    ) -> None:
        self.registers, self.shared, self.fragments, self.dice = registers, shared, fragments, dice
        self.shape = fragments.shape
        self.open: list[Queued] = []
        self.groups: list[list[Queued]] = []
        self.sums: dict[Place, Any] = {}

    def statement(self, stmt: Stmt, where: Callable[[Any], tuple[str, Lanes]]) -> None:
        """What a statement of the queue does. where: the memory that a matrix is in, and where each thread says."""
        if isinstance(stmt, QueueProduct):
            starts = [where(matrix) if isinstance(matrix, Matrix) else None for matrix in (stmt.a, stmt.b)]
            if any(start is not None and start[0] != SHARED for start in starts):
                raise ScheduleError("matrices stand in shared memory")
            a, b = (None if start is None else start[1] for start in starts)
            self.queue(stmt, (a, b))
        elif isinstance(stmt, CommitProducts):
            self.commit()
        elif isinstance(stmt, WaitProducts):
            self.wait(stmt.keep)

    def queue(self, stmt: QueueProduct, starts: tuple[Lanes | None, Lanes | None]) -> None:
        """starts: where each thread says that a matrix begins; None of a fragment."""
        atom = ATOMS[stmt.atom]
        if self.shape[1] % math.prod(extent for _, extent in atom.lanes):
            raise ScheduleError("a group of warps multiplies together, and this one is not whole")
        sides = ((stmt.a, atom.row), (stmt.b, atom.b_column))
        left, right = (
            None if start is None else self._lanes(matrix, start, atom, line)
            for (matrix, line), start in zip(sides, starts, strict=True)
        )
        words = [] if left else self.fragments.words(stmt.a, atom, atom.a_order)
        queued = Queued(stmt, (left, right), self._places(stmt, atom), words)
        queued.product = self._product(queued)
        self.open.append(queued)
        for place in queued.places:
            if place not in self.sums:
                self.sums[place] = self.registers.get(place)
            self.registers.put(place, np.full(self.shape, np.nan), None)

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait(self, keep: int) -> None:
        while len(self.groups) > keep:
            for queued in self.groups.pop(0):
                now = self._product(queued)
                made = queued.product if self.dice.random() < 0.5 else now
                for number, place in enumerate(queued.places):
                    self.sums[place] = self.sums[place] + made[..., number]
        pending = {place for group in (*self.groups, self.open) for queued in group for place in queued.places}
        for place in [place for place in self.sums if place not in pending]:
            if not np.all(np.isnan(self.registers.get(place))):
                raise ScheduleError(f"`{place[0]}` is changed while a product on it is not done")
            self.registers.put(place, self.sums.pop(place), None)

    def finished(self) -> bool:
        return not self.open and not any(self.groups)

    def _places(self, stmt: QueueProduct, atom: Atom) -> list[Place]:
        """The registers of the result of a thread, in the order of the atom."""
        name, index = self.registers.place(stmt.acc)
        first = index[-len(atom.registers) :]
        every = np.ndindex(*(extent for _, extent in atom.registers))
        return [(name, (*index[: -len(first)], *map(sum, zip(first, own, strict=True)))) for own in every]

    def _lanes(self, matrix: Any, start: Lanes, atom: Atom, layout: str) -> Lanes:
        """What each thread reads of a matrix: for every element of its fragment who and where, in the order of axes."""
        lanes = math.prod(extent for _, extent in atom.lanes)
        first = start.address.reshape(-1, lanes)
        if np.any(first != first[:, :1]):
            raise ScheduleError("the threads of a group say different matrices")
        line, place = (_own(atom, layout, e) for e in (layout, atom.place))
        line, place = (part.reshape(lanes, -1) for part in np.broadcast_arrays(line, place))
        item = WORD_BYTES // atom.per_word
        if matrix.across:
            at = line // 64 * matrix.leading + line % 64 * item + place // 8 * matrix.stride + place % 8 * ROW
        else:
            at = line // 8 * matrix.stride + line % 8 * ROW + place * item
        at = (first[:, :, None] + at).reshape(-1, at.shape[-1])
        at = at ^ ((at // ROW) % (REPEAT // ROW) * CHUNK)
        flat, block, thread = (np.repeat(part, at.shape[-1]) for part in (start.flat, start.block, start.thread))
        return Lanes(flat, block, thread, at.reshape(-1))

    def _product(self, queued: Queued) -> Any:
        """What a product adds to each register of its result, read now."""
        atom, dtype = ATOMS[queued.stmt.atom], queued.stmt.dtype
        values, tickets = [], []
        if queued.words:
            values.append(self.fragments.operand(queued.words, atom, atom.a_order))
            queued.held = values[0] if queued.held is None else queued.held
            if not np.array_equal(values[0], queued.held, equal_nan=True):
                raise ScheduleError("the left operand is changed in its registers before the product is done")
        for lanes, layout in zip(queued.lanes, (atom.row, atom.b_column), strict=True):
            if lanes is None:
                continue
            found = self.shared.load(lanes, dtype, 1)
            cells, _ = self.shared.cells(lanes, dtype, 1)
            tickets.append(self.shared.tickets[cells])
            if np.any(tickets[-1] == 0):
                raise ScheduleError("nothing shows tensor cores what threads wrote to a matrix")
            shape = _own(atom, layout, layout).shape[len(atom.lanes) :]
            own = [extent for _, extent in atom.lanes]
            values.append(found.astype(KINDS[atom.sums]).reshape(self.shape[0], -1, *own, *shape))
        if queued.tickets is None:
            queued.tickets = tickets
        elif not all(map(np.array_equal, tickets, queued.tickets)):
            raise ScheduleError("a matrix is overwritten before a product that reads it is done")
        return multiplied(atom, *values).reshape(*self.shape, -1)


def _own(atom: Atom, layout: str, asked: str) -> Any:
    """A layout as numbers over the axes of the atom that an operand has: lanes, and those that say line and place."""
    named = {term.partition("*")[0] for e in (layout, atom.place) for term in e.split(" + ")}
    named |= {name for name, _ in atom.lanes}
    kept = tuple(slice(None) if name in named else slice(0, 1) for name, _ in atom.axes)
    return numbers(atom, asked)[kept]
