"""Programs under `torch.compile(.., backend="dplc")`, held against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

ALL_COMPILED = pytest.mark.filterwarnings("error::dplc.engine.torch_backend.EagerWarning")


def assert_same(got: Any, want: Any) -> None:
    """Fail unless structures, dtypes, shapes and strides are equal, and floats near."""
    for one, other in zip(*map(torch.utils._pytree.tree_leaves, (got, want)), strict=True):
        near = 2e-2 if getattr(other, "dtype", None) is torch.bfloat16 else 1e-5
        torch.testing.assert_close(one, other, rtol=near, atol=near, check_stride=True)


def compare(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], **options: Any) -> None:
    """Compile a function once; fail unless every call gives what eager gives, and changes its arguments so."""
    compiled = torch.compile(function, backend="dplc", **options)
    for given in calls:
        ours, theirs = (copy.deepcopy(given) for _ in range(2))
        assert_same((compiled(*ours), ours), (function(*theirs), theirs))


def with_gradient(function: Callable[..., Any], x: torch.Tensor, *rest: Any) -> tuple[list[Any], torch.Tensor]:
    """Return the results of a function and the gradient of the sum of their squares."""
    found = torch.utils._pytree.tree_leaves(function(x, *rest))
    return found, x.requires_grad and torch.autograd.grad(sum(y.square().sum() for y in found), x)[0]
