"""Products whose tiles leave a part of the machine idle: blocks share the sum of each, as many as the policy finds cheapest."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right


def ways(text: str) -> int:
    """Blocks that share a tile: 1 where one kernel makes the product."""
    kernels = compiled(text).tile
    return kernels[0].outs[0].shape[1] if len(kernels) == 2 else 1


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "wanted"),
    [(256, 256, 4096, 8), (384, 384, 3072, 4), (512, 768, 768, 1), (1024, 1024, 3072, 2)],
)
def test_blocks_share_long_sums_of_few_tiles(rows: int, columns: int, depth: int, wanted: int) -> None:
    assert ways(f"torch.randn({rows}, {depth}) @ torch.randn({depth}, {columns})") == wanted


@pytest.mark.parametrize(
    "text",
    [
        "torch.randn(101, 1600) @ torch.randn(1600, 149)",
        "torch.randn(67, 3120) @ torch.randn(3120, 149)",  # the last block has fewer chunks
        "torch.randn(64, 2288) @ torch.randn(2288, 64)",
    ],
)
@pytest.mark.sampled(2)
def test_a_shared_sum_is_right(text: str) -> None:
    assert ways(text) > 1
    is_right(text)
