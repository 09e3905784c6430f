"""Gradient modes in and around a function under torch.compile(.., backend="dplc"): everything is as AOTAutograd's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

Tensor = torch.Tensor
Mode = Callable[[], Any]

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

MODES: dict[str, Mode] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "set_grad_enabled(True)": lambda: torch.set_grad_enabled(True),
    "set_grad_enabled(False)": lambda: torch.set_grad_enabled(False),
}


def within(mode: Mode) -> Callable[[Tensor], Any]:
    def function(x: Tensor) -> Any:
        with mode():
            y = x * 2
        return y, y + x

    return function


def decorated(mode: Any) -> Callable[[Tensor], Any]:
    @mode()
    def tripled(x: Tensor) -> Tensor:
        return x * 3

    return lambda x: (tripled(x), x + 1)


def left(enabled: bool) -> Callable[[Tensor], Any]:
    def function(x: Tensor) -> Any:
        before = x * 2
        torch.set_grad_enabled(enabled)
        return before, x * 3

    return function


def nested(x: Tensor) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
        return a, b, x * 4


def detached(x: Tensor) -> Any:
    y = x.detach().requires_grad_()
    return y * 2, x * y


def detached_in_place(x: Tensor) -> Any:
    y = x * 2
    y.detach_()
    return y * x


def derivative(x: Tensor) -> Any:
    """The guidance of a diffusion model, the forces of a potential."""
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((y**3).sum(), y)
    return slope, slope + x


def derivative_of_weights(x: Tensor) -> Any:
    with torch.enable_grad():
        w = torch.ones(2).requires_grad_()
        (slope,) = torch.autograd.grad((w * 3 + x.detach()).sum(), w)
    return slope + x, w.detach()


def changed_in_place(x: Tensor) -> Any:
    y = x * 1
    with torch.no_grad():
        y.mul_(2)
    return y * x


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    **{f"with {name}": within(mode) for name, mode in MODES.items()},
    **{f"@{name}": decorated(MODES[name]) for name in ("no_grad", "enable_grad", "inference_mode")},
    "set_grad_enabled(True) stays": left(True),
    "set_grad_enabled(False) stays": left(False),
    **{f.__name__: f for f in (nested, detached, detached_in_place, changed_in_place)},
    **{f.__name__: f for f in (derivative, derivative_of_weights)},
}


@pytest.mark.parametrize("outer", ["none", "no_grad", "inference_mode"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_gradient_modes_agree_with_aot_eager(name: str, outer: str) -> None:
    """The mode after the call, and of every result whether it requires a gradient, its value, and its gradient."""
    mode = MODES.get(outer, nullcontext)
    for wanted in (True, False):
        ours, theirs = (observed(PROGRAMS[name], mode, wanted, backend) for backend in ("dplc", "aot_eager"))
        assert ours == theirs, f"requires_grad={wanted}"


def observed(function: Callable[[Tensor], Any], mode: Mode, wanted: bool, backend: str) -> list[Any]:
    torch._dynamo.reset()
    x = torch.tensor([1.0, 2.0], requires_grad=wanted)
    with torch.enable_grad(), mode():
        results = torch.utils._pytree.tree_leaves(torch.compile(function, backend=backend)(x))
        after = torch.is_grad_enabled()
    seen: list[Any] = [after]
    for y in results:
        seen += [y.requires_grad, y.is_inference(), y.tolist()]
        if x.requires_grad and y.requires_grad and not y.is_inference():
            (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True, allow_unused=True)
            seen.append(None if gradient is None else gradient.tolist())
    return seen
