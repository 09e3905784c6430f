"""Ops that look at values while PyTorch traces them: captured by their types, refused as PyTorch refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dplc
from dplc.engine.capture.capture import capture
from dplc.engine.capture.decompositions import by_types
from dplc.ir.diagnostic import DplcError

X = torch.randn(3, 7)


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (torch.randn(1, 2, 3), {}),
        (X > 0, {}),
        (X, {"fweights": torch.rand(7)}),
        (X, {"fweights": torch.ones(2, 7, dtype=torch.long)}),
        (X, {"fweights": torch.ones(6, dtype=torch.long)}),
        (X, {"aweights": torch.ones(7, dtype=torch.long)}),
        (X, {"aweights": torch.rand(6)}),
    ],
)
def test_what_torch_refuses_is_refused(x: Any, options: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torch.cov(x, **options)
    with pytest.raises(DplcError) as ours:
        capture(torch.cov, (x,), options)
    assert ours.value.what.split(" but got")[0] == str(theirs.value).split(" but got")[0]


@pytest.mark.parametrize("weights", [torch.rand(7), torch.rand(7).double(), torch.rand(7).half()])
@pytest.mark.parametrize("x", [X, torch.randint(0, 9, (3, 7)), X[:1], X[0]])
def test_the_types_are_torch_s(x: Any, weights: Any) -> None:
    captured = capture(torch.cov, (x,), {"aweights": weights})
    want = torch.cov(x, aweights=weights)
    assert [(str(out.dtype), tuple(out.shape)) for out in captured.graph.outs] == [
        ({"float32": "f32", "float64": "f64", "float16": "f16"}[str(want.dtype)[6:]], tuple(want.shape))
    ]


@pytest.mark.parametrize(
    ("var", "reduction"),
    [(torch.rand(4), "mean"), (torch.rand(3, 7), "median"), (-1.0, "mean"), (torch.rand(1, 1), "sum")],
)
def test_a_loss_is_refused_as_torch_refuses_it(var: Any, reduction: str) -> None:
    with pytest.raises(ValueError) as theirs:
        F.gaussian_nll_loss(X, X, var, reduction=reduction)
    with pytest.raises(DplcError) as ours:
        capture(F.gaussian_nll_loss, (X, X, var), {"reduction": reduction})
    assert str(theirs.value) in ours.value.what


def test_torch_is_left_as_it_was() -> None:
    before = dict(torch.ops.aten.cov.default.py_kernels)
    with pytest.raises(ValueError), by_types():
        raise ValueError
    capture(torch.cov, (X,), {})
    assert dict(torch.ops.aten.cov.default.py_kernels) == before


def test_among_ops_that_change_memory() -> None:
    """Made functional, the program is traced once more."""

    def function(x: Any) -> Any:
        y = torch.cov(x)
        y.add_(1)
        return torch.fft.fftshift(y)

    assert torch.allclose(dplc.compile(function, (X,))(X), function(X), atol=1e-5)
