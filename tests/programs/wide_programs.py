"""Random torch programs as text: views, ragged and size-1 dimensions, gathers by computed places, joins, mixed dtypes,
integers near their limits, inputs that repeat or are not contiguous tensors, results that are inputs or share memory.

A program is drawn with the values that it has. Beside them goes what rounding might make of them: where that changes an
integer, or much of a float, the line is not taken, so that a program which float64 contradicts is wrong.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import Any

import torch

EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 17, 33, 40, 64, 100)
LARGEST, DEEPEST = 5000, 5
ROUGH = {torch.float32: 3e-6, torch.bfloat16: 2.0**-8}  # about what a few roundings change, of a value
STEADY = {torch.float32: 3e-5, torch.bfloat16: 2.0**-6}  # as much as it may have become, of the largest
SCOPE = {"torch": torch, "F": torch.nn.functional}


@dataclass(frozen=True)
class Program:
    """inputs: {name: what makes it}; lines: (name, expression); results: names, of inputs too, some of them twice."""

    inputs: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str, str], ...]
    results: tuple[str, ...]
    seed: int = 0

    @property
    def text(self) -> str:
        """For `dplc run --seed SEED -c TEXT`."""
        body = "".join(f"{name} = {made}\n" for name, made in (*self.inputs, *self.lines))
        return f"{body}{self._result}"

    @property
    def _result(self) -> str:
        return ", ".join(self.results) + ("," if len(self.results) == 1 else "")

    def function(self) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """The lines as a function of the inputs, and the inputs: as they are, strides and all."""
        names = ", ".join(name for name, _ in self.inputs)
        body = "".join(f"    {name} = {made}\n" for name, made in self.lines)
        scope: dict[str, Any] = dict(SCOPE)
        exec(f"def program({names}):\n{body}    return {self._result}\n", scope)
        torch.manual_seed(self.seed)
        for name, made in self.inputs:
            scope[name] = eval(made, scope)
        return scope["program"], tuple(scope[name] for name, _ in self.inputs)

    def needed(self, results: tuple[str, ...]) -> Program:
        """The part of the program that some results need."""
        lines, wanted = [], set(results)
        for name, made in reversed(self.lines):
            if name in wanted:
                lines.append((name, made))
                wanted |= set(re.findall(r"\b[xv]\d+\b", made))
        inputs = []
        for name, made in reversed(self.inputs):
            if name in wanted or "rand" in made:  # what is drawn must be drawn in its order
                inputs.append((name, made))
                wanted |= set(re.findall(r"\bx\d+\b", made))
        return replace(self, inputs=tuple(reversed(inputs)), lines=tuple(reversed(lines)), results=results)


@dataclass
class Maker:
    """Writes one program line by line; every line is run at once, so that shapes are torch's own.

    exact: each value in float64; rough: with a random error of a few roundings after each operation; kinds: its dtype.
    """

    dice: random.Random
    seed: int = 0
    inputs: list[tuple[str, str]] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    exact: dict[str, torch.Tensor] = field(default_factory=dict)
    rough: dict[str, torch.Tensor] = field(default_factory=dict)
    kinds: dict[str, torch.dtype] = field(default_factory=dict)
    pool: tuple[int, ...] = ()  # the extents of this program: few, so that values meet

    def __post_init__(self) -> None:
        self.pool = self.pool or tuple(self.dice.choice(EXTENTS) for _ in range(3))
        self.noise = torch.Generator().manual_seed(self.seed)
        self.state = torch.Generator().manual_seed(self.seed).get_state()

    def of(self, options: Any) -> Any:
        return self.dice.choice(tuple(options))

    # ---- values
    def input(self, made: str) -> str:
        """A new input. What factories draw is what they draw when the text is run."""
        name = f"x{len(self.inputs)}"
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.state)
            value = eval(made, dict(SCOPE), {**self.plain()})
            self.state = torch.get_rng_state()
        self.inputs.append((name, made))
        self.kinds[name] = value.dtype
        wide = value.double() if value.is_floating_point() else value
        self.exact[name] = self.rough[name] = wide
        return name

    def plain(self) -> dict[str, torch.Tensor]:
        return {name: self.exact[name].to(self.kinds[name]) for name, _ in self.inputs}

    def floats(self, *shape: int) -> str:
        return self.input(f"torch.randn({', '.join(map(str, shape)) if shape else '()'})")

    def places(self, most: int, *shape: int, least: int = 0) -> str:
        return self.input(f"torch.randint({least}, {most}, ({''.join(f'{n}, ' for n in shape)}))")

    def line(self, made: str) -> bool:
        """Takes a line if it runs, is small, and float32 cannot mistake it."""
        name = f"v{len(self.lines)}"
        try:
            kind = self.value(made, {n: x.to(self.kinds[n]) for n, x in self.exact.items()}).dtype
            exact, rough = self.value(made, self.exact), self.value(made, self.rough)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        if exact.numel() > LARGEST or exact.dim() > DEEPEST or exact.numel() == 0:
            return False
        if not exact.is_floating_point():
            if not torch.equal(exact, rough):
                return False
        else:
            largest = exact.abs().max().item()
            if not 1e-3 < largest < 1e4:
                return False
            rough = rough * (1 + ROUGH[kind] * torch.randn(rough.shape, generator=self.noise, dtype=torch.float64))
            if not (rough - exact).abs().max().item() <= STEADY[kind] * largest:
                return False
        self.lines.append((name, made))
        self.exact[name], self.rough[name], self.kinds[name] = exact, rough, kind
        return True

    def value(self, made: str, values: dict[str, torch.Tensor]) -> torch.Tensor:
        """What a line is over some values; where these are wide, in float64."""
        wide = any(x.dtype is torch.float64 for x in values.values())
        text = re.sub(r"\.(float|bfloat16)\(\)", ".double()", made) if wide else made
        torch.set_default_dtype(torch.float64 if wide else torch.float32)
        try:
            found = eval(text, dict(SCOPE), dict(values))
        finally:
            torch.set_default_dtype(torch.float32)
        assert isinstance(found, torch.Tensor)
        return found

    # ---- what steps ask
    def shape(self, v: str) -> tuple[int, ...]:
        return tuple(self.exact[v].shape)

    def dim(self, v: str) -> int:
        rank = len(self.shape(v))
        return int(self.of(range(-rank, rank))) if rank else int(self.of((0, -1)))

    def like(self, v: str) -> str:
        """A value of the same shape and dtype."""
        return str(self.of(n for n in self.exact if self.shape(n) == self.shape(v) and self.kinds[n] == self.kinds[v]))

    def indices(self, n: int, *shape: int, exactly: bool = True) -> str:
        """Places below n, of a shape (exactly, or of as many dimensions): drawn, or computed from what is there."""
        whole = [name for name, kind in self.kinds.items() if kind is torch.int64]
        there = [x for x in whole if self.shape(x) == shape or (not exactly and len(self.shape(x)) == len(shape))]
        name = self.of(there) if there and self.dice.random() < 0.6 else self.places(n, *shape)
        return f"({name} % {n})"


def first(dice: random.Random, maker: Maker) -> None:
    """One to three inputs, of which some are another one again, or views of what was drawn."""
    shape = [dice.choice(maker.pool) for _ in range(dice.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))]
    while torch.Size(shape).numel() > LARGEST // 2:
        shape.pop()
    name = maker.floats(*shape)
    for _ in range(dice.choice((0, 1, 1, 2))):
        kind = dice.choice(("again", "strided", "transposed", "integers", "large", "truth", "half", "spread", "floats"))
        text = "".join(f"{n}, " for n in shape)
        if kind == "again":
            maker.input(name)
        elif kind == "strided" and shape:
            maker.input(
                f"torch.randn({', '.join(map(str, (*shape[:-1], 2 * shape[-1])))})[..., {dice.choice((0, 1))}::2]"
            )
        elif kind == "transposed" and len(shape) > 1:
            maker.input(f"torch.randn({', '.join(map(str, (*shape[:-2], shape[-1], shape[-2])))}).transpose(-1, -2)")
        elif kind == "spread" and shape:
            maker.input(
                f"torch.randn({', '.join(map(str, shape[1:])) or '()'}).expand({shape[0]}, {', '.join(map(str, shape[1:]))})"
            )
        elif kind == "integers":
            maker.input(f"torch.randint(-9, 9, ({text}))")
        elif kind == "large":
            wide = dice.choice((("int32", 2**31), ("int64", 2**63)))
            maker.input(f"torch.randint({-wide[1]}, {wide[1] - 1}, ({text}), dtype=torch.{wide[0]})")
        elif kind == "truth":
            maker.input(f"torch.randint(0, 2, ({text})).bool()")
        elif kind == "half":
            maker.input(f"torch.randn({', '.join(map(str, shape)) or '()'}, dtype=torch.bfloat16)")
        else:
            maker.floats(*(n if dice.random() < 0.5 else 1 for n in shape))


def program(seed: int, most: int = 14) -> Program:
    """The program of a seed."""
    from wide_steps import STEPS

    dice = random.Random(seed)
    maker = Maker(dice, seed)
    first(dice, maker)
    wanted, left = dice.randint(3, most), 6 * most
    while len(maker.lines) < wanted and left:
        left -= 1
        name = dice.choice(list(maker.exact)[-3:] if dice.random() < 0.8 else list(maker.exact))
        kept = len(maker.inputs), maker.state
        made = dice.choice(STEPS)(maker, name)
        if not made or not maker.line(made):
            for unused, _ in maker.inputs[kept[0] :]:
                del maker.exact[unused], maker.rough[unused], maker.kinds[unused]
            del maker.inputs[kept[0] :]
            maker.state = kept[1]
    names = list(maker.exact)
    unread = [n for n in names if not any(re.search(rf"\b{n}\b", made) for _, made in maker.lines)]
    results = [*unread[-3:], *(dice.choice(names) for _ in range(dice.choice((0, 0, 1, 2))))]
    whole = Program(tuple(maker.inputs), tuple(maker.lines), tuple(results), seed)
    return whole.needed(whole.results)
