"""Greedy text, token for token what transformers gives with the same weights; and what a step does to its cache."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from tiny_models import source

from dplc.codegen.target import target
from dplc.engine.hub.checking import emulator
from dplc.engine.hub.compiling import How, Shape
from dplc.engine.hub.generating import Generation, Generator, compile_generation
from dplc.engine.hub.module import build
from dplc.engine.hub.weights import make
from dplc.engine.toolchain import toolchain

PROMPT, MAXIMUM, NEW = [7, 3, 41, 12, 3], 16, 8
SCALE = 0.4  # of made-up weights: far from a model that says one word for ever


@cache
def compiled(name: str, length: int = len(PROMPT), maximum: int = MAXIMUM) -> Generation:
    return compile_generation(source(name), length, maximum, Shape(), How(toolchain(), target("sm_80")))


def of_transformers(name: str, weights: dict[str, Any], prompt: list[int], count: int, stop: Any = None) -> list[int]:
    """transformers' own greedy tokens, without the prompt."""
    model = build(source(name))
    given = {**weights}
    if model.config.tie_word_embeddings:
        given["lm_head.weight"] = given["model.embed_tokens.weight"]
    model.load_state_dict(given, assign=True)
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, eos_token_id=stop,
        pad_token_id=0,
    )  # fmt: skip
    return list(map(int, out[0, len(prompt) :]))


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "tied"])
def test_the_tokens_are_those_of_transformers(name: str) -> None:
    generation = compiled(name)
    weights = make(generation.weights, seed=2, scale=SCALE)
    found = list(Generator(generation, emulator(), weights).tokens(PROMPT, NEW, stops=()))
    assert found == of_transformers(name, weights, PROMPT, NEW)
    assert len(set(found)) > 3, found
