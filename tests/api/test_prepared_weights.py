"""Weights that loading computes: once, and again where a weight has changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dplc
from dplc.engine.prepare import Preparation

pytest.importorskip("egglog.bindings")


class Adapter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = torch.nn.Linear(32, 24, bias=False)
        self.down, self.up = torch.nn.Linear(32, 4, bias=False), torch.nn.Linear(4, 24, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


def test_a_merged_adapter_follows_its_weights() -> None:
    torch.manual_seed(0)
    module, x = Adapter(), torch.randn(8, 32)
    compiled = dplc.compile(module, (x,), device="emulator", explore=True)
    assert compiled.compilation.prepared and len(compiled.program.kernels) == 1
    assert torch.allclose(compiled(x), module(x), atol=1e-5)
    with torch.no_grad():
        module.up.weight.mul_(3.0)
    assert torch.allclose(compiled(x), module(x), atol=1e-5)


def test_nothing_is_computed_twice() -> None:
    torch.manual_seed(0)
    module, x = Adapter(), torch.randn(8, 32)
    compilation = dplc.compile(module, (x,), device="emulator", explore=True).compilation
    preparation = Preparation(compilation.prepared)
    tensors = compilation.captured.tensors
    first, again = preparation.now(tensors), preparation.now(tensors)
    assert all(first[name] is again[name] for name in first)


def test_a_weight_is_prepared_beyond_the_places_where_it_is_read() -> None:
    """A piece of a join reads its weight under an index map that is right within its own range alone."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x[[12, 3, 8, 7, 10]]
        return torch.cat([y, y[:1], y[:1], y], 0)

    x = torch.randn(16)
    compiled = dplc.compile(program, (x,), explore=True, target="h100", device="emulator", db=False)
    assert compiled.compilation.prepared and torch.equal(compiled(x), program(x))
