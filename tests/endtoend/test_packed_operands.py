"""Products of two parts of one tensor, as packed queries, keys and values: each part that a block shares is copied by itself."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.ir.facts.structure import summary

PACKED = "F.scaled_dot_product_attention(*[t.transpose(1, 2) for t in torch.randn(1, {0}, {1}).view(1, {0}, 3, {2}, 64).unbind(2)]{3})"
TEXTS = (
    PACKED.format(131, 2 * 192, 2, ""),
    PACKED.format(131, 2 * 192, 2, ", is_causal=True"),
    "x = torch.randn(96, 256); x[:, :128] @ x[:, 128:].T",
    "x = torch.randn(131, 74); x[:64, 3:70] @ x[67:, 3:70].T",
    "x = torch.randn(80, 64); x[:64] @ x[16:].T",  # rows that both read
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.sampled(2)
def test_products_of_parts_are_right(text: str) -> None:
    is_right(text)


def test_all_parts_go_through_shared_memory() -> None:
    (attention,) = compiled(PACKED.format(2048, 12 * 192, 12, ""), {"online_attention": {"SLOWER": 2}}).tile
    assert len({stage.dst for stage in summary(attention.body).stages}) == 3
