"""A slab of shared memory that remembers, for every cell, who wrote and who read it since the last barrier.

Races are found per cell and per epoch (the stretch between two barriers), so finding one does not depend on luck.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..facts.layout import slab_cells
from ..tile import Slab, Stage
from .scalar import ScheduleError

NOBODY, SEVERAL = -1, -2


class Cells(NamedTuple):
    """The words that some threads copy, and the thread of each."""

    words: np.ndarray
    threads: np.ndarray


def layout(stage: Stage) -> tuple[Any, ...]:
    """What all Stages of one slab must agree on."""
    return (stage.slab, stage.depth, stage.pad, stage.swizzle, stage.xor)


class SlabMemory:
    """All slots of one slab, for a batch of blocks."""

    def __init__(self, blocks: int, stage: Stage, kind: Any):
        shape = (blocks, stage.depth * slab_cells(stage))
        self.stage = stage
        self.values = np.zeros(shape, kind)
        self.poison = np.nan if kind is np.float64 else 0
        self.write_epoch, self.writer = np.full(shape, -1), np.full(shape, NOBODY)
        self.read_epoch, self.reader = np.full(shape, -1), np.full(shape, NOBODY)
        self.in_flight = np.zeros(shape, bool)
        self.ticket = np.full(shape, -1)  # the TMA copy that wrote a word: visible to who waited for it

    def check_free(self, cells: Cells, epoch: int) -> None:
        """May these threads overwrite these words now?"""
        at, who = np.s_[:, cells.words], cells.threads
        name = self.stage.dst
        if self.in_flight[at].any():
            raise ScheduleError(f"{name}: copy into a slot whose copy is still in flight")
        if ((self.read_epoch[at] == epoch) & (self.reader[at] != who)).any():
            raise ScheduleError(f"race: {name} is overwritten while others may still read it: no barrier in between")
        if ((self.write_epoch[at] == epoch) & (self.writer[at] != who)).any():
            raise ScheduleError(f"race: {name} is written by two threads between two barriers")

    def check_boxes(self, cells: Cells) -> None:
        """May TMA overwrite these words? A barrier orders it after reads; after writes of threads only a fence would,
        which no statement is (PTX ISA, "Async proxy")."""
        at = np.s_[:, cells.words]
        if ((self.write_epoch[at] >= 0) & (self.ticket[at] < 0)).any():
            raise ScheduleError(f"{self.stage.dst}: nothing orders a copy by TMA after what threads wrote there")

    def give_way(self, other: Stage | Slab, epoch: int) -> None:
        """Another slab takes over this memory: nobody may be at it, and it holds nothing any more."""
        taken = f"{other.dst} takes the memory of {self.stage.dst}"
        if self.in_flight.any():
            raise ScheduleError(f"{taken} while a copy into it is in flight: no Wait")
        if (self.read_epoch == epoch).any() or (self.write_epoch == epoch).any():
            raise ScheduleError(f"race: {taken}, which others may use: no barrier in between")
        if other.via == "TMA" and (self.write_epoch >= 0).any():
            raise ScheduleError(f"{taken}: nothing orders a copy by TMA after what threads wrote there")
        self.write_epoch[:] = -1

    def launch(self, cells: Cells, values: Any, early: bool) -> None:
        """An asynchronous copy begins; until it has landed the words hold the new values or poison."""
        self.in_flight[:, cells.words] = True
        self.values[:, cells.words] = values if early else self.poison

    def land(self, cells: Cells, values: Any) -> None:
        self.values[:, cells.words] = values
        self.in_flight[:, cells.words] = False

    def written(self, cells: Cells, epoch: int, ticket: int = -1) -> None:
        self.write_epoch[:, cells.words] = epoch
        self.writer[:, cells.words] = cells.threads
        self.ticket[:, cells.words] = ticket

    def read(self, block: np.ndarray, word: np.ndarray, thread: np.ndarray, epoch: int, waited: int) -> None:
        """Threads read words: arrays of one shape. waited: the TMA copies that these threads have waited for."""
        name = self.stage.dst
        if self.in_flight[block, word].any():
            raise ScheduleError(f"{name} is read while its copy is in flight: no Wait")
        if (self.write_epoch[block, word] < 0).any():
            raise ScheduleError(f"uninitialised shared memory: {name}")
        ticket = self.ticket[block, word]
        recent = (ticket < 0) & (self.write_epoch[block, word] == epoch)
        if (recent & (self.writer[block, word] != thread)).any():
            raise ScheduleError(f"race: {name} is read before a barrier after its copy")
        if (ticket >= waited).any():
            raise ScheduleError(f"{name} is read without waiting for its TMA copy")
        self._note_readers(block, word, thread, epoch)

    def store(self, block: np.ndarray, word: np.ndarray, thread: np.ndarray, value: np.ndarray, epoch: int) -> None:
        """Threads write words, once each between two barriers: arrays of one shape."""
        name = self.stage.dst
        if self.in_flight[block, word].any():
            raise ScheduleError(f"{name} is written while a copy into it is in flight: no Wait")
        cells = np.stack((block, word))
        if np.unique(cells, axis=1).shape[1] < cells.shape[1]:
            raise ScheduleError(f"race: two threads write one word of {name}")
        touched = (self.read_epoch, self.reader), (self.write_epoch, self.writer)
        if any(((when[block, word] == epoch) & (who[block, word] != thread)).any() for when, who in touched):
            raise ScheduleError(f"race: {name} is overwritten while others may use it: no barrier in between")
        self.values[block, word] = value
        self.write_epoch[block, word], self.writer[block, word], self.ticket[block, word] = epoch, thread, -1

    def _note_readers(self, block: np.ndarray, word: np.ndarray, thread: np.ndarray, epoch: int) -> None:
        new = self.read_epoch[block, word] != epoch
        self.reader[block[new], word[new]] = thread[new]
        self.read_epoch[block, word] = epoch
        other = self.reader[block, word] != thread
        self.reader[block[other], word[other]] = SEVERAL
