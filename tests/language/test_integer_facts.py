"""Facts about whole numbers, each against its definition, on every small number and at the ends."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from dplc.codegen.target import target
from dplc.engine.facts import tensor as facts
from dplc.engine.facts.accesses import squarest
from dplc.engine.language.rule import policy

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


@pytest.mark.parametrize(
    ("area", "sides"), [(12800, (80, 160)), (6400, (80, 80)), (10240, (128, 80)), (5120, (64, 80)), (7168, (64, 112))]
)
def test_the_squarest_odd_tile(area: int, sides: tuple[int, int]) -> None:
    site = SimpleNamespace(target=target("h200"))
    assert squarest(site, area, 2048, 2048) == (*sides, area)
    assert squarest(site, 6400, 50, 30) == (80, 40, 3200)


@pytest.mark.parametrize("area", [256, 1024, 4096, 8192])
def test_the_squarest_tile_is_within_the_area_and_what_there_is(area: int) -> None:
    site = SimpleNamespace(target=target("h200"))
    side = policy(site.target).tile_side
    for rows, columns in itertools.product((1, 8, 33, 64, 500, 4096), repeat=2):
        found = squarest(site, area, rows, columns)
        for extent, length in ((rows, found.rows), (columns, found.columns)):
            assert length.bit_count() == 1 and length <= side and length < 2 * extent
        assert found.rows * found.columns <= area
        if min(rows, columns) >= side:
            assert found.rows * found.columns == area and found.columns <= 2 * found.rows
