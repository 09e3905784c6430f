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
