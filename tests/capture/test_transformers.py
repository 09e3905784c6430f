"""Whole models of transformers: captured, folded, and equal to the model in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from capture_checks import assert_well_formed

from dplc.engine.capture.capture import capture, fold
from dplc.ir.diagnostic import Span
from dplc.ir.interp.torch import run

transformers = pytest.importorskip("transformers")

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 64,
}  # fmt: skip


def model(config: str, attention: str, **more: Any) -> Any:
    torch.manual_seed(0)
    settings = getattr(transformers, config)(**SMALL, **more)
    settings._attn_implementation = attention
    return transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.float32).eval()


@pytest.mark.parametrize(("config", "attention", "more"), [
    ("LlamaConfig", "sdpa", {}),
    ("Qwen2Config", "eager", {"tie_word_embeddings": True}),
])  # fmt: skip
def test_a_model(config: str, attention: str, more: dict[str, Any]) -> None:
    net = model(config, attention, **more)
    ids = torch.arange(7)[None] * 3 % 50
    captured = capture(lambda ids: net(input_ids=ids, use_cache=False).logits, (ids,))
    folded = fold(captured)
    assert_well_formed(captured)
    assert_well_formed(folded)

    names = [param.name for param in captured.graph.ins]
    assert names[:2] == ["ids", "net_model_embed_tokens_weight"]
    assert ("net_lm_head_weight" in names) is not bool(more)
    # masks and positions are constants; the frequencies of the rotary embedding are a buffer of the model
    assert len(folded.graph.body) < len(captured.graph.body) - 30
    constants = [folded.tensors[name] for name, kind in folded.kinds.items() if kind == "constant"]
    assert sorted(tuple(c.shape) for c in constants) == [(1, 1, 7, 7), (1, 7, 1)]
    assert all(isinstance(captured.spans[s.dst], Span) for s in captured.graph.body)

    with torch.no_grad():
        want = net.double()(input_ids=ids, use_cache=False).logits
    (got,) = run(folded.graph, folded.tensors)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6 * want.abs().max().item())
