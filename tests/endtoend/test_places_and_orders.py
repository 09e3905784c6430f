"""Ops that look for places, put in order, or write where a tensor says: as eager, with nan, infinities, ties, parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import dplc

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor([[3.0, 1, NAN, 1, -0.0, 0.0, INF, -INF], [2, 2, 2, 1, NAN, NAN, 1, 5]])
WHOLE = torch.tensor([[3, 0, 1, 1, 2], [2, 2, 0, 3, 3], [0, 0, 0, 0, 0]])
IMAGE = torch.linspace(-2, 2, 72).sin().reshape(1, 2, 6, 6)
HOLES = IMAGE.clone()
HOLES[0, 0, 2, 2:4], HOLES[0, 1, :3] = NAN, -INF
X, S = torch.linspace(-3, 3, 32).reshape(4, 8), torch.linspace(-1, 1, 20).reshape(4, 5)
IDS, ALONG = torch.tensor([[0, 7, 7], [2, 0, 2]]), torch.tensor([0, 3, 3, 1, 5])
GRID = torch.linspace(-1.17, 1.13, 32).reshape(1, 4, 4, 2)
PIXELS = torch.tensor([1, 4, -100, 0, 2, 2])
WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.1, 0.7])
LOGITS = torch.linspace(-2, 2, 30).cos().reshape(6, 5)

ORDERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sort": (lambda x: tuple(x.sort(dim=-1, stable=True)), (ROWS,)),
    "sort, the largest first": (lambda x: tuple(x.sort(dim=-1, stable=True, descending=True)), (ROWS,)),
    "sort of columns": (lambda x: tuple(x.sort(dim=0, stable=True)), (WHOLE,)),
    "sort of integers": (lambda x: tuple(x.sort(dim=1, stable=True, descending=True)), (WHOLE,)),
    "argsort": (lambda x: x.argsort(dim=-1, stable=True), (ROWS,)),
    "topk": (lambda x: tuple(x.topk(3)), (X.sin(),)),
    "topk of the smallest": (lambda x: tuple(x.topk(2, dim=0, largest=False)), (X.sin(),)),
    "kthvalue": (lambda x: tuple(x.kthvalue(3, 0, keepdim=True)), (X.sin(),)),
    "median": (lambda x: tuple(x.median(1)), (ROWS,)),
    "nanmedian": (lambda x: tuple(x.nanmedian(1)), (ROWS,)),
    "medians of all": (lambda x: (x.median(), x.nanmedian(), x[:, :2].median()), (ROWS,)),
    "quantile": (lambda x: (x.quantile(0.3), x.quantile(torch.tensor([0.1, 0.5, 0.9]), dim=1)), (X.sin(),)),
    "searchsorted": (lambda s, x: (torch.searchsorted(s, x), torch.searchsorted(s, x, right=True)), (X, X - 0.1)),
    "bucketize": (lambda s, x: torch.bucketize(x, s), (X[0].contiguous(), X)),
    "histc": (lambda x: (x.histc(5), x.histc(4, -1, 1)), (X.sin(),)),
    "largest so far": (lambda x: (*x.cummax(1), *x.cummin(1), *x.cummax(0)), (ROWS,)),
    "logcumsumexp": (lambda x: (x.logcumsumexp(1), x.logcumsumexp(0)), (ROWS,)),
    "numbers": (lambda x: (x.cumsum(0), x.argmax(0), x.max(0)[1], x.sort()[1], x.cummax(0)[1]), (torch.tensor(3.0),)),
}
WRITES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scatter": (lambda x, i, s: x.scatter(1, i, s), (X, torch.tensor([[0, 7, 6], [2, 0, 1]]), S)),
    "scatter of a number": (lambda x, i: x.scatter(1, i, 2.5), (X, IDS)),
    "scatter_add of a part": (lambda x, i, s: x.scatter_add(1, i, s), (X, IDS, S)),
    "index_copy": (lambda x, i, s: x.index_copy(1, i, s), (X, torch.tensor([0, 3, 2, 1, 5]), S)),
    "index_fill": (lambda x, i: x.index_fill(0, i, 3.0), (X, torch.tensor([0, -1]))),
    "put": (lambda x, i, s: (x.put(i, s), x.put(i, s, accumulate=True)), (X, torch.tensor([0, 9, -1]), S[0, :3])),
    "rows": (lambda x, i, v: x.index_put((i,), v), (X, torch.tensor([0, -1]), X[0])),
    "places": (
        lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
        (X, IDS[:, :1], torch.tensor([0, 3, 3]), S[0, :3]),
    ),
    "a mask": (lambda x, m: x.index_put((m,), torch.tensor(2.0)), (X, X > 0)),
    "a mask of rows": (lambda x, m: x.index_put((m,), torch.tensor(2.0)), (X, X[:, 0] > -2)),
    "a diagonal": (lambda x, s: x.diagonal_scatter(s, 1), (X, S[:, 0])),
    **{
        f"scatter_reduce {fold}, {'with' if with_self else 'without'} what is there": (
            lambda x, i, s, fold=fold, with_self=with_self: (
                x.scatter_reduce(1, i, s, reduce=fold, include_self=with_self),
                (x * 9).long().scatter_reduce(1, i, (s * 9).long(), reduce=fold, include_self=with_self),
            ),
            (X, IDS, S),
        )
        for fold in ("sum", "prod", "mean", "amax", "amin")
        for with_self in (True, False)
    },
    "index_reduce": (lambda x, i, s: x.index_reduce(1, i, s, reduce="amax", include_self=False), (X, ALONG, S)),
}
PLACES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (HOLES,)),
    "largest and least of columns": (lambda x: (x.argmax(-2), x.argmin(-2), (x * 0).argmax(1, True)), (HOLES,)),
    "adaptive_max_pool": (lambda x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True), (HOLES,)),
    "fold": (lambda x: F.fold(x, (4, 5), (2, 3), padding=1, stride=2), (torch.linspace(0, 3, 216).reshape(2, 12, 9),)),
    "unfold": (lambda x: F.unfold(x, (2, 3), dilation=2, padding=1, stride=2), (IMAGE,)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), (IMAGE, GRID)),
    "grid_sample of the nearest": (lambda x, g: F.grid_sample(x, g, mode="nearest", align_corners=True), (IMAGE, GRID)),
    "pad of a volume": (lambda x: F.pad(x[None], (1, 2, 1, 1, 1, 0), mode="replicate"), (IMAGE,)),
    **{
        f"interpolate {mode}": (
            lambda x, mode=mode: (F.interpolate(x, scale_factor=2.0, mode=mode), F.interpolate(x, (4, 9), mode=mode)),
            (IMAGE,),
        )
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
    },
}
LOSSES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"cross_entropy {reduction}, smoothed by {e}": (
            lambda x, t, w, r=reduction, e=e: (
                F.cross_entropy(x, t, w, reduction=r, label_smoothing=e),
                F.cross_entropy(x, t, reduction=r, label_smoothing=e),
                F.cross_entropy(x, x.softmax(-1), w, reduction=r, label_smoothing=e),
            ),
            (LOGITS, PIXELS, WEIGHTS),
        )
        for reduction in ("none", "mean", "sum")
        for e in (0.0, 0.1)
    },
    "logits with a weight of what is there": (lambda x, w: F.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=w), (LOGITS, WEIGHTS)),
    "cosine_embedding": (lambda a, b, t: F.cosine_embedding_loss(a, b, t), (LOGITS, LOGITS.sin(), torch.tensor([1, -1, 1, 1, -1, 1]))),
    "poisson": (lambda a, b: F.poisson_nll_loss(a, b.abs(), full=True), (LOGITS, LOGITS.sin())),
    "triplet": (lambda a, b: F.triplet_margin_loss(a, b, a.sin()), (LOGITS, LOGITS.sin())),
    **{f"cdist {p}": (lambda a, b, p=p: torch.cdist(a, b, p=p), (LOGITS, X[:, :5])) for p in (0.0, 0.5, 1.0, 2.0, 3.0, INF)},
    "isclose": (lambda a: torch.isclose(a, a + 1e-6, equal_nan=True), (ROWS,)),
    "differences": (lambda a, b: (a.diff(n=2), a.diff(n=2, prepend=b, append=b, dim=0), a.diff(n=0)), (X, X[:1])),
    "in line": (lambda a: (torch.linspace(a, 3.0, 7), torch.linspace(a, 3.0, 1), torch.logspace(a, 1.0, 6)), (torch.tensor(-2.0),)),
    "signs": (lambda a: (a.signbit(), a.sin().copysign(a), a.round(decimals=2), (a * 99).round(decimals=-1)), (ROWS[:, 3:],)),
}  # fmt: skip
ALL = ORDERS | WRITES | PLACES | LOSSES


@pytest.mark.parametrize("name", ALL)
@pytest.mark.sampled(4)
def test_as_eager(name: str) -> None:
    function, inputs = ALL[name]
    compiled = dplc.compile(function, inputs, device="emulator", db=False, trace=False)
    got, want = pytree.tree_leaves(compiled(*inputs)), pytree.tree_leaves(function(*inputs))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


def test_values_and_places_share_the_order() -> None:
    values = dplc.compile(lambda x: x.sort(dim=-1)[0], (X,), device="emulator", db=False)
    both = dplc.compile(lambda x: tuple(x.sort(dim=-1)), (X,), device="emulator", db=False)
    assert len(both.program.kernels) <= len(values.program.kernels) + 1


def test_a_long_row_is_refused_by_name() -> None:
    with pytest.raises(dplc.DplcError, match="comparing all pairs"):
        dplc.compile(lambda x: x.sort(dim=-1)[0], (torch.zeros(2, 5000),), device="emulator", db=False, calls="none")
