"""Random torch programs, as source: shapes with ones and primes, broadcasting, views, joins, gathers, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
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
        rank, write = self.of(STEPS)
        if value.dim() >= rank:
            text = write(self, name, tuple(value.shape))
            if text:
                self.line(text)

    def dim(self, shape: tuple[int, ...]) -> int:
        return int(self.of(range(-len(shape), len(shape))))


def reshape(m: Maker, v: str, s: Any) -> str:
    total = math.prod(s)
    a = m.of(n for n in range(1, total + 1) if total % n == 0)
    b = m.of(n for n in range(1, total // a + 1) if (total // a) % n == 0)
    return f"{v}.reshape({m.of(((a, total // a), (a, b, total // a // b), (total,), (*s[:-1], 1, s[-1])))})"


def broadcast(m: Maker, v: str, s: Any) -> str:
    shape = [n if m.of((True, False)) else 1 for n in s][m.of(range(len(s))) :]
    return f"{v} {m.of('+*')} {m.input(shape)}"


def slices(m: Maker, v: str, s: Any) -> str:
    d = m.of(range(len(s)))
    return f"{v}[{':, ' * d}{m.of(range(s[d]))}::{m.of((1, 2, 3))}]"


def select(m: Maker, v: str, s: Any) -> str:
    d = m.dim(s)
    return f"{v}.select({d}, {m.of(range(-s[d], s[d]))})"


def around(m: Maker, v: str, s: Any) -> str:
    d = m.dim(s)
    pad = f"F.pad({v}, ({m.of((0, 1, 2))}, {m.of((-1, 0, 3)) if s[-1] > 1 else 1}))"
    return str(m.of((f"{v}.flip({d})", f"{v}.roll({m.of(range(-3, 4))}, {d})", pad)))


def cat(m: Maker, v: str, s: Any) -> str:
    parts = m.of((f"{v}, {v} * 2", f"{v}, {v}.relu(), -{v}", f"{v}.exp(), {v}, {v}, {v} + 1"))
    return f"torch.{m.of(('cat', 'stack'))}([{parts}], {m.dim(s)})"


def gather(m: Maker, v: str, s: Any) -> str:
    d, rows = m.dim(s), [int(m.of(range(s[0]))) for _ in range(3)]
    return str(m.of((f"torch.gather({v}, {d}, {v}.argmax({d}, keepdim=True))", f"{v}[{rows}]")))


# The least rank of a value, and the text of a step from it. m: the maker, v: its name, s: its shape.
UNARY_STEP = (0, lambda m, v, s: str(m.of(UNARY)).format(v))
BINARY = (0, lambda m, v, s: f"{v} {m.of('+-*')} {m.of(n for n, x in m.values.items() if tuple(x.shape) == s)}")
REDUCTION = (
    1,
    lambda m, v, s: f"{v}.{m.of(('sum', 'mean', 'amax', 'prod'))}({m.dim(s)}, keepdim={m.of((True, False))})",
)
STEPS: tuple[tuple[int, Callable[[Maker, str, Any], str]], ...] = (
    UNARY_STEP,
    UNARY_STEP,
    BINARY,
    BINARY,
    (1, broadcast),
    (2, lambda m, v, s: f"{v} @ {m.input([s[-1], m.of((1, 2, 5))])}"),
    (2, lambda m, v, s: f"{v} @ {v}.transpose(-1, -2)"),
    (2, lambda m, v, s: f"{v}.transpose({m.dim(s)}, {m.dim(s)})"),
    (1, reshape),
    REDUCTION,
    REDUCTION,
    (1, lambda m, v, s: f"{v}.{m.of(('softmax', 'log_softmax', 'cumsum'))}({m.dim(s)})"),
    (1, slices),
    (1, select),
    (1, cat),
    (1, around),
    (1, lambda m, v, s: f"F.{m.of(('rms_norm', 'layer_norm'))}({v}, ({s[-1]},), eps=1e-5)"),
    (2, lambda m, v, s: f"{v}[:, None] * {v}[None]"),
    (
        0,
        lambda m, v, s: f"{v}.unsqueeze(0).expand({m.of((1, 3))}, {', '.join(map(str, s))})" if s else f"{v}.expand(3)",
    ),
    (0, lambda m, v, s: f"torch.where({v} > {m.of((-1.0, 0.0, 0.5))}, {v}, {v} * 0.1)"),
    (2, lambda m, v, s: f"torch.{m.of(('tril', 'triu'))}({v}, {m.of((-1, 0, 1))})"),
    (1, gather),
    (0, lambda m, v, s: f"(({v} * 4).long() {m.of(('// 3', '% 3', '* 2', '+ 0.5', '> 1'))}) + {v}"),
)


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
