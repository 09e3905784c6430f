"""`model.generate(cache_implementation="static")` of transformers with a compiled forward: its tokens, few compiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES, WORDS
from small_configs import SMALL
from transformers import AutoConfig, AutoModelForCausalLM, CompileConfig, StoppingCriteria, StoppingCriteriaList

import dplc  # noqa: F401

HYBRID: dict[str, dict[str, Any]] = {
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1},
    "falcon_h1": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_d_ssm": 64},
    "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 8, "mamba_dt_rank": 4,
    },
}  # fmt: skip
KNOWN = ("llama", "qwen2", "qwen3", "gemma", "gemma3_text", "mistral", "phi", "phi3", "mixtral", "mamba", "gpt_oss")
CONFIGS = {name: (ARCHITECTURES[name]["type"], ARCHITECTURES[name]["config"]) for name in KNOWN}
CONFIGS |= {name: (name, {**SMALL, **config}) for name, config in HYBRID.items()}


def made(name: str) -> Any:
    """Return a model that says several words."""
    kind, config = CONFIGS[name]
    torch.manual_seed(0)
    model, draw = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config)).eval(), torch.Generator()
    draw.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3, generator=draw)
    return model


def prompts(*lengths: int) -> dict[str, torch.Tensor]:
    """Return a batch of unequal prompts, padded on the left."""
    ids, mask = torch.zeros(2, len(lengths), max(lengths), dtype=torch.long)
    draw = torch.Generator().manual_seed(sum(lengths))
    for row, length in enumerate(lengths):
        ids[row, -length:], mask[row, -length:] = torch.randint(3, WORDS, (length,), generator=draw), 1
    return {"input_ids": ids, "attention_mask": mask}


def texts(
    model: Any, given: dict[str, torch.Tensor], compiles: list[Any], **how: Any
) -> tuple[torch.Tensor, list[int]]:
    """Return transformers' tokens, and the compiles until each, those before the first call taken off."""
    counts, before = list[int](), len(compiles)

    class Counting(StoppingCriteria):
        def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            counts.append(len(compiles) - before)
            return torch.zeros(len(ids), dtype=torch.bool)

    found = model.generate(
        **given, eos_token_id=None, pad_token_id=0, stopping_criteria=StoppingCriteriaList([Counting()]), **how
    )
    return found, counts


@pytest.mark.parametrize(
    ("name", "how"), [*((name, "config") for name in CONFIGS), ("qwen2", "forward"), ("mamba", "forward")]
)
@pytest.mark.sampled(3)
def test_a_static_cache_gives_the_tokens_of_eager_without_later_compiles(
    name: str, how: str, compiles: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For prompts alone and together, greedy and sampled; later lengths need no compile but for a longer cache."""
    torch._dynamo.reset()
    monkeypatch.setattr(CompileConfig, "_compile_all_devices", True)
    model = made(name)
    eager, fast = model.forward, torch.compile(model.forward, backend="dplc")
    static: dict[str, Any] = {"cache_implementation": "static"}
    if how == "config":
        static["compile_config"] = CompileConfig(backend="dplc")
    calls = [(prompts(5), False, 7), (prompts(6), True, 6), (prompts(3), False, 6), (prompts(4, 2), True, 4)]
    for number, (given, sampled, count) in enumerate(calls):
        options = {"do_sample": sampled, "max_new_tokens": count} | (
            {"temperature": 0.7, "top_k": 9} if sampled else {}
        )
        model.forward = eager
        torch.manual_seed(number)
        want, _ = texts(model, given, compiles, **options)
        model.forward = fast if how == "forward" else eager
        torch.manual_seed(number)
        got, counts = texts(model, given, compiles, **options, **static)
        assert got.tolist() == want.tolist()
        if "sliding_attention" not in (getattr(model.config, "layer_types", None) or ()) and name != "mistral":
            assert counts[2:] == [counts[1]] * (
                count - 2
            )  # each layer with a window compiles once more when it is full
        assert counts[-1] <= (6 if number == 0 else 5)
    assert len(compiles) > 0 and len({*want.flatten().tolist()}) > 3
