"""What exploration is for: a linear layer of a norm, and causal attention with grouped heads, are one kernel each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dplc
from dplc.codegen.emulator.executor import CheckingExecutor
from dplc.codegen.judge import GATE, judge
from dplc.engine.run.calls import run_reference


def linear_of_norm(x: torch.Tensor, gain: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.linear(F.rms_norm(x, (x.shape[-1],), gain), weight)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


CASES = {
    "norm and linear": (linear_of_norm, ((64, 256), (256,), (128, 256)), ("all",)),
    "norm and linear, ragged": (linear_of_norm, ((17, 65), (65,), (33, 65)), ("all",)),
    "attention": (attention, ((2, 32, 256, 64), (2, 8, 256, 64), (2, 8, 256, 64)), ("first", "last")),
    "attention, ragged": (attention, ((1, 32, 461, 64), (1, 8, 461, 64), (1, 8, 461, 64)), ("first", "last", "ragged")),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(2)
def test_one_kernel_by_exploration(name: str) -> None:
    function, shapes, blocks = CASES[name]
    generator = torch.Generator().manual_seed(0)
    tensors: tuple[Any, ...] = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    made = dplc.compile(function, tensors, explore=True, target="h200", device="emulator", db=False)
    assert len(made.program.kernels) == 1
    checker = made.executor = CheckingExecutor(blocks)  # type: ignore[misc]
    captured = made.compilation.captured
    results = made.run(captured.tensors)
    assert judge(results, run_reference(captured, captured.tensors)).relative <= GATE
    assert not checker.findings
