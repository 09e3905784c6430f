"""Folded constants come back as formulas, and mean what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lowering_checks import arrays, check_lowering

from dplc.engine.capture.capture import capture, fold
from dplc.engine.language.rule import load
from dplc.engine.rewrite.torch_rules.lower import lower
from dplc.ir.interp.tensor import run
from dplc.ir.tensor import TensorGraph
from dplc.ir.text.tensor import print_graph

RULES = load()


def lowered(constant: Any) -> TensorGraph:
    """`x * constant` (`x & constant` of booleans), the constant written out in the function."""
    kind = constant.dtype == torch.bool
    x = torch.ones(constant.shape, dtype=constant.dtype)
    folded = fold(capture(lambda x: x & constant.clone() if kind else x * constant.clone(), (x,)))
    known = {name: folded.tensors[name] for name, kind in folded.kinds.items() if kind == "constant"}
    assert len(known) <= 1
    graph = lower(folded, RULES).graph
    data = arrays(folded)
    got = run(graph, data)[0]
    want = constant.double() if constant.is_floating_point() else constant
    np.testing.assert_array_equal(got, want.numpy().reshape(got.shape))
    return graph


def inputs(graph: TensorGraph) -> list[str]:
    return [x.name for x in graph.ins]


FORMULAS = {
    "splat": torch.full((3, 5), 2.5),
    "minus infinity": torch.full((3, 5), float("-inf")),
    "ramp": torch.arange(7),
    "ramp of floats": torch.arange(7.0)[:, None] * 3 + torch.arange(5.0) * -2 + 1,
    "lower triangle": torch.ones(5, 7).tril(1).bool(),
    "upper triangle": torch.ones(5, 5).triu(1).bool(),
    "expanded triangle": torch.ones(1, 1, 5, 5).tril().bool().expand(2, 3, 5, 5).clone(),
    "causal mask": torch.full((5, 5), float("-inf")).triu(1),
    "step": torch.arange(9) < 4,
    "step up": torch.arange(9) >= 4,
    "diagonal": torch.eye(5),
    "not the diagonal": ~torch.eye(5).bool(),
    "a few": torch.tensor([0.5, 0.25, 7.0]),
    "a few booleans": torch.tensor([True, False, True]),
    "rank 0": torch.tensor(3.5),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_are_no_inputs(name: str) -> None:
    assert inputs(lowered(FORMULAS[name])) == ["x"]


@pytest.mark.parametrize(
    "constant",
    [
        torch.tensor([1.0, 5.0, 2.0, 7.0, 3.0]),
        torch.tensor([[True, False, True], [True, False, False]]),
        torch.arange(5) ** 2,
        torch.tensor([0.0, -0.0, 1.0, 2.0, 5.0]),
    ],
)
def test_anything_else_stays_an_input(constant: Any) -> None:
    assert len(inputs(lowered(constant))) == 2


def test_a_causal_mask_is_an_index_expression() -> None:
    def masked(x: Any) -> Any:
        return torch.where(torch.ones(5, 5, dtype=torch.bool).tril(), x, 0.0)

    graph = check_lowering(capture(masked, (torch.randn(5, 5),)))
    assert "where(Index(j <= i), x[i, j], 0.0)" in print_graph(graph)


VALUES, DTYPES = (-1, 0, 1, 2), (torch.int64, torch.float32, torch.bool)


@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=6), st.sampled_from(DTYPES))
def test_any_small_constant_means_itself(values: list[int], dtype: torch.dtype) -> None:
    lowered(torch.tensor(values).to(dtype))


def test_integers_as_far_apart_as_there_are() -> None:
    """Their difference is not an integer of 64 bits: what a sum wrapped around is stored."""
    assert len(inputs(lowered(torch.arange(6) * 3 + (2**63 - 7)))) == 2
