"""A rule on a program with a size: what is proved for a range must mean the same at each of its numbers.

A subject of numbers becomes one with a size: an extent of blocks or of a loop is a size, and all that are that number
are too. Where the rule fires on it, both programs are bound to the ends of the range, the hint and numbers beside it,
and compared at each that has a meaning.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from ...codegen.target import Target
from ...ir.diagnostic import DplcError
from ...ir.expr import Size, Undecided, multiply
from ...ir.loop import For
from ...ir.node import nodes, replace
from ...ir.program import Kernel, Param
from ...ir.sizes import numbers
from ...ir.substitute import with_sizes
from ...ir.tile import Stage, Tile
from ..language.questions import NotComputed
from ..rewrite.statements.well_formed import wellformed
from .extents import TooLarge
from .meaning import Arrays, Meaning, baseline, compare
from .statement_neighbours import renumbered

Program = tuple[Kernel, ...]
Fire = Callable[[Program, Any], Program]
NAME = "sized"
LONGEST = 3  # times the number that it was
FIRINGS = 2  # looked at, of each program
REFUSALS = (Undecided, NotComputed, TooLarge)
ERRORS = (DplcError, Undecided, TooLarge, LookupError, ValueError, ArithmeticError, TypeError, AttributeError)


def with_a_size(program: Program, seed: int) -> tuple[Program, Size] | None:
    """The program with one of its extents a size; None where none may be one. The seed decides."""
    found = sorted(_open(program))
    if not found:
        return None
    dice = random.Random(seed)
    number = dice.choice(found)
    size = size_for(number, dice)
    return tuple(_kernel(kernel, number, size) for kernel in program), size


def size_for(number: int, dice: random.Random) -> Size:
    """A size that is this number as a rule."""
    multiple = dice.choice([n for n in (1, 1, 2, 4, number) if number % n == 0])
    return Size(NAME, dice.choice((multiple, number)), LONGEST * number, multiple, number)


def _kernel(kernel: Kernel, number: int, size: Size) -> Kernel:
    """The kernel with a size in the place of a number; of a buffer's extents, multiples too."""

    def param(given: Param) -> Param:
        return replace(given, shape=tuple(multiply(n // number, size) if n % number == 0 else n for n in given.shape))

    body = tuple(renumbered(statement, lambda n: size if n == number else n) for statement in kernel.body)
    return replace(kernel, ins=tuple(map(param, kernel.ins)), outs=tuple(map(param, kernel.outs)), body=body)


def _open(program: Program) -> set[int]:
    """The extents that may be sizes: of blocks and loops, and of nothing that a block holds."""
    loops, tiles = list(nodes(program, For)), list(nodes(program, Tile))
    axes = [axis for tile in tiles for axis in tile.axes] + [a for stage in nodes(program, Stage) for a in stage.slab]
    found = {loop.stop for loop in loops} | {axis.extent for axis in axes if axis.role == "BLOCK"}
    held = [axis.extent for axis in axes if axis.role != "BLOCK"] + [loop.step for loop in loops]
    fixed = [n for n in held if isinstance(n, int)]
    return {n for n in found if isinstance(n, int) and n > 1 and all(h % n for h in fixed)}


class SizedCheck:
    """Checks rules on programs with a size. known: what these mean, by program and number."""

    def __init__(self, orders: range):
        self.orders = orders
        self._known: dict[tuple[Program, int], tuple[Arrays, Meaning] | None] = {}

    def problem(self, program: Program, seed: int, matches: Callable[[Program], Iterator[Any]], fire: Fire) -> Any:
        """(what is wrong, the program with a size, what it became), or None where nothing is.

        matches: the ways to fire on a program; fire: what one gives. A program that neither takes says nothing.
        """
        try:
            made = with_a_size(program, seed)
            if made is None or any(wellformed(kernel) is not None for kernel in made[0]):
                return None
            before, size = made
            found = [fire(before, match) for match in itertools.islice(matches(before), FIRINGS)]
        except REFUSALS:
            return None
        except DplcError as error:
            return f"it ends in an error: {error.what}", before, before
        except ERRORS:
            return None
        for after in found:
            for number in numbers(size) if after != before else ():
                problem = self._difference(before, after, number, seed)
                if problem is not None:
                    return f"{problem} where `{NAME}` is {number} of {size.low}..{size.high}", before, after
        return None

    def _difference(self, before: Program, after: Program, number: int, seed: int) -> str | None:
        key = (before, number)
        if key not in self._known:
            self._known[key] = _meaning(with_sizes(before, {NAME: number}), self.orders[:2], seed)
        known = self._known[key]
        if known is None:
            return None
        try:
            return compare(with_sizes(after, {NAME: number}), *known, self.orders[:1])
        except TooLarge:
            return None


def _meaning(program: Program, orders: range, seed: int) -> tuple[Arrays, Meaning] | None:
    try:
        return baseline(program, orders, seed)
    except ERRORS:
        return None


def machines_way(engine: Any, rule: Any, machine: Target) -> Fire:
    """How a rule's engine fires on a program for a machine."""

    def fire(program: Program, match: Any) -> Program:
        if "canonical" in rule.rule.attributes:
            made: Program = rule.rewrite(program, match)
            return made
        return engine.rewrite(rule.rule, program, match, machine)[0]  # type: ignore[no-any-return]

    return fire
