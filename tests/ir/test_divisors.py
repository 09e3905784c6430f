"""What divides an address: sound for every value of its registers, and sharp enough for what lowering writes."""

from __future__ import annotations

import random

from dplc.ir.expr import Var, add, floordiv, modulo, multiply, subtract, xor
from dplc.ir.facts.index import divisor
from dplc.ir.interp.scalar import evaluate

LANE, WARP = Var("lane"), Var("warp")
STRIDES = {"warp": 8}


def test_a_pair_of_words_in_a_swizzled_row_is_aligned() -> None:
    """`(lane*2 // 4)*16 + (lane*2 % 4)*4`: vectors of two floats, four to a chunk."""
    pairs = multiply(LANE, 2)
    address = add(multiply(floordiv(pairs, 4), 16), multiply(modulo(pairs, 4), 4))
    assert divisor(address, {}) == 8
    assert divisor(multiply(modulo(multiply(LANE, 3), 4), 4), {}) == 4
    last = add(multiply(LANE, 4), 3)  # of a vector in a row of 40 that runs backwards
    assert divisor(add(subtract(multiply(floordiv(last, 40), 40), modulo(last, 40)), 39), {}) == 4
    assert divisor(floordiv(WARP, 4), STRIDES) == 2 and divisor(floordiv(WARP, 16), STRIDES) == 1


def test_it_divides_every_value() -> None:
    dice = random.Random(0)

    def drawn(depth: int) -> object:
        if depth == 0:
            return dice.choice((LANE, WARP, dice.choice((0, 1, 2, 4, 6, 12))))
        a, n = drawn(depth - 1), dice.choice((2, 3, 4, 8))
        return dice.choice(
            (lambda: add(a, drawn(depth - 1)), lambda: multiply(a, n), lambda: floordiv(a, n), lambda: modulo(a, n),
             lambda: xor(multiply(a, 4), multiply(LANE, n)))
        )()  # fmt: skip

    sharp = 0
    for _ in range(300):
        e = drawn(3)
        found = divisor(e, STRIDES)
        values = [evaluate(e, {"lane": lane, "warp": 8 * warp}) for lane in range(32) for warp in range(5)]
        assert all(value == 0 if found == 0 else value % found == 0 for value in values), e
        sharp += found > 1
    assert sharp > 60
