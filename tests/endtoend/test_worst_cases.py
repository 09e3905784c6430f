"""Programs of kinds that were far from their least time once: near it by prediction, and right where they are small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dplc

Program = Callable[..., Tensor]

# A name, the program, and how many times its least time it may take by prediction at full size.
SUMS: dict[str, tuple[Program, float]] = {
    "two losses": (lambda x, y: F.l1_loss(x, y) + F.mse_loss(x[:, 1:], y[:, 1:]), 2.1),
    "total variation": (
        lambda x, y: (x[:, 1:] - y[:, :-1]).abs().mean() + (x[..., 1:] - y[..., :-1]).abs().mean(),
        2.1,
    ),
    "deviations": (lambda x, y: x.std() + y[:, 1:].std(), 1.3),
    "a weighted sum of four": (lambda x, y: x.mean() + 2 * y.abs().mean() + x.square().mean() + x[1:].amax() / 3, 2.0),
    "of each image": (lambda x, y: x.sum((1, 2)) / y[:, 1:].square().sum((1, 2)).sqrt(), 1.3),
    "by a sum of the other": (lambda x, y: (x - y[:, 1:].mean()).square().mean(), 1.3),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.sampled(3)
def test_independent_sums_have_the_whole_device(name: str) -> None:
    """In one kernel with several loops, blocks do not share long rows: 50 to 100 times the least.

    Each loop reads its inputs, so two that read the same take twice the least.
    """
    program, most = SUMS[name]
    large = dplc.compile(program, [torch.empty(24, 1024, 1024, device="meta")] * 2, target="h100").compilation
    assert large.predicted_seconds <= most * large.least_seconds
    small = [torch.randn(3, 37, 70), torch.randn(3, 37, 70)]
    want = program(*(x.double() for x in small))
    torch.testing.assert_close(dplc.compile(program, small)(*small).double(), want, rtol=1e-5, atol=1e-5)


def test_small_sums_stay_in_one_kernel() -> None:
    def both(x: Tensor, y: Tensor) -> Any:
        return x.sum() + y.square().sum()

    assert len(dplc.compile(both, (torch.randn(30, 7), torch.randn(20))).compilation.kernels) == 1
