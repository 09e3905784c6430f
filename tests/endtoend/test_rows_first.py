"""Sums over all elements of rows that have sums of their own: a kernel for the rows, one for what is left of them.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

ROWS = (
    "F.layer_norm(torch.randn(67, 131), (131,)).abs().sum()",
    "F.layer_norm(torch.randn(3, 37, 64), (64,)).pow(2).mean()",
    "torch.softmax(torch.randn(101, 53), -1).pow(2).sum()",
    "torch.softmax(torch.randn(5, 17, 40).to(torch.bfloat16), -1).amax()",
    "F.cosine_similarity(torch.randn(61, 33), torch.randn(61, 33), dim=-1).mean()",
    "F.kl_div(F.log_softmax(torch.randn(41, 50), -1), F.log_softmax(torch.randn(41, 50), -1), log_target=True)",
    "F.normalize(torch.randn(70, 48), dim=-1).sum(0)",
    "x = torch.randn(3, 40009); (x - x.mean(-1, keepdim=True)).abs().sum(-1)",
    "x = torch.randn(4, 6, 50); (x - x.amax(-1, keepdim=True)).exp().sum((0, 2))",
)


@pytest.mark.parametrize("text", ROWS)
@pytest.mark.sampled(3)
def test_a_sum_of_rows_is_right(text: str) -> None:
    is_right(text)


@pytest.mark.parametrize(
    "text",
    ("F.layer_norm(torch.randn(4096, 1024), (1024,)).sum()", "torch.softmax(torch.randn(4096, 1000), -1).pow(2).sum()"),
)
def test_rows_are_read_once(text: str) -> None:
    compilation = compiled(text)
    assert len(compilation.launched) <= 2
    assert max(len(buffer.shape) for kernel in compilation.kernels for buffer in kernel.outs) == 1
