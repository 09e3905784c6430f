"""Shared parts of the checkers of all levels, and programs with a size: a result for a range must hold at each number.

A subject of numbers becomes one with a size: an extent becomes a size, and so do all equal numbers. If the rule fires
on it, both programs are bound to the ends of the range, to the hint and to numbers near it, and compared at each number
for which the program has a meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

from ...ir.diagnostic import DplcError
from ...ir.expr import Axis, Size, Undecided, add, multiply, subtract
from ...ir.loop import For
from ...ir.node import Expr, Node, nodes, values
from ...ir.program import Kernel, Module
from ...ir.sizes import highest, numbers
from ...ir.substitute import with_sizes
from ...ir.tensor import TensorGraph, axes, postorder
from ...ir.text.programs import print_program, read_program
from ...ir.torch import TorchGraph
from ...ir.verify.tensor import verify
from ..language import core as s
from ..language.evaluate import Environment, NotComputed
from ..language.rule import Rule, RuleSet
from ..rewrite.statements.driver import wellformed
from .drawing import renumbered, with_numbers
from .outcome import ERRORS, Dice, Subject, Wrong, said
from .torch_subjects import Change, NoSubject, edited, exchanged, extents, retyped
from .whole_programs import TooLarge

NAME = "sized"
LONGEST = 3  # times the number that it was
MOST_ELEMENTS = 1 << 18  # over the axes of a term, where the size is greatest
FEWEST = 3  # numbers: through two there is always a line
NO_PROGRAM = (*ERRORS, Undecided, TooLarge, NoSubject)  # what a program without a meaning, or none, may raise
Program = Any  # of a level: kernels, or a graph on tensor or torch
WithSize = tuple[Program, Mapping[int, Program], Size]


def with_a_size(program: Program, seed: int) -> WithSize | None:
    """Return the program with one of its extents a size, the program at each number, and the size.

    program: kernels, or a graph on tensor or torch. Returns None if no extent may be a size. The seed determines the
    extent.
    """
    make: Callable[[Program, Size, Random], WithSize | None]
    if isinstance(program, TensorGraph):
        make, open_ = _term, [axis.extent for x in program.ins for axis in x.axes]
    elif isinstance(program, TorchGraph):
        make, open_ = _torch, extents(program)
    else:
        make, open_ = _kernels, _open(program)
    found = sorted({n for n in open_ if n > 1})
    if not found:
        return None
    dice = Random(seed)
    number = dice.choice(found)
    multiple = dice.choice([n for n in (1, 1, 2, 4, number) if number % n == 0])
    return make(program, Size(NAME, dice.choice((multiple, number)), LONGEST * number, multiple, number), dice)


def at_numbers(program: Program, size: Size) -> dict[int, Program]:
    """Return the program at each number of the size for which it has a meaning: an index may divide by `size - 1`."""
    found = {}
    for number in numbers(size):
        with suppress(ArithmeticError):
            found[number] = with_sizes(program, {size.name: number})
    return found


def _scaled(number: int, size: Size) -> Expr:
    """Return a number, where it is a multiple of the hint of a size the same multiple of the size."""
    return multiply(number // size.hint, size) if number % size.hint == 0 else number


def _kernels(program: Module, size: Size, dice: Random) -> WithSize | None:
    """Replace the hint of a size in kernels by the size; in the extents of buffers, replace its multiples too."""

    def sized(kernel: Kernel) -> Kernel:
        ins, outs = renumbered((kernel.ins, kernel.outs), lambda n: _scaled(n, size))
        return Kernel(kernel.name, ins, outs, renumbered(kernel.body, lambda n: size if n == size.hint else n))

    made = tuple(map(sized, program))
    return None if any(map(wellformed, made)) else (made, at_numbers(made, size), size)


def _open(program: Module) -> list[int]:
    """Return the extents that may be sizes: those of blocks and loops, not those of anything that a block holds."""
    loops, every = list(nodes(program, For)), list(nodes(program, Axis))
    free = [loop.stop for loop in loops] + [axis.extent for axis in every if axis.role == "BLOCK"]
    held = [loop.step for loop in loops] + [axis.extent for axis in every if axis.role != "BLOCK"]
    fixed = [n for n in held if isinstance(n, int)]
    return [n for n in free if isinstance(n, int) and n and all(h % n for h in fixed)]


def _term(graph: TensorGraph, size: Size, dice: Random) -> WithSize | None:
    """Replace the hint of a size and its multiples in a graph by the size, now and then the number below it, too."""
    last = size.hint - 1 if size.hint > 2 and dice.random() < 0.5 else None
    try:
        made = with_numbers(graph, lambda n: subtract(size, 1) if n == last else _scaled(n, size))
        verify(made)
    except (DplcError, TypeError, ValueError):  # not for every number, or an extent that is none
        return None
    if exceeds(made, MOST_ELEMENTS):
        return None
    each = at_numbers(made, size).items()  # a captured program has no empty input
    return made, {n: there for n, there in each if all(axis.extent for x in there.ins for axis in x.axes)}, size


def exceeds(graph: TensorGraph, most: int) -> bool:
    """Return whether a value of a program may have more elements than that."""
    terms = postorder(graph.roots)
    return any(math.prod(highest(axis.extent) for axis in axes(term)) > most for term in terms)


def _torch(graph: TorchGraph, size: Size, dice: Random) -> WithSize | None:
    """Return the program whose types and fields are lines over the size (`2*s + 1`), as in a captured program.

    They are found by two numbers, and kept where torch gives what the line says at the others, too.
    """
    for most in (math.inf, 1, 0):  # multiples of the extent that lists of numbers hold as extents
        each: dict[int, TorchGraph] = {}
        for n in numbers(size):
            with suppress(NoSubject):
                each[n] = retyped(edited(graph, exchanged(size.hint, n), _multiples(size.hint, n, most)))
        other = next((n for n in each if n != size.hint), None)
        if size.hint in each and other is not None:
            with suppress(NoSubject):
                made = _through(each[size.hint], each[other], other, size)
                kept = {n: there for n, there in each.items() if with_sizes(made, {NAME: n}) == there}
                if len(kept) >= FEWEST:
                    return made, kept, size
    return None


def _multiples(old: int, new: int, most: float) -> Change:
    return lambda items: tuple(n // old * new if n % old == 0 and 0 < n // old <= most else n for n in items)


def _through(a: Any, b: Any, other: int, size: Size) -> Any:
    """Return the value that is `a` at the hint and `b` at another number; its numbers are linear in the size.

    Raises NoSubject if there is none.
    """
    if type(a) is type(b):
        if isinstance(a, tuple) and len(a) == len(b):
            return tuple(_through(x, y, other, size) for x, y in zip(a, b))
        if isinstance(a, Node):
            return type(a)(*_through(values(a), values(b), other, size))
        if type(a) is int:
            step, rest = divmod(b - a, other - size.hint)
            if rest == 0:
                return add(multiply(step, size), a - step * size.hint)
    if a != b:
        raise NoSubject("not linear in the size")
    return a


class Checker:
    """Checker of the rules of one level. A subclass reads, draws, fires and compares the programs of its level.

    levels: of the rules that it checks; kind: the class of a program that is one graph; settings: returns
    the parameters of an example; near: returns a program near another one; fewer: yields programs that are a little
    smaller; share: of a hundred draws, those near an example; strict: an error of the engine on a program with a size
    is a fault of the rule, not a refusal.
    """

    level: str
    levels: tuple[str, ...]
    kind: type
    settings: Callable[[s.Example, Rule], Environment]
    near: Callable[[Program, Dice], Program]
    fewer: Callable[[Program], Iterator[Program]]
    share: int
    strict = False
    with_a_size: Callable[[Program, int], WithSize | None] = staticmethod(with_a_size)

    def __init__(self, rules: RuleSet):
        self.rules = rules

    # ---- subjects
    def subject(self, program: Program, origin: str, pinned: Environment | None = None) -> Subject:
        """Return a program as a subject."""
        return Subject(print_program(program, self.level), program, origin, pinned or {})

    def read(self, text: str, origin: str) -> Subject:
        """Return the subject in a file."""
        (graph,) = read_program(text, origin)[1]
        if not isinstance(graph, self.kind):
            raise DplcError(f"{origin} holds no program on {self.level}")
        return self.subject(graph, origin)

    def examples(self, rules: Iterable[Rule]) -> Iterator[Subject]:
        """Yield the programs in the examples of rules, also those that the rules give."""
        for rule in rules:
            for example in rule.examples:
                for block in (example.before, example.gives):
                    program = self.program(rule, block) if isinstance(block, tuple) else None
                    if program is not None:
                        origin = f'example "{example.title}" of `{rule.name}`'
                        yield self.subject(program, origin, self.settings(example, rule))

    def program(self, rule: Rule, block: s.Nodes) -> Program:
        """Return the program in a block of an example, None for a block that holds no subject."""

    def draw(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject | None:
        """Return a subject near an example, or made from the rule's pattern; None if the draw gives no program."""
        try:
            return self.drawn(rule, dice, own)
        except NO_PROGRAM:
            return None

    def drawn(self, rule: Rule, dice: Dice, own: list[Subject]) -> Subject:
        """Draw once. Raises an error for a draw that gives no program."""
        if own and self.stays_near(rule, dice):
            base = dice.pick(own)
            return self.subject(self.near(base.value, dice), f"near {base.origin}", base.pinned)
        return self.subject(self.from_pattern(rule, dice), f"the pattern of `{rule.name}`")

    def stays_near(self, rule: Rule, dice: Dice) -> bool:
        """Return whether to draw near an example of the rule."""
        return dice.often(self.share)

    def from_pattern(self, rule: Rule, dice: Dice) -> Program:
        """Return a program made from the rule's pattern."""

    def refuting(self, rule: Rule, numbers: Mapping[str, int], own: Iterable[Subject]) -> Iterator[Subject]:
        """Yield programs that a rule matches with the numbers of a proof: only rules on statements are proved."""
        return iter(())

    def smaller(self, subject: Subject) -> Iterator[Subject]:
        """Yield subjects that are a little smaller, the smallest first."""
        return (self.subject(made, subject.origin, subject.pinned) for made in self.fewer(subject.value))

    # ---- checking
    def beside(self, rule: Rule) -> list[Rule]:
        """Return the other rules of the rule's pass, or the other canonical rules of its file."""
        kind = rule.attributes & {"canonical", "local"}
        same = (r for r in self.rules.at(*self.levels) if r.file == rule.file and r.name != rule.name)
        return [r for r in same if r.attributes & {"canonical", "local"} == kind]

    def check_at_a_size(
        self,
        rule: Rule,
        subject: Subject,
        program: Program,
        fire: Callable[[Program], list[Program]],
        end: str = "(with a size)",
    ) -> None:
        """Fire on a program with a size, and compare at numbers. Raises Wrong.

        fire: returns the programs that the rule produces; end: appended to the problem.
        """
        found = self.with_a_size(program, subject.seed)
        if found is None:
            return
        before, each, size = found
        try:
            every = fire(before)
        except (Undecided, NotComputed, TooLarge):
            return
        except ERRORS as error:
            if isinstance(error, DplcError) != self.strict:
                return
            problem = f"{'it ends in an error: ' if self.strict else ''}{said(error)}"
            raise Wrong(subject, f"{problem} {end}", ("of", *self.lines(before))) from error
        for made in every:
            for number, there in each.items() if made != before else ():
                differs = None
                try:
                    became = with_sizes(made, {size.name: number})
                    with suppress(*NO_PROGRAM):  # the program means nothing there
                        differs = self._differs(rule, there, became, subject.seed)
                except ArithmeticError as error:
                    differs = said(error)
                if differs:
                    where = f"where `{size.name}` is {number} of {size.low}..{size.high}"
                    details = ["of", *self.lines(before), *self.becomes(made)]
                    raise Wrong(subject, f"{differs} {where} {end}", details)

    def _differs(self, rule: Rule, program: Program, became: Program, seed: int) -> str | None:
        """Return the first difference of a rewritten program, or None. May raise an error if it has no meaning."""

    def lines(self, program: Program) -> list[str]:
        """Return the lines of a program."""
        return print_program(program).splitlines()

    def becomes(self, made: Program) -> list[str]:
        """Return the lines for people of what a rule made."""
        return ["it becomes", *self.lines(made)]


@contextmanager
def faults(subject: Subject, where: str = "", of: Rule | None = None) -> Iterator[None]:
    """Raise Wrong for an error within the block. of: only for an error that names this rule; any other is ignored."""
    try:
        yield
    except ERRORS as error:
        hint = getattr(error, "hint", None)
        lines = (said(error), *getattr(error, "notes", ()), *([f"help: {hint}"] if hint else ()))
        if of is None or any(f"`{of.name}`" in line for line in lines):
            raise Wrong(subject, lines[0] + where, lines[1:]) from error
