"""Scans of any monoid in one program: forward, reversed and exclusive, along each axis, and gradients that have such pairs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawing import draws
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._higher_order_ops.associative_scan import associative_scan

import dplc
from dplc.engine.torch_backend import EagerWarning

Function = Callable[..., Any]
SCANS: dict[str, Function] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": lambda x, d: torch.cummax(x, d).values,
    "cummin": lambda x, d: torch.cummin(x, d).values,
    "largest": lambda x, d: torch.cummax(x, d).indices,
    "logcumsumexp": torch.logcumsumexp,
    "affine": lambda x, d: recurrence(x.movedim(d, 0)).movedim(0, d) if x.shape[d] <= 7 else torch.cumsum(x, d),
}
SHAPES = ((1,), (7,), (37,), (5, 3), (3, 37), (37, 3), (2, 5, 3), (2, 37, 3), (3, 2, 37), (41, 2, 3))


def recurrence(x: torch.Tensor) -> torch.Tensor:
    """h[n] = x[n]*h[n - 1]/2 + x[n], written as a loop."""
    states = [x[0]]
    for row in x[1:]:
        states.append(row * states[-1] * 0.5 + row)
    return torch.stack(states)


def scanned(x: torch.Tensor, name: str, axis: int, reverse: bool, exclusive: bool) -> torch.Tensor:
    x = x.flip(axis) if reverse else x
    y = SCANS[name](x, axis)
    if exclusive:
        y = torch.cat([torch.zeros_like(y.narrow(axis, 0, 1)), y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if reverse else y


def assert_near(got: Any, want: Any) -> None:
    for one, other in zip(*map(torch.utils._pytree.tree_leaves, (got, want)), strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-5, atol=1e-5)


@settings(max_examples=draws(10))
@given(st.data())
def test_several_scans_of_one_input_are_right(data: st.DataObject) -> None:
    x = torch.rand(data.draw(st.sampled_from(SHAPES)), generator=torch.Generator().manual_seed(0)) * 0.4 + 0.8
    scan = st.tuples(st.sampled_from([*SCANS]), st.integers(0, x.ndim - 1), st.booleans(), st.booleans())
    scans = data.draw(st.lists(scan, min_size=2, max_size=3))
    together = data.draw(st.booleans())  # in one kernel, or results of their own

    def several(x: torch.Tensor) -> Any:
        parts = [scanned(x, *one) for one in scans]
        return sum(parts) if together else tuple(parts)

    assert_near(dplc.compile(several, x)(x), several(x.double()))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.sampled(4)
def test_open_lengths_of_opposite_scans_are_right(name: str, axis: int) -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        return scanned(x, name, axis, False, False) * scanned(x, name, axis, True, False)

    torch._dynamo.reset()
    compiled = torch.compile(both, backend="dplc", fullgraph=True, dynamic=True)
    for shape in ((5, 3), (7, 4), (37, 5)):
        x = torch.rand(shape) * 0.4 + 0.8
        assert_near(compiled(x), both(x.double()))


def giou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The loss of generalised intersection over union of boxes (left, top, right, bottom)."""
    sides = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    both = sides.prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - both
    return (1 - both / union + (hull - union) / hull).mean()


def combined(x: torch.Tensor, reverse: bool) -> torch.Tensor:
    def step(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return associative_scan(step, (x, 1 - x), dim=0, reverse=reverse, combine_mode="generic")[1]


def opposite(name: str, axis: int) -> Function:
    return lambda x: scanned(x, name, axis, False, False) * scanned(x, name, axis, True, False)


def values(*shape: int, zeros: tuple[tuple[int, ...], ...] = ()) -> torch.Tensor:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 0.5
    for place in zeros:
        x[place] = 0
    return x


def boxes(count: int, seed: int) -> torch.Tensor:
    corners = torch.rand(count, 2, 2, generator=torch.Generator().manual_seed(seed))
    return torch.cat([corners[:, 0], corners[:, 0] + corners[:, 1] + 0.1], 1)


ZEROS = ((0, 1), (1, 1), (1, 3))
GRADIENTS: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "prod": (lambda x: x.prod(), (values(3, 5),)),
    "prod of one": (lambda x: x.prod(), (values(1),)),
    "prod of a dimension": (lambda x: x.prod(0), (values(7, 3),)),
    "prod of a row": (lambda x: x.prod(1, keepdim=True), (values(3, 37),)),
    "prod of a middle": (lambda x: x.prod(1), (values(2, 37, 3),)),
    "prod of zeros": (lambda x: x.prod(), (values(3, 5, zeros=ZEROS),)),
    "prod of rows with zeros": (lambda x: x.prod(1), (values(3, 5, zeros=ZEROS),)),
    "cumprod": (lambda x: x.cumprod(0), (values(7, 3),)),
    "cumprod of a row": (lambda x: x.cumprod(1), (values(3, 37),)),
    "cumprod of zeros": (lambda x: x.cumprod(1), (values(3, 5, zeros=ZEROS),)),
    "cummax": (lambda x: x.cummax(0).values, (values(37, 3),)),
    "cummin": (lambda x: x.cummin(1).values, (values(3, 5),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), (values(7, 3),)),
    "giou": (giou, (boxes(6, 0), boxes(6, 1))),
    "select_scatter": (lambda x: torch.select_scatter(x.cumprod(0), x.sum(0), 0, 1), (values(5, 3),)),
    "associative scans": (lambda x: combined(x, False) + combined(x, True), (values(5),)),
    **{f"opposite {name}": (opposite(name, 0), (values(5, 3),)) for name in SCANS if name != "largest"},
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.sampled(8)
def test_gradients_with_scans_leave_nothing_to_eager(name: str) -> None:
    function, inputs = GRADIENTS[name]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="dplc", fullgraph=True)
    found = []
    for call, dtype in ((compiled, torch.float32), (function, torch.float64)):
        given = [x.to(dtype).requires_grad_() for x in inputs]
        with warnings.catch_warnings():
            warnings.simplefilter("error", EagerWarning)
            result = call(*given)
            weights = torch.linspace(1, 2, result.numel(), dtype=dtype).reshape(result.shape)
            found.append((result, torch.autograd.grad((result * weights).sum(), given)))
    assert_near(*found)
