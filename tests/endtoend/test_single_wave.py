"""Kernels whose blocks are all at work at once.

A product whose outputs are one tile for every multiprocessor: its block is alone there. Where the device issues fewer
instructions than the pipe takes and has the memory, its threads have 16 x 8 outputs, and its chunks are long.
Causal attention: the block of the last rows takes longest, so blocks have fewer rows. Each is run whole on the emulator and
compared with float64."""

from __future__ import annotations

import math

import pytest
from test_transposed import run_right

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture_text
from dplc.engine.compiler import Compilation, Compiler
from dplc.engine.rewrite.statements.driver import Settings
from dplc.engine.ruleset import toolchain
from dplc.ir.facts.structure import summary
from dplc.ir.tile import Tile

WHOLE = {  # by default smaller tiles, which leave no multiprocessor idle
    "chunk_matmul_k": {"BK": 32},
    "blockify_launch": {"BM": 64, "BN": 128},
    "register_tile": {"FM": 16, "FN": 8},
}
ALWAYS = {rule: {"SLOWER": 1000} for rule in ("online_attention", "online_attention_masked")}


def linear(rows: int, columns: int, terms: int) -> str:
    return f"nn.Linear({terms}, {columns})(torch.randn({rows}, {terms}))"


def compiled(text: str, device: str, pins: Settings | None = None) -> Compilation:
    """Attention in one pass, also where three are faster."""
    settings = {**ALWAYS, **(pins or {})}
    return Compiler(toolchain(None, settings), target(device)).compile(capture_text(text))


def shape(compilation: Compilation) -> tuple[int, int]:
    """Outputs of a thread, and elements of a chunk along the sum."""
    (kernel,) = compilation.tile
    (tile,) = kernel.body
    assert isinstance(tile, Tile)
    copy = summary(tile.body).stages[0]
    return math.prod(axis.extent for axis in tile.axes if axis.role in ("REG", "VEC")), copy.box[-1].extent


@pytest.mark.parametrize("rows, columns", ((256, 512), (250, 508), (253, 489)))
@pytest.mark.sampled(1)
def test_one_tile_each_is_right(rows: int, columns: int) -> None:
    compilation = compiled(linear(rows, columns, 256), "thor", WHOLE)
    assert shape(compilation) == (128, 32)
    run_right(compilation)


def test_the_tile_of_one_wave_leaves_no_multiprocessor_idle() -> None:
    compilation = compiled(linear(256, 512, 256), "thor")
    assert math.prod(compilation.kernels[0].body[0].grid) == target("thor").multiprocessors
    run_right(compilation)


@pytest.mark.parametrize(
    "device, rows, columns, longest",
    (
        ("a100", 512, 1536, 32),  # a clock's instructions are twice what the pipe takes: 16 rows save nothing
        ("gb10", 512, 768, 16),  # shared memory holds neither the ring nor the slices
    ),
)
def test_devices_that_refuse(device: str, rows: int, columns: int, longest: int) -> None:
    outputs, chunk = shape(compiled(linear(rows, columns, 256), device))
    assert outputs <= 64 and chunk <= longest


def test_several_sums_and_many_waves_stay_as_they_are() -> None:
    several = "x = torch.randn(256, 256); F.silu(nn.Linear(256, 512)(x)) * nn.Linear(256, 512)(x)"
    assert 2 * shape(compiled(several, "thor"))[0] <= 128  # accumulators of both
    assert shape(compiled(linear(1024, 1024, 256), "thor"))[0] == 64


def test_a_block_that_is_alone_has_long_chunks_and_large_threads() -> None:
    assert shape(compiled(linear(512, 2048, 2048), "h200")) == (128, 32)


def attention(heads: int, rows: int, causal: bool = True) -> str:
    tensors = ", ".join([f"torch.randn({heads}, {rows}, 64)"] * 3)
    return f"F.scaled_dot_product_attention({tensors}, is_causal={causal})"


def rows_of_block(compilation: Compilation) -> int:
    return next(shared_tile.box[0].extent for shared_tile in summary(compilation.tile[0].body).shared_tiles)


@pytest.mark.parametrize("rows", (256, 201))
def test_rows_that_see_more_and_more_columns_make_smaller_blocks(rows: int) -> None:
    compilation = compiled(attention(6, rows), "thor")
    assert rows_of_block(compilation) == 16  # the second block of 128 rows would have twice the chunks of the first
    run_right(compilation)


@pytest.mark.parametrize(
    "heads, rows, causal, device, expected",
    (
        (2, 256, False, "thor", 32),  # each on a multiprocessor of its own
        (2, 128, True, "thor", 16),
        (12, 256, True, "thor", 64),  # three of 64 on the busiest multiprocessor, not two of 128
        (20, 256, True, "thor", 128),  # as many rows on each, however they are cut
        (12, 256, False, "thor", 32),  # five of 32 on the busiest multiprocessor, not three of 64
        (34, 256, False, "thor", 128),  # seven of 64, not four of 128: an eighth less does not pay
        (8, 256, True, "thor", 64),  # two on each
        (20, 256, True, "gb10", 128),  # whose shared memory holds one
    ),
)
@pytest.mark.sampled(2)
def test_blocks_of_rows(heads: int, rows: int, causal: bool, device: str, expected: int) -> None:
    assert rows_of_block(compiled(attention(heads, rows, causal), device)) == expected


@pytest.mark.parametrize(("device", "causal"), (("thor", False), ("gb10", True), ("gb10", False)))
@pytest.mark.sampled(1)
def test_blocks_of_half_the_rows_are_right(device: str, causal: bool) -> None:
    """Four warps share 64 rows, of which the last block has nine."""
    heads = {"thor": 12, "gb10": 29}[device]
    compilation = compiled(
        attention(heads, 201, causal), device, {"online_tile": {"BM": 64, "BN": 64, "FM": 8, "FN": 4}}
    )
    (tile,) = (stmt for stmt in compilation.tile[0].body if isinstance(stmt, Tile))
    assert rows_of_block(compilation) == 64
    assert math.prod(axis.extent for axis in tile.axes if axis.role == "THREAD") == 128
    run_right(compilation)


def gate(rows: int, columns: int, terms: int = 512) -> str:
    product = f"nn.Linear({terms}, {columns})(x)"
    return f"x = torch.randn({rows}, {terms}); F.silu({product}) * {product}"


@pytest.mark.parametrize("rows, columns", ((128, 128), (119, 125)))
def test_several_products_that_are_one_wave_are_not_split(rows: int, columns: int) -> None:
    compilation = compiled(gate(rows, columns), "thor")
    assert len(compilation.kernels) == 1
    run_right(compilation)


@pytest.mark.parametrize("rows, columns", ((64, 128), (192, 128)))  # few tiles of two products
def test_several_products_that_are_split(rows: int, columns: int) -> None:
    assert len(compiled(gate(rows, columns, 2048), "h200").kernels) == 2
    assert len(compiled(gate(rows, columns), "h200").kernels) == 1  # smaller tiles fill the device
