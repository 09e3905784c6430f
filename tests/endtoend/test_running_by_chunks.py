"""What is largest so far, where, and logarithms of sums so far, of dimensions that are cut into chunks.

Ragged, with ties, nan and infinities, along the first, the last and a middle dimension; the last of equal places, as PyTorch."""

from __future__ import annotations

import pytest
from test_turned import compiled, is_right

TEXTS = (
    "torch.cummax(torch.randn(3001), 0)",
    "torch.cummin(torch.randn(2500), 0)",
    "torch.cummax(torch.randint(-3, 9, (5, 1024)), 1)",  # ties, integers, chunks without a rest
    "torch.cummin(torch.randint(-3, 3, (1100, 4)).float(), 0)",
    "x = torch.randn(2, 1500, 3); x[0, 40, 1] = float('nan'); x[1, 1200, 2] = float('nan'); torch.cummax(x, 1)",
    "x = torch.randn(3000); x[5] = float('nan'); x[37] = float('nan'); x[2990] = float('nan'); torch.cummin(x, 0)",
    "torch.cummax(torch.full((2200,), -float('inf')), 0)",
    "torch.cummax(torch.randn(3, 1300).half(), 1)",
    "torch.cummax(torch.randn(3000) > 2, 0)",
    "torch.logcumsumexp(torch.randn(3001) * 9, 0)",
    "x = torch.randn(4, 1200); x[1, :700] = -float('inf'); x[2, 100] = float('inf'); torch.logcumsumexp(x, 1)",
    "x = torch.randn(2, 1300, 2); x[1, 900, 1] = float('nan'); torch.logcumsumexp(x, 1)",
    "torch.logcumsumexp(torch.randn(3000).bfloat16(), 0)",
    "x = torch.randn(3001); c = torch.cummax(x, 0); c.values + c.indices",
)


@pytest.mark.parametrize("text", TEXTS)
def test_what_runs_by_chunks_is_right(text: str) -> None:
    is_right(text)


@pytest.mark.parametrize("text", ("torch.cummax(torch.randn(3001), 0)", "torch.logcumsumexp(torch.randn(3001), 0)"))
def test_no_launch_looks_at_all_pairs(text: str) -> None:
    assert len(compiled(text).kernels) > 3
