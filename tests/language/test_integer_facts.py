"""Facts about whole numbers, each against its definition, on every small number and at the ends."""

from __future__ import annotations

import itertools

import pytest

from dplc.engine.facts import tensor as facts

NUMBERS = range(-3, 200)
POSITIVE = range(1, 200)


@pytest.mark.parametrize("b", [1, 2, 3, 7, 64])
def test_ceildiv_is_the_least_that_covers(b: int) -> None:
    for a in NUMBERS:
        found = facts.ceildiv(a, b)
        assert found * b >= a > (found - 1) * b
    assert facts.ceildiv((1 << 62) + 1, 2) == (1 << 61) + 1  # no float on the way


def test_divisors_are_all_and_ascend() -> None:
    for n in POSITIVE:
        assert facts.divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)
    assert facts.divisors(0) == facts.divisors(-4) == ()
    assert facts.divisors(49) == (1, 7, 49)  # a root stands once


def test_powers_of_two_within_bounds() -> None:
    powers = [1 << n for n in range(21)]
    for low, high in itertools.product(range(-1, 40), repeat=2):
        assert facts.pow2(low, high) == tuple(p for p in powers if low <= p <= high)
    assert facts.pow2(1, 1 << 40)[-1] == facts.MOST  # a rule cannot ask for more


def test_the_powers_of_two_beside_a_number() -> None:
    for n in POSITIVE:
        below, above = facts.pow2floor(n), facts.pow2ceil(n)
        assert below <= n < 2 * below and above // 2 < n <= above
        assert below.bit_count() == above.bit_count() == 1
    assert facts.pow2floor(0) == facts.pow2ceil(0) == facts.pow2ceil(-5) == 1


def test_least_greatest_product_and_size() -> None:
    assert (facts.greatest((3, 9, 4)), facts.least((3, 9, 4))) == (9, 3)
    assert (facts.greatest(3, 9), facts.least(3, 9)) == (9, 3)
    assert facts.greatest(()) == facts.least(()) == 0
    assert facts.product(()) == 1 and facts.product((2, 3, 7)) == 42
    assert facts.size(()) == 0 and facts.size((5, 5)) == 2


def test_subsets_come_largest_first_and_are_bounded() -> None:
    assert facts.subsets((1, 2, 3)) == ((1, 2, 3), (1, 2), (1, 3), (2, 3), (1,), (2,), (3,))
    assert facts.subsets(()) == ()
    assert len(facts.subsets(tuple(range(40)))) == facts.SUBSETS
