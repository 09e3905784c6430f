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


# A name, the program, its shapes at full size and small, and how many times its least time it may take.
SHARED: dict[str, tuple[Program, list[tuple[int, ...]], list[tuple[int, ...]], float]] = {
    "channels by a short sum": (
        lambda x, w: x * w.sum(0)[:, None, None], [(8, 12, 100, 100), (13, 12)], [(2, 3, 7, 9), (5, 3)], 1.2,
    ),
    "columns by a short sum": (
        lambda x, w: x * w.sum(0), [(4, 32, 64, 1024), (13, 1024)], [(2, 3, 5, 40), (5, 40)], 1.2,
    ),
    "rows by a short sum": (
        lambda x, w: x * w.sum(1)[:, None], [(100000, 64), (100000, 13)], [(37, 64), (37, 5)], 1.6,
    ),
    "rows of 200 vectors": (lambda x, w: x * w[:, None], [(100000, 800), (100000,)], [(9, 800), (9,)], 1.2),
    "rows of 75 vectors": (lambda x, w: x * w[:, None], [(300000, 300), (300000,)], [(9, 300), (9,)], 1.2),
    "windows of four": (lambda x: F.avg_pool2d(x, 2), [(32, 256, 56, 56)], [(2, 3, 8, 10)], 1.3),
    "windows of 36 in seven rows": (
        lambda x: F.adaptive_avg_pool2d(x, (7, 7)), [(32, 512, 30, 30)], [(2, 3, 30, 30)], 4.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.sampled(3)
def test_short_sums_and_rows_share_threads_and_blocks(name: str) -> None:
    """A thread for each short sum, or a block for each short row, took 2 to 1,300 times the least."""
    program, shapes, few, most = SHARED[name]
    large = dplc.compile(program, [torch.empty(shape, device="meta") for shape in shapes], target="h100").compilation
    assert large.predicted_seconds <= most * large.least_seconds
    small = [torch.randn(shape) for shape in few]
    want = program(*(x.double() for x in small))
    torch.testing.assert_close(dplc.compile(program, small)(*small).double(), want, rtol=1e-5, atol=1e-5)
