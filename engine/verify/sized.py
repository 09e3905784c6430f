"""Shared parts of the checkers of all levels, and programs with a size: a result for a range must hold at each number.

A subject of numbers becomes one with a size: an extent of blocks or of a loop becomes a size, and so do all equal
numbers. If the rule fires on it, both programs are bound to the ends of the range, to the hint and to numbers near it,
and compared at each number for which the program has a meaning.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.expr import Size, Undecided, add, multiply, subtract
from ...ir.loop import For
from ...ir.node import Node, nodes, replace
from ...ir.program import Kernel, Param
from ...ir.sizes import highest, numbers
from ...ir.substitute import with_sizes
from ...ir.tensor import TensorGraph, axes, postorder
from ...ir.text.programs import print_program, read_program
from ...ir.tile import Stage, Tile
from ...ir.torch import TorchGraph
from ...ir.verify.tensor import verify
from ..language import core as s
from ..language.evaluate import NotComputed
from ..language.rule import Rule
from .neighbours import renumbered, with_numbers
from .outcome import ERRORS, Dice, Subject, Wrong, said
from .torch_subjects import NoSubject, retyped, with_extent, with_fields
from .whole_programs import TooLarge

Program = tuple[Kernel, ...]
NAME = "sized"
LONGEST = 3  # times the number that it was
REFUSALS = (Undecided, NotComputed, TooLarge)


def with_a_size(program: Program, seed: int) -> tuple[Program, Size] | None:
    """Return the program with one of its extents a size; None if no extent may be one. The seed selects it."""
    found = sorted(_open(program))
    if not found:
        return None
    dice = random.Random(seed)
    number = dice.choice(found)
    size = size_for(number, dice)
    return tuple(_kernel(kernel, number, size) for kernel in program), size


def at_numbers(program: Any, size: Size) -> dict[int, Any]:
    """Return the program at each number of the size for which it has a meaning: an index may divide by `size - 1`."""
    found = {}
    for number in numbers(size):
        with contextlib.suppress(ArithmeticError):
            found[number] = with_sizes(program, {size.name: number})
    return found


def size_for(number: int, dice: random.Random) -> Size:
    """Return a size whose example value is this number."""
    multiple = dice.choice([n for n in (1, 1, 2, 4, number) if number % n == 0])
    return Size(NAME, dice.choice((multiple, number)), LONGEST * number, multiple, number)


def _kernel(kernel: Kernel, number: int, size: Size) -> Kernel:
    """Replace a number in the kernel by a size; in the extents of buffers, replace its multiples too."""

    def param(given: Param) -> Param:
        return replace(given, shape=tuple(multiply(n // number, size) if n % number == 0 else n for n in given.shape))

    body = tuple(renumbered(statement, lambda n: size if n == number else n) for statement in kernel.body)
    return replace(kernel, ins=tuple(map(param, kernel.ins)), outs=tuple(map(param, kernel.outs)), body=body)


def _open(program: Program) -> set[int]:
    """Return the extents that may be sizes: those of blocks and loops, not those of anything that a block holds."""
    loops, tiles = list(nodes(program, For)), list(nodes(program, Tile))
    axes = [axis for tile in tiles for axis in tile.axes] + [a for stage in nodes(program, Stage) for a in stage.box]
    found = {loop.stop for loop in loops} | {axis.extent for axis in axes if axis.role == "BLOCK"}
    held = [axis.extent for axis in axes if axis.role != "BLOCK"] + [loop.step for loop in loops]
    fixed = [n for n in held if isinstance(n, int)]
    return {n for n in found if isinstance(n, int) and n > 1 and all(h % n for h in fixed)}


class Checker:
    """Checker of the rules of one level. A subclass reads, draws, fires and compares the programs of its level.

    levels: of the rules whose examples are subjects; kind: the class of a program that is one graph.
    """

    level: str
    levels: tuple[str, ...]
    kind: type

    def text(self, program: Any) -> str:
        """Return the text of a program with its level."""
        return print_program(program, self.level)

    def subject(self, program: Any, origin: str, pinned: dict[str, Any] | None = None) -> Subject:
        """Return a program as a subject."""
        return Subject(self.level, self.text(program), program, origin, pinned or {})

    def read(self, text: str, origin: str) -> Subject:
        """Return the subject in a file."""
        (graph,) = read_program(text, origin)[1]
        if not isinstance(graph, self.kind):
            raise DplcError(f"{origin} holds no program on {self.level}")
        return self.subject(graph, origin)

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """Yield the programs in the examples of rules, also those that the rules give."""
        for rule in rules:
            for example in rule.examples if rule.level in self.levels else ():
                for block in (example.before, example.gives):
                    program = self.program(rule, block) if isinstance(block, tuple) else None
                    if program is not None:
                        origin = f'example "{example.title}" of `{rule.name}`'
                        yield self.subject(program, origin, self.settings(example, rule))

    def program(self, rule: Rule, block: s.Nodes) -> Any:
        """Return the program in a block of an example, None for a block that holds no subject."""

    settings: Callable[[s.Example, Rule], dict[str, Any]]

    def draw(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """Return a subject near an example, or made from the rule's pattern; None if the draw gives no program."""
        try:
            return self.drawn(rule, dice, own)
        except (*ERRORS, TooLarge, NoSubject):
            return None

    def drawn(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """Draw once. Raises an error for a draw that gives no program."""
        raise NotImplementedError


def check_sized(
    subject: Subject, found: tuple[Any, Mapping[int, Any], Size] | None, fire: Callable[[Any], Iterable[Any]],
    differs: Callable[[Any, Any], str | None], show: Callable[[Any], Sequence[str]], told: str = "(with a size)",
) -> None:  # fmt: skip
    """Fire on a program with a size, and compare at numbers. Raises Wrong.

    Args:
        subject: the program of numbers.
        found: the program with a size, the program at each number, and the size; None if there is none.
        fire: returns the programs that the rule produces.
        differs: returns the difference between a program and the result of the rule at a number, or None.
        show: the lines of a program.

    The last argument is appended to the problem.
    """
    if found is None:
        return
    before, each, size = found
    try:
        every = list(fire(before))
    except (DplcError, *REFUSALS):
        return
    except ERRORS as error:
        raise Wrong(subject, f"{said(error)} {told}", ("of", *show(before))) from error
    for made in every:
        for number, there in each.items() if made != before else ():
            try:
                problem = differs(there, with_sizes(made, {size.name: number}))
            except ArithmeticError as error:
                problem = said(error)
            if problem:
                where = f"where `{size.name}` is {number} of {size.low}..{size.high}"
                raise Wrong(subject, f"{problem} {where} {told}", ("of", *show(before), "it becomes", *show(made)))


# ---- A rule on tensor on a program with a size: what it makes for a range must mean the same at each of its numbers.
#
# As for kernels, an extent of a subject becomes a size, with all that are that number or a multiple of
# it. Where the rule fires on that program, both are bound to numbers that tell most, and compared.


MOST_ELEMENTS = 1 << 18  # over the axes of a term, where the size is greatest


def term_with_a_size(graph: TensorGraph, seed: int) -> tuple[TensorGraph, dict[int, TensorGraph], Size] | None:
    """Return the program with one of its extents a size, the program at each number, and the size.

    Returns None if no extent may be a size. The seed determines the extent.
    """
    found = sorted({axis.extent for x in graph.ins for axis in x.axes if axis.extent > 1})
    if not found:
        return None
    dice = random.Random(seed)
    number = dice.choice(found)
    size, last = size_for(number, dice), number > 2 and dice.random() < 0.5

    def change(n: int) -> Any:
        if n and n % number == 0:
            return multiply(n // number, size)
        return subtract(size, 1) if last and n == number - 1 else n

    try:
        made = with_numbers(graph, change)
        verify(made)
    except (DplcError, TypeError, ValueError):  # not for every number, or an extent that is none
        return None
    terms = postorder(out.value for out in made.outs)
    large = any(math.prod(highest(axis.extent) for axis in axes(term)) > MOST_ELEMENTS for term in terms)
    return None if large else (made, at_numbers(made, size), size)


# ---- A rule on torch on a program with a size: what torch gives at some of its numbers says what the program is.
#
# Types and fields of a captured program with a size are lines over it (`2*s + 1`). They are found here by two numbers,
# and kept where torch gives what the line says at the others, too.


Change = Callable[[int, int, int], int]
FEWEST = 3  # numbers: through two there is always a line


class _NoLine(Exception):
    """Two programs are not instances of one program with a size."""


def torch_with_a_size(graph: TorchGraph, seed: int) -> tuple[TorchGraph, dict[int, TorchGraph], Size] | None:
    """Return (the program with one of its extents a size, the program at each number, the size).

    Returns None if no extent may be a size. The seed determines the extent.
    """
    found = sorted({n for param in graph.ins for n in param.shape if n > 1})
    if not found:
        return None
    dice = random.Random(seed)
    number = dice.choice(found)
    size = size_for(number, dice)
    for change in (_multiples, _equals, None):  # a number of a list is an extent, or it is not
        each = {n: made for n in numbers(size) if (made := _at(graph, number, n, change)) is not None}
        if number in each and len(each) >= FEWEST:
            other = next(n for n in each if n != number)
            try:
                made = _through((each[number], number), (each[other], other), size)
            except _NoLine:
                continue
            kept = {n: one for n, one in each.items() if with_sizes(made, {NAME: n}) == one}
            if len(kept) >= FEWEST:
                return made, kept, size
    return None


def _at(graph: TorchGraph, number: int, other: int, change: Change | None) -> TorchGraph | None:
    """Return the program with another extent, with the types that torch gives; None if torch rejects it."""

    def changed(value: Any) -> Any:
        return tuple(change(item, number, other) for item in value) if change and _list(value) else value

    try:
        return retyped(with_fields(with_extent(graph, number, other), changed))
    except NoSubject:
        return None


def _multiples(item: int, number: int, other: int) -> int:
    return item // number * other if item > 0 and item % number == 0 else item


def _equals(item: int, number: int, other: int) -> int:
    return other if item == number else item


def _list(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(item) is int for item in value)


def _through(one: tuple[Any, int], other: tuple[Any, int], size: Size) -> Any:
    """Return the value that equals these two at two numbers; its numbers are linear in the size. Raises _NoLine."""
    (a, at), (b, there) = one, other
    if type(a) is int and type(b) is int and a != b:
        step, rest = divmod(b - a, there - at)
        if rest:
            raise _NoLine
        return add(multiply(step, size), a - step * at)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(_through((x, at), (y, there), size) for x, y in zip(a, b, strict=True))
    if isinstance(a, Node) and type(a) is type(b):
        fields = [field.name for field in type(a).fields]
        return replace(a, **{f: _through((getattr(a, f), at), (getattr(b, f), there), size) for f in fields})
    if a != b:
        raise _NoLine
    return a
