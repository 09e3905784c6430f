"""Slices that are added to many places, of which few get any: gradients of embeddings. Run, checked, compared with float64."""

from __future__ import annotations

import pytest
from test_transposed import compiled, is_right

from dplc.ir.loop import For
from dplc.ir.node import nodes

ADDED = (
    # every place is met often, or once, or never; places before zero
    "torch.randn(521, 271).index_add(0, torch.randint(0, 11, (251,)), torch.randn(251, 271))",
    "torch.randn(257, 1031).index_add(1, torch.randint(0, 1031, (257,)), torch.randn(257, 257), alpha=0.5)",
    "x = torch.randn(523, 271); i = torch.randint(-523, 523, (251,)); x.index_put((i,), torch.randn(251, 271), accumulate=True)",
    "torch.randint(-9, 9, (541, 269)).index_add(0, torch.randint(0, 541, (257,)), torch.randint(-9, 9, (257, 269)))",
    "torch.randn(512, 272).bfloat16().index_add(0, torch.randint(0, 512, (256,)), torch.randn(256, 272).bfloat16())",
    "torch.ops.aten.embedding_dense_backward(torch.randn(3, 173, 128), torch.randint(0, 1201, (3, 173)), 1201, 7, False)",
    # what is not a number stays in its row
    "s = torch.randn(256, 272); s[3] = float('inf'); torch.zeros(512, 272).index_add(0, torch.arange(256) // 2, s)",
)


@pytest.mark.parametrize("text", ADDED)
@pytest.mark.sampled(1)
def test_sums_of_slices_are_right(text: str) -> None:
    is_right(text)


def test_a_gradient_of_an_embedding_does_not_walk_all_tokens_for_every_word() -> None:
    text = "torch.ops.aten.embedding_dense_backward(torch.randn(512, 2048), torch.randint(0, 32000, (512,)), 32000, -1, False)"
    loops = [
        loop
        for kernel in compiled(text).plan.kernels
        if kernel.outs[0].shape == (32000, 2048)
        for loop in nodes(kernel.body, For)
    ]
    assert "reduce" not in {loop.role for loop in loops}
