"""Rows of equal values: what is left of them beside their mean is exactly nothing, whatever their sum rounds to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dplc

VALUES = {
    torch.float32: (12345.678, 1e-3, 1e30, -7.1),
    torch.float16: (12345.678, 1e-3, 6e4, -7.1),
    torch.bfloat16: (12345.678, 1e-3, 1e30, -7.1),
}
BIAS = 3.25  # what is left of a norm whose gain multiplies nothing


def biased(x: Any) -> Any:
    n = x.shape[-1]
    return F.layer_norm(x, (n,), torch.linspace(-2, 2, n, dtype=x.dtype), torch.full((n,), BIAS, dtype=x.dtype)) - BIAS


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer_norm, gain and bias": biased,
    "layer_norm of matrices": lambda x: F.layer_norm(x[:, None].expand(4, 3, -1), (3, x.shape[1])),
    "layer_norm of a sum": lambda x: F.layer_norm(x + 0.25 * x, x.shape[1:]),
    "layer_norm of a norm": lambda x: F.layer_norm(F.rms_norm(x, x.shape[1:], eps=1e-6), x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x[:, None].expand(4, 4, -1), 2),
    "batch_norm": lambda x: F.batch_norm(x.T, None, None, training=True),
    "instance_norm": lambda x: F.instance_norm(x[None]),
    "var": lambda x: x.var(1, unbiased=False),
    "var of columns": lambda x: x.T.var(0, correction=0, keepdim=True),
    "var of everything": lambda x: x[3:].var(unbiased=False),
    "std": lambda x: x.std(1, correction=0),
    "var_mean": lambda x: torch.var_mean(x, 1, correction=0)[0],
    "std_mean": lambda x: torch.std_mean(x, 1, correction=0)[0],
}
LENGTHS = (2, 7, 97, 100, 1025, 4096)
LONG = 40_000  # a row that several blocks share


def rows(length: int, dtype: Any = torch.float32) -> Any:
    return torch.tensor(VALUES[dtype], dtype=dtype)[:, None].expand(-1, length).contiguous()


def left(name: str, x: Any, explore: bool = False) -> float:
    """The largest element of what is left; inf where one is none."""
    result = dplc.compile(OPERATIONS[name], (x,), device="emulator", db=False, explore=explore)(x)
    return float(result.float().abs().nan_to_num(torch.inf).max())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.sampled(4)
def test_nothing_is_left(name: str, length: int) -> None:
    assert left(name, rows(length)) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.sampled(3)
def test_nothing_is_left_of_halves(name: str, dtype: Any) -> None:
    assert left(name, rows(100, dtype)) == 0


@pytest.mark.parametrize("name", ["layer_norm", "var of columns", "std", "var of everything"])
def test_nothing_is_left_of_a_long_row(name: str) -> None:
    assert left(name, rows(LONG)) == 0


@pytest.mark.parametrize("length", [7, 100])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.sampled(3)
def test_exploration_leaves_nothing_either(name: str, length: int) -> None:
    assert left(name, rows(length), explore=True) == 0


def test_one_element_is_its_own_mean() -> None:
    assert left("layer_norm", rows(1)) == left("std", rows(1)) == 0
