"""The meaning of fragments in Kernel IR: words of several elements, matrices loaded by a warp, products of a warp."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..atoms import ATOMS, WITHIN, WORD_BYTES, Atom, multiplied
from ..facts.layout import DTYPE_BYTES
from ..kernel import Element, Fragment, LoadMatrix, Multiply, PackWord
from .kernel_memory import Lanes, SharedMemory
from .kernel_values import Place, RegisterValues
from .scalar import KINDS, ScheduleError

WARP, ROWS, ROW_BYTES = 32, 8, 16  # lanes; of a matrix


class Fragments:
    """The fragments of the threads of some blocks: registers, with the element of a word as their last index."""

    def __init__(self, registers: RegisterValues, shared: SharedMemory, shape: tuple[int, int]):
        self.registers, self.shared, self.shape = registers, shared, shape

    def declare(self, stmt: Fragment) -> None:
        shape = (stmt.words, WORD_BYTES // DTYPE_BYTES[stmt.dtype])
        self.registers.declare(stmt.dst, stmt.dtype, shape, None)

    def word(self, place: Any, number: int = 0) -> list[Place]:
        """The elements of a word, so many words behind a place."""
        known = self.registers.shapes.get(getattr(place, "name", ""), ())
        first = int(self.registers.value(place.index[0], None)) + number if isinstance(place, Element) else -1
        if len(known) != 2 or not 0 <= first < known[0]:
            raise ScheduleError("this is no place of a fragment")
        return [(place.name, (first, element)) for element in range(known[1])]

    def pack(self, stmt: PackWord, values: list[Any], mask: Any) -> None:
        for place, value in zip(self.word(stmt.into), values, strict=True):
            self.registers.put(place, value, mask)

    def load(self, stmt: LoadMatrix, lanes: Lanes) -> None:
        """lanes: the addresses of all threads; those that no matrix asks for are not looked at."""
        dtype = self.registers.dtypes[self.word(stmt.into)[0][0]]
        blocks, threads = self.shape
        if threads % WARP:
            raise ScheduleError("a warp loads matrices together, and this one is not whole")
        asked = lanes.chosen(lanes.thread % WARP < ROWS * stmt.count)
        row = ROW_BYTES // DTYPE_BYTES[dtype]
        found = self.shared.load(asked, dtype, row).reshape(blocks, threads // WARP, stmt.count, ROWS, row)
        per_word = WORD_BYTES // DTYPE_BYTES[dtype]
        g, t = np.divmod(np.arange(WARP), row // per_word)
        for matrix, element in itertools.product(range(stmt.count), range(per_word)):
            at = (t * per_word + element, g) if stmt.trans else (g, t * per_word + element)
            value = found[:, :, matrix, at[0], at[1]].reshape(self.shape)
            self.registers.put(self.word(stmt.into, matrix)[element], value, None)

    def multiply(self, stmt: Multiply) -> None:
        atom = ATOMS[stmt.atom]
        sides = ((stmt.a, atom.a_order), (stmt.b, atom.b_order))
        a, b = (self.operand(self.words(place, atom, order), atom, order) for place, order in sides)
        product = multiplied(atom, a, b).reshape(*self.shape, *(extent for _, extent in atom.registers))
        tail = len(atom.registers)
        name, index = self.registers.place(stmt.acc)
        for own in np.ndindex(*(extent for _, extent in atom.registers)):
            place = (name, (*index[:-tail], *(first + n for first, n in zip(index[-tail:], own, strict=True))))
            self.registers.put(place, self.registers.get(place) + product[(..., *own)], None)

    def words(self, place: Any, atom: Atom, order: tuple[str, ...]) -> list[list[Place]]:
        """The words of an operand, from a place on."""
        return [self.word(place, number) for number in range(atom.words(order))]

    def operand(self, words: list[list[Place]], atom: Atom, order: tuple[str, ...]) -> Any:
        """A fragment as `multiplied` takes it: (blocks, warps, *axes of the atom), 1 along those it does not have."""
        sizes = dict(atom.axes)
        inner = (*order, *(name for name, _ in atom.depth if name == WITHIN))
        held = [np.broadcast_to(self.registers.get(element), self.shape) for word in words for element in word]
        lanes = [extent for _, extent in atom.lanes]
        whole = np.stack(held, axis=-1).reshape(self.shape[0], -1, *lanes, *(sizes[name] for name in inner))
        names = [name for name, _ in (*atom.registers, *atom.depth)]
        first = 2 + len(lanes)
        whole = np.transpose(whole, (*range(first), *(first + inner.index(name) for name in names if name in inner)))
        whole = whole.astype(KINDS[atom.sums])
        return whole.reshape(*whole.shape[:first], *(sizes[name] if name in inner else 1 for name in names))
