"""q, k and v: results at ranges of one matmul are one kernel, each stored in an array of its own."""

from __future__ import annotations

import math

import pytest
import torch
from compiled import checked
from exploring import assert_right, explored, random_data
from torch import nn

from dplc.engine.cost.kernel_estimate import bits
from dplc.engine.kernels.index_maps import side_by_side, translation
from dplc.ir.expr import Axis, add, multiply, subtract


class Projections(nn.Module):
    """Linear layers of one value, perhaps of its norm."""

    def __init__(self, d: int, widths: tuple[int, ...], norm: bool, bias: bool):
        super().__init__()
        self.norm = nn.RMSNorm(d) if norm else nn.Identity()
        self.layers = nn.ModuleList(nn.Linear(d, n, bias=bias) for n in widths)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.norm(x)
        return tuple(layer(h) for layer in self.layers)


CASES = {
    "one row": ((1, 64), (64, 16, 16), False, False),
    "norm, one row": ((1, 64), (64, 16, 16), True, False),
    "norm and biases": ((40, 64), (96, 32, 16), True, True),
    "ragged": ((17, 36), (33, 20, 7), True, True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_projections_are_one_kernel(name: str) -> None:
    shape, widths, norm, bias = CASES[name]
    torch.manual_seed(0)
    candidate, made = checked(Projections(shape[1], widths, norm, bias), (shape,))
    assert candidate.kernels == 1
    assert [tuple(p.shape) for p in made.program.outputs] == [(n,) if shape[0] == 1 else (shape[0], n) for n in widths]


def test_one_row_in_one_kernel_is_predicted_to_be_the_fastest() -> None:
    text = (
        "x = torch.randn(1, 512)\nn = nn.RMSNorm(512)\nq = nn.Linear(512, 512)\nk = nn.Linear(512, 128)\n"
        "v = nn.Linear(512, 128)\nh = n(x)\nq(h), k(h), v(h)"
    )
    made = explored(text)
    best, *others = made.candidates()
    assert best.kernels == 1 and "pack_siblings" in best.rules
    assert all(other.predicted_us >= best.predicted_us for other in others)
    assert_right(made.graph, best, random_data(made.graph))


def test_what_is_done_with_one_of_them_is_done_in_its_range() -> None:
    class Gated(Projections):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            left, right = super().forward(x)
            return torch.tanh(left), right * x[:, :16]

    candidate, _ = checked(Gated(32, (48, 16), False, True), ((24, 32),))
    assert candidate.kernels == 1


def test_ranges_follow_each_other() -> None:
    a, b, c = (Axis(name, n) for name, n in (("a", 4), ("b", 6), ("c", 6)))
    extents = {a: 4, b: 6, c: 6}
    assert side_by_side([{"t": (b, 4)}, {"t": (a, 0)}], extents) == ("t", [(b, 4), (a, 0)])
    assert side_by_side([{"t": (b, 5)}, {"t": (a, 0)}], extents) is None, "a gap"
    assert side_by_side([{"t": (b, 4)}, {"t": (c, 4)}], extents) is None, "twice the same"
    assert side_by_side([{"t": (b, 4)}, {"u": (a, 0)}], extents) is None, "of different values"
    assert translation(add(a, 3)) == (a, 3) and translation(a) == (a, 0)
    assert translation(multiply(a, 2)) is None and translation(subtract(3, a)) is None


def test_sizes_that_estimates_share_are_of_axes_of_the_problem() -> None:
    """The axis that ranges lie along has another extent in every kernel; what is kept of it there would be wrong here."""
    text = (
        "x = torch.randn(1, 64)\nq = nn.Linear(64, 64)\nk = nn.Linear(64, 16)\nv = nn.Linear(64, 32)\n"
        "w = nn.Linear(64, 8)\nq(x), k(x), v(x), w(x)"
    )
    for _, solved in explored(text).problems:
        body, extents = solved.search.extraction.memory, solved.search.extraction.graph.problem.extents
        assert body.products
        for mask, size in body.products.items():
            assert size == math.prod(extents[axis] for axis in bits(mask))
