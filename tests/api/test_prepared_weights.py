"""Weights that loading computes: once, and again where a weight has changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import dplc
from dplc.engine.run.calls import Preparation, contents

pytest.importorskip("egglog.bindings")
BASE, DOWN, UP = (nn.Linear(*shape, bias=False) for shape in ((32, 24), (32, 4), (4, 24)))
X = torch.randn(8, 32)


def adapted(x: torch.Tensor) -> Any:
    return BASE(x) + UP(DOWN(x))


@pytest.fixture(scope="module")
def compiled() -> dplc.Compiled:
    made = dplc.compile(adapted, (X,), explore=True)
    assert made.compilation.prepared and len(made.program.kernels) == 1
    return made


@pytest.mark.parametrize(
    "write",
    [
        lambda weight: weight.mul_(3.0),
        lambda weight: weight.data[0, 0].fill_(100.0),
        lambda weight: weight.data.copy_(torch.ones_like(weight)),  # a loader
        lambda weight: setattr(weight, "data", torch.full_like(weight, 0.5)),
        lambda weight: weight.detach().numpy()[-1].fill(-7.0),
        lambda weight: weight.data.copy_(weight.flip(0)),  # the same numbers at other places
    ],
)
def test_a_weight_may_be_written_in_any_way(compiled: dplc.Compiled, write: Any) -> None:
    for layer in (UP, DOWN, BASE):
        compiled(X)
        with torch.no_grad():
            nn.init.normal_(layer.weight)
            compiled(X)
            write(layer.weight)
        torch.testing.assert_close(compiled(X), adapted(X).detach(), atol=1e-3, rtol=1e-4)


def test_weights_are_computed_once_until_they_are_asked_for_again(compiled: dplc.Compiled) -> None:
    compiled(X)
    assert compiled._preparation._kept
    compiled.refresh_weights()
    assert not compiled._preparation._kept
    preparation, made = Preparation(), compiled.compilation
    first, again = (preparation.now(made.prepared, made.captured.tensors) for _ in range(2))
    assert all(first[name] is again[name] for name in first)


def test_what_is_looked_at_of_a_large_weight_on_a_device() -> None:
    """All of a small one; of a large one so many elements that a loader or a moving average cannot be missed."""
    weight = torch.randn(300, 1000)
    small, first = contents(weight[:5], True), contents(weight, True)
    weight[3, 3] += 1.0
    assert contents(weight[:5], True) != small and contents(weight, True) == first
    assert contents(weight, False) != contents(weight.clone().fill_diagonal_(0.0), False)
    weight.mul_(1.0001)
    assert contents(weight, True) != first


def test_a_weight_is_prepared_beyond_the_places_where_it_is_read() -> None:
    """A piece of a join reads its weight under an index map that is right within its own range alone."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x[[12, 3, 8, 7, 10]]
        return torch.cat([y, y[:1], y[:1], y], 0)

    x = torch.randn(16)
    compiled = dplc.compile(program, (x,), explore=True, target="h100", device="emulator", db=False)
    assert compiled.compilation.prepared and torch.equal(compiled(x), program(x))
