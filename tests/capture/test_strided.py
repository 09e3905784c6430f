"""Memory that is read by strides: right where it is a tensor's elements in order, else refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dynamo_checks import ALL_COMPILED, compare, with_gradient
from torch.fx.experimental.proxy_tensor import make_fx

import dplc
from dplc.engine import torch_backend
from dplc.ir.diagnostic import DplcError

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
Tensor = torch.Tensor


def transposed(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x.t(), (3, 2), (2, 1), 1) * 3


def test_the_memory_of_a_transpose() -> None:
    x = torch.randn(4, 5)
    assert torch.equal(dplc.compile(transposed, (x,))(x), transposed(x))


def test_an_argument_in_another_order_of_memory() -> None:
    program = dplc.compile(transposed, (torch.randn(4, 5),))
    with pytest.raises(DplcError, match=r"argument `x` has the strides \(1, 4\), not \(5, 1\)"):
        program(torch.randn(5, 4).t())


def test_a_part_of_the_memory_of_another_tensor() -> None:
    with pytest.raises(DplcError, match="a part of another one's memory"):
        dplc.compile(lambda x: torch.as_strided((x * 2)[2:], (3,), (2,), 1), (torch.randn(9),))


def test_all_elements_in_order_are_a_view() -> None:
    """Of a graph with gradients: what strides say of them is not computed from places, but is the tensor itself."""
    x = torch.randn(2, 3)
    seen = [node.target for node in make_fx(lambda x: torch_backend._as_strided(x, (6,), (1,)))(x).graph.nodes]
    assert torch.ops.aten.view.default in seen and torch.ops.aten.as_strided.default not in seen


def written_view(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:].as_strided((2,), (1,), 5).mul_(2)
    return y


def written_memory(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    z = y.as_strided((4,), (4,), 1)
    z.mul_(3)
    y[0] = 7
    return z * 2, y


def view_then_memory(x: Tensor) -> Tensor:
    y = x * 1
    y[1:].mul_(3)
    return y.as_strided((4,), (1,), 2)


def filled(strides: tuple[int, int], first: int = 0) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        y = torch.empty_strided((4, 4), strides)
        y.copy_(x)
        return y[first:].as_strided((2, 2), (1, 2)) * 2

    return function


READ: dict[str, Callable[[Tensor], Any]] = {
    "a slice": lambda x: x[1:].as_strided((2,), (1,), 5) * 2,
    "an expanded row": lambda x: x[0:1].expand(4, 4).as_strided((2, 2), (1, 1)) + 1,
    "a transpose": lambda x: x.t().as_strided((3, 2), (2, 1), 3) + 1,
    "a slice of a transpose": lambda x: x.t()[1:].as_strided((3, 2), (2, 1)) + 1,
    "a computed slice": lambda x: (x * 2)[1:].as_strided((3,), (2,)) + 1,
    "windows": lambda x: x.reshape(-1).as_strided((3, 2), (1, 1)).sum(1),
    "a view as the result": lambda x: x[1:].as_strided((2,), (1,), 5),
    "a copy": lambda x: torch.as_strided_copy(x[1:], (2,), (1,), 5),
    "a scatter": lambda x: torch.as_strided_scatter(x[1:], torch.ones(2), (2,), (1,), 5),
    "empty_strided in order": filled((4, 1)),
    "empty_strided, transposed": filled((1, 4)),
    "a slice of empty_strided": filled((4, 1), 1),
    "empty_strided with gaps": filled((5, 1)),
    **{f.__name__: f for f in (written_view, written_memory, view_then_memory)},
}


def whole() -> Tensor:
    return torch.arange(16.0).reshape(4, 4)


LYING: dict[str, Callable[[], Tensor]] = {
    "whole": whole,
    "behind an offset": lambda: torch.arange(40.0)[3:19].view(4, 4),
    "transposed": lambda: torch.arange(16.0).reshape(4, 4).t(),
    "expanded": lambda: torch.arange(32.0)[:4].expand(4, 4),
    "in steps": lambda: torch.arange(64.0).reshape(8, 8)[::2, 1::2],
}


@pytest.mark.filterwarnings("ignore")  # what is left to eager is not the subject
@pytest.mark.parametrize("name", READ)
@pytest.mark.sampled(2)
def test_memory_read_by_strides_is_right_under_torch_compile(name: str) -> None:
    """With a gradient, whose graph AOTAutograd traces: the value and the gradient."""
    x, function = whole().requires_grad_(), READ[name]
    compiled = torch.compile(function, backend="dplc")
    torch.testing.assert_close(with_gradient(compiled, x), with_gradient(function, x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["a slice", "a transpose", "a scatter", "view_then_memory"])
@pytest.mark.sampled(1)
def test_arguments_that_lie_otherwise_in_memory_are_right(name: str) -> None:
    """By one compiled function."""
    compiled = torch.compile(READ[name], backend="dplc")
    for make in LYING.values():
        torch.testing.assert_close(compiled(make()), READ[name](make()))


@pytest.mark.filterwarnings("ignore")
def test_memory_read_by_strides_of_an_open_length_is_right() -> None:
    inputs = whole(), torch.arange(40.0)[3:19].view(4, 4), torch.randn(5, 4)
    compare(READ["a computed slice"], [(x,) for x in inputs], dynamic=True)


def test_an_expanded_tensor_is_no_memory_in_order() -> None:
    """It has as many elements as the memory below it holds."""
    with pytest.raises(DplcError, match="a part of another one's memory"):
        dplc.compile(READ["an expanded row"], (torch.randn(4, 4),))
    program = dplc.compile(transposed, (torch.randn(4, 5),))
    with pytest.raises(DplcError, match="argument `x` is a part of another tensor's memory"):
        program(torch.randn(21)[1:].view(4, 5))


def diagonal_filled(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).fill_diagonal_(1.5, wrap=True)


@pytest.mark.parametrize("shape", [(4, 6), (9, 3), (3, 3, 3), (1, 1)])
def test_what_torch_writes_by_strides_in_place(shape: tuple[int, ...]) -> None:
    """The op that writes by strides is only there once the program is without changes in place."""
    x = torch.randn(shape)
    assert torch.equal(dplc.compile(diagonal_filled, (x,))(x), diagonal_filled(x))


@ALL_COMPILED
def test_a_first_call_is_compiled_unseen_by_the_modes_of_torch() -> None:
    """AOTAutograd looks on at first calls by a mode, under which torch.export decomposes nothing."""
    compare(diagonal_filled, [(torch.randn(4, 6),)])
