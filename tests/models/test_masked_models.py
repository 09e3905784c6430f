"""Decoders as transformers writes them, with padding and windows: what rows attend to is read from memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dplc

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 50, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1,
}  # fmt: skip
THREE_HEADS = {"hidden_size": 72, "num_attention_heads": 3, "num_key_value_heads": 3}


class Logits(torch.nn.Module):
    def __init__(self, kind: str, **changes: Any):
        super().__init__()
        transformers = pytest.importorskip("transformers")
        config = transformers.AutoConfig.for_model(kind, **{**SMALL, **changes})
        self.model = transformers.AutoModelForCausalLM.from_config(config).eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "length"), [(1, 16), (2, 13), (3, 13)])
def test_a_window_shorter_than_a_padded_text(batch: int, length: int) -> None:
    torch.manual_seed(0)
    model, ids, mask = (
        Logits("mistral", sliding_window=4),
        torch.randint(0, 50, (batch, length)),
        torch.ones(batch, length),
    )
    mask = mask.long()
    mask[:, 0] = 0
    agrees(model, (ids, mask), seen=slice(1, None))  # a row that sees nothing is nobody's


@pytest.mark.slow
@pytest.mark.parametrize("length", [13, 17])
def test_norms_after_attention(length: int) -> None:
    torch.manual_seed(0)
    agrees(Logits("olmo2", **THREE_HEADS), (torch.randint(0, 50, (1, length)),))


def agrees(model: torch.nn.Module, inputs: tuple[Any, ...], seen: slice = slice(None)) -> None:
    with torch.no_grad():
        wanted = model(*inputs)
        got = dplc.compile(model, inputs, device="emulator")(*inputs)
    torch.testing.assert_close(got[:, seen], wanted[:, seen], rtol=1e-4, atol=1e-5)
