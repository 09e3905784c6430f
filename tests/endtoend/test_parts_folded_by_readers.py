"""A fold that blocks share is put together by the kernels that read it, not by one between: two launches, not three.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_turned import is_right

X = "x = torch.randn({n}, {m}{t}); "
TWO_LAUNCHES = {
    "softmax of few long rows": X + "torch.softmax(x, 1)",
    "its logarithm": X + "torch.log_softmax(x, 1)",
    "layer norm of few long rows": X + "F.layer_norm(x, ({m},))",
    "RMS norm of few long rows": X + "F.rms_norm(x, ({m},))",
    "a batch norm in training": "c = {n}; F.batch_norm(torch.randn(7, c, {m} // 99 + 1, 77{t}) + 3, None, None, torch.randn(c{t}), torch.randn(c{t}), True)",
    "an instance norm": "F.instance_norm(torch.randn(1, {n}, {m} // 99 + 1, 99{t}))",
    "all over their sum": X + "x.exp() / x.exp().sum()",
    "all over the largest": X + "torch.round(x / (x.abs().max() / 127.0))",
    "all over their length": X + "x / x.norm()",
    "without the mean of channels": "x = torch.randn(5, {n}, {m} // 99 + 1, 99{t}); x - x.mean((0, 2, 3), keepdim=True)",
    "columns without their means": "x = torch.randn({m}, {n}{t}); x - x.mean(0)",
    "scaled by what a row sums up to": X + "x * torch.sigmoid(x.mean(1, keepdim=True))",
}


@pytest.mark.parametrize("name", TWO_LAUNCHES)
@pytest.mark.parametrize("dtype", ["", ",dtype=torch.bfloat16"], ids=["f32", "bf16"])
@pytest.mark.parametrize("n, m", [(3, 40040), (1, 40009), (7, 9100)])
def test_it_is_right(name: str, dtype: str, n: int, m: int) -> None:
    is_right(TWO_LAUNCHES[name].format(n=n, m=m, t=dtype))
