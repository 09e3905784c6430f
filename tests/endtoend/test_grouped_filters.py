"""Filters of groups of channels are products of each group: run whole, checked, against float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.ir.node import nodes
from dplc.ir.tile import Mma

TEXTS = {
    "F.conv2d(torch.randn(2, 24, 9, 11), torch.randn(36, 8, 1, 1), groups=3)": "f32",
    "F.conv2d(torch.randn(2, 64, 12, 12), torch.randn(96, 32, 3, 3), padding=1, groups=2)": "bf16",
    "F.conv1d(torch.randn(3, 30, 50), torch.randn(20, 15, 5), stride=2, groups=2)": "f32",
    "F.conv3d(torch.randn(2, 12, 5, 6, 7), torch.randn(8, 6, 2, 2, 2), groups=2)": "f16",
    "F.conv2d(torch.randn(2, 60, 7, 7), torch.randn(90, 20, 1, 1), groups=3).view(2, 3, 30, 7, 7).transpose(1, 2)": "f32",
    "F.conv2d(torch.randn(2, 60, 14, 14), torch.randn(60, 1, 3, 3), groups=60)": "f32",
}


@pytest.mark.parametrize(("text", "dtype"), TEXTS.items())
@pytest.mark.sampled(3)
def test_a_filter_of_groups_is_right(text: str, dtype: str) -> None:
    is_right(text, dtype=dtype)


def test_tensor_cores_multiply_each_group() -> None:
    made = compiled(
        "F.conv2d(torch.randn(2, 64, 12, 12), torch.randn(96, 32, 3, 3), padding=1, groups=2)", dtype="bf16"
    )
    assert list(nodes(made.tile, Mma))
