"""What torch rules ask about dimensions and places, at the edges."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.engine.facts.torch_shapes import dims

SITE: Any = None  # the questions here are about numbers alone


@pytest.mark.parametrize("said", [None, ()])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_no_dimension_and_an_empty_list_are_all_of_them(said: Any, rank: int) -> None:
    assert dims(SITE, said, rank) == tuple(range(rank))


@pytest.mark.parametrize(
    ("said", "rank", "named"),
    [(0, 3, (0,)), (-1, 3, (2,)), ((0, -1), 3, (0, 2)), ((-1, 0), 3, (0, 2)), (0, 0, ()), (-1, 0, ()), ((0,), 0, ())],
)
def test_a_dimension_is_named_from_the_front_or_the_back(said: Any, rank: int, named: tuple[int, ...]) -> None:
    assert dims(SITE, said, rank) == named
