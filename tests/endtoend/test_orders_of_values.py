"""The order in which a temporary stores its axes follows the accesses of all its readers.

Extents are ones, primes and ragged. Each program is run whole in checked mode and compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

EXPANDED = "x = F.conv2d(torch.randn({n}, {c}, {h} + 2, {w} + 2), torch.randn({o}, {c}, 1, 1)); "
PROGRAMS = {
    "depthwise": EXPANDED + "F.conv2d(x, torch.randn({o}, 1, 3, 3), groups={o})",
    "depthwise and a product": EXPANDED + "x = F.conv2d(x.relu(), torch.randn({o}, 1, 3, 3), groups={o}); "
    "F.conv2d(x, torch.randn(3, {o}, 1, 1))",
    "pool": EXPANDED + "F.max_pool2d(x, 2)",
    "pool and sums": EXPANDED + "torch.sigmoid(F.avg_pool2d(x, 2)).sum((1, 2, 3))",
    "softmax over channels": EXPANDED + "torch.softmax(x, 1)",
    "group norm": EXPANDED + "F.group_norm(x, 1, torch.randn({o}), torch.randn({o}))",
    "two convolutions": EXPANDED + "F.conv2d(x, torch.randn(4, {o}, 3, 3), padding=1)",
    "two readers": EXPANDED + "(F.conv2d(x, torch.randn({o}, 1, 3, 1), groups={o}), x.amax((2, 3)))",
    "rows of channels": EXPANDED + "F.layer_norm(x.flatten(2).transpose(1, 2), ({o},)) @ torch.randn({o}, 5)",
    "pieces of a concatenation": EXPANDED + "a = F.conv2d(x, torch.randn(8, {o}, 3, 3), padding=1); "
    "b = F.conv2d(x, torch.randn(4, {o}, 1, 1)); F.max_pool2d(torch.cat([a, b], 1), 3, 1, 1)",
    "weight gradient": "x = torch.randn({n} * 9, {c}); y = torch.randn({n} * 9, {o}); (y.t() @ x).softmax(0)",
}


@settings(max_examples=draws(12), deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)), st.sampled_from([1, 3]), st.sampled_from([1, 5, 8]),
    st.sampled_from([1, 4, 7, 16]), st.sampled_from([1, 6, 13]), st.sampled_from([2, 11, 30]),
)  # fmt: skip
def test_programs_of_any_size_are_right(name: str, n: int, c: int, o: int, h: int, w: int) -> None:
    is_right(PROGRAMS[name].format(n=n, c=c, o=o, h=h, w=w))


@pytest.mark.parametrize("name, expected", [("depthwise", (2, 32, 42, 42)), ("pool and sums", (2, 21, 21, 32))])
def test_a_stored_convolution_has_the_order_of_its_readers(name: str, expected: tuple[int, ...]) -> None:
    """Lanes of a depthwise convolution run along the width, as its weight does. A pool reads vectors of channels."""
    first, *_ = compiled(PROGRAMS[name].format(n=2, c=64, o=32, h=40, w=40)).plan.kernels
    assert [param.shape for param in first.outs] == [expected]


def test_windows_and_points_of_one_input_are_stored_along_the_same_axis() -> None:
    """The channels of a convolution replace those of its input, not the offsets of its window."""
    text = "x = torch.randn(2, 28, 28, 64).permute(0, 3, 1, 2); "
    text += "a = F.conv2d(x, torch.randn(64, 64, 1, 1)); b = F.conv2d(x, torch.randn(128, 64, 3, 3), padding=1); "
    *first, _ = compiled(text + "F.max_pool2d(torch.cat([a, b], 1), 3, 1, 1)").plan.kernels
    assert [param.shape[-1] for kernel in first for param in kernel.outs] == [64, 128]
