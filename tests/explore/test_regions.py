"""Programs that one search cannot take in whole are cut into regions that it can."""

from __future__ import annotations

from typing import Any

import pytest

from dplc.codegen.target import target
from dplc.engine.explore.explore import Cutting, is_leaf
from dplc.ir.expr import Axis
from dplc.ir.tensor import Elementwise, Input, Output, TensorGraph, operands

H100 = target("h100")
I = Axis("i", 4)  # noqa: E741


def chain(length: int) -> list[Any]:
    """An input, and so many functions of it, one of the other."""
    terms: list[Any] = [Input("x", (I,))]
    for n in range(length):
        terms.append(Elementwise(("exp", "sin")[n % 2], (terms[-1],)))
    return terms


def inside(root: Any, cuts: set[Any]) -> int:
    """How many operations a region computes that ends in a value of a chain."""
    return 1 + sum(inside(x, cuts) for x in operands(root) if not is_leaf(x) and x not in cuts)


@pytest.mark.parametrize("length", [1, 39, 40, 41, 100, 240])
def test_what_nothing_else_cuts_is_cut_every_so_many_operations(length: int) -> None:
    terms = chain(length)
    cutting = Cutting(TensorGraph("f", (terms[0],), (Output("y", (I,), terms[-1]),)), (), H100)
    regions, cuts = cutting.regions()
    sizes = [inside(root, cuts - {root}) for region in regions for root in region]
    assert sum(sizes) == length and max(sizes) <= cutting.largest
    assert len(sizes) <= max(1, -(-length // (cutting.largest // 2)))


def test_what_greedy_fusion_stores_is_cut_first() -> None:
    terms = chain(60)
    _, cuts = Cutting(TensorGraph("f", (terms[0],), (Output("y", (I,), terms[-1]),)), (terms[25],), H100).regions()
    assert cuts == {terms[25]}
