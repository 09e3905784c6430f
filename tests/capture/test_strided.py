"""Memory that is read by strides: right where it is a tensor's elements in order, else refused."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import dplc
from dplc.engine.capture import joint
from dplc.ir.diagnostic import DplcError


def turned(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x.t(), (3, 2), (2, 1), 1) * 3


def test_the_memory_of_a_transpose() -> None:
    x = torch.randn(4, 5)
    assert torch.equal(dplc.compile(turned, (x,))(x), turned(x))


def test_an_argument_in_another_order_of_memory() -> None:
    program = dplc.compile(turned, (torch.randn(4, 5),))
    with pytest.raises(DplcError, match=r"argument `x` has the strides \(1, 4\), not \(5, 1\)"):
        program(torch.randn(5, 4).t())


def test_a_part_of_the_memory_of_another_tensor() -> None:
    with pytest.raises(DplcError, match="a part of another one's memory"):
        dplc.compile(lambda x: torch.as_strided((x * 2)[2:], (3,), (2,), 1), (torch.randn(9),))


def test_all_elements_in_order_are_a_view() -> None:
    """Of a graph with gradients: what strides say of them is not computed from places, but is the tensor itself."""
    x = torch.randn(2, 3)
    seen = [node.target for node in make_fx(lambda x: joint._as_strided(x, (6,), (1,)))(x).graph.nodes]
    assert torch.ops.aten.view.default in seen and torch.ops.aten.as_strided.default not in seen
