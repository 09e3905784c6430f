"""What PyTorch refuses of convolutions, pools, padding, norms and losses, dplc refuses as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dplc

TARGETS = torch.tensor([0, 1, 2, 4])
CALLS: dict[str, list[dict[str, Any]]] = {  # of a number of dimensions, with options
    "conv_transpose": [{"output_padding": 1}, {"output_padding": 2, "stride": 2}, {"dilation": 0}, {"stride": 0}],
    "conv": [{"dilation": 0}, {"stride": 0}, {"padding": -1}, {"groups": 3}],
    "max_pool": [{"padding": 2}, {"stride": 0}, {"kernel_size": 9}],
    "avg_pool": [{"padding": 2}, {"stride": 0}, {"kernel_size": 9}],
}
OTHERS: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: F.conv1d(x, torch.ones(6, 4, 3).double()),
    lambda x: F.conv_transpose1d(x, torch.ones(4, 6, 3).double()),
    lambda x: F.max_pool1d(x > 0, 2),
    lambda x: F.avg_pool1d(x > 0, 2),
    lambda x: F.adaptive_avg_pool1d(x.long(), 2),
    lambda x: F.pad(x, (9, 9), mode="reflect"),
    lambda x: F.group_norm(x, 3),
    lambda x: F.cross_entropy(x[0], TARGETS.int()),
    lambda x: F.cross_entropy(x[0], TARGETS.int(), label_smoothing=0.1),
    lambda x: F.cross_entropy(x[0].long(), TARGETS),
    lambda x: F.nll_loss(x[0], TARGETS.int()),
    lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0).long()),
    lambda x: F.softmax(x.long(), 1),
    lambda x: F.linear(x, torch.ones(3, 8).double()),
    lambda x: F.linear(x, torch.ones(3, 8).double(), torch.ones(3)),
)


def assert_refused(function: Callable[[Tensor], Any], x: Tensor) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        function(x)
    with pytest.raises(dplc.DplcError):
        dplc.compile(function, (x,), db=False, calls="none")


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.sampled(6)
def test_windows_that_eager_refuses_are_refused(name: str, rank: int) -> None:
    function, shape = getattr(F, f"{name}{rank}d"), (4, 6) if "transpose" in name else (6, 4)
    for options in CALLS[name]:
        given = {"kernel_size": 2} if "pool" in name else {"weight": torch.ones(*shape, *[3] * rank)}
        assert_refused(lambda x, given={**given, **options}: function(x, **given), torch.randn(2, 4, *[6] * rank))


@pytest.mark.parametrize("place", range(len(OTHERS)))
@pytest.mark.sampled(6)
def test_dtypes_and_shapes_that_eager_refuses_are_refused(place: int) -> None:
    assert_refused(OTHERS[place], torch.randn(2, 4, 8))


@pytest.mark.parametrize("options", [{"dilation": 2, "output_padding": 1}, {"stride": 3, "output_padding": 2}])
def test_padding_of_a_transposed_result_below_stride_or_dilation(options: dict[str, int]) -> None:
    x, w = torch.randn(2, 4, 5), torch.randn(4, 3, 3)
    got = dplc.compile(lambda x, w: F.conv_transpose1d(x, w, **options), (x, w))(x, w)
    torch.testing.assert_close(got, F.conv_transpose1d(x, w, **options), rtol=1e-5, atol=1e-5)
