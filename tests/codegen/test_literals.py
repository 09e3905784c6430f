"""The dtype of a number: that of its neighbours, where these can hold its kind."""

from __future__ import annotations

import pytest

from dplc.codegen.scalar import ATOM, UNARY, integer, literal
from dplc.ir.functions import literal_dtype


@pytest.mark.parametrize(("value", "beside", "dtype"), [
    (True, [], "b8"), (True, ["i32"], "i32"), (True, ["f32"], "f32"),
    (1, [], "i64"), (1, ["b8"], "i64"), (1, ["i32"], "i32"), (1, ["i64", "i32"], "i64"), (1, ["f32"], "f32"),
    (1.0, [], "f32"), (1.0, ["i64"], "f32"), (1.0, ["f32", "i32"], "f32"),
    (1.0, ["f64"], "f64"), (1.0, ["f16"], "f16"), (1, ["bf16"], "bf16"), (2.5, ["b8"], "f32"),
])  # fmt: skip
def test_a_number_is_as_its_neighbours(value: object, beside: list[str], dtype: str) -> None:
    assert literal_dtype(value, beside) == dtype


@pytest.mark.parametrize(("value", "wide", "text"), [
    (0, False, "0"), (-7, False, "-7"), (7, True, "7LL"), (2**31 - 1, False, "2147483647"), (2**31, False, "2147483648LL"),
    (-(2**31) + 1, False, "-2147483647"), (-(2**31), False, "(-2147483647 - 1)"), (-(2**31), True, "-2147483648LL"),
    (-(2**31) - 1, False, "-2147483649LL"), (-(2**63) + 1, False, "-9223372036854775807LL"),
    (-(2**63), True, "(-9223372036854775807LL - 1)"),
])  # fmt: skip
def test_integers_at_the_ends_of_an_int(value: int, wide: bool, text: str) -> None:
    """No literal is wider than its type: C++ has no negative ones."""
    assert integer(value, wide)[0] == text


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "i64", "f32", "f64"])
def test_a_number_binds_loosely_where_it_has_a_sign(dtype: str) -> None:
    """One that is converted by name, as narrow ones are, has its sign inside."""
    loosely = ATOM if dtype in ("i8", "u8", "i16") else UNARY
    assert [literal(value, dtype)[1] for value in (-7, 0, 7)] == [loosely, ATOM, ATOM]
