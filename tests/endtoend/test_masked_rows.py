"""Rows that a mask hides wholly or in part, in every spelling of attention and softmax: as eager has them, element by element.

Scores are hidden by -1e9, -1e30, -1e38, -3.2e38, the least float and -inf: a row of which all are hidden alike has the mean of the
values, and NaN where eager has it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dplc
from dplc.codegen.judge import judge

sdpa = F.scaled_dot_product_attention
TARGETS = ("a100", "h200", "rtx5090")
# one kernel, however few the rows are
ONE_PASS = {
    rule: {"SLOWER": 1000} for rule in ("online_attention", "online_attention_masked", "online_attention_weights")
}
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
FILLS = (-1e9, -1e30, -1e38, -3.2e38, None, -math.inf)  # None: the least float of the dtype
ROWS, KEYS, WIDTH = 9, 40, 64


def fills(dtype: torch.dtype) -> tuple[float, ...]:
    least = torch.finfo(dtype).min
    return tuple(
        least if fill is None else fill for fill in FILLS if fill is None or fill == -math.inf or fill >= least
    )


def inputs(dtype: torch.dtype, fill: float, rows: int = ROWS) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values, what is added to scores, and where they are hidden: rows 0 and 3 wholly, row 5 not at all."""
    dice = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, n, WIDTH, generator=dice).to(dtype) for n in (rows, KEYS, KEYS))
    hidden = torch.rand(2, rows, KEYS, generator=dice) < 0.5
    hidden[:, (0, 3)], hidden[:, 5] = True, False
    return q, k, v, torch.zeros(2, rows, KEYS, dtype=torch.float64).masked_fill(hidden, fill).to(dtype), hidden


def scores(q: torch.Tensor, k: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return q @ k.mT * 0.3 + m


def exponentials(x: torch.Tensor) -> torch.Tensor:
    return (x - x.amax(-1, keepdim=True)).exp()


def as_transformers(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, h: torch.Tensor) -> Any:
    weights = torch.matmul(q, k.transpose(1, 2)) * 0.125 + m
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(F.dropout(weights, p=0.1, training=False), v), weights


def divided_last(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, h: torch.Tensor) -> Any:
    e = exponentials(scores(q, k, m))
    return (e @ v) / e.sum(-1, keepdim=True)


def two_products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor, h: torch.Tensor) -> Any:
    p = scores(q, k, m).softmax(-1)
    return p @ v, p @ (v * 2), p.amax(-1)


ATTENTION: dict[str, Callable[..., Any]] = {
    "as transformers": as_transformers,
    "sdpa, added": lambda q, k, v, m, h: sdpa(q, k, v, attn_mask=m),
    "sdpa, added, a scale beyond 1": lambda q, k, v, m, h: sdpa(q, k, v, attn_mask=m, scale=2.0),
    "sdpa, hidden": lambda q, k, v, m, h: sdpa(q, k, v, attn_mask=~h),
    "softmax": lambda q, k, v, m, h: scores(q, k, m).softmax(-1) @ v,
    "softmax in f32": lambda q, k, v, m, h: scores(q, k, m).softmax(-1, dtype=torch.float32).to(q.dtype) @ v,
    "filled": lambda q, k, v, m, h: (q @ k.mT * 0.3).masked_fill(h, m.min()).softmax(-1) @ v,
    "chosen": lambda q, k, v, m, h: torch.where(h, m.min(), q @ k.mT).softmax(-1) @ v,
    "divided first": lambda q, k, v, m, h: (lambda e: (e / e.sum(-1, keepdim=True)) @ v)(exponentials(scores(q, k, m))),
    "divided last": divided_last,
    "undivided": lambda q, k, v, m, h: exponentials(scores(q, k, m)) @ v,
    "two products": two_products,
    "safe softmax": lambda q, k, v, m, h: torch._safe_softmax(scores(q, k, m), -1) @ v,
    "the logarithm": lambda q, k, v, m, h: (lambda x: (x - torch.logsumexp(x, -1, keepdim=True)).exp() @ v)(scores(q, k, m)),
}  # fmt: skip
ROWS_ALONE: dict[str, Callable[..., Any]] = {
    "softmax": lambda m: (m.softmax(-1), m.softmax(1), F.softmin(-m, -1), torch._safe_softmax(m, -1)),
    "logarithms": lambda m: (m.log_softmax(-1), m.log_softmax(1), m.logsumexp(-1), torch.logaddexp(m, m.flip(-1))),
    "cross entropy": lambda m: F.cross_entropy(m.mT, torch.zeros(2, m.shape[1], dtype=torch.int64), reduction="none"),
    "divergence": lambda m: F.kl_div(m.log_softmax(-1), m.softmax(-1), reduction="none"),
    "extremes": lambda m: (*m.max(-1), *(-m).min(-1), m.amax(-1), m.argmax(-1), (-m).argmin(-1), (-m).amin(1)),
    "running": lambda m: (*m.cummax(-1), *(-m).cummin(-1), m.logcumsumexp(-1)),
    "ordered": lambda m: (m.topk(3, -1)[0], m.sort(-1)[0]),
}  # fmt: skip


def agree(compiled: Any, f: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> None:
    """NaN where eager has it; else near eager, or float64 where a half rounds scores away."""
    wide = [x.double() if x.is_floating_point() else x for x in given]
    got, wanted, exact = (pytree.tree_leaves(result) for result in (compiled(*given), f(*given), f(*wide)))
    for result, own, reference in zip(got, wanted, exact, strict=True):
        assert torch.equal(result.isnan(), own.isnan())
        if result.dtype in (torch.bfloat16, torch.float16):
            assert judge([result], [reference.double()], [own]).ok
        else:
            assert torch.allclose(result.double(), own.double(), rtol=2e-5, atol=2e-5, equal_nan=True)


# each in f32 and in another dtype, for a device after the other
CASES = [
    (name, dtype, n + d) for n, name in enumerate(ATTENTION) for d, dtype in enumerate((FLOATS[0], FLOATS[1 + n % 3]))
]


@pytest.mark.parametrize(("name", "dtype", "turn"), CASES)
@pytest.mark.sampled(3)
def test_attention_of_hidden_rows_agrees_with_eager(name: str, dtype: torch.dtype, turn: int) -> None:
    f, target = ATTENTION[name], TARGETS[turn % len(TARGETS)]
    given = inputs(dtype, 0.0)
    compiled = dplc.compile(f, given, target=target, device="emulator", db=False, settings=ONE_PASS)
    for fill in fills(dtype):
        agree(compiled, f, inputs(dtype, fill))


@pytest.mark.parametrize("name", ROWS_ALONE)
@pytest.mark.sampled(2)
def test_reductions_of_hidden_rows_agree_with_eager(name: str) -> None:
    f = ROWS_ALONE[name]
    for dtype, length in itertools.product((torch.float32, torch.bfloat16), (40, 300)):
        mask = inputs(dtype, 0.0)[3].repeat(1, 1, 8)[..., :length]
        compiled = dplc.compile(f, (mask,), target="h200", device="emulator", db=False)
        for fill in fills(dtype):
            agree(compiled, f, (inputs(dtype, fill)[3].repeat(1, 1, 8)[..., :length].contiguous(),))


@pytest.mark.parametrize("rows", [1, 17])
def test_rows_of_any_number_agree_with_eager(rows: int) -> None:
    """One kernel for every length, of a single query and of many, by `dplc.compile` and as dynamo calls the backend."""
    f, given = ATTENTION["softmax"], inputs(torch.float32, 0.0)
    size = {name: {1: dplc.Dim("s", 1, 64)} for name in "qmh"}
    compiled = dplc.compile(f, given, target="h200", device="emulator", db=False, dynamic=size, rows=())
    found = torch.compile(f, backend="dplc", dynamic=True)
    for fill in fills(torch.float32):
        case = tuple(x[:, :rows] if x.shape[1] == 32 else x for x in inputs(torch.float32, fill, 32))
        agree(compiled, f, tuple(x.contiguous() for x in case))
        agree(found, f, tuple(x.contiguous() for x in case))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.sampled(1)
def test_large_scores_are_compared_by_their_differences(dtype: torch.dtype, target: str) -> None:
    """Scores of any finite size: no factor of theirs leaves the range of a float, and none rounds a difference away."""
    unscaled, compiled = functools.partial(sdpa, scale=1.0), None
    for size in (1e3, 1e9, 1e17, 1.3e19):
        q, k, v, *_ = inputs(dtype, 0.0)
        q, k = q * 0, k * 0
        q[..., 0], k[..., 0] = -size, torch.linspace(1.5, 2, KEYS).to(dtype) * size
        compiled = compiled or dplc.compile(
            unscaled, (q, k, v), target=target, device="emulator", db=False, settings=ONE_PASS
        )
        agree(compiled, unscaled, (q, k, v))
