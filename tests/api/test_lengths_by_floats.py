"""Lengths that a program multiplies by a float: whole again as a quotient, where that is so for every length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dplc
from dplc.engine.capture.sizes import MOST_TRIED
from dplc.engine.run.judge import accepted
from dplc.ir.diagnostic import DplcError

RANGE = dplc.Dim("s", 8, 256, hint=64)
GROWN: dict[str, Callable[[Any], Any]] = {
    "twice": lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
    "half as long again": lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest"),
    "by a number that is no short quotient": lambda x: F.interpolate(x, scale_factor=3.14159, mode="nearest"),
    "in both directions": lambda x: F.interpolate(x[None], scale_factor=2.0, mode="bilinear"),
}


def compiled(function: Callable[[Any], Any]) -> Any:
    return dplc.compile(function, (torch.randn(1, 2, 16),), dynamic={"x": {2: RANGE}}, rows=())


@pytest.mark.parametrize("name", GROWN)
def test_images_grow_by_a_factor(name: str) -> None:
    program = compiled(GROWN[name])
    for n in (8, 9, 33, 71, 255, 256):
        x = torch.randn(1, 2, n)
        wanted = GROWN[name](x.double())
        assert program(x).shape == wanted.shape and accepted([program(x)], [wanted]), n


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no quotient": (lambda x: F.interpolate(x, scale_factor=0.7, mode="nearest"), "TruncToInt(0.7*ToFloat(s))"),
    "a root": (lambda x: x * (1.0 / x.shape[2] ** 0.5), "takes a float made of a length"),
    "one length": (lambda x: F.interpolate(x, size=20, mode="linear"), "`s` is fixed to 16: PyTorch takes an op"),
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
        dplc.compile(GROWN["half as long again"], (torch.randn(1, 2, 16),), dynamic={"x": {2: longer}}, rows=())
