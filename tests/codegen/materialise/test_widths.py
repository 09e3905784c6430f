"""What is computed in 64 bits: exactly what an int may not hold."""

from __future__ import annotations

import pytest

from dplc.codegen.materialise.expressions import exact, fits, widen
from dplc.ir.expr import Binary, Call, Expr, Var, add, multiply

X, Y = Var("i"), Var("j")
SMALL, HALF, LARGE = (0, 1000), (0, 2**31 - 1), (0, 2**31)
FAR = (-(2**31) + 1, 0)


def i64(e: Expr) -> Expr:
    return Call("i64", (e,))


OFFSETS = {
    "small": (multiply(X, 1000), {"i": SMALL}, multiply(X, 1000)),
    "the last that fits": (X, {"i": HALF}, X),
    "the first that does not": (X, {"i": LARGE}, i64(X)),
    "the least that fits": (X, {"i": FAR}, X),
    "below it": (X, {"i": (-(2**31), 0)}, i64(X)),
    "a factor": (multiply(X, 2**22), {"i": SMALL}, multiply(i64(X), 2**22)),
    "one term of two": (
        add(multiply(X, 2**22), Y), {"i": SMALL, "j": SMALL}, add(multiply(i64(X), 2**22), Y),
    ),
    "a quotient of what does not fit": (
        Binary("//", X, 7), {"i": LARGE}, Binary("//", i64(X), 7),
    ),
    "a maximum": (Call("max", (X, Y)), {"i": LARGE, "j": SMALL}, i64(Call("max", (X, Y)))),
}  # fmt: skip


@pytest.mark.parametrize("name", OFFSETS)
def test_an_offset_is_as_wide_as_its_parts_may_be(name: str) -> None:
    given, ranges, made = OFFSETS[name]
    assert widen(given, ranges) is made


def test_a_sum_fits_if_every_part_does() -> None:
    assert fits(add(X, Y), {"i": SMALL, "j": SMALL})
    assert not fits(add(X, Y), {"i": HALF, "j": SMALL})
    assert not fits(add(multiply(X, 2), multiply(Y, -2)), {"i": HALF, "j": HALF}), "two large ones that cancel"
    assert not fits(Binary("//", add(X, Y), 4), {"i": HALF, "j": HALF}), "small again, of what is large"


def test_a_condition_is_widened_inside() -> None:
    condition = Binary("<", add(X, Y), 5)
    ranges = {"i": HALF, "j": HALF}
    assert exact(condition, ranges) is Binary("<", add(i64(X), Y), 5) or exact(condition, ranges) is Binary(
        "<", add(X, i64(Y)), 5
    )
    assert exact(condition, {"i": SMALL, "j": SMALL}) is condition
