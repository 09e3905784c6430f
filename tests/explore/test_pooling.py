"""A softmax over what the rows of a matrix make with a vector, and the rows that it weighs: every row is read once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled import checked


def pooled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (F.softmax(x @ w, -1)[..., None] * x).sum(1)


def masked(x: torch.Tensor, w: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    scores = (x @ w).masked_fill(seen < -1.0, float("-inf"))
    return (F.softmax(scores, -1)[..., None] * x).sum(1)


def keys_and_values(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


CASES = {
    "pooling": (pooled, ((3, 64, 256), (256,))),
    "pooling, ragged": (pooled, ((2, 37, 72), (72,))),
    "pooling, masked": (masked, ((2, 45, 64), (64,), (2, 45))),
    "one query": (keys_and_values, ((1, 4, 1, 48), (1, 4, 80, 48), (1, 4, 80, 48))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_pooling_is_one_kernel(name: str) -> None:
    candidate, _ = checked(*CASES[name])
    assert candidate.kernels == 1
