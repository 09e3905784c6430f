"""Results of compiled functions: they take every change in place that eager's take, and share the same memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import compare, with_gradient
from torch import Tensor, nn

import dplc

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.filterwarnings("ignore")]
X = torch.arange(-6.0, 6.0).reshape(3, 4)
FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "computed": lambda x: x * 2,
    "a number": lambda x: (x * 2).sum(),
    "booleans": lambda x: x > 0,
    "integers": lambda x: (x * 2).long(),
    "halves": lambda x: (x * 2).bfloat16(),
    "complex numbers": lambda x: torch.complex(x, x * 2),
    "without elements": lambda x: x[:, :0] * 2,
    "expanded": lambda x: (x.sum(1) * 2)[:, None].expand(3, 4),
    "twice": lambda x: (lambda y: (y, y))(x * 2),
    "a tensor and its views": lambda x: (lambda y: (y, y[0], y.t()))(x * 2),
    "an argument twice": lambda x: (x, x, x + 1),
    "the argument itself": lambda x: (x.contiguous(), x.float(), +x, x.expand(3, 4), x + 1),
    "dropout that drops nothing": lambda x: (F.dropout(x, 0.5, False), F.dropout(x, 0.0), x + 1),
    "by strides, with the whole": lambda x: (lambda y: (y, y.as_strided((2, 2), (4, 1), 3)))(x * 2),
    "changed in place": lambda x: (lambda y: (y.view(-1)[2:].mul_(2), y))(x * 2),
    "detached": lambda x: (x.detach(), (x * 2).detach_()),
}
CHANGES: tuple[Callable[[Tensor], Any], ...] = (
    lambda y: y.mul_(2), lambda y: y.div_(4), lambda y: y.add_(1), lambda y: y.masked_fill_(y > 1, 7),
    lambda y: y.__setitem__(..., 3), lambda y: y[:1].copy_(torch.ones_like(y[:1])), lambda y: y.unsqueeze_(0),
    lambda y: y.resize_(30).zero_(), torch.relu_, Tensor.logical_not_, Tensor.zero_, Tensor.detach_,
    Tensor.requires_grad_, Tensor.t_,
)  # fmt: skip


def changed(function: Any, change: Any, trained: bool) -> list[Any] | None:
    """What is seen after a change of each result: who shares memory, values, the gradient; None if PyTorch refuses."""
    x = X.clone().requires_grad_(trained)
    results = torch.utils._pytree.tree_leaves(function(x))
    try:
        for y in results:
            change(y)
        floats = [y for y in results if y.grad_fn is not None]
        slope = torch.autograd.grad(sum(y.sum().abs() for y in floats), x)[0].tolist() if floats else None
    except (RuntimeError, IndexError):
        return None
    seen = [x, *results]
    places = [y.untyped_storage().data_ptr() for y in seen]
    values = [(y.dtype, y.requires_grad, y.tolist()) for y in seen]
    return [[places.index(place) for place in places], [[y is z for y in seen] for z in seen], values, slope]


@pytest.mark.parametrize("way", ["dplc.compile", "static", "dynamic", "trained"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(16)
def test_results_take_what_eager_results_take(name: str, way: str) -> None:
    """With gradients, as those of aot_eager."""
    function = eager = FUNCTIONS[name]
    if way == "dplc.compile":
        compiled: Any = dplc.compile(function, (X.clone(),))
    else:
        compiled = torch.compile(function, backend="dplc", dynamic=way == "dynamic")
    if way == "trained":
        eager = torch.compile(function, backend="aot_eager")
    for place, change in enumerate((lambda y: y, *CHANGES)):
        wanted = changed(eager, change, way == "trained")
        assert wanted is None or changed(compiled, change, way == "trained") == wanted, f"change {place}"


def test_results_of_open_lengths_share_memory_as_eager() -> None:
    def function(x: Tensor) -> Any:
        y = x * 2
        return y.view(-1), x.view(x.shape[0], 2, -1), y[1:], x

    compiled = dplc.compile(function, (X,), dynamic={"x": {0: dplc.Dim("s", 3, 64)}})
    for x in (torch.randn(5, 4), torch.randn(7, 4)):
        got, want = compiled(x), function(x)
        torch.testing.assert_close(got, want, check_stride=True)
        got[0].zero_(), got[1].add_(1)
        assert got[3] is x and not got[2].any()


def test_a_result_before_a_graph_break_is_changed() -> None:
    """The forward variables of a CTC loss, written by hand."""

    def function(x: Tensor) -> Tensor:
        rows = x.log_softmax(-1) * 2
        torch._dynamo.graph_break()
        rows[0] = rows[0] * 2
        total = rows.sum()
        torch._dynamo.graph_break()
        total.div_(4).add_(rows.mul_(3).max())
        return total

    compiled = torch.compile(function, backend="dplc")
    compare(function, [(X,), (torch.randn(3, 4),)])
    x = X.clone().requires_grad_()
    torch.testing.assert_close(with_gradient(compiled, x), with_gradient(function, x))


def test_shapes_of_arguments_that_change_are_refused() -> None:
    for function in (lambda x, y: x.resize_as_(y), lambda x, y: x.unsqueeze_(0) * 2, lambda x, y: x.resize_(2, 2) + y):
        with pytest.raises(dplc.DplcError, match="the function changes the shape of `x` in place"):
            dplc.compile(function, (torch.zeros(4), torch.zeros(2, 2)))


# ---- loops that change what a compiled step returns


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = self.cell(x, h)
        return self.out(h), h


class Stateless(nn.Sequential):
    """A network of `x` alone."""

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x), h * 0.5 + x.mean()


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: Stateless(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1)),
    "recurrent cell": Recurrent,
    "convolutions": lambda: Stateless(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled(2)
def test_training_loops_that_change_results_equal_eager(name: str) -> None:
    """Accumulated gradients, truncated backpropagation, clipping, and a running mean of the weights."""
    model = NETWORKS[name]()
    data = torch.randn(8, 5, 4)
    found = []
    for backend in ("dplc", "eager"):
        net = copy.deepcopy(model)
        mean, h, seen = copy.deepcopy(net), torch.zeros(5, 6), list[Tensor]()
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

        def step(x: Tensor, h: Tensor, net: nn.Module = net) -> tuple[Tensor, Tensor]:
            y, h = net(x, h)
            return F.mse_loss(y, x[:, :1]), h

        step = torch.compile(step, backend=backend)
        for place, x in enumerate(data):
            loss, h = step(x, h)
            loss /= 2
            loss.backward(retain_graph=place % 2 == 0)
            seen += [loss.detach().clone(), h.detach().clone()]
            if place % 2:
                h.detach_()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
                with torch.no_grad():
                    for old, new in zip(mean.parameters(), net.parameters(), strict=True):
                        old.mul_(0.9).add_(new, alpha=0.1)
        found.append([*seen, *net.parameters(), *mean.parameters()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
