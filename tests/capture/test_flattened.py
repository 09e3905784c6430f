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


def of_recurrence(a: Tensor, b: Tensor) -> Tensor:
    found: Tensor = associative_scan(step, (a, b), dim=1, combine_mode="generic")[1]
    return found * 2


def mapped(a: Tensor, b: Tensor) -> Tensor:
    return torch.vmap(lambda x, y: torch.softmax(x @ y.transpose(0, 1), -1))(a, b)


def mapped_twice(a: Tensor, b: Tensor) -> Tensor:
    inner = torch.vmap(lambda x, y: (x * y).sum() + x.max(), in_dims=(0, 0))
    return torch.vmap(inner, in_dims=(1, 1), out_dims=1)(a, b)


@pytest.mark.parametrize("program", [of_recurrence, mapped, mapped_twice])
@pytest.mark.sampled(2)
def test_they_compile_whole(program: Any) -> None:
    a, b = torch.rand(2, 4, 3), torch.randn(2, 4, 3)
    found = torch.compile(program, backend="dplc")(a, b)
    wanted = program(a.double(), b.double())
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= 1e-5


def written(x: Tensor) -> Tensor:
    y = x * 1
    y[0] = 2
    return (y**2).sum()


TRANSFORMS: dict[str, Any] = {
    "grad": lambda x: func.grad(lambda y: (y**3).sum())(x),
    "grad of writes": lambda x: func.grad(written)(x),
    "grad of vmap": lambda x: func.grad(lambda y: torch.vmap(torch.sin)(y).sum())(x),
    "grad of grad": lambda x: func.grad(lambda y: func.grad(lambda z: (z**3).sum())(y).sum())(x),
    "vmap of grad": lambda x: torch.vmap(func.grad(torch.sin))(x),
    "vmap of writes": lambda x: torch.vmap(lambda y: y.clone().mul_(2))(x),
    "vjp": lambda x: func.vjp(torch.sin, x)[1](x)[0],
    "jvp": lambda x: func.jvp(torch.sin, (x,), (x,))[1],
    "jacrev": lambda x: func.jacrev(torch.sin)(x),
    "jacfwd": lambda x: func.jacfwd(torch.sin)(x),
    "hessian": lambda x: func.hessian(lambda y: (y**3).sum())(x),
    "associative_scan": lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.sampled(3)
def test_transforms_of_torch_func_are_right(name: str) -> None:
    """Values and gradients are those of eager; only a write leaves an op to eager."""
    x, transform = torch.rand(3, requires_grad=True), TRANSFORMS[name]
    with warnings.catch_warnings():
        if name == "grad of writes":
            warnings.simplefilter("ignore", UserWarning)
        ours = with_gradient(torch.compile(transform, backend="dplc"), x)
    torch.testing.assert_close(ours, with_gradient(transform, x))


def test_a_transform_of_an_open_length_is_one_compile() -> None:
    compare(TRANSFORMS["vmap of grad"], [(torch.rand(length),) for length in (3, 5)], dynamic=True)


def test_a_scan_of_an_open_length_is_not_cut() -> None:
    """It is a `vmap` of halves: pieces of that would be given its tensors."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(of_recurrence, [(torch.rand(2, n, 3), torch.randn(2, n, 3)) for n in (3, 5)], dynamic=True)


@pytest.mark.parametrize("program", [of_recurrence, mapped])
def test_dplc_compile_traces_vmap_and_scans(program: Any) -> None:
    a, b = torch.rand(2, 4, 3), torch.randn(2, 4, 3)
    torch.testing.assert_close(dplc.compile(program, (a, b))(a, b), program(a, b))


def test_an_error_within_vmap_leaves_no_level_behind() -> None:
    x = torch.rand(2, 3, 3)
    with pytest.raises(dplc.DplcError):
        dplc.compile(torch.vmap(lambda y: torch.matrix_exp(y).mul_(2)), (x,))
    with pytest.raises(dplc.DplcError, match="does not trace this transform"):
        dplc.compile(mapped_twice, (x, x))
    assert torch._C._functorch.maybe_current_level() is None


def scan_on_a_gpu() -> torch.fx.GraphModule:
    """What dynamo makes of a scan whose tensors are on a GPU: one node, which has the graph of the step."""
    root = torch.nn.Module()
    root.step = torch.fx.symbolic_trace(lambda al, bl, ar, br: step((al, bl), (ar, br)))
    graph = torch.fx.Graph()
    tensors = [graph.placeholder(name) for name in ("a", "b")]
    scanned = graph.call_function(associative_scan_op, (graph.get_attr("step"), tensors, ()))
    graph.output((graph.call_function(operator.getitem, (scanned, 1)),))
    return torch.fx.GraphModule(root, graph)


def test_a_scan_is_the_loop_that_it_stands_for() -> None:
    a, b = torch.rand(12, 5), torch.randn(12, 5)
    (found,) = backend(scan_on_a_gpu(), [a, b])(a, b)
    wanted = associative_scan(step, (a.double(), b.double()), dim=0, combine_mode="generic")[1]
    assert float((found - wanted).abs().max()) <= 1e-5


def test_other_graphs_stay_as_they_are() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    assert flattened(graph, [torch.zeros(3)]) is graph
