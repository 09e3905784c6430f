"""Several products of 16-bit matrices in one kernel, as of a gate and what it lets through: all on tensor cores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from products_of_halves import SINGLE_WARPS, judged

import dplc
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.ir.loop import Accumulate
from dplc.ir.node import nodes
from dplc.ir.tile import Mma, Stage

Function = Callable[..., torch.Tensor]


def gate(x: torch.Tensor, g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return F.silu(F.linear(x, g)) * F.linear(x, u)


def gate_nn(x: torch.Tensor, g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x @ g) * (x @ u)


def three(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return F.linear(x, a) * F.linear(x, b) + F.linear(x, c)


def of_one_weight(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w) * F.linear(y, w)


def inputs(dtype: torch.dtype, *shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    dice = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return tuple((torch.randn(shape, generator=dice) / shape[-1] ** 0.25).to(dtype) for shape in shapes)


BF16, F16 = torch.bfloat16, torch.float16
CASES: dict[str, tuple[Function, torch.dtype, tuple[tuple[int, ...], ...], int]] = {
    "a gate": (gate, BF16, ((64, 128), (128, 128), (128, 128)), 2),
    "ragged": (gate, BF16, ((77, 136), (200, 136), (200, 136)), 2),
    "primes, f16": (gate, F16, ((101, 67), (131, 67), (131, 67)), 2),
    "a batch": (gate, BF16, ((3, 40, 96), (72, 96), (72, 96)), 2),
    "along columns": (gate_nn, BF16, ((64, 96), (96, 136), (96, 136)), 2),
    "three": (three, F16, ((64, 96), (96, 96), (96, 96), (96, 96)), 3),
    "of one weight": (of_one_weight, BF16, ((64, 96), (64, 96), (96, 96)), 2),
    "long": (gate, BF16, ((128, 1024), (256, 1024), (256, 1024)), 2),
}


@pytest.mark.parametrize("arch", ["sm_80", "h200", "rtx5090"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_every_product_is_one_of_tensor_cores(name: str, arch: str) -> None:
    f, dtype, shapes, products = CASES[name]
    given = inputs(dtype, *shapes)
    made = dplc.compile(f, given, target=arch, device="emulator", db=False)
    most = max(made.compilation.tile, key=lambda kernel: len(list(nodes(kernel, Mma))))
    assert len(list(nodes(most, Mma))) == products
    assert not [sum for sum in nodes(most, Accumulate) if sum.fn == "add" and "reduce" in str(most)]
    judged(made, f, given)


def test_what_they_share_is_staged_once() -> None:
    """One kernel, in which both products read the same rows of shared memory."""
    given = tuple(torch.empty(*shape, dtype=BF16) for shape in ((512, 3584), (18944, 3584), (18944, 3584)))
    made = dplc.compile(gate, given, target="h200", device="emulator", db=False, rules=SINGLE_WARPS)
    (kernel,) = made.compilation.tile
    staged = {(stage.dst, stage.src) for stage in nodes(kernel, Stage)}
    assert staged == {(f"{name}_smem", name) for name in "xgu"} and len(list(nodes(kernel, Mma))) == 2
    (counts,) = map(instruction_counts, made.compilation.kernels)
    assert predict(counts, target("h200")).seconds < 450e-6  # 2,373 us where threads multiplied


def test_two_products_of_a_tile_have_four_warps_where_shared_memory_is_small() -> None:
    """What two teams of a warp combine leaves room for no second block there: threads have half as many columns."""
    given = inputs(torch.float32, (512, 768), (3072, 768), (3072, 768))
    pins = {"blockify_launch": {"BM": 32, "BN": 64}}
    made = dplc.compile(gate, given, target="rtx5090", device="emulator", db=False, settings=pins)
    (kernel,) = made.compilation.kernels
    assert instruction_counts(kernel).threads == 128


@pytest.mark.parametrize("shapes", [((65, 77), (130, 77), (130, 77)), ((32, 256), (64, 256), (64, 256))])
@pytest.mark.sampled(2)
def test_they_are_right(shapes: tuple[tuple[int, ...], ...]) -> None:
    given = inputs(torch.float32, *shapes)
    pins = {"blockify_launch": {"BM": 32, "BN": 64}}
    made = dplc.compile(gate, given, target="rtx5090", device="emulator", db=False, settings=pins)
    wanted = gate(*(tensor.double() for tensor in given))
    torch.testing.assert_close(made(*given).double(), wanted, rtol=1e-5, atol=1e-5)
