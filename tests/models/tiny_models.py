"""Models of the families at reduced widths, with made-up weights, and what transformers says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from small_configs import SMALL

from dplc.codegen.target import target
from dplc.engine.compiler import compiler_with
from dplc.engine.models.compiling import CompiledModel, ModelShape, compile_model
from dplc.engine.models.sources import ModelSource, WeightRequest, build

# What each family adds: biases of q, k, v; norms of q and k; one tensor for the embedding and the head.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SMALL},
    "qwen2": {"model_type": "qwen2", **SMALL},
    "qwen3": {"model_type": "qwen3", "head_dim": 8, **SMALL},
    "tied": {"model_type": "qwen2", "tie_word_embeddings": True, **SMALL},
}
LENGTH = 7


def source(name: str) -> ModelSource:
    return ModelSource(f"{name}-tiny", dict(CONFIGS[name]))


def compiled(name: str, dtype: str = "f32", arch: str = "sm_80", length: int = LENGTH) -> CompiledModel:
    return compile_model(source(name), ModelShape(length=length, dtype=dtype), compiler_with(target(arch)))


def tokens(length: int = LENGTH, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, SMALL["vocab_size"], (1, length), generator=torch.Generator().manual_seed(seed))


def of_transformers(
    name: str,
    weights: Mapping[str, Any],
    wanted: Mapping[str, WeightRequest],
    ids: torch.Tensor,
    dtype: torch.dtype = torch.float64,
) -> Any:
    """transformers' logits with the same weights, in float64 or in a dtype of its own."""
    model = build(source(name))
    named = {alias: weights[buffer].to(dtype) for buffer, want in wanted.items() for alias in want.names}
    model.load_state_dict(named, assign=True)
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


def cached(cache: Path, name: str, config: dict[str, Any]) -> Path:
    """The configuration of an id in a cache of the hub, in its own layout: the folder of its snapshot."""
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0123")
    (snapshot / "config.json").write_text(json.dumps(config))
    return snapshot
