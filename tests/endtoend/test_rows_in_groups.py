"""Rows that share what they walk, and sums of a row that need each other: heads of a group, losses of classes.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_turned import compiled, is_right

QUERIES = "F.scaled_dot_product_attention(torch.randn({b},{h},1,{e}{t}),torch.randn({b},{g},{n},{e}{t}),torch.randn({b},{g},{n},{e}{t}),enable_gqa=True)"
BF16 = ",dtype=torch.bfloat16"
LOSSES = (
    "F.cross_entropy(torch.randn(67, 131), torch.randint(0, 131, (67,)))",
    "F.cross_entropy(torch.randn(5, 1000).to(torch.bfloat16), torch.randint(0, 1000, (5,)))",
    "x = torch.randn(33, 257); (x - x.amax(-1, keepdim=True)).exp().sum(-1), x.amax(-1)",
    "x = torch.randn(33, 257); m = x.mean(-1, keepdim=True); (x - m).pow(2).sum(-1), m.squeeze(-1)",
)


@pytest.mark.parametrize(
    "sizes",
    [
        {"b": 1, "h": 32, "g": 8, "n": 300, "e": 64, "t": ""},
        {"b": 3, "h": 28, "g": 4, "n": 131, "e": 64, "t": ""},
        {"b": 37, "h": 6, "g": 3, "n": 67, "e": 32, "t": BF16},
        {"b": 29, "h": 10, "g": 1, "n": 64, "e": 128, "t": ""},
    ],
    ids=lambda sizes: f"{sizes['b']}x{sizes['h']}/{sizes['g']}x{sizes['n']}x{sizes['e']}",
)
@pytest.mark.sampled(2)
def test_heads_of_a_group_are_right(sizes: dict[str, object]) -> None:
    is_right(QUERIES.format(**sizes))


def test_a_group_of_heads_is_one_block() -> None:
    compilation = compiled(QUERIES.format(b=1, h=32, g=8, n=4096, e=128, t=""))
    first = compilation.kernels[0]
    assert first.body[0].grid[0] == 8, "a block for every group of heads, not for every head"


@pytest.mark.parametrize("text", LOSSES)
@pytest.mark.sampled(3)
def test_sums_in_turn_are_right(text: str) -> None:
    is_right(text)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_the_logits_of_a_loss_are_read_by_one_kernel(dtype: str) -> None:
    text = f"F.cross_entropy(torch.randn(4096, 32000, dtype=torch.{dtype}), torch.randint(0, 32000, (4096,)))"
    compilation = compiled(text)
    assert len(compilation.launched) == 2
    assert max(len(buffer.shape) for kernel in compilation.kernels for buffer in kernel.outs) == 1
