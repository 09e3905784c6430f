"""Convolutions with channels last: threads enough for every scheduler, filters that lanes read without conflicts.

Ragged; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_turned import compiled, is_right

LAST = "F.conv2d(torch.randn({b},{y},{x},{c}).permute(0,3,1,2),torch.randn({o},{c},{k},{k}),padding={p},stride={s}).permute(0,2,3,1).contiguous()"
SIZES = (
    {"b": 1, "y": 13, "x": 14, "c": 32, "o": 67, "k": 3, "p": 1, "s": 1},
    {"b": 2, "y": 7, "x": 7, "c": 40, "o": 128, "k": 3, "p": 1, "s": 1},
    {"b": 1, "y": 15, "x": 28, "c": 16, "o": 64, "k": 3, "p": 0, "s": 2},
    {"b": 1, "y": 12, "x": 31, "c": 8, "o": 33, "k": 5, "p": 2, "s": 1},
)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "x".join(map(str, sizes.values())))
def test_channels_last_are_right(sizes: dict[str, int]) -> None:
    is_right(LAST.format(**sizes))


@pytest.mark.parametrize("side, channels", [(14, 256), (7, 512), (28, 128), (56, 64)])
def test_a_window_has_a_warp_for_every_scheduler(side: int, channels: int) -> None:
    text = LAST.format(b=8, y=side, x=side, c=channels, o=channels, k=3, p=1, s=1)
    kernel = compiled(text).kernels[0]  # a second may add parts of sums
    assert kernel.body[0].block == 128
