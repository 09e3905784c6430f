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


def test_an_argument_whose_memory_is_read_lies_as_in_the_example() -> None:
    def transposed(x: Tensor) -> Tensor:
        return torch.as_strided(x.t(), (3, 2), (2, 1), 1) * 3

    x = torch.randn(4, 5)
    program = dplc.compile(transposed, (x,))
    assert torch.equal(program(x), transposed(x))
    for wrong, said in (
        (torch.randn(5, 4).t(), r"has the strides \(1, 4\), not \(5, 1\)"),
        (torch.randn(21)[1:].view(4, 5), "is a part of another tensor's memory"),
    ):
        with pytest.raises(DplcError, match=f"argument `x` {said}"):
            program(wrong)


def computed_slice(x: Tensor) -> Tensor:
    return (x * 2)[1:].as_strided((3,), (2,)) + 1


def expanded_row(x: Tensor) -> Tensor:
    """It has as many elements as the memory below it holds."""
    return x[0:1].expand(4, 4).as_strided((2, 2), (1, 1)) + 1


@pytest.mark.parametrize("function", [computed_slice, expanded_row])
def test_a_part_of_the_memory_of_another_tensor_is_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(DplcError, match="a part of another one's memory"):
        dplc.compile(function, (torch.randn(4, 4),))


def test_all_elements_in_order_are_a_view() -> None:
    """Of a graph with gradients: what strides say of them is not computed from places, but is the tensor itself."""
    traced = make_fx(lambda x: torch_backend._as_strided(x, (6,), (1,)))(torch.randn(2, 3))
    (called,) = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
    assert [*called.users] == [traced.graph.output_node()]


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


def filled(*strides: int, first: int = 0) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.empty_strided((4, 4), strides).copy_(x)[first:].as_strided((2, 2), (1, 2)) * 2


READ: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: torch.as_strided_scatter(x[1:], torch.ones(2), (2,), (1,), 5),
    lambda x: x[1:].as_strided((2,), (1,), 5) * 2,
    lambda x: x.t().as_strided((3, 2), (2, 1), 3) + 1,
    lambda x: x.t()[1:].as_strided((3, 2), (2, 1)) + 1,
    lambda x: x.reshape(-1).as_strided((3, 2), (1, 1)).sum(1),
    lambda x: x[1:].as_strided((2,), (1,), 5),
    lambda x: torch.as_strided_copy(x[1:], (2,), (1,), 5),
    filled(4, 1),
    filled(1, 4),
    filled(4, 1, first=1),
    filled(5, 1),  # with gaps
    computed_slice,
    expanded_row,
    written_view,
    written_memory,
    view_then_memory,
)
LYING = (
    torch.arange(16.0).reshape(4, 4),
    torch.arange(40.0)[3:19].view(4, 4),
    torch.arange(16.0).reshape(4, 4).t(),
    torch.arange(32.0)[:4].expand(4, 4),
    torch.arange(64.0).reshape(8, 8)[::2, 1::2],
)


@pytest.mark.filterwarnings("ignore")  # what is left to eager is not the subject
@pytest.mark.parametrize("function", READ)
@pytest.mark.sampled(2)
def test_memory_read_by_strides_is_right_under_torch_compile(function: Callable[[Tensor], Any]) -> None:
    """With a gradient, whose graph AOTAutograd traces, and of arguments that lie otherwise, by one compiled function."""
    compiled, x = torch.compile(function, backend="dplc"), LYING[0].clone().requires_grad_()
    torch.testing.assert_close(with_gradient(compiled, x), with_gradient(function, x))
    for x in LYING:
        torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.filterwarnings("ignore")
def test_memory_read_by_strides_of_an_open_length_is_right() -> None:
    compare(computed_slice, [(LYING[0],), (LYING[1],), (torch.randn(5, 4),)], dynamic=True)


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
