"""The sign of a zero is PyTorch's: -0.0 + 0.0 is 0.0, and -0.0 + -0.0 is not. A factor of zero ignores an operand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import dplc


def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x + 0.0, x + 0, 0.0 + x, x - (-0.0), x + -0.0, x - 0.0, x - 0, 0.0 - x, -x, x * 1, x * 0.0, x / 1, -0.0 - x,
        (x + 0.0) - 0.0, torch.add(x, x, alpha=0), (x + 0.0) * -1.0,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.sampled(2)
def test_signs_of_zeros(explore: bool, dtype: torch.dtype) -> None:
    x = torch.tensor([-0.0, 0.0, 1.0, -1.0], dtype=dtype)
    for place, (got, want) in enumerate(zip(dplc.compile(sums, (x,), explore=explore)(x), sums(x), strict=True)):
        assert torch.equal(got.signbit(), want.signbit()) and torch.equal(got, want), place


def test_a_norm_without_a_bias_adds_nothing() -> None:
    cuda = dplc.compile(lambda x: torch.nn.functional.layer_norm(x, (8,)), (torch.randn(4, 8),)).cuda
    assert "+ 0.0f" not in cuda and "- 0.0f" not in cuda


def test_integers_lose_their_zeros() -> None:
    cuda = dplc.compile(lambda n: (n + 0) * 3 - 0, (torch.arange(8),)).cuda
    assert "wrap_add" not in cuda and "wrap_sub" not in cuda


FACTORS = [(1, 1), (1, 0), (0, 1), (0, 0), (0.0, 1.0), (-0.0, 0.0), (2, -0.0), (0, 0.5)]
SHAPES = {
    "addmm": ((3, 4), (3, 2), (2, 4)), "addbmm": ((3, 4), (2, 3, 2), (2, 2, 4)), "addmv": ((3,), (3, 2), (2,)),
    "addr": ((3, 4), (3,), (4,)), "baddbmm": ((2, 3, 4), (2, 3, 2), (2, 2, 4)),
    "baddbmm by BLAS": ((2, 8, 9), (2, 8, 7), (2, 7, 9)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.sampled(6)
def test_an_operand_with_factor_zero_is_ignored(name: str, dtype: torch.dtype) -> None:
    """As BLAS ignores it, so that its NaN and infinity are not in the result; where eager multiplies, so do we."""
    function = getattr(torch, name.split()[0])
    places = itertools.product(range(3), (math.nan, math.inf)) if dtype.is_floating_point else ((0, 7),)
    sets = []
    for place, bad in places:
        sets.append([(torch.arange(math.prod(shape)).reshape(shape) % 5 - 1).to(dtype) for shape in SHAPES[name]])
        sets[-1][place].view(-1)[0] = bad

    def products(sets: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        return [function(*operands, alpha=alpha, beta=beta) for operands in sets for alpha, beta in FACTORS]

    for got, want in zip(dplc.compile(products, (sets,))(sets), products(sets), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
