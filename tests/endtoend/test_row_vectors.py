"""Rows that registers do not hold are read by vectors where their planes are whole ones; run whole, checked, against float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.ir.loop import For
from dplc.ir.node import nodes

NORM = "F.batch_norm(torch.randn({shape}), None, None, torch.randn({c}), torch.randn({c}), True)"


@pytest.mark.parametrize(
    ("shape", "dtype", "widths"),
    [
        ((16, 2, 60, 52), "f32", [4]),
        ((13, 3, 54, 50), "f32", [2]),  # a block has pairs of the planes of 2700
        ((24, 2, 53, 58), "f32", []),  # a block ends within a pair of the planes of 3074
        ((11, 1, 61, 53), "f32", []),
        ((16, 2, 60, 52), "bf16", [8]),
        ((13, 3, 54, 50), "f16", [2]),
    ],
    ids=str,
)
@pytest.mark.sampled(3)
def test_a_channel_is_read_by_vectors(shape: tuple[int, ...], dtype: str, widths: list[int]) -> None:
    text = NORM.format(shape=", ".join(map(str, shape)), c=shape[1])
    partial = compiled(text, dtype=dtype).tile[0]
    assert [loop.stop for loop in nodes(partial.body, For) if loop.role == "VEC"] == widths
    is_right(text, dtype=dtype)
