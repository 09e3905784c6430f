"""Tiles of 48, 96 and 192 columns or rows: 8 x 6 outputs of a thread, in vectors that no two lanes read from one bank.

Those of 80, 112 and 160 give a thread 8 x 10, 10 x 10 or 8 x 14 outputs; 208 is for searches.
"""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

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
@pytest.mark.sampled(2)
def test_every_order_of_operands_is_right(layout: str, rows: int, columns: int) -> None:
    sides = {"blockify_launch": {"BM": rows, "BN": columns}}
    is_right(text(layout, 96, 64, 192), sides)
    is_right(text(layout, 101, 67, 131), sides)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("rows", "columns"), [(64, 80), (80, 32), (48, 112), (112, 64), (160, 32), (16, 208)])
@pytest.mark.sampled(2)
def test_sides_to_search_are_right(layout: str, rows: int, columns: int) -> None:
    sides = {"blockify_launch": {"BM": rows, "BN": columns}}
    is_right(text(layout, 101, 67, 227), sides)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("rows", "columns"), [(80, 160), (80, 80), (128, 80), (64, 112)])
@pytest.mark.sampled(2)
def test_threads_with_ten_or_fourteen_outputs_along_a_side_are_right(layout: str, rows: int, columns: int) -> None:
    is_right(text(layout, 167, 37, 227), {"blockify_launch": {"BM": rows, "BN": columns}})


@pytest.mark.parametrize(("rows", "columns"), [(80, 80), (64, 80), (128, 80), (64, 112)])
@pytest.mark.sampled(2)
def test_two_products_of_odd_tiles_are_right(rows: int, columns: int) -> None:
    program = "x = torch.randn(101, 67); F.silu(F.linear(x, torch.randn(131, 67))) * F.linear(x, torch.randn(131, 67))"
    is_right(program, {"blockify_launch": {"BM": rows, "BN": columns}})


@pytest.mark.parametrize(
    ("expression", "blocks", "threads"),
    [
        (text("linear", 2048, 2048, 2048), 26 * 13, 128),  # 80 x 160, where 256 tiles of 128 x 128 are two turns
        (text("linear", 512, 768, 3072), 4 * 39, 128),  # 128 x 80
        (
            "x = torch.randn(256, 256); F.silu(F.linear(x, torch.randn(3072, 256))) * F.linear(x, torch.randn(3072, 256))",
            4 * 39,
            128,
        ),  # 64 x 80 of two products
    ],
)
def test_170_multiprocessors_have_tiles_side_by_side(expression: str, blocks: int, threads: int) -> None:
    (kernel,) = compiled(expression, device="rtx5090").kernels
    counts = instruction_counts(kernel)
    assert (counts.blocks, counts.threads) == (blocks, threads)
    assert counts.wavefronts <= 1.05 * counts.ideal_wavefronts


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tile_that_is_alone_has_four_warps(layout: str) -> None:
    """112 x 64 by threads with 7 x 8 outputs: with 14 x 8 they would be two warps."""
    (kernel,) = compiled(text(layout, 512, 2048, 2048), device="rtx5090").kernels
    counts = instruction_counts(kernel)
    assert (counts.blocks, counts.threads) == (5 * 32, 128)
    assert counts.wavefronts <= 1.1 * counts.ideal_wavefronts


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("sides", "each"), [((64, 112), (8, 7)), ((112, 64), (7, 8)), ((80, 80), (10, 5)), ((64, 80), (8, 5))]
)
@pytest.mark.sampled(2)
def test_halved_threads_of_odd_tiles_are_right(layout: str, sides: tuple[int, int], each: tuple[int, int]) -> None:
    pins = {
        "blockify_launch": {"BM": sides[0], "BN": sides[1]},
        "register_tile": {"FM": each[0], "FN": each[1]},
    }
    is_right(text(layout, 167, 37, 227), pins)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_of_768_are_whole_tiles_of_48(layout: str) -> None:
    """512 x 768 results: 11 x 12 or 8 x 16 tiles, one for almost each multiprocessor; 64 x 64 would be 96."""
    (kernel,) = compiled(text(layout, 512, 768, 768)).kernels
    counts = instruction_counts(kernel)
    assert 128 <= counts.blocks <= 132
    assert counts.wavefronts <= 1.05 * counts.ideal_wavefronts
