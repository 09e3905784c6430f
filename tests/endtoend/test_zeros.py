"""The sign of a zero is PyTorch's: -0.0 + 0.0 is 0.0, and -0.0 + -0.0 is not."""

from __future__ import annotations

import pytest
import torch

import dplc


def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x + 0.0, x + 0, 0.0 + x, x - (-0.0), x + -0.0, x - 0.0, x - 0, 0.0 - x, -x, x * 1, x * 0.0, x / 1, -0.0 - x,
        (x + 0.0) - 0.0, torch.add(x, x, alpha=0), (x + 0.0) * -1.0,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.sampled(2)
def test_signs_of_zeros(explore: bool, dtype: torch.dtype) -> None:
    x = torch.tensor([-0.0, 0.0, 1.0, -1.0], dtype=dtype)
    for place, (got, want) in enumerate(zip(dplc.compile(sums, (x,), explore=explore)(x), sums(x), strict=True)):
        assert torch.equal(got.signbit(), want.signbit()) and torch.equal(got, want), place


def test_a_norm_without_a_bias_adds_nothing() -> None:
    cuda = dplc.compile(lambda x: torch.nn.functional.layer_norm(x, (8,)), (torch.randn(4, 8),)).cuda
    assert "+ 0.0f" not in cuda and "- 0.0f" not in cuda


def test_integers_lose_their_zeros() -> None:
    cuda = dplc.compile(lambda n: (n + 0) * 3 - 0, (torch.arange(8),)).cuda
    assert "wrap_add" not in cuda and "wrap_sub" not in cuda
