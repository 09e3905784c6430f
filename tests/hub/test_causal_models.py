"""`dplc.compile(model, (ids,))` on causal language models as users make them: right, or refused by name."""

from __future__ import annotations

import causal_configs
import pytest
import torch

import dplc

FEW = ("llama", "gpt2", "phi3", "mistral")
REFUSED = {
    "mixtral": "grouped_mm_fallback", "qwen2_moe": "grouped_mm_fallback", "qwen3_moe": "grouped_mm_fallback",
    "olmoe": "grouped_mm_fallback", "gpt_oss": "grouped_mm_fallback", "mamba": "conv1d",
}  # fmt: skip


def check(name: str) -> None:
    model, ids = causal_configs.model(name), causal_configs.tokens()
    with torch.no_grad():
        want = model(ids)
    compiled = dplc.compile(model, (ids,), device="emulator", trace=False)
    got = compiled(ids)
    assert type(got) is type(want)
    torch.testing.assert_close(got.logits, want.logits, rtol=1e-4, atol=1e-5)
    for one, other in zip(got.past_key_values.layers, want.past_key_values.layers, strict=True):
        torch.testing.assert_close((one.keys, one.values), (other.keys, other.values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FEW)
def test_logits_and_cache(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in causal_configs.CONFIGS if name not in {*FEW, *REFUSED}])
def test_logits_and_cache_of_all(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    with pytest.raises(dplc.DplcError, match=REFUSED[name]):
        dplc.compile(causal_configs.model(name), (causal_configs.tokens(),), device="emulator")
