"""The least and the greatest value of an expression of sizes: they hold at every binding, and are not far."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from drawing import draws
from hypothesis import given, settings, strategies as st

import dplc
from dplc.ir.expr import Call, Size, add, floordiv, multiply, negate
from dplc.ir.sizes import bound_to, size_ends

S, T, U = Size("s", 1, 7, 1, 5), Size("t", 2, 6, 2, 4), Size("u", 3, 5, 1, 5)
SIZES = (S, T, U)


def product(*factors: Any) -> Any:
    out: Any = 1
    for factor in factors:
        out = multiply(out, factor)
    return out


def total(*terms: Any) -> Any:
    out: Any = 0
    for term in terms:
        out = add(out, term)
    return out


def values(e: Any) -> list[Any]:
    ranges = [range(size.low, size.high + 1, size.multiple) for size in SIZES]
    names = [size.name for size in SIZES]
    return [bound_to(e, dict(zip(names, numbers, strict=True))) for numbers in itertools.product(*ranges)]


TERMS = st.tuples(st.integers(-5, 5), st.lists(st.sampled_from(SIZES), max_size=3), st.sampled_from((1, 1, 3, 16)))


@settings(max_examples=draws(30), deadline=None)
@given(st.lists(TERMS, min_size=1, max_size=4))
def test_ends_hold_at_every_binding(terms: Any) -> None:
    e = total(*(product(n, floordiv(product(*sizes), by)) for n, sizes, by in terms))
    low, high = size_ends(e)
    found = values(e)
    assert low <= min(found) and max(found) <= high


@pytest.mark.parametrize(
    ("e", "least"),
    [
        (total(product(2, S, T), negate(S)), 3),  # s*(2t - 1)
        (total(product(S, S), negate(S)), 0),
        (total(product(S, T, U), negate(product(S, T))), 4),
        (total(product(S, T), product(-2, S), negate(T)), None),
    ],
)
def test_what_products_have_in_common(e: Any, least: int | None) -> None:
    found = values(e)
    assert size_ends(e)[0] == (min(found) if least is None else least)
    assert least is None or min(found) == least


def test_blocks_of_a_difference_of_products() -> None:
    """-(-(2*s*t - s) // 256): a grid has a block at least, and no more than the last that holds an element."""
    s, t = Size("s", 1, 97, 1, 11), Size("t", 1, 50, 1, 9)
    count = total(product(2, s, t), negate(s))
    assert size_ends(negate(floordiv(negate(count), 256))) == (1, math.ceil((2 * 97 * 50 - 97) / 256))


@pytest.mark.parametrize("shape", [(11, 9), (1, 1), (97, 50), (1, 50)])
def test_elements_of_a_difference_of_products(shape: tuple[int, int]) -> None:
    def halves(x: Any) -> Any:
        return torch.cat([x, x], 1)[:, 1:].reshape(-1).erf()

    ends = {0: dplc.Dim("s", 1, 97, hint=11), 1: dplc.Dim("t", 1, 50, hint=9)}
    x = torch.randn(shape)
    assert torch.allclose(dplc.compile(halves, (torch.randn(11, 9),), dynamic={"x": ends})(x), halves(x), atol=1e-6)


@pytest.mark.parametrize("by", [T, U, product(2, T)])
def test_a_quotient_by_a_size_is_as_it_is(by: Any) -> None:
    """What divides may be a size, too: then nothing is known of the quotient but its own ends."""
    e = total(product(3, S), floordiv(product(16, S), by), product(-1, T))
    low, high = size_ends(e)
    assert low <= min(values(e)) and max(values(e)) <= high


@pytest.mark.parametrize("fn", ["minimum", "maximum"])
def test_the_less_of_two_sizes_is_a_number_once_both_are(fn: str) -> None:
    """Of one size that is bound and one that is not it is still an expression."""
    e = Call(fn, (S, add(T, 1)))
    pick = min if fn == "minimum" else max
    assert values(e) == [pick(s, t + 1) for s in range(1, 8) for t in (2, 4, 6) for _ in range(3, 6)]
    assert bound_to(e, {"s": 4, "t": 4}) == pick(4, 5)
