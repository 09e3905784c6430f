"""Transforms of torch.func and associative scans under torch.compile, traced to operations on tensors."""

from __future__ import annotations

import operator
import warnings
from typing import Any

import pytest
import torch
from dynamo_checks import compare, with_gradient
from torch import func
from torch._higher_order_ops.associative_scan import associative_scan, associative_scan_op

import dplc
from dplc.engine.capture.fx_rewrites import flattened
from dplc.engine.torch_backend import backend

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.filterwarnings("error::UserWarning")]
Tensor = torch.Tensor


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


def written(x: Tensor) -> Tensor:
    y = x * 1
    y[0] = 2
    return (y**2).sum()


@pytest.mark.parametrize(
    "transform",
    [
        recurrence,
        mapped,
        mapped_twice,
        mapped_gradient,
        lambda x: func.grad(lambda y: (y**3).sum())(x),
        lambda x: func.grad(lambda y: torch.vmap(torch.sin)(y).sum())(x),
        lambda x: func.grad(lambda y: func.grad(lambda z: (z**3).sum())(y).sum())(x),
        lambda x: torch.vmap(lambda y: y.clone().mul_(2))(x),
        lambda x: func.vjp(torch.sin, x)[1](x)[0],
        lambda x: func.jvp(torch.sin, (x,), (x,))[1],
        lambda x: func.jacrev(torch.sin)(x),
        lambda x: func.jacfwd(torch.sin)(x),
        lambda x: func.hessian(lambda y: (y**3).sum())(x),
        lambda x: func.grad(written)(x[0, 0]),
    ],
)
@pytest.mark.sampled(5)
def test_transforms_compile_whole_and_are_right(transform: Any) -> None:
    """Values and gradients are those of eager, to which no op is left."""
    x = torch.rand(2, 4, 3, requires_grad=True)
    ours = with_gradient(torch.compile(transform, backend="dplc"), x)
    torch.testing.assert_close(ours, with_gradient(transform, x))


@pytest.mark.parametrize("program", [mapped_gradient, recurrence])
def test_a_transform_of_an_open_length_is_one_compile(program: Any) -> None:
    """A scan of an open length is not cut: it is a `vmap` of halves, and pieces of that would be given its tensors."""
    with torch.no_grad(), warnings.catch_warnings():
        if program is recurrence:
            warnings.simplefilter("ignore")
        compare(program, [(torch.rand(2, length, 3),) for length in (3, 5)], dynamic=True)


@pytest.mark.parametrize("program", [recurrence, mapped])
def test_dplc_compile_traces_vmap_and_scans(program: Any) -> None:
    x = torch.rand(2, 4, 3)
    torch.testing.assert_close(dplc.compile(program, (x,))(x), program(x))


def test_an_error_within_vmap_leaves_no_level_behind() -> None:
    x = torch.rand(2, 3, 3)
    with pytest.raises(dplc.DplcError):
        dplc.compile(torch.vmap(lambda y: torch.matrix_exp(y).mul_(2)), (x,))
    with pytest.raises(dplc.DplcError, match="does not trace this transform"):
        dplc.compile(mapped_twice, (x,))
    assert torch._C._functorch.maybe_current_level() is None


def test_a_scan_on_a_gpu_is_the_loop_that_it_stands_for() -> None:
    """What dynamo makes of a scan whose tensors are on a GPU is one node, which has the graph of the step."""
    root, graph = torch.nn.Module(), torch.fx.Graph()
    root.step = torch.fx.symbolic_trace(lambda al, bl, ar, br: step((al, bl), (ar, br)))
    tensors = [graph.placeholder(name) for name in ("a", "b")]
    scanned = graph.call_function(associative_scan_op, (graph.get_attr("step"), tensors, ()))
    graph.output((graph.call_function(operator.getitem, (scanned, 1)),))
    a, b = torch.rand(12, 5), torch.randn(12, 5)
    (found,) = backend(torch.fx.GraphModule(root, graph), [a, b])(a, b)
    wanted = associative_scan(step, (a.double(), b.double()), dim=0, combine_mode="generic")[1]
    assert float((found - wanted).abs().max()) <= 1e-5


def test_other_graphs_stay_as_they_are() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    assert flattened(graph, [torch.zeros(3)]) is graph
