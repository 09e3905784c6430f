"""x.T @ w: both operands run along the outputs, and a thread has vectors along both axes.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.engine.cost.instruction_counts import instruction_counts

PRODUCTS = (
    "torch.randn(96, 256).t() @ torch.randn(96, 256)",
    "torch.randn(70, 131).t() @ torch.randn(70, 97)",
    "torch.randn(2, 64, 72).transpose(1, 2) @ torch.randn(2, 64, 132)",
)


@pytest.mark.parametrize("text", PRODUCTS)
@pytest.mark.sampled(2)
def test_a_product_of_columns_is_right(text: str) -> None:
    is_right(text)


def test_both_operands_are_read_without_conflicts() -> None:
    (kernel,) = compiled("torch.randn(2048, 2048).t() @ torch.randn(2048, 2048)").kernels
    counts = instruction_counts(kernel)
    assert counts.wavefronts <= 1.05 * counts.ideal_wavefronts
