"""PyTorch's own samples of its operators in ten dtypes, and functions at their edges: never wrong, never a crash."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
import torch
from drawing import draws
from edge_values import edges
from operator_samples import CRASHED, DTYPES, WRONG, Sample, judge, samples

PAIRS = draws(1) / 216  # of all pairs of an operator and a dtype
EACH = draws(1)  # samples of a pair, the first by lot
EDGES = draws(1) / 48
ONCE_WRONG = (
    "addbmm-int64-5", "addr-float32-4", "diff-bool-13", "eye-float32-10", "index_select-float32-0",
    "meshgrid_variadic_tensors-float32-3", "nn_functional_cross_entropy-bfloat16-20",
    "nn_functional_multilabel_soft_margin_loss-float16-3", "take_along_dim-float16-4",
    "tensordot-bfloat16-2",
    # errors of eager's roundings cancel in one element, where the nearest f16 of the exact loss of f16 logits is farther off
    "nn_functional_linear_cross_entropy_chunked_none-float16-12",
    # constants and reciprocals of f64 that went through f32
    "linspace_tensor_overload-float64-53", "new_full-float64-0", "nn_functional_interpolate_trilinear-float64-2",
    "nn_functional_multilabel_margin_loss-float64-2", "std_mean-float64-7",
)  # fmt: skip


def bad(chosen: Iterable[Sample]) -> list[str]:
    verdicts = ((sample.name, judge(sample)) for sample in chosen)
    return [f"{name}: {verdict.word}: {verdict.why}" for name, verdict in verdicts if verdict.word in (WRONG, CRASHED)]


def by_lot(found: Iterable[Sample], each: int) -> list[Sample]:
    """So many of every pair of operator and dtype, by a number that their names decide."""
    groups = itertools.groupby(found, key=lambda sample: (sample.operator, sample.dtype))
    return [sample for _, group in groups for sample in sorted(group, key=lambda sample: sample.lot)[:each]]


@pytest.mark.parametrize("name", ONCE_WRONG)
@pytest.mark.sampled(2)
def test_a_sample_that_was_wrong(name: str) -> None:
    chosen = [sample for sample in samples(only=name.rsplit("-", 2)[0]) if sample.name == name]
    assert [judge(sample).word for sample in chosen] == ["right"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_some_samples(dtype: torch.dtype) -> None:
    assert bad(by_lot(samples(share=PAIRS, dtypes=(dtype,)), EACH)) == []


def test_some_edges() -> None:
    assert bad(edges(share=EDGES)) == []
