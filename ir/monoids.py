"""Monoids over tuples, as data: what a reduction keeps when one number is not enough.

A monoid says what one element of the reduction is (`lift`, over the operands), how two partial results become one
(`combine`, over the parts of the left, `m1`, and of the right, `m2`), and what no elements are (`identity`). Both are
runs of Loop IR's own definitions, so every level reads, prints, computes and lowers them as it does any other code.

    online   sum of exp(x - m)*v, m the largest x: the running form of a softmax and of what it weighs
             (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018)
    online_pair  two such sums, s and l, that one maximum serves: what a softmax weighs, and its own sum
    welford  count, mean and sum of squared distances from the mean (Chan, Golub and LeVeque, 1979)

`X_parts` is the monoid X over partial results of it: its operands are the parts, and lifting changes nothing.
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
        return tuple(operand for operand in self.operands if operand in self._behind(part, (self.lift, self.combine)))

    def beside(self, part: str) -> frozenset[str]:
        """The parts that this part of a combined result depends on: a maximum does without the sum."""
        return frozenset(self._behind(part, (self.combine,)).intersection(self.parts))

    def _behind(self, part: str, blocks: tuple[Block, ...]) -> set[str]:
        """All names that a part depends on through definitions."""
        from .expr import free_names

        tables = [{stmt.dst: free_names(stmt.val) for stmt in block} for block in blocks]  # type: ignore[attr-defined]
        todo, seen = [part], set()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += [other for table in tables for other in table.get(name, ())]
                todo += [own for own in self.parts if name in (f"{own}1", f"{own}2")]
        return seen


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
    "online_pair": (
        ("x", "v", "w"), {"m": -3e38, "s": 0.0, "l": 0.0},
        "m = maximum(x, -3e38)\n"
        "d = subtract(x, m)\n"
        "p = exp(d)\n"
        "s = multiply(p, v)\n"
        "l = multiply(p, w)",
        "m = maximum(m1, m2)\n"
        "a = subtract(m1, m)\n"
        "b = subtract(m2, m)\n"
        "f = exp(a)\n"
        "g = exp(b)\n"
        "s = add(multiply(s1, f), multiply(s2, g))\n"
        "l = add(multiply(l1, f), multiply(l2, g))",
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

OVER_PARTS = "_parts"
_TEXTS |= {
    name + OVER_PARTS: (
        tuple(f"{part}0" for part in identity), identity, "\n".join(f"{part} = {part}0" for part in identity), combine
    )
    for name, (_, identity, _, combine) in _TEXTS.items()
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
