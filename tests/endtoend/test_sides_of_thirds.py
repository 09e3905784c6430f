"""Tiles of 48, 96 and 192 columns or rows: 8 x 6 outputs of a thread, in strips that no two lanes read from one bank.

Those of 80, 112, 160 and 208 are for searches.
"""

from __future__ import annotations

import pytest
from test_turned import compiled, is_right

from dplc.engine.cost.instruction_counts import instruction_counts

LAYOUTS = {
    "linear": "F.linear(torch.randn({m}, {k}), torch.randn({n}, {k}))",
    "product": "torch.randn({m}, {k}) @ torch.randn({k}, {n})",
    "columns": "torch.randn({k}, {m}).t() @ torch.randn({k}, {n})",
}


def text(layout: str, m: int, k: int, n: int) -> str:
    return LAYOUTS[layout].format(m=m, k=k, n=n)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("rows", "columns"), [(64, 48), (48, 64), (32, 96), (96, 96), (16, 192), (192, 32)])
def test_every_order_of_operands_is_right(layout: str, rows: int, columns: int) -> None:
    sides = {"blockify_launch": {"BM": rows, "BN": columns}}
    is_right(text(layout, 96, 64, 192), sides)
    is_right(text(layout, 101, 67, 131), sides)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("rows", "columns"), [(64, 80), (80, 32), (48, 112), (112, 64), (160, 32), (16, 208)])
def test_sides_to_search_are_right(layout: str, rows: int, columns: int) -> None:
    sides = {"blockify_launch": {"BM": rows, "BN": columns}}
    is_right(text(layout, 101, 67, 227), sides)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_of_768_are_whole_tiles_of_48(layout: str) -> None:
    """512 x 768 results: 128 tiles, one for almost every of 132 multiprocessors; 64 x 64 would be 96."""
    (kernel,) = compiled(text(layout, 512, 768, 768)).kernels
    counts = instruction_counts(kernel)
    assert counts.blocks == 128
    assert counts.wavefronts <= 1.05 * counts.ideal_wavefronts
