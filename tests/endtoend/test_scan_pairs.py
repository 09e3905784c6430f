"""Scans of any monoid in one program: forward, reversed and exclusive, along each axis, and gradients that have such pairs."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from drawing import some
from dynamo_checks import ALL_COMPILED
from torch._higher_order_ops.associative_scan import associative_scan

import dplc

SCANS = (
    "torch.cumprod(x, 0)",
    "torch.cumsum(x, 0)",
    "torch.cummax(x, 0).values",
    "torch.cummin(x, 0).values",
    "torch.cummax(x, 0).indices",
    "torch.logcumsumexp(x, 0)",
)
SHAPES = (
    (5, 3),
    (3, 37),
    (7,),
    (37, 3),
    (2, 37, 3),
    (3, 2, 37),
    (131,),
    (1, 3),
)  # each axis of 1 to 3, ragged and prime
KINDS = ("reverse", "", "reverse exclusive", "exclusive")
PAIRS = [(*one, axis) for one in itertools.product(SHAPES, SCANS, SCANS, KINDS) for axis in range(len(one[0]))]
GRADIENTS = {
    "x.prod()": (3, 5),
    "x.prod(0)": (7, 3),
    "x.prod(1, keepdim=True)": (3, 37),
    "x.prod(1)": (2, 37, 3),
    "(x * places.fmod(4).sign()).prod()": (3, 5),
    "(x * places.fmod(9).sign()).prod(1)": (3, 5),
    "x.cumprod(0)": (7, 3),
    "(x * places.fmod(9).sign()).cumprod(1)": (3, 5),
    "x.cummax(0).values": (37, 3),
    "x.cummin(1).values": (3, 5),
    "x.logcumsumexp(0)": (7, 3),
    "x.cumsum(0) * scanned(x, SCANS[1], 'reverse', 0)": (5, 3),
    "torch.select_scatter(x.cumprod(0), x.sum(0), 0, 1)": (5, 3),
    "giou(x[:6], x[6:])": (12, 4),
    "combined(x, False) + combined(x, True)": (5,),
}


MADE = {text: eval(f"lambda x: {text}") for text in SCANS}


def scanned(x: torch.Tensor, text: str, kind: str, axis: int) -> torch.Tensor:
    """Return a scan along an axis: of the reversed input, moved by one, or both."""
    x = x.movedim(axis, 0)
    x = x.flip(0) if "reverse" in kind else x
    y = MADE[text](x)
    y = torch.cat([y[:1] * 0, y[:-1]]) if "exclusive" in kind else y
    return (y.flip(0) if "reverse" in kind else y).movedim(0, axis)


def giou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the loss of generalised intersection over union of boxes: left, top, and sides."""
    low, high = a[:, :2], a[:, :2] + a[:, 2:]
    other, end = b[:, :2], b[:, :2] + b[:, 2:]
    both = (torch.minimum(high, end) - torch.maximum(low, other)).clamp(min=0).prod(1)
    hull = (torch.maximum(high, end) - torch.minimum(low, other)).prod(1)
    union = a[:, 2:].prod(1) + b[:, 2:].prod(1) - both
    return (1 - both / union + (hull - union) / hull).mean()


def combined(x: torch.Tensor, reverse: bool) -> torch.Tensor:
    """Return the states of an affine recurrence, as an associative scan."""

    def step(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return associative_scan(step, (x, 1 - x), dim=0, reverse=reverse, combine_mode="generic")[1]


def values(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.8


def assert_near(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "one", "other", "kind", "axis"), some(PAIRS, 23))
def test_scans_in_one_program_agree_with_float64(shape: Any, one: str, other: str, kind: str, axis: int) -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        return scanned(x, one, "", axis) * scanned(x, other, kind, axis) + scanned(x, other, "reverse", 0)

    x = values(*shape)
    assert_near(dplc.compile(both, x)(x), both(x.double()).double())


@pytest.mark.parametrize("text", SCANS)
@pytest.mark.sampled(2)
def test_opposite_scans_of_open_lengths_agree_with_float64(text: str) -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        return scanned(x, text, "", 0) * scanned(x, text, "reverse", 1)

    torch._dynamo.reset()
    compiled = torch.compile(both, backend="dplc", fullgraph=True, dynamic=True)
    for x in (values(5, 3), values(7, 4), values(37, 5)):
        assert_near(compiled(x), both(x.double()).double())


@ALL_COMPILED
@pytest.mark.parametrize("text", GRADIENTS)
@pytest.mark.sampled(8)
def test_gradients_with_scans_leave_nothing_to_eager(text: str) -> None:
    function = eval(f"lambda x, places: {text}")
    places = torch.arange(math.prod(GRADIENTS[text])).reshape(GRADIENTS[text])
    torch._dynamo.reset()
    found = []
    compiled = torch.compile(function, backend="dplc", fullgraph=True)
    for call, dtype in ((function, torch.float64), (compiled, torch.float32)):
        x = values(*GRADIENTS[text]).to(dtype).requires_grad_()
        result = call(x, places)
        weights = torch.linspace(1, 2, result.numel(), dtype=dtype).reshape(result.shape)
        found.append((result, torch.autograd.grad((result * weights).sum(), x)[0]))
    for want, got in zip(*found, strict=True):
        assert_near(got, want)
