"""Whole models on the emulator agree with transformers: grouped heads, RoPE, SwiGLU, biases, q/k norms, tied tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import CONFIGS, compiled, of_transformers, tokens

from dplc.engine.models import artefact
from dplc.engine.models.artefact import emulator
from dplc.engine.models.benching import GATES, compare
from dplc.engine.models.compiling import DynamicModelRunner
from dplc.engine.models.sources import make
from dplc.engine.run.calls import error

DTYPES = ("f32", "f16", "bf16")
DTYPES_OF_TORCH = {"f16": "float16", "bf16": "bfloat16"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.sampled(2)
def test_the_logits_are_those_of_transformers(name: str, dtype: str, tmp_path: Path) -> None:
    artefact.save(compiled(name, dtype), tmp_path / "made", cubins=False)
    found = artefact.load(tmp_path / "made")
    weights, ids = make(found.weights), tokens()
    runner = DynamicModelRunner(found, emulator(), weights)
    (logits,) = runner.run({"input_ids": ids})
    assert error(logits, of_transformers(name, weights, found.weights, ids))[1] <= GATES[dtype]
    assert compare(found, {**found.constants, **weights, "input_ids": ids}, [logits], {}).ok
    other = tokens(seed=1)
    (again,) = runner.run({"input_ids": other})  # the session's arena is used again
    assert error(again, of_transformers(name, weights, found.weights, other))[1] <= GATES[dtype]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.sampled(1)
def test_halves_are_within_twice_the_error_of_eager(name: str, dtype: str) -> None:
    model = compiled(name, dtype)
    weights = make(model.weights)
    runner = DynamicModelRunner(model, emulator(), weights)
    for seed in range(3):
        ids = tokens(seed=seed)
        reference = of_transformers(name, weights, model.weights, ids)
        eager = of_transformers(name, weights, model.weights, ids, getattr(torch, DTYPES_OF_TORCH[dtype]))
        (logits,) = runner.run({"input_ids": ids})
        assert error(logits, reference)[1] <= 2 * error(eager, reference)[1]


def test_the_mask_is_an_index_and_the_angles_are_a_table() -> None:
    model = compiled("qwen2")
    text = model.compilation.ir("loop")
    assert "j <= " in text
    assert "cos(" not in text and "sin(" not in text
    names = [buffer.name for buffer in model.program.constants if buffer.name not in model.weights]
    assert len(names) == 2  # cos and sin, shared by all layers
    assert {buffer.dtype for buffer in model.program.buffers()} == {"f32", "i64"}  # no mask in memory


def test_what_depends_on_the_weights_does_not_fold() -> None:
    model = compiled("tied")
    embedding = next(want for want in model.weights.values() if len(want.names) == 2)
    assert set(embedding.names) == {"model.embed_tokens.weight", "lm_head.weight"}
    assert all(torch.isfinite(value).all() for value in model.constants().values())
