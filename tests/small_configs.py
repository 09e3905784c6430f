"""Configurations of small causal language models, without their architecture."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip
TINY: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 20, "max_position_embeddings": 16,
}  # fmt: skip
