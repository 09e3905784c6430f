"""Decoders as transformers writes them, with padding and windows: what rows attend to is read from memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_configs import SMALL

import dplc

CONFIG = {**SMALL, "num_hidden_layers": 1, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}
THREE_HEADS = {"hidden_size": 72, "num_attention_heads": 3, "num_key_value_heads": 3}


class Logits(torch.nn.Module):
    def __init__(self, kind: str, **changes: Any):
        super().__init__()
        transformers = pytest.importorskip("transformers")
        config = transformers.AutoConfig.for_model(kind, **{**CONFIG, **changes})
        self.model = transformers.AutoModelForCausalLM.from_config(config).eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "length"), [(1, 16), (2, 13), (3, 13)])
def test_a_window_shorter_than_a_padded_text(batch: int, length: int) -> None:
    torch.manual_seed(0)
    model, ids = Logits("mistral", sliding_window=4), torch.randint(0, 50, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, 0] = 0
    agrees(model, (ids, mask))


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {}, "mistral": {"sliding_window": 4}, "gemma2": {"sliding_window": 4, "head_dim": 8},
    "gpt2": {"n_inner": 44}, "opt": {"ffn_dim": 44, "word_embed_proj_dim": 32},
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.sampled(2)
def test_texts_padded_at_the_left_have_the_logits_of_eager(kind: str, dtype: torch.dtype) -> None:
    """All logits, also those of padding: a token that sees nothing has the mean of all values."""
    torch.manual_seed(0)
    model = Logits(kind, **FAMILIES[kind], attn_implementation="eager", initializer_range=0.3).to(dtype)
    ids, mask = torch.randint(3, 50, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    mask[0, :3], mask[1, :1] = 0, 0
    agrees(model, (ids, mask), 0.02 if dtype is torch.bfloat16 else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("length", [13, 17])
def test_norms_after_attention(length: int) -> None:
    torch.manual_seed(0)
    agrees(Logits("olmo2", **THREE_HEADS), (torch.randint(0, 50, (1, length)),))


def agrees(model: torch.nn.Module, inputs: tuple[Any, ...], gate: float = 1e-5) -> None:
    with torch.no_grad():
        wanted = model(*inputs)
        got = dplc.compile(model, inputs, device="emulator")(*inputs)
    torch.testing.assert_close(got, wanted, rtol=10 * gate, atol=gate * max(1.0, float(wanted.abs().max())))
