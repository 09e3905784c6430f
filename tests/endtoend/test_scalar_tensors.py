"""Tensors next to tensors of another dtype of the same category, without dimensions or in a loss, held against eager."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import compare

import dplc

KINDS = ("uint8 int8 int16 int32 int64", "float16 bfloat16 float32 float64")
PAIRS = [pair for kind in KINDS for pair in itertools.permutations(kind.split(), 2)]
TEXTS = """x // s; x % s; x / s; torch.fmod(x, s); torch.isin(x, s); torch.addcmul(s, x, x); x.clamp(s - 1, s); s == x; s >= x
    torch.add(x, s, alpha=2); torch.where(x == s, s, x); torch.vmap(lambda y: y < s)(x); x < s.expand(3); x == s.view(1); s - x
    torch.zeros(3, dtype=torch.result_type(x, s)); x.clone().add_(s); x != s; x <= s; torch.maximum(s, x); torch.fmax(x, s)
    s * x; torch.rsub(x, s); torch.logical_and(x, s); torch.copysign(x, s)"""
FUNCTIONS = [eval(f"lambda x, s: {text.strip()}") for text in re.split("[;\\n]", TEXTS)]


def results(x: torch.Tensor, s: torch.Tensor) -> list[Any]:
    return [function(x, s) for function in FUNCTIONS]


def operands(dtypes: tuple[str, str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor, and one without dimensions that is its first element once it has that dtype."""
    own, other = (getattr(torch, name) for name in dtypes)
    s = (torch.ones((), dtype=torch.float64) / 10 if own.is_floating_point else torch.tensor(2**33 + 300)).to(other)
    return torch.stack([s.to(own), torch.tensor(7).to(own), torch.tensor(100).to(own)]), s


def check(function: Any, *given: torch.Tensor) -> None:
    for got, want in zip(dplc.compile(function, given)(*given), function(*given), strict=True):
        near = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 2e-7}.get(want.dtype, 0)
        torch.testing.assert_close(got, want, rtol=near, atol=0)


@pytest.mark.parametrize("dtypes", PAIRS, ids="-".join)
@pytest.mark.sampled(6)
def test_scalar_tensor_next_to_tensor_takes_its_dtype(dtypes: tuple[str, str]) -> None:
    check(results, *operands(dtypes))


@pytest.mark.parametrize("dtypes", [("uint8", "int64"), ("float32", "float64")])
def test_constants_and_sums_promote_as_scalar_inputs(dtypes: tuple[str, str]) -> None:
    x, s = operands(dtypes)
    check(lambda x: results(x, s), x)
    check(lambda x, y: results(x, y.sum()), x, torch.stack((s, s)))
    compare(results, [(x, s)])


def test_places_and_products_of_halves_stay_wide() -> None:
    bytes_, place = torch.arange(300).to(torch.uint8), torch.tensor(257)
    check(lambda x, n: [x[n], torch.take(x, n), torch.index_select(x, 0, n), x / n], bytes_, place)
    check(lambda x, s: [x * s, x / s], torch.tensor([1e-3]).half(), torch.tensor(65536.0))


LOSSES = [F.huber_loss, F.smooth_l1_loss, F.mse_loss, F.l1_loss]
FLOATS = list(itertools.permutations(KINDS[1].split(), 2))


@pytest.mark.parametrize("dtypes", FLOATS, ids="-".join)
@pytest.mark.sampled(3)
def test_losses_of_two_dtypes_have_the_dtype_of_eager(dtypes: tuple[str, str]) -> None:
    """A Huber loss has the dtype of its input in eager, and other losses the promoted one."""
    x, target = (torch.tensor([-2.0, 0.5, 3.0, 1.0]).to(getattr(torch, name)) for name in dtypes)
    target = target.flip(0)
    check(lambda x, y: [loss(x, y, reduction=r) for loss in LOSSES for r in ("none", "mean", "sum")], x, target)
