"""Bags of rows of a table: sums, means, largest elements; offsets, padding, weights, and elements that are not numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dplc
from dplc.ir.interp.torch import call

NAN, INF = float("nan"), float("inf")
TABLE = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
PLACES, STARTS, ROWS = (
    torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]),
    torch.tensor([0, 3, 3, 6]),
    torch.tensor([[1, 2], [9, 9]]),
)
ENDS, EACH = torch.tensor([0, 3, 3, 8]), torch.linspace(-1, 1, 8)
ODD = TABLE.clone()
ODD[1, 0] = ODD[4, 1] = ODD[9] = NAN  # the first of a bag, and a later one
ODD[3, 2], ODD[2, 3] = -INF, INF

MODES = ("sum", "mean", "max")
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{mode: (lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m), (ODD, PLACES, STARTS)) for mode in MODES},
    **{
        f"{mode}, the last offset is the end": (
            lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m, include_last_offset=True),
            (TABLE, PLACES, ENDS),
        )
        for mode in MODES
    },
    **{
        f"{mode}, {pad} pads": (
            lambda w, i, o, m=mode, p=pad: F.embedding_bag(i, w, o, mode=m, padding_idx=p), (TABLE, PLACES, STARTS),
        )
        for mode in MODES for pad in (2, -1)
    },
    **{f"{mode} of rows": (lambda w, i, m=mode: F.embedding_bag(i, w, mode=m), (TABLE, ROWS)) for mode in MODES},
    "weights": (
        lambda w, i, o, v: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=v, padding_idx=4),
        (ODD, PLACES, STARTS, EACH),
    ),
    "i32": (lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), (TABLE, PLACES.int(), STARTS.int())),
    "f16": (lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"), (TABLE.half(), PLACES, STARTS)),
    "f64": (lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"), (TABLE.double(), PLACES, STARTS)),
    "module": (torch.nn.EmbeddingBag(10, 4, mode="max").requires_grad_(False), (PLACES, STARTS)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(3)
def test_bags(name: str) -> None:
    function, args = CASES[name]
    want, got = function(*args), dplc.compile(function, args)(*args)
    bound = {torch.float16: 2e-3, torch.float64: 1e-15}.get(want.dtype, 1e-6)
    assert got.dtype == want.dtype and torch.allclose(got, want, rtol=bound, atol=bound, equal_nan=True)


@pytest.mark.parametrize("pad", [-11, 10])
def test_padding_that_is_not_a_row_has_no_meaning(pad: int) -> None:
    args = {"weight": TABLE, "indices": PLACES, "offsets": STARTS, "padding_idx": pad}
    with pytest.raises(ValueError, match="is not a row of 10"):
        call("EmbeddingBag", args)
    with pytest.raises(RuntimeError):
        F.embedding_bag(PLACES, TABLE, STARTS, padding_idx=pad)
