"""Atoms that some machines have no instruction for: the assembler makes them of others, which the atom's row tells."""

from __future__ import annotations

from typing import NamedTuple

from ...ir.atoms import ATOMS, Atom
from ...ir.kernel import Multiply

WordCounts = tuple[tuple[str, float, float], ...]  # of an atom: how often a warp has it, the words of its operands
HALVES = ATOMS["m16n8k16"]


class SpelledAtoms:
    """Counts such atoms, and the words that their operands are made of."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._operands: dict[str, set[str]] = {}
        self._words: dict[str, float] = {}

    def made(self, fragment: str, words: float) -> None:
        """Words of a fragment came to be."""
        self._words[fragment] = self._words.get(fragment, 0.0) + words

    def multiplied(self, atom: Atom, statement: Multiply, times: float) -> None:
        """A product that a warp makes so many times."""
        if atom.spelled:
            self._times[atom.name] = self._times.get(atom.name, 0.0) + times
            self._operands.setdefault(atom.name, set()).update((statement.a.name, statement.b.name))

    def finish(self) -> WordCounts:
        """All of them."""
        words = {atom: sum(self._words.get(name, 0.0) for name in read) for atom, read in self._operands.items()}
        return tuple((atom, times, words[atom]) for atom, times in self._times.items())


class MoreWork(NamedTuple):
    """Beside a product each: instructions, those on the fp32 pipe, operations of tensor cores."""

    issued: float
    fma: float
    tensor: float


def beside(spelled: WordCounts, sm: int) -> MoreWork:
    """What a machine does in the place of atoms that it lacks."""
    issued = fma = tensor = 0.0
    for name, times, words in spelled:
        other = ATOMS[name].spelling(sm)
        if other is not None:
            issued += times * (other.products + other.additions - 1) + words * other.conversions
            fma += times * other.additions
            tensor += times * (other.products - 1) * 2.0 * HALVES.m * HALVES.n * HALVES.k
    return MoreWork(issued, fma, tensor)
