"""Index expressions over axes: whatever is simplified keeps its value at every place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st

from dplc.ir import compose
from dplc.ir.expr import COMPARISONS, Axis, Binary, Not, Sum, binary, linear
from dplc.ir.facts.index import interval, operate, simplify, substitute
from dplc.ir.tensor import Const, Index

A, B, C = Axis("a", 6), Axis("b", 4), Axis("c", 5)


def value(e: Any, at: dict[Axis, int]) -> Any:
    if isinstance(e, Axis):
        return at[e]
    if isinstance(e, Sum):
        return sum(value(atom, at) * n for atom, n in e.terms) + e.constant
    if isinstance(e, Binary):
        a, b = value(e.a, at), value(e.b, at)
        return {
            "*": lambda: a * b,
            "//": lambda: a // b,
            "%": lambda: a % b,
            "and": lambda: a and b,
            "or": lambda: a or b,
        }.get(e.op, lambda: COMPARISONS[e.op](a, b))()
    return not value(e.a, at) if isinstance(e, Not) else e


def places() -> list[dict[Axis, int]]:
    return [dict(zip((A, B, C), at, strict=True)) for at in itertools.product(range(6), range(4), range(5))]


leaves = st.sampled_from((A, B, C)) | st.integers(-7, 7)
sums = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda op, a, b: binary(op, a, b), st.sampled_from("+-"), inner, inner)
        | st.builds(lambda a, n: binary("*", a, n), inner, st.integers(-6, 6))
        | st.builds(lambda op, a, n: operate(op, a, n), st.sampled_from(("//", "%")), inner, st.integers(1, 8))
    ),
    max_leaves=6,
)


@settings(max_examples=draws(40), deadline=None)
@given(sums, st.sampled_from(("//", "%", "<", "<=", ">", ">=", "==", "!=", "+", "-")), sums, st.integers(1, 24))
def test_values_stay(a: Any, op: str, b: Any, n: int) -> None:
    right = n if op in ("//", "%") else b
    result = operate(op, a, right)
    again = simplify(result)
    low, high = interval(result)
    for at in places():
        expected = value(binary(op, value(a, at), value(right, at)), at)
        assert value(result, at) == expected == value(again, at)
        assert low <= expected <= high


@settings(max_examples=draws(30), deadline=None)
@given(sums, sums)
def test_substitution_is_reading_elsewhere(a: Any, b: Any) -> None:
    moved = substitute(a, {A: b})
    for at in places():
        assert value(moved, at) == value(a, {**at, A: value(b, at)})


@pytest.mark.parametrize(
    ("e", "simple"),
    [
        (operate("//", operate("+", binary("*", A, 4), B), 4), A),
        (operate("%", operate("+", binary("*", A, 4), B), 4), B),
        (operate("//", B, 4), 0),
        (operate("%", operate("%", Axis("w", 100), 12), 4), binary("%", Axis("w", 100), 4)),
        (operate("//", operate("//", Axis("w", 100), 3), 4), binary("//", Axis("w", 100), 12)),
        (operate("//", operate("%", Axis("w", 100), 12), 4), binary("%", binary("//", Axis("w", 100), 4), 3)),
        (operate("<", B, 4), True),
        (operate(">=", B, 4), False),
        (operate("==", B, 7), False),
    ],
)
def test_what_extents_decide(e: Any, simple: Any) -> None:
    assert e is simple or e == simple


def test_quotient_and_remainder_join() -> None:
    w = Axis("w", 100)
    high, low = binary("//", w, 7), binary("%", w, 7)
    assert operate("+", binary("*", high, 7), low) is w
    assert operate("+", binary("*", high, 21), binary("*", low, 3)) == binary("*", w, 3)
    kept = operate("+", binary("*", high, 5), low)
    assert linear(kept) == ({high: 5, low: 1}, 0)
    assert np.all([value(kept, {w: n}) == n // 7 * 5 + n % 7 for n in range(100)])


@pytest.mark.parametrize(("extent", "factor", "fits"), [
    (3, -(2**62), True), (4, -(2**62), False), (2, 2**62, True), (3, 2**62, False), (2, -(2**63), True),
])  # fmt: skip
def test_arithmetic_of_places_is_of_indices_while_it_fits_64_bits(extent: int, factor: int, fits: bool) -> None:
    """Index arithmetic does not wrap around, values do: from -2**63 on, and below 2**63."""
    made = compose.elementwise("multiply", Index(Axis("i", extent)), Const(factor, "i64"))
    assert isinstance(made, Index) is fits
