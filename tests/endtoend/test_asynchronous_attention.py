"""Attention on the asynchronous atoms of sm_90a, by rules: weights are the left operand in registers. Right, and clean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from products_of_halves import SINGLE_WARPS, assembled_as_written, atoms, heads, judged, same_places

import dplc
from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.target import target
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict
from dplc.ir.interp import tile

sdpa = torch.nn.functional.scaled_dot_product_attention


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return sdpa(q, k, v, is_causal=True)


def compiled(
    f: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], rows: int, keys: int, rules: str | None = None
) -> dplc.Compiled:
    settings = {"online_fragments": {"BM": rows, "BN": keys}}
    return dplc.compile(f, inputs, target="h200", device="emulator", db=False, settings=settings, rules=rules)


# of each: the function, queries, keys and values, the rows and keys of a block, both atoms
Case = tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...], torch.dtype, tuple[int, int], set[str]]
CASES: dict[str, Case] = {
    "whole": (sdpa, (2, 128, 64), (2, 256, 64), torch.bfloat16, (128, 64), {"m64n64k16"}),
    "ragged": (sdpa, (2, 77, 64), (2, 203, 64), torch.bfloat16, (64, 64), {"m64n64k16"}),
    "of 128, f16": (sdpa, (1, 70, 128), (1, 197, 128), torch.float16, (64, 64), {"m64n64k16", "m64n128k16"}),
    "chunks of 128": (sdpa, (2, 77, 64), (2, 450, 64), torch.bfloat16, (64, 128), {"m64n128k16", "m64n64k16"}),
    "causal": (causal, (2, 300, 64), (2, 300, 64), torch.bfloat16, (64, 64), {"m64n64k16"}),
    "causal, of 128": (causal, (1, 257, 128), (1, 257, 128), torch.float16, (128, 64), {"m64n64k16", "m64n128k16"}),
    "scale": (lambda q, k, v: sdpa(q, k, v, scale=0.7), (2, 77, 64), (2, 200, 64), torch.bfloat16, (64, 64), {"m64n64k16"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_attention(name: str) -> None:
    f, rows, columns, dtype, block, wanted = CASES[name]
    inputs = heads(rows, columns, dtype)
    made = compiled(f, inputs, *block)
    assert atoms(made) == wanted
    assert len(made.compilation.cuda_kernels) == 1
    judged(made, f, inputs)


def test_groups_of_heads_read_their_keys() -> None:
    dice = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(1, n, 200, 64, generator=dice).bfloat16() for n in (4, 2, 2))
    f = lambda q, k, v: sdpa(q, k, v, enable_gqa=True)  # noqa: E731
    made = compiled(f, (q, k, v), 64, 64)
    assert atoms(made) == {"m64n64k16"}
    judged(made, f, (q, k, v))


def test_masks_rows_that_are_hidden_whole_and_infinities() -> None:
    q, k, v = heads((1, 70, 64), (1, 200, 64), torch.bfloat16)
    mask = torch.ones(70, 200, dtype=torch.bool)
    mask[7], mask[20, :64] = False, False  # all of a row; all of a chunk
    v[0, 0, 3, 5] = float("inf")
    f = lambda q, k, v, m: sdpa(q, k, v, attn_mask=m)  # noqa: E731
    made = compiled(f, (q, k, v, mask), 64, 64)
    assert atoms(made) == {"m64n64k16"}
    got, want = made(q, k, v, mask).double(), f(q.double(), k.double(), v.double(), mask)
    same_places(got, want)
    finite = want.isfinite()
    assert (got - want)[finite].abs().max() < 0.02
    made.executor = checker = CheckingExecutor(("all",))
    made(q, k, v, mask)
    assert checker.launches
    assert checker.findings == ()


def test_the_schedule_means_the_same_in_every_order() -> None:
    inputs = heads((2, 64, 64), (2, 256, 64), torch.bfloat16)
    made = compiled(sdpa, inputs, 64, 64)
    (kernel,) = made.compilation.tile
    arrays = {param.name: x.double().numpy().reshape(param.shape) for param, x in zip(kernel.ins, inputs, strict=True)}
    want = sdpa(*(x.double() for x in inputs))
    for seed in range(3):
        got = tile.run((kernel,), arrays, seed)[kernel.outs[0].name]
        assert abs(torch.from_numpy(got).reshape(want.shape) - want).max() < 1e-2  # weights are rounded


def test_few_rows_and_short_keys_stay_with_single_warps() -> None:
    for rows, columns in (((2, 40, 64), (2, 256, 64)), ((2, 77, 64), (2, 100, 64)), ((2, 77, 80), (2, 256, 80))):
        inputs = heads(rows, columns, torch.bfloat16)
        made = compiled(sdpa, inputs, 32 if rows[1] < 64 else 64, 64)
        assert atoms(made) == {"m16n8k16"}
        judged(made, sdpa, inputs)


@pytest.mark.parametrize("size", [64, 128])
def test_long_rows(size: int) -> None:
    """Predicted faster than by single warps, and assembled without spills or products that wait (C7510)."""
    inputs = tuple(torch.empty(1, 32, 4096, size, dtype=torch.bfloat16) for _ in "qkv")
    single, made = (
        dplc.compile(sdpa, inputs, target="h200", device="emulator", db=False, rules=rules)
        for rules in (SINGLE_WARPS, None)
    )
    counts = [[instruction_counts(kernel) for kernel in one.compilation.kernels] for one in (single, made)]
    seconds = [sum(predict(count, target("h200")).seconds for count in one) for one in counts]
    assert seconds[1] <= 0.75 * seconds[0]
    assert counts[1][0].tensor == counts[1][0].asynchronous == counts[0][0].tensor
    assembled_as_written(made, 350, products=size // 16 + 4)
