"""The closed form of the time of a product by its tile: what it must rank right, whatever its figures are."""

from __future__ import annotations

import math

import pytest

from dplc.codegen.target import target
from dplc.engine.cost.tile_time import FMA, GROUP, WARP, OperandCost, Product, least_seconds

F32 = OperandCost(loads=1, work=0, along=True, width=4)
HALF = F32._replace(width=8)


def product(rows: int, columns: int, depth: int, unit: str = FMA, **more: object) -> Product:
    item, side = (4, F32) if unit == FMA else (2, HALF)
    read, results = (rows + columns) * depth * item, rows * columns * item
    made = Product(rows, columns, depth, 1, 1, item, unit, unit, 0, read, results, side, side)
    return made._replace(**more)


def least(p: Product, *decided: int, device: str = "h200") -> float:
    return least_seconds(p, target(device), decided)


@pytest.mark.parametrize("unit", [FMA, WARP, GROUP])
def test_a_decision_never_makes_a_product_faster(unit: str) -> None:
    p = product(512, 2048, 2048, unit)
    chunk = 64 if unit == GROUP else 32
    times = [least(p, *(chunk, 1, 128, 128)[:n]) for n in range(5)]
    assert times == sorted(times) and times[-1] < math.inf
    assert least(p) == min(least(p, n) for n in ((16, 32) if unit == FMA else (32, 64)))


def test_few_outputs_of_a_long_sum_are_split_and_many_are_not() -> None:
    few, many = product(32, 64, 16384), product(4096, 4096, 1024)
    assert least(few, 32, 8) < 0.5 * least(few, 32, 1)
    assert least(many, 32, 1) < least(many, 32, 8)


def test_a_tile_that_does_not_fit_is_infinite_and_one_in_no_list_is_priced() -> None:
    p = product(2048, 2048, 2048)
    assert least(p, 32, 1, 256, 256) == math.inf
    assert least(p, 32, 1, 24, 64, 6, 8) < math.inf


def test_a_thread_that_would_spill_is_infinite() -> None:
    """16 x 8 outputs with vectors of four along the sum take 248 registers; with a row more of each, 296."""
    p = product(512, 2048, 2048)
    assert least(p, 32, 1, 128, 64, 16, 8) < math.inf
    assert least(p._replace(held=(0, 7, 4, 1)), 32, 1, 128, 64, 16, 8) == math.inf


def test_whole_tiles_that_fill_the_device_once_beat_one_block_too_many() -> None:
    """Of 132 multiprocessors: 11 x 12 tiles of 128 x 64 are one wave, and a row of tiles more is a second."""
    one, two = (least(product(rows, 768, 2048), 16, 1, 128, 64) for rows in (1408, 1536))
    assert two > 1.3 * one


def test_computed_operands_and_narrow_copies_cost_time() -> None:
    plain = product(2048, 2048, 2048)
    assert least(plain._replace(left=F32._replace(work=20.0))) > 1.05 * least(plain)
    assert least(plain._replace(right=F32._replace(width=1))) > least(plain)


def test_a_split_that_leaves_tensor_cores_alone_is_priced_with_them() -> None:
    p = product(64, 2048, 2048, WARP)
    assert least(p._replace(unit=FMA), 32, 4) == least(p, 32, 4) < least(p._replace(unit=FMA), 32, 1)
