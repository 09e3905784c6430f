"""The kernels of well-known programs: how many, what they are called, what they compute, why values are stored."""

from __future__ import annotations

from pathlib import Path

import blocks
import numpy as np
import pytest
import torch
from built_in import compiled
from random_programs import data_for

import dplc
from dplc.engine.kernels.fusion_pass import FusionRules
from dplc.engine.kernels.kernels import Plan, compile_graph
from dplc.engine.kernels.sharing import key
from dplc.ir.expr import Sum
from dplc.ir.interp import loop, tensor
from dplc.ir.loop import For, Store
from dplc.ir.node import nodes
from dplc.ir.tensor import TensorGraph

HERE = Path(__file__).parent
COUNTS = {"rms_norm": 1, "softmax": 1, "layer_norm": 1, "relu_matmul": 1, "sdpa": 2, "gqa": 5, "swiglu": 2}


def error(graph: TensorGraph, plan: Plan) -> float:
    data = data_for(graph, 0)
    memory = loop.run(plan.kernels, {name: np.atleast_1d(value) for name, value in data.items()})
    wanted = tensor.run(graph, data)
    return max(
        float(np.max(np.abs(memory[o.name].reshape(w.shape) - w))) for o, w in zip(graph.outs, wanted, strict=True)
    )


@pytest.mark.parametrize("name", COUNTS)
def test_kernel_counts(name: str, fusion: FusionRules) -> None:
    graph = getattr(blocks, name)()
    plan = compile_graph(graph, fusion)
    assert len(plan.kernels) == COUNTS[name], [kernel.name for kernel in plan.kernels]
    assert error(graph, plan) < 1e-11


@pytest.mark.parametrize("tile", [1, 2, 4, 0])
@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.sampled(4)
def test_other_cuts_mean_the_same(name: str, tile: int) -> None:
    graph = getattr(blocks, name)()
    plan = compile_graph(graph, compiled(tile))
    assert len(plan.kernels) >= COUNTS[name]
    assert error(graph, plan) < 1e-11


def test_a_layer_of_tinyllama_is_eleven_kernels(fusion: FusionRules) -> None:
    """Two of them rotate queries and keys: no shared tile holds what a rotation reads, so each warp would do it again."""
    assert len(compile_graph(blocks.llama(1), fusion).kernels) == 11


def test_layers_share_their_kernels(fusion: FusionRules) -> None:
    three = [key(kernel) for kernel in compile_graph(blocks.llama(3), fusion).kernels]
    assert len(three) == 33
    assert len(set(three)) == len({key(kernel) for kernel in compile_graph(blocks.llama(2), fusion).kernels})


def test_why_a_value_is_stored(fusion: FusionRules) -> None:
    plan = compile_graph(blocks.sdpa(), fusion)
    (stored,) = plan.why
    assert stored.reason == "swept more than once"
    assert stored.location.startswith("rules/fusion/fuse.rw:")
    fired = {fired.rule.name for fired in plan.decisions.firings}  # type: ignore[union-attr]
    assert fired == {"inline", "fuse_epilogue", "fuse_prologue", "climb"}


def test_without_rules_every_operation_is_a_kernel() -> None:
    assert len(compile_graph(blocks.rms_norm(), FusionRules([])).kernels) == 7


def test_the_grid_comes_first_then_the_row(fusion: FusionRules) -> None:
    (kernel,) = compile_graph(blocks.softmax(), fusion).kernels
    (rows,) = kernel.body
    assert isinstance(rows, For) and rows.role == "free"
    assert [(loop_.role, loop_.stop) for loop_ in nodes(kernel.body, For)] == [
        ("free", 6),
        ("reduce", 40),
        ("reduce", 40),
        ("free", 40),
    ]


def test_merged_heads_are_written_merged(fusion: FusionRules) -> None:
    plan = compile_graph(blocks.gqa(), fusion)
    addresses = [e for kernel in plan.kernels for store in nodes(kernel.body, Store) for e in store.idx]
    assert sum(isinstance(e, Sum) for e in addresses) == 1
    assert len(plan.temporaries[-1].shape) == 3


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Attention of eight heads over two rotated ones."""
    rotated = k * cos + torch.cat([-k[..., 32:], k[..., :32]], -1) * sin
    return torch.nn.functional.scaled_dot_product_attention(q, rotated, v, is_causal=True, enable_gqa=True)


def test_heads_that_several_read_keep_their_rows_whole() -> None:
    """Eight heads read head // 4: nothing is merged there, and the elements of a head stay side by side."""
    shapes = (1, 8, 96, 64), (1, 2, 96, 64), (1, 2, 96, 64), (96, 64), (96, 64)
    made = dplc.compile(grouped, tuple(torch.randn(shape) for shape in shapes), device="emulator", db=False)
    assert [param.shape for param in made.compilation.plan.temporaries] == [(2, 96, 64)]
