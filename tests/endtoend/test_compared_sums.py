"""Sums over comparisons of a place with an axis, of so many results that tiles share what they load: running maxima, running
logarithms of sums, counts. Ragged; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

SO_FAR = "k = torch.arange({0}.shape[-1]); s = torch.where(k <= k[:, None], {0}[:, None, :], {1})"
LARGE = (
    "x = torch.randn(303, 251); " + SO_FAR.format("x", "-torch.inf") + "; s.amax(-1)",
    "x = torch.randint(-9, 9, (303, 251)).float(); " + SO_FAR.format("x", "9.") + "; s.amin(-1)",
    "x = torch.randn(303, 251); x[5, 77] = float('nan'); x[9, 3] = float('inf'); "
    + SO_FAR.format("x", "-torch.inf")
    + "; s.amax(-1)",
    "x = torch.randn(303, 251).half(); " + SO_FAR.format("x", "-torch.inf") + "; s.amax(-1)",
    "x = torch.randn(303, 251) * 9; " + SO_FAR.format("x", "-torch.inf") + "; s.logsumexp(-1)",
    "x = torch.randn(251, 303).bfloat16().float(); " + SO_FAR.format("x", "0.") + "; s.sum(-1)",
    "x = torch.randn(300, 131); i = torch.randint(0, 997, (300,)); torch.zeros(997, 131).index_add(0, i, x)",
    "x = torch.randint(0, 300, (300, 251)); F.one_hot(x, 300).sum(1)",
)


@pytest.mark.parametrize("text", LARGE)
@pytest.mark.sampled(1)
def test_sums_over_comparisons_are_right(text: str) -> None:
    is_right(text)


def test_elements_of_a_row_are_shared_by_tiles() -> None:
    # the threads of a warp that combine what they have take less than a kilobyte, elements of rows more than sixteen
    text = "x = torch.randn(64, 1024); " + SO_FAR.format("x", "0.") + "; s.sum(-1)"
    assert any(kernel.body[0].shared > 1 << 14 for kernel in compiled(text).kernels)
