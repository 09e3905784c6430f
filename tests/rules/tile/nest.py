"""Loop nests as the lifter writes them, each with its meaning in plain numpy (float64)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dplc.ir.program import Kernel
from dplc.ir.text.programs import read_program

Arrays = dict[str, Any]


class Nest(NamedTuple):
    """A program of Loop IR and what it computes: buffers by name to buffers by name."""

    text: str
    meaning: Callable[..., Arrays]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return _read(self.text)

    def inputs(self, seed: int = 0) -> Arrays:
        return {
            param.name: _data(param, np.random.default_rng([seed, n])) for n, param in enumerate(self.kernels[0].ins)
        }


@functools.cache
def _read(text: str) -> tuple[Kernel, ...]:
    return read_program(text)[1]  # type: ignore[return-value]


def _data(param: Any, dice: Any) -> Any:
    """Small whole numbers, so that sums are exact in any order; truth values; indices that fit every test's tables."""
    if param.dtype == "b8":
        return dice.random(param.shape) < 0.5
    if param.dtype.startswith("i"):
        return dice.integers(0, 5, param.shape)
    return dice.integers(-4, 5, param.shape).astype(float)


NESTS: dict[str, Nest] = {}


def nest(name: str, text: str) -> Callable[[Callable[..., Arrays]], Callable[..., Arrays]]:
    def register(meaning: Callable[..., Arrays]) -> Callable[..., Arrays]:
        NESTS[name] = Nest(text, meaning)
        return meaning

    return register


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def matmul(m: int, n: int, k: int, transposed: bool = False) -> str:
    shape, index = (f"{n}, {k}", "j, k") if transposed else (f"{k}, {n}", "k, j")
    return f"""
kernel matmul(x: f32[{m}, {k}], w: f32[{shape}]) -> y: f32[{m}, {n}]:
    for i in 0..{m} free:
        for j in 0..{n} free:
            for k in 0..{k} reduce:
                a = load x[i, k]
                b = load w[{index}]
                p = multiply(a, b)
                acc <- add(acc, p)
            y[i, j] = acc
"""
