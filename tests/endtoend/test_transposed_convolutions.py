"""Transposed convolutions: each phase of the stride multiplies the filter elements that meet it, and infinities stay where they belong."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from drawing import draws
from hypothesis import given, settings, strategies as st
from torch.nn import functional

import dplc
from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import compiler_with
from dplc.ir.expr import Axis
from dplc.ir.facts.structure import summary
from dplc.ir.node import nodes
from dplc.ir.tensor import Reduce, postorder
from dplc.ir.tile import Mma, Tile

TRANSPOSED: dict[int, Callable[..., torch.Tensor]] = {
    1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d,
}  # fmt: skip


def right(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> dplc.Compiled:
    """Compile and run a function, and compare every element with float64, infinities and NaN too."""
    made = dplc.compile(function, inputs, target="h100", device="emulator", db=False, tf32="off")
    got, want = made(*inputs), function(*(x.double() for x in inputs))
    assert got.shape == want.shape
    finite = want.isfinite()
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got[~finite].nan_to_num(), want[~finite].float().nan_to_num())
    if finite.any():
        assert (got.double() - want)[finite].abs().max() <= 1e-5 * max(float(want[finite].abs().max()), 1e-3)
    return made


@st.composite
def programs(draw: Any) -> tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...]]:
    dims = draw(st.integers(1, 3))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(dims)]  # noqa: E731
    window, stride, dilation = each(1, 5 if dims < 3 else 3), each(1, 4 if dims < 3 else 3), each(1, 3)
    padding = [draw(st.integers(0, min(2, d * (k - 1)))) for k, d in zip(window, dilation, strict=True)]
    more = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    sizes = each(2, 9 if dims < 3 else 4)
    for n in range(dims):  # torch wants an output
        while (sizes[n] - 1) * stride[n] - 2 * padding[n] + dilation[n] * (window[n] - 1) + more[n] + 1 < 1:
            sizes[n] += 1
    groups = draw(st.sampled_from([1, 1, 2]))
    channels, filters = groups * draw(st.integers(1, 5)), draw(st.integers(1, 5))
    options = {
        "stride": stride, "padding": padding, "output_padding": more, "groups": groups, "dilation": dilation,
    }  # fmt: skip
    return lambda x, w: TRANSPOSED[dims](x, w, **options), (2, channels, *sizes), (channels, filters, *window)


@given(programs(), st.integers(0, 99), st.booleans())
@settings(max_examples=draws(12))
def test_transposed_convolution_is_right_with_infinities(
    program: tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...]], seed: int, infinite: bool
) -> None:
    function, given_, filters = program
    dice = torch.Generator().manual_seed(seed)
    x, w = torch.randn(given_, generator=dice), torch.randn(filters, generator=dice)
    if infinite:
        x.view(-1)[torch.randint(0, x.numel(), (2,), generator=dice)] = float("inf")
    right(function, x, w)


@pytest.mark.parametrize("dims", TRANSPOSED)
def test_gradient_of_input_is_that_of_float64(dims: int) -> None:
    dice = torch.Generator().manual_seed(dims)
    x, w = torch.randn(2, 3, *(9, 7, 6)[:dims], generator=dice), torch.randn(4, 3, *(3, 4, 3)[:dims], generator=dice)
    stride, padding, dilation = [2, 3, 2][:dims], [1, 0, 1][:dims], [1, 1, 2][:dims]
    forward = (functional.conv1d, functional.conv2d, functional.conv3d)[dims - 1]
    g = torch.randn(forward(x, w, stride=stride, padding=padding, dilation=dilation).shape, generator=dice)

    def gradient(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        options = stride, padding, dilation, False, [0] * dims, 1
        return torch.ops.aten.convolution_backward(g, x, w, None, *options, [True, False, False])[0]

    right(gradient, g, x, w)


# kernel, stride and dilation -> the filter elements that one output index meets along a dimension
ELEMENTS = {
    (4, 2, 1): 2,
    (3, 2, 1): 2,
    (5, 2, 1): 3,
    (4, 4, 1): 1,
    (3, 1, 2): 3,
    (3, 3, 2): 1,
    (4, 6, 4): 2,
    (3, 2, 2): 3,
}


@pytest.mark.parametrize(("window", "stride", "dilation"), ELEMENTS)
def test_no_more_elements_are_multiplied_than_meet_a_phase(window: int, stride: int, dilation: int) -> None:
    function = lambda x, w: functional.conv_transpose1d(x, w, stride=stride, dilation=dilation)  # noqa: E731
    captured = capture(function, (torch.randn(2, 8, 12), torch.randn(8, 8, window)))
    graph = compiler_with(target("h100")).values(captured).graph
    (total,) = [x for x in postorder(out.value for out in graph.outs) if isinstance(x, Reduce)]
    assert prod(axis.extent for axis in total.over) == 8 * ELEMENTS[window, stride, dilation]
    assert all(isinstance(axis, Axis) for axis in total.over)


@pytest.mark.parametrize("window", [3, 4])
def test_phases_are_blocks_and_use_tensor_cores(window: int) -> None:
    function = lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1)  # noqa: E731
    dice = torch.Generator().manual_seed(window)
    x, w = torch.randn(2, 16, 20, 20, generator=dice), torch.randn(16, 32, window, window, generator=dice)
    made = dplc.compile(function, (x, w), target="h100", device="emulator", db=False, tf32="on")
    (kernel,) = [one for one in made.compilation.tile if any(nodes(one, Mma))]
    assert any(axis.extent == 4 and axis.role == "BLOCK" for tile in nodes(kernel, Tile) for axis in tile.axes)
    assert all(load.when is True for load in summary(kernel.body).loads)
    want = function(x.double(), w.double())
    assert (made(x, w).double() - want).abs().max() < 2e-3 * want.abs().max()
    right(function, x, w)


def test_strides_of_the_output_cover_it_once() -> None:
    ones = torch.ones(1, 1, 5, 4)
    for stride, window in product((2, 3), (1, 2, 4)):
        right(
            lambda x, w, s=stride: functional.conv_transpose2d(x, w, stride=s), ones, torch.ones(1, 2, window, window)
        )
