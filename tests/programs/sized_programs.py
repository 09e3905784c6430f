"""Random torch programs with one or two lengths that are known at a call: the steps of other random programs, whose
lines say `x0.shape[0]` where those say the number.

A line is drawn at the hint and tried at every length of TRIED beside it: what does not run everywhere, or what float32
may mistake anywhere, is not taken.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from wide_programs import LARGEST, Maker, Program

from dplc.engine.capture.dynamic_shapes import Dim

DIMS = {
    "S": Dim("s", 1, 97, hint=11),
    "T": Dim("t", 1, 50, hint=9),
}  # hints that are no other extent, nor the sum of two
TRIED: tuple[dict[str, int], ...] = (
    {"S": 11, "T": 9}, {"S": 1, "T": 1}, {"S": 2, "T": 3}, {"S": 34, "T": 17},
)  # fmt: skip
BINDINGS = ({"S": 1, "T": 1}, {"S": 11, "T": 9}, {"S": 12, "T": 8}, {"S": 97, "T": 50}, {"S": 31, "T": 1})


class Length(int):
    """A number that lines write as an expression."""

    text: str

    def __new__(cls, number: int, text: str) -> Length:
        made = super().__new__(cls, number)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __format__(self, _: str) -> str:
        return self.text


@dataclass(frozen=True)
class SizedProgram(Program):
    """A program whose inputs have lengths S and T; dims: {input: {dimension: S or T}}."""

    dims: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    def dynamic(self, known: Mapping[str, Dim]) -> dict[str, dict[int, Dim]]:
        """What `capture(dynamic=)` takes. known: the range of a letter."""
        return {name: {d: known[letter] for d, letter in own.items()} for name, own in self.dims.items() if own}

    @property
    def lengths(self) -> tuple[str, ...]:
        return tuple(sorted({letter for own in self.dims.values() for letter in own.values()}))

    def at(self, lengths: Mapping[str, int]) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """The lines as a function of the inputs, and inputs of some lengths."""
        there = replace(self, inputs=tuple((name, written(made, lengths)) for name, made in self.inputs))
        return Program(there.inputs, self.lines, self.results, self.seed).function()

    @property
    def text(self) -> str:
        """For `dplc run -c`: the lengths are declared where they are first used."""
        told = {letter: f"dim({d.name}, {d.low}..{d.high}, hint={d.hint})" for letter, d in DIMS.items()}
        inputs = "".join(f"{name} = {written(made, told)}\n" for name, made in self.inputs)
        return f"{inputs}{replace(self, inputs=()).plain_text}"

    @property
    def plain_text(self) -> str:
        return Program.text.fget(self)  # type: ignore[attr-defined,no-any-return]


def written(made: str, lengths: Mapping[str, Any]) -> str:
    return re.sub(r"\b[ST]\b", lambda found: str(lengths[found[0]]), made)


@dataclass
class SizedMaker(Maker):
    """A Maker that keeps others at its side, which know the same values at other lengths."""

    others: tuple[Maker, ...] = ()
    letters: tuple[str, ...] = ("S",)

    @property
    def all(self) -> tuple[Maker, ...]:
        return (self, *self.others)

    def input(self, made: str) -> str:
        for lengths, maker in zip(TRIED[1:], self.others, strict=True):
            Maker.input(maker, written(made, lengths))
            maker.inputs[-1] = maker.inputs[-1][0], made
        name = Maker.input(self, written(made, TRIED[0]))
        self.inputs[-1] = name, made
        return name

    def line(self, made: str) -> bool:
        taken = list[Maker]()
        for maker in self.all:
            if not Maker.line(maker, made):
                break
            taken.append(maker)
        name = f"v{len(self.lines) - bool(taken)}"
        if len(taken) == len(self.all) and len({maker.exact[name].dim() for maker in self.all}) == 1:
            return True
        for undone in taken:
            undone.lines.pop()
            del undone.exact[name], undone.rough[name], undone.kinds[name]
        return False

    def undo(self, inputs: int, states: list[torch.Tensor]) -> None:
        """Forgets the inputs behind so many."""
        for maker, state in zip(self.all, states, strict=True):
            for unused, _ in maker.inputs[inputs:]:
                del maker.exact[unused], maker.rough[unused], maker.kinds[unused]
            del maker.inputs[inputs:]
            maker.state = state

    def shape(self, v: str) -> tuple[int, ...]:
        seen = zip(*(maker.exact[v].shape for maker in self.all), strict=True)
        return tuple(self._extent(v, d, numbers) for d, numbers in enumerate(seen))

    def _extent(self, v: str, d: int, numbers: tuple[int, ...]) -> int:
        if len(set(numbers)) == 1:
            return numbers[0]
        return Length(numbers[0], f"{v}.shape[{d}]")

    def floats(self, *shape: int) -> str:
        return self.input(f"torch.randn({', '.join(map(self.factor, shape)) if shape else '()'})")

    def places(self, most: int, *shape: int, least: int = 0) -> str:
        if isinstance(most, Length):
            most = 1  # the least that it may be
        return self.input(f"torch.randint({least}, {most}, ({''.join(f'{self.factor(n)}, ' for n in shape)}))")

    def factor(self, n: int) -> str:
        """An extent of an input: a number, or a length by its letter; others are none of an input's."""
        if isinstance(n, Length):
            return next((letter for letter in self.letters if TRIED[0][letter] == n), f"Length({int(n)})")
        return str(n)


def first(maker: SizedMaker) -> None:
    dice = maker.dice
    rank = dice.choice((1, 2, 2, 2, 3, 3))
    places = dice.sample(range(rank), min(rank, len(maker.letters)))
    shape: list[Any] = [dice.choice(maker.pool) for _ in range(rank)]
    for place, letter in zip(places, maker.letters, strict=False):
        shape[place] = Length(TRIED[0][letter], letter)
    while torch.Size(shape).numel() > LARGEST // 8:
        shape[max((n, d) for d, n in enumerate(shape) if not isinstance(n, Length))[1]] = 2
    name = maker.floats(*shape)
    for _ in range(dice.choice((0, 1, 1))):
        whole = maker.shape(name)
        kind = dice.choice(("floats", "integers", "truth", "half", "row"))
        text = ", ".join(map(maker.factor, whole))
        if kind == "integers":
            maker.input(f"torch.randint(-9, 9, ({text},))")
        elif kind == "truth":
            maker.input(f"torch.randint(0, 2, ({text},)).bool()")
        elif kind == "half":
            maker.input(f"torch.randn({text}, dtype=torch.bfloat16)")
        elif kind == "row":
            maker.floats(*whole[1:])
        else:
            maker.floats(*(n if dice.random() < 0.5 else 1 for n in whole))


def sized_program(seed: int, most: int = 10) -> SizedProgram:
    """The program of a seed; every third has two lengths."""
    from wide_steps import STEPS

    dice = random.Random(seed)
    letters = ("S", "T") if seed % 3 == 2 else ("S",)
    pool = tuple(dice.choice((1, 2, 3, 4, 5, 8, 16, 33)) for _ in range(3))
    others = tuple(Maker(random.Random(seed), seed, pool=pool) for _ in TRIED[1:])
    maker = SizedMaker(dice, seed, pool=pool, others=others, letters=letters)
    first(maker)
    wanted, left = dice.randint(3, most), 8 * most
    while len(maker.lines) < wanted and left:
        left -= 1
        long = [n for n in maker.exact if any(isinstance(x, Length) for x in maker.shape(n))]
        name = dice.choice(long[-3:] if dice.random() < 0.8 else list(maker.exact))
        kept = len(maker.inputs), [each.state for each in maker.all]
        if not attempted(maker, dice.choice(STEPS + OF_LENGTHS * 3), name):
            maker.undo(*kept)
    names = list(maker.exact)
    unread = [n for n in names if not any(re.search(rf"\b{n}\b", made) for _, made in maker.lines)]
    results = tuple(n for n in unread[-3:] if n.startswith("v")) or (names[-1],)
    dims = {
        name: {d: letter for d, n in enumerate(maker.shape(name)) for letter in letters if _is(n, TRIED[0][letter])}
        for name, _ in maker.inputs
    }
    whole = SizedProgram(tuple(maker.inputs), tuple(maker.lines), results, seed, dims)
    return whole.needed(results)  # type: ignore[return-value]


def merged(m: SizedMaker, v: str) -> str:
    """Dimensions put together, and a dimension put apart."""
    s = m.shape(v)
    d = m.of(range(len(s))) if s else 0
    forms = [f"{v}.flatten()", f"{v}.reshape(-1)", f"{v}.reshape({v}.shape[0], -1)", f"{v}[None].expand(3, *{v}.shape)"]
    if len(s) > 1:
        forms += [f"{v}.flatten({m.of(range(len(s) - 1))}, -1)", f"{v}.reshape({s[0]} * {s[1]}, -1)"]
    if s and not isinstance(s[d], Length) and s[d] % 2 == 0:
        forms.append(f"{v}.unflatten({d}, (2, {s[d] // 2}))")
    return str(m.of(forms)) if s else ""


def counted(m: SizedMaker, v: str) -> str:
    """Places of a dimension, and what they decide."""
    s = m.shape(v)
    if not s or m.kinds[v] is torch.bool:
        return ""
    places = f"torch.arange({s[-1]})"
    causal = f"{places} <= torch.arange({s[-2]})[:, None]" if len(s) > 1 else f"{places} % 2 == 0"
    return str(m.of((f"{v} + {places}", f"torch.where({causal}, {v}, 0)", f"{v} * ({places} < 5)", f"{v} * {s[-1]}")))


def shifted(m: SizedMaker, v: str) -> str:
    """A dimension against itself: shifted, turned over, put behind itself."""
    s = m.shape(v)
    if not s:
        return ""
    d = m.of(range(len(s)))
    before = ":, " * d
    forms = (
        f"torch.cat([{v}[{before}:1], {v}], {d})", f"torch.cat([{v}, {v}.flip({d})], {d})", f"{v}[{before}-1:]",
        f"{v}.narrow({d}, 0, 1)", f"{v}[{before}::2]", f"{v}[{before}-1]", f"{v}.roll(1, {d})",
        f"torch.cat([{v}, {v}], {d})[{before}1:]",
    )  # fmt: skip
    return str(m.of(forms))


OF_LENGTHS = (merged, counted, shifted)


def _is(n: int, number: int) -> bool:
    return isinstance(n, Length) and n == number


def attempted(maker: SizedMaker, step: Any, name: str) -> bool:
    """Whether a step could be taken."""
    try:
        made = step(maker, name)
    except (RuntimeError, SyntaxError, NameError, IndexError, TypeError, ValueError):  # an input of no such length
        return False
    return bool(made) and maker.line(made)
