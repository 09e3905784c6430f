"""Ops and spellings of which no part is left to eager: their values and gradients are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import ALL_COMPILED
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

import dplc

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
Tensor = torch.Tensor
SCALES, ZEROS = torch.tensor([0.1, 0.2, 0.3, 0.05]), torch.tensor([0, 1, -2, 3], dtype=torch.int32)
TENSOR, CHANNEL = torch.fake_quantize_per_tensor_affine, torch.fake_quantize_per_channel_affine


def resized(mode: str, corners: bool, **size: object) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x[None, None], mode=mode, align_corners=corners, antialias=True, **size)[0]


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "levels of a tensor": lambda x: TENSOR(x, 0.1, 3, -8, 7),
    "levels by tensors": lambda x: TENSOR(x, torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), -8, 7),
    "levels of rows": lambda x: CHANNEL(x, SCALES, ZEROS, 0, -8, 7),
    "levels about floats": lambda x: CHANNEL(x, SCALES, ZEROS + 0.25, 0, -8, 7),
    **{
        f"{mode} {corners} {size}": resized(mode, corners, **size)
        for mode in ("bilinear", "bicubic")
        for corners in (False, True)
        for size in (
            {"size": (3, 11)}, {"size": (9, 3)}, {"size": (4, 6)}, {"size": (1, 2)},
            {"scale_factor": (0.6, 1.7)}, {"scale_factor": (1.3, 2.0)},
        )
    },
}  # fmt: skip
COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "a number times": lambda x: (1j * x).imag,
    "times a number": lambda x: (x * 1j + x).abs(),
    "torch.mul": lambda x: torch.mul(x, 2j).imag,
    "an exponential": lambda x: torch.exp(1j * x).real,
    "sums": lambda x: torch.view_as_real((1 + 2j) - x + 3j),
    "a quotient": lambda x: torch.view_as_real(x / (1 + 2j) + (2 - 1j) / (x * x + 1)),
    "in place": lambda x: torch.view_as_real(torch.complex(x, x.sin()).mul_(1j).add_(2j)),
    "a choice": lambda x: torch.view_as_real(torch.where(x > 0, torch.complex(x, x.sin()), 1j * x)),
    "filled": lambda x: torch.view_as_real(torch.complex(x, x.sin()).masked_fill(x > 0, 2 - 1j)),
    "full": lambda x: torch.view_as_real(
        torch.full((4, 6), 1 - 2j) * x + torch.full_like(1j * x, 2j) + (1j * x).new_full((6,), 3j)
    ),
    "a chosen number": lambda x: torch.view_as_real(torch.where(x > 0, torch.where(x > 1, 2j, 1j * x), 1j)),
    "powers": lambda x: torch.view_as_real(
        (x + 2j) ** (1 - 2j) + (x.abs() + 1) ** 1j + (x + 1j) ** 3 * (x - 1j) ** -0.5
    ),
    "powers of powers": lambda x: torch.view_as_real(
        (x + 1j) ** 2 + 2 ** (x * 1j) + torch.pow(1j, x + 2j) + torch.log(x * 1j - 1)
    ),
    "neighbours": lambda x: (
        torch.view_as_real(x.sin().view(torch.complex64) * 2j)
        + (1j * x).view(torch.float32).view(4, 6, 2)[:, :3]
        + x[:, :3, None]
    ),
    "of doubles": lambda x: torch.view_as_real(x.double() * 1j),
    "a product of matrices": lambda x: torch.einsum("ij,kj->ik", torch.complex(x, x.cos()), 1j * x).abs(),
    "a batch of products": lambda x: torch.einsum("bij,bj->bi", (x + 2j)[None], (x * 1j)[:1]).imag,
    "a sum of columns": lambda x: torch.view_as_real(torch.einsum("ij->j", x + 1j * x)),
    "a real operand": lambda x: torch.view_as_real(torch.einsum("ij,jk->ik", x + 2j, (x * 1j).t())),
}


@ALL_COMPILED
@pytest.mark.parametrize("function", [*FUNCTIONS.values(), *COMPLEX.values()], ids=[*FUNCTIONS, *COMPLEX])
@pytest.mark.sampled(12)
def test_values_and_gradients_are_those_of_eager(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(4, 6)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, wanted = torch.compile(function, backend="dplc")(ours), function(theirs)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    slopes = torch.randn_like(wanted)
    for result in (found, wanted):
        result.backward(slopes)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dplc.compile(function, (x,))(x), wanted.detach(), rtol=1e-4, atol=1e-5)


@ALL_COMPILED
@pytest.mark.parametrize("dim", [0, 2, 1, None])
@pytest.mark.parametrize("normed", [weight_norm, parametrizations.weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weight_norm_gets_the_gradients_of_eager(normed: Callable[..., nn.Module], dim: int | None) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(normed(nn.Conv1d(4, 6, 3), dim=dim))
    (ours, theirs), x = models, torch.randn(2, 4, 9)
    for forward in (torch.compile(ours, backend="dplc"), theirs):
        forward(x).square().sum().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float64])
def test_a_view_of_other_bits_names_the_reason(dtype: torch.dtype) -> None:
    with pytest.raises(dplc.DplcError) as caught:
        dplc.compile(lambda x: x.view(dtype) + 1, (torch.ones(4, 8),))
    assert "reads the bits of elements as another dtype" in str(caught.value)


def test_a_view_of_the_same_dtype_is_a_copy() -> None:
    x = torch.randn(4, 8)
    assert torch.equal(dplc.compile(lambda x: x.view(torch.float32), (x,))(x), x)
