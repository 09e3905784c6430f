"""Lengths that a program multiplies by a float: whole again as a quotient, where that is so for every length."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamic_checks import is_right, sized

import dplc
from dplc.engine.capture.dynamic_shapes import MOST_TRIED
from dplc.ir.diagnostic import DplcError

RANGE = dplc.Dim("s", 8, 256, hint=64)
GROWN: dict[str, Callable[[Any], Any]] = {
    "twice": lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
    "half as long again": lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest"),
    "by a number that is not a short quotient": lambda x: F.interpolate(x, scale_factor=3.14159, mode="nearest"),
    "in both directions": lambda x: F.interpolate(x[None], scale_factor=2.0, mode="bilinear"),
}


def compiled(function: Callable[[Any], Any], size: dplc.Dim = RANGE, **options: Any) -> Any:
    return sized(function, torch.randn(1, 2, 16), size=size, at=2, **options)


@pytest.mark.parametrize("name", GROWN)
@pytest.mark.sampled(2)
def test_images_grow_by_a_factor(name: str) -> None:
    program = compiled(GROWN[name])
    for n in (8, 9, 33, 71, 255, 256):
        assert is_right(program, GROWN[name], torch.randn(1, 2, n)), n


FLOATS: dict[str, Callable[[Any], Any]] = {  # each reads a float of the length where torch takes a tensor, too
    "a root": lambda x: x * (1.0 / x.shape[2] ** 0.5),
    "of sixteen bits": lambda x: x.bfloat16() * (x.shape[2] / 3),
    "in f64": lambda x: x.double() / (x.shape[2] ** 0.5),
    "of whole numbers": lambda x: x.long() * (x.shape[2] / 3),
    "as an exponent": lambda x: x.abs() ** (1 / x.shape[2]),
    "as an end": lambda x: x.clamp(max=1 / x.shape[2]),
    "as both ends": lambda x: x.clamp(-1 / x.shape[2], 1 / x.shape[2]),
    "compared": lambda x: torch.where(x > 1 / x.shape[2], x, 1 / x.shape[2]),
    "two that share a root": lambda x: (x - x.shape[2] ** 0.5) * (1 - x.shape[2] ** 0.5),
    "steps": lambda x: torch.linspace(0, 1, x.shape[2]) * x,
    "resized to one length": lambda x: F.interpolate(x, size=20, mode="linear"),
    "doubled": lambda x: F.interpolate(x, scale_factor=2, mode="linear", align_corners=True),
    "the nearest of each": lambda x: F.interpolate(x, size=20, mode="nearest"),
    "a square": lambda x: F.interpolate(x[None], size=(20, 20), mode="bilinear"),
    "cubic": lambda x: F.interpolate(x[None], size=(7, 20), mode="bicubic", align_corners=True),
    "sampled": lambda x: F.grid_sample(x[None], GRID, align_corners=False),
}
GRID = torch.linspace(-1.1, 1.1, 50).reshape(1, 5, 5, 2)


@pytest.mark.parametrize("rows", [(), None], ids=["one program", "rows"])
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.sampled(3)
def test_a_float_made_of_a_length_is_a_value(name: str, rows: Any) -> None:
    function = FLOATS[name]
    program = compiled(function, rows=rows)
    for n in (8, 9, 33, 256):
        x = torch.randn(1, 2, n)
        wanted = function(x)
        rtol, atol = (2e-2, 1e-2) if wanted.dtype is torch.bfloat16 else (2e-5, 2e-5)
        torch.testing.assert_close(program(x), wanted, rtol=rtol, atol=atol)


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "two apart": lambda x: F.conv1d(x, KERNEL, stride=2, padding=1),
    "the largest": lambda x: F.max_pool1d(x, 3, 2, padding=1),
    "the largest of a plane": lambda x: F.max_pool2d(x, (1, 3), 2, padding=(0, 1)),
    "means": lambda x: F.avg_pool1d(x, 3, 2, padding=1, count_include_pad=False),
    "parts": lambda x: F.adaptive_avg_pool1d(x, 7),
    "the largest of parts": lambda x: F.adaptive_max_pool1d(x, 5, return_indices=True),
}
KERNEL = torch.randn(3, 2, 3)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_every_length(name: str) -> None:
    """Whether the last window ends within the input is another answer for each length: a test that is right for all."""
    program = compiled(WINDOWS[name])
    for n in (8, 9, 33, 71, 255, 256):
        x = torch.randn(1, 2, n)
        torch.testing.assert_close(program(x), WINDOWS[name](x), rtol=1e-5, atol=1e-5)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no quotient": (lambda x: F.interpolate(x, scale_factor=0.7, mode="nearest"), "TruncToInt(0.7*ToFloat(s))"),
    "a number of an op": (lambda x: torch.add(x, x, alpha=x.shape[2] / 7), "takes a float made of a length"),
    "a root by Python": (lambda x: x / math.sqrt(x.shape[2]), "the program asks for 16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_for_all_lengths_is_told(name: str) -> None:
    function, said = REFUSED[name]
    with pytest.raises(DplcError) as told:
        compiled(function)
    assert said in told.value.what and told.value.hint


def test_a_range_too_long_to_try_is_told() -> None:
    """A quotient is taken where every length agrees; so many are not asked one by one."""
    longer = dplc.Dim("s", 8, 8 + MOST_TRIED + 1, hint=64)
    with pytest.raises(DplcError, match="ToFloat"):
        compiled(GROWN["half as long again"], longer)
