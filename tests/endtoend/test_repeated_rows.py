"""Sums of rows that repeat: a part of the row that reads the same elements as the one before is counted, too."""

from __future__ import annotations

import pytest
import torch

import dplc


@pytest.mark.parametrize("target", ["sm_80", "h100"])
@pytest.mark.parametrize(("length", "times"), [(16, 16), (32, 8), (64, 8), (1, 96), (13, 32), (128, 4)])
@pytest.mark.sampled(2)
def test_a_row_again_and_again(length: int, times: int, target: str) -> None:
    x = torch.randn(length)
    compiled = dplc.compile(lambda x: x.expand(times, length).reshape(-1).sum(), (x,), target=target)
    want = x.double().sum() * times
    assert abs(compiled(x).double() - want) <= 1e-5 * x.abs().double().sum() * times
