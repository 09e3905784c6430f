"""Graphs of PyTorch that dplc rewrites: elements at an index that a tensor holds, transforms of torch.func, scans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from drawing import draws
from dynamo_checks import ALL_COMPILED, compare, with_gradient
from hypothesis import given, settings, strategies as st
from torch import func
from torch._higher_order_ops.associative_scan import associative_scan, associative_scan_op

import dplc
from dplc.engine.capture.fx_rewrites import flattened
from dplc.engine.torch_backend import backend

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
Tensor = torch.Tensor
Function = Callable[..., Any]


def check_gradients(function: Function, *calls: Iterable[Tensor]) -> None:
    """Compile a function as one graph; fail unless each call gives the results and the gradient of eager."""
    compiled = torch.compile(function, backend="dplc", fullgraph=True)
    for call in calls:
        torch.testing.assert_close(with_gradient(compiled, *call), with_gradient(function, *call))


# ---- A tensor of no dimensions as an index: PyTorch reads the number out of it, dplc indexes by the tensor.

PLACES = tuple(map(torch.tensor, (1, 0, -1)))


def written(v: Tensor, index: object, given: object) -> Tensor:
    v = v.clone()
    v[index] = given
    return v * 2


def added(v: Tensor, i: Tensor, x: Tensor) -> Tensor:
    v = v.clone()
    v[:, i] += x
    return v * 2


# The place i of v is read, or x is written there.
ELEMENTS: tuple[Function, ...] = (
    lambda x, v, i: v[i, 1],
    lambda x, v, i: v[..., i],
    lambda x, v, i: v[1:, i, None],
    lambda x, v, i: v[i, i],
    lambda x, v, i: (v * 1).add_(1)[:, i] * 2,
    lambda x, v, i: written(v, (slice(1, None), i, ..., i, None), x[0, 0]),
    lambda x, v, i: written(v, (0, i), 3),
    lambda x, v, i: written(v, (slice(None), i), x[None, None, :, 1]),  # what has more in front
    lambda x, v, i: written(v, i, (x * 10).int()),
    lambda x, v, i: added(v, i, x),
)
# torch.compile calls eager for some of these.
NUMBERS: tuple[Function, ...] = (
    lambda x, v, i: v[v[0, 0].argmax(), i - 1],
    lambda x, v, i: v.clone()[:, i].add_(1),
)


@pytest.mark.parametrize("function", [*ELEMENTS, *NUMBERS])
def test_elements_are_where_a_tensor_says(function: Function) -> None:
    x, v = torch.randn(3, 3), torch.randn(3, 3, 3)
    compiled = dplc.compile(function, (x, v, PLACES[1]))
    for place in PLACES:
        torch.testing.assert_close(compiled(x, v, place), function(x, v, place))


@settings(max_examples=draws(2), deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_any_axis_of_any_shape_by_any_integer(shape: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    kind = data.draw(st.sampled_from((torch.int64, torch.int32, torch.int16, torch.int8)))
    at = torch.tensor(data.draw(st.integers(-shape[dim], shape[dim] - 1)), dtype=kind)
    v = torch.randint(-9, 9, shape)
    assert torch.equal(dplc.compile(lambda v, i: v.select(dim, i) * 2, (v, at))(v, at), v.select(dim, at) * 2)


@ALL_COMPILED
@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("function", ELEMENTS)
@pytest.mark.sampled(10)
def test_elements_under_torch_compile_are_those_of_eager(function: Function, wanted: bool) -> None:
    x, v = torch.randn(3, 3, requires_grad=wanted), torch.randn(3, 3, 3)
    check_gradients(lambda x, v, i: function(x, v, i) * x[0], *((x, v, place) for place in PLACES))


@pytest.mark.parametrize(
    "function",
    [
        lambda v, i: v[:i],
        lambda v, i: v * i.item(),
        lambda v, i: torch.arange(i.item()),
        # in eager mode `v[i]` of a byte, which may be a mask, is one more axis; a trace shows it as the number
        lambda v, i: v[i.byte()],
    ],
)
def test_what_else_a_number_out_of_a_tensor_decides_is_refused_at_its_line(function: Function) -> None:
    with pytest.raises(dplc.DplcError, match=r"depends on the values of a tensor") as raised:
        dplc.compile(function, (torch.randn(6, 3), PLACES[0]))
    assert raised.value.span is not None and raised.value.span.source.name.endswith("test_fx_rewrites.py")


def cached(v: Tensor, i: Tensor) -> Tensor:
    """Caches are written so, from call to call."""
    v[:, i] = v[0] * 2
    return v * 2


def changed(v: Tensor, i: Tensor) -> Tensor:
    """A copy in place of the view would lose the change."""
    row = v[i].view(-1)
    row.add_(1)
    row[0] = 7
    return v * 2


@pytest.mark.parametrize("function", [cached, changed, lambda v, i: v[i + 1].relu()])
def test_arguments_change_as_in_eager(function: Function) -> None:
    """torch.compile breaks the graphs of the last two."""
    compare(function, [(torch.randn(3, 3), place) for place in PLACES])


# ---- Transforms and associative scans, traced to operations on tensors.


def step(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Of a linear recurrence, as Mamba of transformers has it."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def recurrence(x: Tensor) -> Any:
    return associative_scan(step, (x, 1 - x), dim=1, combine_mode="generic")[1] * 2


def mapped(x: Tensor) -> Any:
    return torch.vmap(lambda a, b: torch.softmax(a @ b.transpose(0, 1), -1))(x, 1 - x)


def mapped_twice(x: Tensor) -> Any:
    inner = torch.vmap(lambda a, b: (a * b).sum() + a.max(), in_dims=(0, 0))
    return torch.vmap(inner, in_dims=(1, 1), out_dims=1)(x, 1 - x)


def mapped_gradient(x: Tensor) -> Any:
    return torch.vmap(func.grad(torch.sin))(x[0, :, 0])


def with_write(x: Tensor) -> Tensor:
    y = x * 1
    y[0] = 2
    return (y**2).sum()


@ALL_COMPILED
@pytest.mark.parametrize(
    "transform",
    [
        recurrence,
        mapped,
        mapped_twice,
        mapped_gradient,
        lambda x: func.grad(lambda y: torch.vmap(torch.sin)(y).sum())(x),
        lambda x: func.grad(lambda y: func.grad(lambda z: (z**3).sum())(y).sum())(x),
        lambda x: torch.vmap(lambda y: y.clone().mul_(2))(x),
        lambda x: func.hessian(lambda y: (y**3).sum())(x),
        lambda x: func.grad(with_write)(x[0, 0]),
    ],
)
@pytest.mark.sampled(5)
def test_transforms_compile_whole_and_are_right(transform: Function) -> None:
    check_gradients(transform, (torch.rand(2, 4, 3, requires_grad=True),))


# A scan of an open length is not cut: it is a `vmap` of halves, and pieces of that would be given its tensors.
ONE = pytest.param(mapped_gradient, marks=pytest.mark.filterwarnings("error::UserWarning"))


@pytest.mark.parametrize("program", [ONE, recurrence])
def test_a_transform_of_an_open_length_is_one_compile(program: Function) -> None:
    compare(program, [(torch.rand(2, length, 3),) for length in (3, 5)], dynamic=True)


@pytest.mark.parametrize("program", [recurrence, mapped])
def test_dplc_compile_traces_vmap_and_scans(program: Function) -> None:
    x = torch.rand(2, 4, 3)
    torch.testing.assert_close(dplc.compile(program, (x,))(x), program(x))


def test_an_error_within_vmap_leaves_no_level_behind() -> None:
    x = torch.rand(2, 3, 3)
    with pytest.raises(dplc.DplcError):
        dplc.compile(torch.vmap(lambda y: torch.matrix_exp(y).mul_(2)), (x,), calls="none")
    with pytest.raises(dplc.DplcError, match="does not trace this transform"):
        dplc.compile(mapped_twice, (x,))
    assert torch._C._functorch.maybe_current_level() is None


class Scan(torch.nn.Module):
    """What dynamo makes of a scan whose tensors are on a GPU: one node, which has the graph of the step."""

    def __init__(self) -> None:
        super().__init__()
        self.step = torch.fx.symbolic_trace(lambda al, bl, ar, br: step((al, bl), (ar, br)))

    def forward(self, a: Tensor, b: Tensor) -> Any:
        return (associative_scan_op(self.step, [a, b], ())[1],)


def test_a_scan_on_a_gpu_is_the_loop_that_it_stands_for() -> None:
    a, b = torch.rand(12, 5), torch.randn(12, 5)
    (found,) = backend(torch.fx.symbolic_trace(Scan()), [a, b])(a, b)
    wanted = associative_scan(step, (a.double(), b.double()), dim=0, combine_mode="generic")[1]
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5)


def test_other_graphs_stay_as_they_are() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    assert flattened(graph, [torch.zeros(3)]) is graph
