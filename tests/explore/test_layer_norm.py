"""LayerNorm before a linear layer: mean, variance and product in one sweep over the row, and what that costs in accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiled import checked
from exploring import H100, tools

from dplc.engine.facts.tensor import is_one_over
from dplc.engine.rewrite.terms.rewriter import TermRules, rewrite_graph
from dplc.ir.interp import tensor as meaning
from dplc.ir.text.programs import read_program

VARIANCE = """## level: tensor
graph g(x: f32[i:4, k:512]) -> y: f32[4]:
    t[i:4] = Reduce(add, k:512, x[i, k])
    m[i] = multiply(t, 0.001953125)
    d[i, k] = subtract(x[i, k], m)
    p[i, k] = multiply(d, d)
    y[i] = Reduce(add, k, p)
"""


class LinearOfNorm(torch.nn.Module):
    """A linear layer of a LayerNorm whose gain and bias are not what they start as."""

    def __init__(self, d: int, n: int):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.gain, self.bias = (torch.nn.Parameter(torch.randn(d, generator=generator)) for _ in range(2))
        self.weight = torch.nn.Parameter(torch.randn(n, d, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.layer_norm(x, (x.shape[-1],), self.gain, self.bias), self.weight)


@pytest.mark.parametrize("shape", [(1, 256), (1, 100)])
def test_one_row_is_one_kernel(shape: tuple[int, int]) -> None:
    candidate, _ = checked(LinearOfNorm(shape[1], 48), (shape,))
    assert candidate.kernels == 1


@pytest.mark.parametrize("kind", ["plain", "far from zero", "an outlier first"])
def test_the_variance_of_one_sweep_is_the_variance(kind: str) -> None:
    """In float64; what float32 makes of it is for test_cancellation.py."""
    (graph,) = read_program(VARIANCE, "variance")[1]
    names = ("welford_mean", "welford_squares_of_mean")
    made = rewrite_graph(graph, TermRules([tools().rules.rule(name) for name in names], names), H100)
    assert made is not graph
    x = np.random.default_rng(0).standard_normal((4, 512))
    x += 1000.0 * (kind == "far from zero")
    x[:, 0] += 1000.0 * (kind == "an outlier first")
    (want,) = meaning.run(graph, {"x": x})
    (same,) = meaning.run(made, {"x": x})
    assert np.allclose(same, want, rtol=1e-11)


def test_a_mean_has_one_over_its_elements_as_a_factor() -> None:
    assert is_one_over(1 / 4096, 4096) and is_one_over(1 / 3, 3)
    assert not is_one_over(1 / 4096, 4095) and not is_one_over(-0.25, 4) and not is_one_over(0.0, 4)
