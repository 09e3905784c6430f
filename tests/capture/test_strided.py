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


def diagonal_filled(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).fill_diagonal_(1.5, wrap=True)


@pytest.mark.parametrize("shape", [(4, 6), (9, 3), (3, 3, 3), (1, 1)])
def test_what_torch_writes_by_strides_in_place(shape: tuple[int, ...]) -> None:
    """The op that writes by strides is only there once the program is without changes in place."""
    x = torch.randn(shape)
    assert torch.equal(dplc.compile(diagonal_filled, (x,))(x), diagonal_filled(x))


@pytest.mark.filterwarnings("error::dplc.engine.torch_backend.EagerWarning")
def test_a_first_call_is_compiled_unseen_by_the_modes_of_torch() -> None:
    """AOTAutograd looks on at first calls by a mode, under which torch.export decomposes nothing."""
    x = torch.randn(4, 6)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(diagonal_filled, backend="dplc")(x), diagonal_filled(x))
