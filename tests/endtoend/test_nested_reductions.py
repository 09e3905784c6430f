"""Reductions over nested reductions, pools, and channels: few results still have all threads of a device.

Extents are ones, primes and ragged. Each program is run whole in checked mode and compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

from dplc.ir.loop import For
from dplc.ir.node import nodes

INPUT = "x = torch.randn({n}, {c}, {h} + 5, {w} + 4); "
CONVOLVED = INPUT + "x = F.conv2d(x, torch.randn(3, {c}, 2, 2)); "
PROGRAMS = {
    "sum of means of pools": CONVOLVED + "F.max_pool2d(x, 2).mean((2, 3)).sum(1)",
    "sum of a function of pools": CONVOLVED + "torch.sigmoid(F.avg_pool2d(x, 3)).sum((1, 2, 3))",
    "sum of scaled channels": INPUT + "(x * torch.randn({c}, 1, 1) + torch.randn({c}, 1, 1)).sum((1, 2, 3))",
    "mean of a group norm": CONVOLVED + "F.group_norm(x, 3, torch.randn(3), torch.randn(3)).mean((1, 2, 3))",
    "largest of the sums of rows": INPUT + "x.sum(3).amax((1, 2))",
    "variance of the largest": INPUT + "x.amax(3).var((1, 2))",
    "sums over axes that lie apart": INPUT + "x.sum((0, 2)), x.permute(1, 3, 0, 2).contiguous().sum((0, 3, 2))",
    "all of them": INPUT + "x.amin((2, 3)).exp().sum()",
}


@settings(max_examples=draws(12), deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)), st.sampled_from([1, 2, 5]), st.sampled_from([1, 2, 7, 40]),
    st.sampled_from([1, 4, 13, 64]), st.sampled_from([1, 3, 12, 61]),
)  # fmt: skip
def test_nested_reductions_of_any_size_are_right(name: str, n: int, c: int, h: int, w: int) -> None:
    is_right(PROGRAMS[name].format(n=n, c=c, h=h, w=w))


@pytest.mark.parametrize("name", PROGRAMS)
def test_nested_reductions_of_long_rows_are_right(name: str) -> None:
    is_right(PROGRAMS[name].format(n=2, c=5, h=93, w=127))


@pytest.mark.parametrize("name", ["sum of means of pools", "sum of scaled channels"])
def test_few_channels_of_many_elements_are_shared_by_threads(name: str) -> None:
    """No thread reduces all elements of a channel: the channels are fewer than the lanes of a warp."""
    made = compiled(PROGRAMS[name].format(n=2, c=5, h=93, w=127))
    for kernel in made.tile:
        loops = [loop for loop in nodes(kernel.body, For) if loop.role == "reduce"]
        assert all(loop.step != 1 or loop.stop < 512 for loop in loops), kernel.name
