"""Filters of transposed convolutions by phases: any stride, dilation, padding and groups, and their gradients, compared with float64."""

from __future__ import annotations

import torch
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import compiled, is_right

from dplc.ir.text.programs import print_program

SIZES = st.sampled_from([1, 2, 5, 7, 8])
MODULE = (
    "nn.functional.conv_transpose{d}d({x}, {w}, stride={s}, padding={a}, output_padding={e}, groups={g}, dilation={r})"
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Draw a transposed convolution whose filters have few or many channels."""
    d, g = draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 2]))
    channels, filters = draw(st.sampled_from([1, 3, 8, 17])), draw(st.sampled_from([1, 2, 8]))
    s, r, k = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    room = ", ".join(str(draw(SIZES)) for _ in range(d))
    e, a = draw(st.integers(0, max(s, r) - 1)), draw(st.integers(0, r * (k - 1) // 2))
    x, w = (
        f"torch.randn(2, {channels * g}, {room})",
        f"torch.randn({channels * g}, {filters}, {', '.join([str(k)] * d)})",
    )
    return MODULE.format(d=d, x=x, w=w, s=s, a=a, e=e, g=g, r=r)


@settings(max_examples=draws(12), deadline=None)
@given(programs())
def test_transposed_convolutions_of_any_setting_are_right(text: str) -> None:
    is_right(text)


def test_an_infinite_element_reaches_the_results_of_torch_only() -> None:
    """Filter elements beyond the window are zeros, and no zero is multiplied by an infinite element."""
    is_right(
        "x = torch.randn(2, 9, 7); x[0, 3, 2] = 1e30; nn.functional.conv_transpose1d(x, torch.randn(9, 8, 3), stride=2)"
    )


def test_a_large_transposed_convolution_stores_its_filter_by_phases() -> None:
    """The kernel of the products reads neighbouring filters, and its sum is one loop over elements and channels."""
    text = "nn.functional.conv_transpose2d(torch.randn(16, 32, 64, 64), torch.randn(32, 32, 3, 3), stride=2)"
    kernels = compiled(text).tile
    assert len(kernels) == 2
    assert "[2, 2, 128, 32]" in print_program((kernels[0],))


def test_the_gradient_of_a_transposed_convolution_is_right() -> None:
    layer = torch.nn.ConvTranspose2d(9, 8, 3, stride=2, padding=1)
    exact = torch.nn.ConvTranspose2d(9, 8, 3, stride=2, padding=1).double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(2, 9, 5, 7)
    torch.compile(layer, backend="dplc")(x).square().sum().backward()
    exact(x.double()).square().sum().backward()
    for own, other in zip(layer.parameters(), exact.parameters(), strict=True):
        assert own.grad is not None and other.grad is not None
        torch.testing.assert_close(own.grad.double(), other.grad, rtol=1e-4, atol=1e-4)
