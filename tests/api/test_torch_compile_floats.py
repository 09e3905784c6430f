"""Floats that change between calls of what `torch.compile(.., backend="dplc", dynamic=True)` made: values, or one warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import assert_same, compare, with_gradient

from dplc.engine.torch_backend import LengthWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
CALLS = ((6, 0.5), (9, 0.3), (12, -1.7))


def rows(n: int) -> Any:
    return torch.randn(n, 8)


VALUES: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "a factor and a summand": (lambda x, scale: x * scale + scale, rows),
    "a bound": (lambda x, scale: torch.where(x > scale, x, scale * x).clamp(max=scale), rows),
    "made of others": (lambda x, scale: (scale - x) / (3 + scale) + scale * 2 * x, rows),
    "of f64": (lambda x, scale: x * scale, lambda n: rows(n).double()),
    "of bf16": (lambda x, scale: x * scale, lambda n: rows(n).bfloat16()),
    "of a sum": (lambda x, scale: x.sum() * scale, rows),
    "of whole numbers": (lambda x, scale: x * scale, torch.arange),
    "of an argument that is changed": (lambda x, scale: x.mul_(scale) + 1, rows),
    "a power, of bounds": (lambda x, scale: torch.lerp(x, x.abs() ** scale, scale), lambda n: rows(n).abs() + 1),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.sampled(5)
def test_a_float_is_a_value_of_one_compile(name: str, compiles: list[Any]) -> None:
    function, given = VALUES[name]
    compare(function, [(given(n), scale) for n, scale in CALLS], dynamic=True)
    assert len(compiles) == 1


@pytest.mark.filterwarnings("error")
def test_a_float_is_a_value_of_forward_and_backward(compiles: list[Any]) -> None:
    def function(weight: torch.Tensor, x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * weight * (1 - scale) + scale

    weight = torch.ones(8, requires_grad=True)
    compiled = torch.compile(function, backend="dplc", dynamic=True)
    for n, scale in CALLS:
        given = weight, rows(n), scale
        assert_same(with_gradient(compiled, *given), with_gradient(function, *given))
    assert len(compiles) == 2


def attention(x: Any, scale: float) -> Any:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], scale=scale)  # a number that torch fixes


WEIGHT = torch.ones(8, requires_grad=True)
FIXED: dict[str, Callable[..., Any]] = {
    "of an op's own": lambda x, scale: F.leaky_relu(x, scale),
    "of a bf16 without dimensions": lambda x, scale: x.bfloat16().sum() * scale,  # a tensor would make it f32
    "by torch": attention,
    "in training, by torch": lambda x, scale: torch.lerp(x, x * WEIGHT, scale),
}


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.sampled(2)
def test_a_float_that_dplc_fixes_is_told_once(name: str, compiles: list[Any]) -> None:
    """A float that torch fixes is in torch's own logs."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compare(FIXED[name], [(rows(n), scale) for n, scale in CALLS], dynamic=True)
    said = [w for w in told if w.category is LengthWarning]
    assert len(said) == ("by torch" not in name) and len(compiles) == len(CALLS)
    for warning in said:
        assert "it was 0.5, and is 0.3" in str(warning.message) and f"at {__file__}" in str(warning.message)
        assert warning.filename == __file__


def test_a_length_that_torch_fixes_is_compiled_for_each_value(compiles: list[Any]) -> None:
    def total(x: Any) -> Any:
        return torch.stack([x[place] for place in range(x.shape[0])]).sum(0)

    compare(total, [(rows(n),) for n in (3, 4, 5, 6)], dynamic=True)
    assert len(compiles) == 4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("asked", [False, None])
def test_lengths_that_were_asked_to_be_fixed_are_no_news(asked: bool | None, compiles: list[Any]) -> None:
    compare(lambda x: x * 2 + 1, [(rows(n),) for n in (3, 4, 5)], dynamic=asked)
    assert len(compiles) == (3 if asked is False else 2)
