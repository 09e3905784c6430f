"""Tiny causal language models of many architectures, as a user makes them: defaults kept, a cache returned."""

from __future__ import annotations

from typing import Any

import torch

WORDS = 50
WIDTHS: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED: dict[str, Any] = {**WIDTHS, "num_key_value_heads": 2}
GPT2: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": WORDS, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
EXPERTS: dict[str, Any] = {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 8},
    "mistral": {**GROUPED, "sliding_window": 4},
    "phi3": {**GROUPED, "partial_rotary_factor": 1.0},
    "phi": {**GROUPED, "partial_rotary_factor": 0.5},
    "gemma": {**GROUPED, "head_dim": 8},
    "gemma2": {**GROUPED, "head_dim": 8, "sliding_window": 4},
    "gpt2": GPT2,
    "gptj": {**GPT2, "rotary_dim": 4},
    "gpt_neo": {
        "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
        "vocab_size": WORDS, "max_position_embeddings": 64, "window_size": 4, "bos_token_id": 1, "eos_token_id": 2,
    },
    "gpt_neox": WIDTHS,
    "gpt_bigcode": GPT2,
    "opt": {**WIDTHS, "ffn_dim": 44, "word_embed_proj_dim": 32},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2},
    "falcon": {**WIDTHS, "alibi": False, "new_decoder_architecture": False},
    "falcon_alibi": {**WIDTHS, "alibi": True, "new_decoder_architecture": False},
    "stablelm": GROUPED,
    "starcoder2": GROUPED,
    "olmo": GROUPED,
    "olmo2": GROUPED,
    "cohere": GROUPED,
    "granite": GROUPED,
    "smollm3": GROUPED,
    "glm": {**GROUPED, "head_dim": 8},
    "mixtral": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 16},
    "qwen3_moe": {**EXPERTS, "head_dim": 8},
    "olmoe": EXPERTS,
    "gpt_oss": {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": WORDS, "state_size": 4},
    "bert": {**WIDTHS, "is_decoder": True},
}  # fmt: skip


def config(name: str) -> dict[str, Any]:
    """The content of a `config.json`."""
    return {"model_type": "falcon" if name == "falcon_alibi" else name, **CONFIGS[name]}


def model(name: str, **changes: Any) -> Any:
    """The model with made-up weights, in evaluation mode."""
    from transformers import AutoConfig, AutoModelForCausalLM

    given = {**config(name), **changes}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(given.pop("model_type"), **given)).eval()


def tokens(batch: int = 2, length: int = 7) -> torch.Tensor:
    return torch.randint(3, WORDS, (batch, length), generator=torch.Generator().manual_seed(0))
