"""The bars on whole models that need no weights: kernels, memory, time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from counting import at_most_calls, most_alive
from drawing import draws

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import compiler_with
from dplc.engine.models.compiling import CompiledModel, ModelShape, compile_model
from dplc.engine.models.sources import build, find

LAYERS = min(draws(4), 28)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.fixture(scope="module")
def qwen() -> CompiledModel:
    source = find(str(EXAMPLES / "qwen2.5-7b.json"))
    return compile_model(source, ModelShape(32, layers=LAYERS), compiler_with(target("sm_90a")))


def test_few_kernels(qwen: CompiledModel) -> None:
    assert qwen.figures.kernels <= 18
    assert len(qwen.compilation.plan.kernels) <= 2 + 11 * LAYERS
    assert qwen.figures.per_block <= 15  # of ten kernels, two of them rotations, five are split in two
    assert qwen.figures.launches == len(qwen.program.kernels)


def test_little_memory(qwen: CompiledModel) -> None:
    assert qwen.figures.planned_bytes <= 1.1 * most_alive(qwen.program)
    partial = 2 * 4 * 32 * 18944 * 4  # gate and up are split over four blocks a tile: 30% faster, by the model
    assert qwen.figures.planned_bytes < qwen.figures.eager_bytes + partial
    layer, ends = 233_057_792, 1_089_998_336  # numbers of a layer; of the embedding, the last norm and the head
    assert qwen.figures.weight_bytes == 4 * (layer * LAYERS + ends)


def test_all_weights_are_asked_for_by_name(qwen: CompiledModel) -> None:
    names = {want.names[0] for want in qwen.weights.values()}
    assert len(names) == LAYERS * 12 + 3
    assert {"model.embed_tokens.weight", "lm_head.weight", f"model.layers.{LAYERS - 1}.self_attn.k_proj.bias"} <= names


def test_the_front_end_is_quick(qwen: CompiledModel) -> None:
    """All layers without capture: 28 take under a second on a quiet machine."""
    captured = qwen.compilation.captured
    with at_most_calls(400_000 * LAYERS + 500_000):
        made = compiler_with(target("sm_90a")).compile(captured)
    assert made.cuda == qwen.compilation.cuda


class Block(torch.nn.Module):  # type: ignore[misc]
    """One decoder layer with its rotary table as inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = build(find(str(EXAMPLES / "tinyllama-1.1b.json")), layers=1).model.layers[0]

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return self.layer(x, attention_mask=None, position_embeddings=(cos, sin))


def test_a_block_compiles_in_few_calls() -> None:
    """Warm, without capture: 0.3 s, of which a clock says another number in every run (`examples/benches/models.py` has it)."""
    tensors = [torch.empty(1, 128, width, device="meta") for width in (2048, 64, 64)]
    captured = capture(Block(), tensors)
    compiler_with(target("sm_90a")).compile(captured)
    with at_most_calls(845_000):
        made = compiler_with(target("sm_90a")).compile(captured)
    assert len(made.plan.kernels) <= 11  # rotated queries and keys are stored
