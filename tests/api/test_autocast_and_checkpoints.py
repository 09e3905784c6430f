"""Regions of autocast and of checkpoints: compiled whole, with the values and dtypes of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import ALL_COMPILED, with_gradient
from torch import nn
from torch.utils.checkpoint import checkpoint

import dplc
from dplc.engine.capture.fx_rewrites import entering_autocast
from dplc.engine.torch_backend import EagerWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
X, W = torch.randn(4, 4), torch.randn(4, 4)
NET = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)).eval()
Function = Callable[[torch.Tensor], Any]


def cast(dtype: torch.dtype = torch.bfloat16, enabled: bool = True) -> Any:
    return torch.autocast("cpu", dtype=dtype, enabled=enabled)


def nested(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    with cast():
        z = y @ W
        with cast(enabled=False):
            u = z.float() @ W
        with cast(torch.float16):
            v = u @ W
        s = torch.softmax(z, -1) + F.mse_loss(z, u.to(z.dtype))
    return z, u, v, s, z.float() @ W


@cast()
def changed(x: torch.Tensor) -> torch.Tensor:
    y = x @ W
    y[0] = 1
    y.add_(x)
    return y


def attention(x: torch.Tensor) -> torch.Tensor:
    with cast(torch.float16):
        q = (NET(x) @ W)[None]
        return F.scaled_dot_product_attention(q, q, x[None].half(), is_causal=True)


def recomputed(x: torch.Tensor) -> Any:
    return checkpoint(NET, x, use_reentrant=False).sin()


def recomputed_parts(x: torch.Tensor) -> Any:
    """A checkpoint in a checkpoint, with several results, numbers and writes."""

    def part(x: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 1
        y[0] = 2
        return checkpoint(torch.tanh, y, use_reentrant=False) * factor, x @ W

    a, b = checkpoint(part, x, 3.0, use_reentrant=False)
    return a + b + checkpoint(lambda x, scale: x * scale, x, scale=2.0, use_reentrant=False, preserve_rng_state=False)


def recomputed_in_half(x: torch.Tensor) -> torch.Tensor:
    with cast():
        return checkpoint(NET, x, use_reentrant=False)


REGIONS: list[Function] = [
    cast()(NET.forward),
    nested,
    changed,
    attention,
    recomputed,
    recomputed_parts,
    recomputed_in_half,
]


def close(got: Any, expected: Any) -> None:
    """Dtypes are those of eager; values are as near as results that are rounded elsewhere can be."""
    for one, other in zip(*map(torch.utils._pytree.tree_leaves, (got, expected)), strict=True):
        eps = max(torch.finfo(other.dtype).eps, torch.finfo(torch.bfloat16).eps / 4)
        torch.testing.assert_close(one, other, rtol=4 * eps, atol=4 * eps * float(other.abs().max()))


@ALL_COMPILED
@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.sampled(7)
def test_a_region_leaves_nothing_to_eager(region: Function, derived: bool) -> None:
    compiled = torch.compile(region, backend="dplc")
    if derived:
        (got, gradient), (want, wanted) = (with_gradient(f, X.clone().requires_grad_()) for f in (compiled, region))
        eps = 1e-6 if region in (recomputed, recomputed_parts) else torch.finfo(torch.bfloat16).eps
        assert (gradient - wanted).abs().max() <= 4 * eps * wanted.abs().max()
    else:
        with torch.no_grad():
            got, want = compiled(X), region(X)
            if region is not recomputed_parts:  # whose writes AOTAutograd takes out
                close(dplc.compile(region, (X,), trace=False)(X), want)
    close(got, want)


@ALL_COMPILED
def test_autocast_around_a_call_is_that_of_the_call() -> None:
    compiled = torch.compile(NET, backend="dplc")
    with torch.no_grad():
        for enabled in (True, False, True):
            with cast(enabled=enabled):
                close(compiled(X), NET(X))


@cast()
def singular(x: torch.Tensor) -> torch.Tensor:
    y = x @ W
    return torch.linalg.svdvals(y.float()) * 0.1 + y @ W


@pytest.mark.parametrize("region", [singular, lambda x: checkpoint(singular, x, use_reentrant=False)])
def test_op_in_a_region_that_is_not_supported_leaves_the_rest_compiled(region: Function) -> None:
    shares = dplc.Shares()
    with torch.no_grad(), pytest.warns(EagerWarning, match="svdvals") as caught:
        close(torch.compile(region, backend="dplc", options={"shares": shares})(X), region(X))
    (cause,) = shares.eager.values()
    assert (len(caught), cause.ops, shares.all_ops) == (1, 1, 6)
    assert cause.place is not None and "test_autocast_and_checkpoints.py" in cause.place and "svdvals" in cause.place


def test_autocast_ends_where_a_trace_ends_with_an_error() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    region = graph.call_function(torch.amp._enter_autocast, ("cpu", torch.bfloat16, True, None))
    product = graph.call_function(torch.matmul, (x, 3))
    graph.call_function(torch.amp._exit_autocast, (region,))
    graph.output(product)
    with pytest.raises(dplc.DplcError, match="matmul"):
        dplc.compile(entering_autocast(torch.fx.GraphModule({}, graph)), (X,))
    assert not torch.is_autocast_enabled("cpu")
