"""Copies and elementwise kernels: several vectors a thread, short rows, and rows that have something in common.

Ragged and prime extents; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.engine.cost.instruction_counts import instruction_counts

STRIPS = (
    "torch.randn(65, 4098)[:, 1:-1].contiguous()",
    "torch.randn(33, 1024)[:, ::2].contiguous()",
    "torch.roll(torch.randn(37, 1024), 3, -1)",
    "torch.roll(torch.randn(300, 52), 5, -1)",
    "F.pad(torch.randn(17, 6, 11), (1, 1, 1, 1))",
    "F.pad(torch.randn(9, 31), (2, 2))",
    "torch.randn(601, 7) * 2",
    "torch.randn(301, 16).to(torch.bfloat16) + torch.randn(16)",
    "torch.randn(1000, 24).half()[:, 8:].contiguous()",
    "torch.randn(2, 5, 40, 12) + torch.randn(40, 12)",
    "torch.randn(64, 2048) + torch.randn(2048)",
    "torch.randn(36, 1001) * torch.randn(1001)",
    "x = torch.randn(1, 6, 50, 16); a = torch.randn(50, 16); x * a + torch.cat([-x[..., 8:], x[..., :8]], -1) * a",
    "torch.randn(7, 3, 41, 8).transpose(1, 2).contiguous()",
    "F.rms_norm(torch.randn(600, 160), (160,), torch.randn(160), 1e-6)",
    "F.layer_norm(torch.randn(540, 129), (129,), torch.randn(129), torch.randn(129))",
)
LARGE = (
    ("torch.randn(4096, 4098)[:, 1:-1].contiguous()", 1.15),
    ("torch.roll(torch.randn(4096, 4096), 3, -1)", 1.15),
    ("torch.randn(4096, 4096)[:, ::2].contiguous()", 1.6),
)


@pytest.mark.parametrize("text", STRIPS)
@pytest.mark.sampled(2)
def test_a_coarsened_kernel_is_right(text: str) -> None:
    is_right(text)


@pytest.mark.parametrize("text, most", LARGE)
def test_no_sector_is_asked_for_by_several_instructions(text: str, most: float) -> None:
    (kernel,) = compiled(text).kernels
    counts = instruction_counts(kernel)
    assert counts.sectors <= most * counts.ideal_sectors


def test_what_rows_share_is_loaded_once_for_several() -> None:
    (shared,) = compiled("torch.randn(2048, 4096) + torch.randn(4096)").kernels
    (alone,) = compiled("torch.randn(2048, 4096) + torch.randn(2048, 4096)").kernels
    moved = [c.sectors * c.blocks for c in map(instruction_counts, (shared, alone))]
    assert moved[0] <= 0.85 * moved[1]
