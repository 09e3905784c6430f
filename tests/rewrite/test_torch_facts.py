"""What torch rules ask about dimensions and places, at the edges."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from dplc.engine.facts.torch_shapes import _group, dims, within
from dplc.ir.expr import Var, add, multiply, subtract
from dplc.ir.interp.scalar import evaluate


@pytest.mark.parametrize("said", [None, ()])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_no_dimension_and_an_empty_list_are_all_of_them(said: Any, rank: int) -> None:
    assert dims(said, rank) == tuple(range(rank))


@pytest.mark.parametrize(
    ("said", "rank", "named"),
    [(0, 3, (0,)), (-1, 3, (2,)), ((0, -1), 3, (0, 2)), ((-1, 0), 3, (0, 2)), (0, 0, ()), (-1, 0, ()), ((0,), 0, ())],
)
def test_a_dimension_is_named_from_the_front_or_the_back(said: Any, rank: int, named: tuple[int, ...]) -> None:
    assert dims(said, rank) == named


@pytest.mark.parametrize(("source", "target", "ends"), [
    ((6, 4), (8, 3), (2, 2)), ((6, 4), (24,), (2, 1)), ((24,), (6, 4), (1, 2)), ((2, 3), (2, 3), (1, 1)), ((2, 6), (2, 3, 2), (1, 1)),
    ((), (1,), (0, 1)), ((1,), (), (1, 0)), ((1, 5), (5,), (2, 1)),
])  # fmt: skip
def test_a_reshape_is_cut_where_as_many_elements_end(
    source: tuple[int, ...], target: tuple[int, ...], ends: tuple[int, int]
) -> None:
    assert _group(source, target, 0, 0) == ends
    assert _group((7, *source), (7, *target), 1, 1) == (ends[0] + 1, ends[1] + 1)


WINDOWS = list(
    itertools.product((1, 4, 7), (1, 2, 3), (1, 2), (1, 2), (0, 1, 2), (0, 1))
)  # n, k, stride, dilation, padding, more


def test_a_place_of_a_window_is_within_what_is_counted() -> None:
    """Every place of every window that begins in the padded row, asked by a condition that leaves out what always holds."""
    for (n, k, stride, dilation, padding, more), over in itertools.product(WINDOWS, (0, 1)):  # windows that hang over
        windows = max((n + 2 * padding - dilation * (k - 1) - 1) // stride + 1, 1) + over
        extents = {"p": windows, "k": k}
        site: Any = SimpleNamespace(extent=lambda axis, extents=extents: extents[axis.name])
        index = subtract(add(multiply(Var("p"), stride), multiply(Var("k"), dilation)), padding)
        held = within(site, (index,), (-padding * more,), (n + padding * more,))
        always = True
        for at, place in itertools.product(range(windows), range(k)):
            where = at * stride + place * dilation - padding
            wanted = -padding * more <= where < n + padding * more
            found = held if isinstance(held, bool) else bool(evaluate(held, {"p": at, "k": place}))
            assert found is wanted, (n, k, stride, dilation, padding, more, at, place)
            always = always and wanted
        assert (held is True) is always, (n, k, stride, dilation, padding, more, over)
