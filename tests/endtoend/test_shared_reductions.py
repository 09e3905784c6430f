"""Reductions that blocks share, and kernels that read their results: right, run whole in checked mode.

Extents are ragged and prime; results are compared with float64.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import is_right

import dplc

X = "x = torch.randn({n}, {m}{t}); "
READ_AGAIN = {
    "softmax of few long rows": X + "torch.softmax(x, 1)",
    "its logarithm": X + "torch.log_softmax(x, 1)",
    "layer norm of few long rows": X + "F.layer_norm(x, ({m},))",
    "RMS norm of few long rows": X + "F.rms_norm(x, ({m},))",
    "batch norm in training": "c = {n}; x = torch.randn(7, c, {m} // 99 + 1, 77{t}) + 3; "
    "F.batch_norm(x, None, None, torch.randn(c{t}), torch.randn(c{t}), True)",
    "instance norm": "F.instance_norm(torch.randn(1, {n}, {m} // 99 + 1, 99{t}))",
    "all over the largest": X + "torch.round(x / (x.abs().max() / 127.0))",
    "all over their length": X + "x / x.norm()",
    "without the mean of channels": "x = torch.randn(5, {n}, {m} // 99 + 1, 99{t}); x - x.mean((0, 2, 3), keepdim=True)",
    "scaled by what rows sum up to": X + "x * torch.sigmoid(x.mean(1, keepdim=True))",
}
SAVED = (
    "c = {n}; x = torch.randn(7, c, {m} // 99 + 1, 77{t}) + 3; "
    "torch.native_batch_norm(x, torch.randn(c), torch.randn(c), None, None, True, .1, 1e-5)"
)
READ_OTHERWISE = {
    "columns without their means": "x = torch.randn({m}, {n}{t}); x - x.mean(0)",
    "between the least and the largest": X + "(x - x.min()) / (x.max() - x.min())",
    "two readers": X + "m = x.mean(1, keepdim=True); (x - m, torch.exp(x.t().contiguous() * 1e-3) + m.t())",
    "a sum that is given as well": X + "s = x.sum(1, keepdim=True); (x / s, s)",
    "a sum that is given as well, and its root": X + "s = (x * x).sum(); (x / s.sqrt(), s, s.sqrt())",
    "a length before a product": "x = torch.randn({n}, {m} // 9 + 1); (x / x.norm()) @ torch.randn({m} // 9 + 1, 33)",
    "sums of one group of rows": "x = torch.randn(2, {n} * 4, {m} // 9 + 1); F.group_norm(x, {n}, torch.randn({n} * 4))",
    "saved for the backward pass": SAVED,
}
PROGRAMS = {**READ_AGAIN, **READ_OTHERWISE}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["", ",dtype=torch.bfloat16"], ids=["f32", "bf16"])
@pytest.mark.parametrize("n, m", [(3, 40040), (16, 20020)])
@pytest.mark.sampled(4)
def test_programs_are_right(name: str, dtype: str, n: int, m: int) -> None:
    is_right(PROGRAMS[name].format(n=n, m=m, t=dtype))


@settings(max_examples=draws(2), deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)), st.sampled_from(["", ",dtype=torch.bfloat16"]),
    st.integers(1, 9), st.integers(2, 40), st.integers(60, 400),
)  # fmt: skip
def test_programs_of_any_size_are_right(name: str, dtype: str, n: int, a: int, b: int) -> None:
    is_right(PROGRAMS[name].format(n=n, m=16 * a * b, t=dtype))


@settings(max_examples=draws(2), deadline=None)
@given(
    st.sampled_from(["softmax of few long rows", "batch norm in training", "saved for the backward pass"]),
    st.sampled_from([2, 3, 4, 6, 8, 12, 24, 33]), st.integers(1, 5),
)  # fmt: skip
def test_any_number_of_blocks_is_right(name: str, parts: int, n: int) -> None:
    is_right(PROGRAMS[name].format(n=n, m=100 * 264, t=""), {"split_fold": {"S": parts}})


def test_nan_and_infinities_are_pytorch_s() -> None:
    x = torch.randn(4, 40040)
    x[0, 17], x[1, 40039], x[2, 5] = math.nan, math.inf, -math.inf
    for f in (
        lambda x: torch.softmax(x, 1),
        lambda x: x / x.abs().amax(1, keepdim=True),
        lambda x: x - x.mean(1, keepdim=True),
        lambda x: F.layer_norm(x, (40040,)),
    ):
        torch.testing.assert_close(dplc.compile(f, (x,))(x), f(x), equal_nan=True, rtol=1e-4, atol=1e-5)


def test_rows_of_a_dynamic_number_are_right() -> None:
    dynamic = {"x": {0: dplc.Dim("s", 1, 64, hint=4)}}

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1)

    made = dplc.compile(f, (torch.randn(4, 40040),), dynamic=dynamic, rows=(), target="h200")
    for s in (1, 3, 4, 64):
        x = torch.randn(s, 40040)
        torch.testing.assert_close(made(x), f(x))


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_small_network_with_batch_norm_is_trained_as_in_eager() -> None:
    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.LazyLinear(5),
        )

    x, y = torch.randn(16, 3, 40, 40), torch.randint(0, 5, (16,))
    found = []
    for compile in (False, True):
        model = network()
        model(x)
        step = torch.compile(model, backend="dplc") if compile else model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(step(x), y).backward()
            optimizer.step()
        found.append({**dict(model.named_parameters()), **dict(model.named_buffers())})
    eager, ours = found
    for name, value in eager.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-5)
