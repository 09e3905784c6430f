"""Monoids over tuples, as data: what a reduction keeps when one number is not enough.

A monoid says what one element of the reduction is (`lift`, over the operands), how two partial results become one
(`combine`, over the parts of the left, `m1`, and of the right, `m2`), and what no elements are (`identity`). Both are
runs of Loop IR's own definitions, so every level reads, prints, computes and lowers them as it does any other code.

    online   sum of exp(x - m)*v, m the largest x: the running form of a softmax and of what it weighs
             (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018)
    welford  count, mean and sum of squared distances from the mean (Chan, Golub and LeVeque, 1979)
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from .program import Block


class Monoid(NamedTuple):
    """operands: what an element is made of; parts: what is kept; lift, combine: definitions of the parts."""

    name: str
    operands: tuple[str, ...]
    parts: tuple[str, ...]
    identity: tuple[float, ...]
    lift: Block
    combine: Block

    def reads(self, part: str) -> tuple[str, ...]:
        """The operands that a part depends on, in order: a running maximum needs no weights."""
        from .expr import free_names

        tables = [{stmt.dst: free_names(stmt.val) for stmt in block} for block in (self.lift, self.combine)]  # type: ignore[attr-defined]
        todo, seen = [part], set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += [other for table in tables for other in table.get(name, ())]
                todo += [own for own in self.parts if name in (f"{own}1", f"{own}2")]
        return tuple(operand for operand in self.operands if operand in seen)


# The clamp keeps a row of -inf from giving nan: exp(-inf - -inf). It is the identity of `m` for the same reason.
_TEXTS = {
    "online": (
        ("x", "v"), {"m": -3e38, "s": 0.0},
        "m = maximum(x, -3e38)\n"
        "d = subtract(x, m)\n"
        "s = multiply(exp(d), v)",
        "m = maximum(m1, m2)\n"
        "a = subtract(m1, m)\n"
        "b = subtract(m2, m)\n"
        "s = add(multiply(s1, exp(a)), multiply(s2, exp(b)))",
    ),
    "welford": (
        ("x",), {"n": 0.0, "mean": 0.0, "q": 0.0},
        "n = 1.0\n"
        "mean = x\n"
        "q = 0.0",
        "n = add(n1, n2)\n"
        "d = subtract(mean2, mean1)\n"
        "w = divide(n2, maximum(n, 1.0))\n"
        "mean = add(mean1, multiply(d, w))\n"
        "q = add(add(q1, q2), multiply(multiply(d, d), multiply(n1, w)))",
    ),
}  # fmt: skip

NAMES = tuple(_TEXTS)
PARTS: dict[str, tuple[str, str]] = {
    f"{name}.{part}": (name, part) for name, text in _TEXTS.items() for part in text[1]
}


@functools.cache
def monoid(name: str) -> Monoid:
    """A monoid by its name. Raises KeyError for an unknown one."""
    operands, identity, lift, combine = _TEXTS[name]
    return Monoid(name, operands, tuple(identity), tuple(identity.values()), _read(lift), _read(combine))


def _read(text: str) -> Block:
    from .text.read import read_program

    lines = "\n".join(f"    {line}" for line in text.splitlines())
    _, (kernel,) = read_program(f"kernel definitions() -> none_: f32[1]:\n{lines}\n", "ir/monoids.py")
    return kernel.body  # type: ignore[attr-defined,no-any-return]


def part_identity(part: str) -> float:
    """What the part `online.s` is of no elements. Raises KeyError for an unknown one."""
    name, own = PARTS[part]
    return _TEXTS[name][1][own]


def of_part(part: str) -> tuple[Monoid, str]:
    """The monoid and the part that `online.s` names. Raises KeyError for an unknown one."""
    name, own = PARTS[part]
    return monoid(name), own
