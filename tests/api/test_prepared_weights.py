"""Weights that loading computes: once, and again where a weight has changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dplc
from dplc.engine.run.calls import Preparation, contents

pytest.importorskip("egglog.bindings")


class Adapter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(32, 24, bias=False)
        self.down, self.up = torch.nn.Linear(32, 4, bias=False), torch.nn.Linear(4, 24, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


def in_place(weight: Any) -> None:
    weight.mul_(3.0)


def by_data(weight: Any) -> None:
    weight.data[0, 0] = 100.0


def by_a_loader(weight: Any) -> None:
    weight.data.copy_(torch.ones_like(weight))


def by_exchange(weight: Any) -> None:
    weight.data = torch.full_like(weight, 0.5)


def by_numpy(weight: Any) -> None:
    weight.detach().numpy()[-1, -1] = -7.0


def by_swapping(weight: Any) -> None:
    """The same numbers at other places."""
    weight.data[[0, 1]] = weight.data[[1, 0]]


WAYS = (in_place, by_data, by_a_loader, by_exchange, by_numpy, by_swapping)


@pytest.fixture(scope="module")
def adapted() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    module, x = Adapter(), torch.randn(8, 32)
    compiled = dplc.compile(module, (x,), device="emulator", explore=True)
    assert compiled.compilation.prepared and len(compiled.program.kernels) == 1
    return module, x, compiled


@pytest.mark.parametrize("write", WAYS)
def test_a_weight_may_be_written_in_any_way(adapted: Any, write: Any) -> None:
    module, x, compiled = adapted
    compiled(x)
    for weight in (module.up.weight, module.down.weight, module.base.weight):
        with torch.no_grad():
            write(weight)
        assert torch.allclose(compiled(x), module(x), atol=1e-3, rtol=1e-4), write.__name__


def test_what_is_looked_at_of_a_large_weight_on_a_device() -> None:
    """All of a small one; of a large one so many elements that a loader or a moving average cannot be missed."""
    weight = torch.randn(300, 1000)
    small, first = contents(weight[:5], True), contents(weight, True)
    weight[3, 3] += 1.0
    assert contents(weight[:5], True) != small and contents(weight, True) == first
    assert contents(weight, False) != contents(weight.clone().fill_diagonal_(0.0), False)
    weight.mul_(1.0001)
    assert contents(weight, True) != first


def test_weights_may_be_asked_for_again(adapted: Any) -> None:
    module, x, compiled = adapted
    compiled(x)
    assert compiled._preparation._kept
    compiled.refresh_weights()
    assert not compiled._preparation._kept
    assert torch.allclose(compiled(x), module(x), atol=1e-3, rtol=1e-4)


def test_nothing_is_computed_twice(adapted: Any) -> None:
    compilation = adapted[2].compilation
    preparation = Preparation()
    tensors = compilation.captured.tensors
    first, again = (preparation.now(compilation.prepared, tensors) for _ in range(2))
    assert all(first[name] is again[name] for name in first)


def test_a_weight_is_prepared_beyond_the_places_where_it_is_read() -> None:
    """A piece of a join reads its weight under an index map that is right within its own range alone."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x[[12, 3, 8, 7, 10]]
        return torch.cat([y, y[:1], y[:1], y], 0)

    x = torch.randn(16)
    compiled = dplc.compile(program, (x,), explore=True, target="h100", device="emulator", db=False)
    assert compiled.compilation.prepared and torch.equal(compiled(x), program(x))
