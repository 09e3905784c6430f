"""Long sums of whole numbers, and rows whose elements no vector holds: split over blocks, and read sector by sector."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.engine.cost.instruction_counts import instruction_counts

FOLDS = (
    "torch.randint(-9, 9, (300, 211)).sum()",
    "torch.randint(-9, 9, (65536,), dtype=torch.int32).amax()",
    "(torch.randn(70001) > 4).any()",
    "(torch.randn(70001) > -9).all(0)",
    "torch.count_nonzero(torch.randn(16384))",
    "torch.randn(1, 65536).argmax(-1)",
    "torch.randn(70003).argmin()",
    "torch.randn(2, 16384)[:, 1:].sum(-1)",
    "torch.randint(-9, 9, (7, 1000)).sum(-1)",
    "torch.randn(8, 6, 20, 20).sum((0, 2, 3))",
    "torch.randn(8, 6, 19, 23).amax((0, 2, 3))",
    "torch.randn(2048, 64).to(torch.bfloat16).sum(0)",
    "torch.randn(1000, 24).half().amax(0)",
    "F.batch_norm(torch.randn(5, 3, 17, 11), None, None, torch.randn(3), torch.randn(3), True)",
)
MACHINE = ("torch.randint(0, 9, (4096, 4096)).sum()", "(torch.randn(4096, 4096) > 0).any()")


@pytest.mark.parametrize("text", FOLDS)
@pytest.mark.sampled(2)
def test_a_long_fold_is_right(text: str) -> None:
    is_right(text)


@pytest.mark.parametrize("text", MACHINE)
def test_whole_numbers_are_split_over_the_machine(text: str) -> None:
    first, _ = map(instruction_counts, compiled(text).kernels)
    assert first.blocks >= 2 * 132
    assert first.sectors <= 1.1 * first.ideal_sectors
