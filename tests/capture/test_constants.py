"""Folding: what no input reaches is computed when the program is compiled."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from capture_checks import assert_means, ops

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture, capture_text, fold
from dplc.engine.language.rule import policy
from dplc.ir.diagnostic import DplcError


def data(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def causal(scores: Any) -> Any:
    i = torch.arange(scores.shape[-2])
    j = torch.arange(scores.shape[-1])
    mask = (j[None, :] <= i[:, None]).to(torch.float64) * 2 > 1
    return scores.masked_fill(~mask, float("-inf"))


def test_a_mask_becomes_one_constant() -> None:
    captured = capture(causal, (data(4, 4),))
    folded = fold(captured)
    assert ops(folded) == ["MaskedFill"]
    (name,) = [name for name, kind in folded.kinds.items() if kind == "constant"]
    assert torch.equal(folded.tensors[name], ~torch.tril(torch.ones(4, 4, dtype=torch.bool)))
    assert folded.tensors[name].is_contiguous()
    assert_means(captured, causal(data(4, 4)))


def test_unsupported_dtypes_may_fold_away_but_not_stay() -> None:
    captured = capture(lambda x: x + torch.ones(3, dtype=torch.uint16).float(), (data(3),))
    assert ops(fold(captured)) == ["Add"]
    with pytest.raises(DplcError, match="u16"):
        capture(lambda x: x.to(torch.uint16) + torch.ones(3, dtype=torch.uint16), (data(3),))


def test_weights_are_not_folded() -> None:
    captured = capture_text("m = nn.Linear(4, 4)\nm(torch.randn(2, 4)) @ m.weight.exp()")
    assert fold(captured).graph is captured.graph


def test_a_large_result_is_not_folded() -> None:
    def function(x: Any) -> Any:
        return x + (torch.arange(8)[None] * torch.ones(8, 1)).sum(0)

    assert ops(fold(capture(function, (data(8),)))) == ["Add"]
    small = policy(dataclasses.replace(target(), policy=(("largest_constant", 8),)))
    folded = fold(capture(function, (data(8),)), small)
    assert ops(folded) == ["Mul", "Sum", "Add"]
    assert_means(folded, function(data(8)))


def test_several_tensors_from_one_constant_op() -> None:
    captured = capture(lambda x: x + torch.arange(6).split(3)[1], (data(3),))
    assert ops(fold(captured)) == ["Add"]
    assert_means(captured, data(3) + torch.arange(3, 6))


def test_a_result_may_be_a_constant() -> None:
    folded = fold(capture(lambda x: (x.exp(), torch.arange(3) * 2), (data(3),)))
    assert ops(folded) == ["Exp"]
    assert folded.kinds[folded.graph.outs[1].name] == "constant"
    assert torch.equal(folded.tensors[folded.graph.outs[1].name], torch.tensor([0, 2, 4]))


def test_a_graph_on_meta_folds_on_the_cpu() -> None:
    """The graph of a model without data says `meta` where it makes a mask; the constants are real all the same."""
    x = torch.empty(4, 4, device="meta")
    folded = fold(capture(lambda x: x + torch.tril(torch.ones(4, 4, device=x.device)), (x,)))
    (name,) = [name for name, kind in folded.kinds.items() if kind == "constant"]
    assert torch.equal(folded.tensors[name], torch.tril(torch.ones(4, 4)))


def test_folding_twice_changes_nothing() -> None:
    folded = fold(capture(causal, (data(4, 4),)))
    assert fold(folded).graph is folded.graph
