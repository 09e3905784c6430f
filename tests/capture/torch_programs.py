"""Random torch programs, as source: shapes with ones and primes, broadcasting, views, joins, gathers, reductions."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st

EXTENTS = (1, 2, 3, 4, 5, 6)
LARGEST = 2000
UNARY = (
    "torch.tanh({})",
    "{}.relu()",
    "torch.sigmoid({})",
    "{} * 0.5",
    "F.silu({})",
    "1 - {}",
    "{}.abs().sqrt()",
    "-{}",
)


class Maker:
    """Writes one program line by line; every line is run at once, so that shapes are torch's own."""

    def __init__(self, draw: Any):
        self.draw = draw
        self.inputs: list[tuple[int, ...]] = []
        self.lines: list[str] = []
        self.values: dict[str, torch.Tensor] = {}

    def of(self, options: Any) -> Any:
        return self.draw(st.sampled_from(tuple(options)))

    def input(self, shape: Any) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(tuple(shape))
        self.values[name] = torch.linspace(-2, 2, math.prod(shape)).reshape(tuple(shape))
        return name

    def line(self, text: str) -> str:
        name = f"v{len(self.lines)}"
        value = eval(text, {"torch": torch, "F": torch.nn.functional}, dict(self.values))
        if value.numel() > LARGEST or value.dim() > 5 or value.numel() == 0:
            return ""
        self.lines.append(f"{name} = {text}")
        self.values[name] = value
        return name

    def step(self) -> None:
        name = self.of(tuple(self.values)[-4:])
        value = self.values[name]
        kind = self.of(STEPS)
        if value.dim() >= kind.__defaults__[0]:
            text = kind(self, name, tuple(value.shape))
            if text:
                self.line(text)

    def dim(self, shape: tuple[int, ...]) -> int:
        return int(self.of(range(-len(shape), len(shape))))


def unary(m: Maker, v: str, s: Any, rank: int = 0) -> str:
    return str(m.of(UNARY)).format(v)


def binary(m: Maker, v: str, s: Any, rank: int = 0) -> str:
    same = [n for n, x in m.values.items() if tuple(x.shape) == s]
    return f"{v} {m.of('+-*')} {m.of(same)}"


def broadcast(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    shape = [n if m.of((True, False)) else 1 for n in s][m.of(range(len(s))) :]
    return f"{v} {m.of('+*')} {m.input(shape)}"


def matmul(m: Maker, v: str, s: Any, rank: int = 2) -> str:
    return f"{v} @ {m.input([s[-1], m.of((1, 2, 5))])}"


def gram(m: Maker, v: str, s: Any, rank: int = 2) -> str:
    return f"{v} @ {v}.transpose(-1, -2)"


def transpose(m: Maker, v: str, s: Any, rank: int = 2) -> str:
    return f"{v}.transpose({m.dim(s)}, {m.dim(s)})"


def reshape(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    total = math.prod(s)
    a = m.of(n for n in range(1, total + 1) if total % n == 0)
    b = m.of(n for n in range(1, total // a + 1) if (total // a) % n == 0)
    return f"{v}.reshape({m.of(((a, total // a), (a, b, total // a // b), (total,), (*s[:-1], 1, s[-1])))})"


def reduction(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    return f"{v}.{m.of(('sum', 'mean', 'amax', 'prod'))}({m.dim(s)}, keepdim={m.of((True, False))})"


def softmax(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    return f"{v}.{m.of(('softmax', 'log_softmax', 'cumsum'))}({m.dim(s)})"


def slices(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    d = m.of(range(len(s)))
    return f"{v}[{':, ' * d}{m.of(range(s[d]))}::{m.of((1, 2, 3))}]"


def select(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    d = m.dim(s)
    return f"{v}.select({d}, {m.of(range(-s[d], s[d]))})"


def cat(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    parts = m.of((f"{v}, {v} * 2", f"{v}, {v}.relu(), -{v}", f"{v}.exp(), {v}, {v}, {v} + 1"))
    return f"torch.{m.of(('cat', 'stack'))}([{parts}], {m.dim(s)})"


def around(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    d = m.dim(s)
    return str(
        m.of(
            (
                f"{v}.flip({d})",
                f"{v}.roll({m.of(range(-3, 4))}, {d})",
                f"F.pad({v}, ({m.of((0, 1, 2))}, {m.of((-1, 0, 3)) if s[-1] > 1 else 1}))",
            )
        )
    )


def norm(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    return f"F.{m.of(('rms_norm', 'layer_norm'))}({v}, ({s[-1]},), eps=1e-5)"


def outer(m: Maker, v: str, s: Any, rank: int = 2) -> str:
    return f"{v}[:, None] * {v}[None]"


def expand(m: Maker, v: str, s: Any, rank: int = 0) -> str:
    return f"{v}.unsqueeze(0).expand({m.of((1, 3))}, {', '.join(f'{n}' for n in s)})" if s else f"{v}.expand(3)"


def condition(m: Maker, v: str, s: Any, rank: int = 0) -> str:
    return f"torch.where({v} > {m.of((-1.0, 0.0, 0.5))}, {v}, {v} * 0.1)"


def triangle(m: Maker, v: str, s: Any, rank: int = 2) -> str:
    return f"torch.{m.of(('tril', 'triu'))}({v}, {m.of((-1, 0, 1))})"


def gather(m: Maker, v: str, s: Any, rank: int = 1) -> str:
    d = m.dim(s)
    return str(
        m.of(
            (
                f"torch.gather({v}, {d}, {v}.argmax({d}, keepdim=True))",
                f"{v}[{[int(m.of(range(s[0]))) for _ in range(3)]}]",
            )
        )
    )


def integers(m: Maker, v: str, s: Any, rank: int = 0) -> str:
    return f"(({v} * 4).long() {m.of(('// 3', '% 3', '* 2', '+ 0.5', '> 1'))}) + {v}"


STEPS = (
    unary, unary, binary, binary, broadcast, matmul, gram, transpose, reshape, reduction, reduction, softmax, slices,
    select, cat, around, norm, outer, expand, condition, triangle, gather, integers,
)  # fmt: skip


@st.composite
def torch_programs(draw: Any, most: int = 9) -> tuple[str, list[tuple[int, ...]]]:
    """(source of a function `program`, the shapes of its arguments)"""
    maker = Maker(draw)
    maker.input(draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(1, most))):
        maker.step()
    names = tuple(n for n in maker.values if n.startswith("v")) or ("x0",)
    results = dict.fromkeys((names[-1], draw(st.sampled_from(names))))
    body = "".join(f"    {line}\n" for line in maker.lines)
    arguments = ", ".join(f"x{n}" for n in range(len(maker.inputs)))
    return f"def program({arguments}):\n{body}    return {', '.join(results)}\n", maker.inputs
