"""Greedy text, token for token what transformers gives with the same weights; and what a step does to its cache."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from architectures import MAXIMUM, NEW, PROMPT, WORDS, greedy, source, with_weights
from drawing import draws

from dplc.codegen.target import target
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.compiler import compiler_with
from dplc.engine.models import artefact, generating
from dplc.engine.models.artefact import emulator
from dplc.engine.models.compiling import ModelRunner, ModelShape
from dplc.engine.models.generating import (
    Generation,
    Generator,
    Sampling,
    all_lengths,
    check_attention,
    check_length,
)
from dplc.engine.models.sources import make
from dplc.engine.run import calls
from dplc.ir.diagnostic import DplcError, UsageError

ROW = 4 * 2 * 8 * 4  # bytes of a row of the cache: keys and values of two layers, two heads of eight floats each
FIVE = Dim("s", len(PROMPT), len(PROMPT))


@cache
def generation(name: str, lengths: Dim = FIVE, maximum: int = MAXIMUM, rows: Any = (), **how: Any) -> Generation:
    compiler = compiler_with(target("sm_80"))
    return generating.compile_generation(source(name), lengths, maximum, ModelShape(), compiler, rows, **how)


def with_transformers(made: Generation, name: str) -> tuple[Generator, Any]:
    """Return what generates text, and transformers' model with the same weights: far from one word for ever."""
    weights = make(made.weights, seed=3, scale=0.4)
    return Generator(made, emulator(), weights), with_weights(name, weights, made.weights)


@pytest.mark.parametrize(
    ("name", "maximum", "step", "chunk", "rows", "needed"),
    [
        ("qwen3", 64, 64, None, (Dim("s", 1, 8),), [(1, 8)]),
        ("llama", 48, 8, 8, True, [(1, 1), (2, 8)]),
        ("tied", 48, 48, 8, (Dim("s", 1, 1),), [(1, 1)]),
        ("qwen3", 36, 8, 5, (), []),
        ("llama", 36, 8, None, (), []),
    ],
)
@pytest.mark.sampled(3)
def test_one_compile_serves_prompts_of_every_length(
    name: str, maximum: int, step: int, chunk: int | None, rows: Any, needed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole or in pieces, by rows; each call is given the cache as far as it is written, and writes it where it is."""
    compiles, given, run = Mock(wraps=generating.compile_call), list[int](), ModelRunner.run

    def noted(self: ModelRunner, inputs: Any) -> Any:
        cached = {key: tensor.shape[0] for key, tensor in inputs.items() if key.startswith("cache_")}
        assert cached.keys() <= set(self.program.aliases.values())
        given.extend(set(cached.values()))
        return run(self, inputs)

    monkeypatch.setattr(generating, "compile_call", compiles)
    monkeypatch.setattr(ModelRunner, "run", noted)
    made, dice = generation(name, all_lengths(maximum), maximum, rows, chunk=chunk, step=step), random.Random(7)
    generator, model = with_transformers(made, name)
    drawn = [(dice.randint(2, maximum - 2), 2) for _ in range(draws(1))]
    for length, count in ((3, 8), (8, 2), (17, 9), (maximum - 1, 9), (1, 8), *drawn):
        prompt = [dice.randrange(WORDS) for _ in range(length)]
        found = list(generator.tokens(prompt, count, stops=()))
        assert found == greedy(model, prompt, min(count, maximum - length)), length
        ends = [] if chunk is None else [*range(chunk, length, chunk), length]
        assert given == [-(-end // step) * step for end in (*ends, *range(length + 1, length + len(found)))], length
        given.clear()
    assert sorted((row.low, row.high) for (row,) in made.prompt.rows.made) == needed and compiles.call_count == 2
    assert (made.memory.copied, made.memory.cache) == (0, -(-maximum // step) * step * ROW)
    with pytest.raises(DplcError, match=f"the prompt has {maximum} tokens; this was compiled for 1 to {maximum - 1}"):
        list(generator.tokens([0] * maximum, 1))


@pytest.mark.parametrize(("name", "prompt"), [("llama", PROMPT), ("qwen2", PROMPT), ("tied", [9]), ("qwen3", PROMPT)])
@pytest.mark.sampled(2)
def test_text_ends_where_it_stops_and_where_its_room_ends(name: str, prompt: list[int]) -> None:
    generator, model = with_transformers(generation(name, Dim("s", len(prompt), len(prompt))), name)
    whole = list(generator.tokens(prompt, 99, stops=()))
    assert whole == greedy(model, prompt, MAXIMUM - len(prompt)) and len(set(whole)) > 3
    assert list(generator.tokens(prompt, 1, stops=())) == whole[:1] and not list(generator.tokens(prompt, 0))
    ended = whole[: whole.index(whole[3]) + 1]
    assert list(generator.tokens(prompt, NEW, stops={whole[3]})) == ended == greedy(model, prompt, NEW, whole[3])


SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.7}, {"temperature": 1.6, "top_k": 7}, {"top_p": 0.8}, {"min_p": 0.1, "temperature": 1.3},
    {"repetition_penalty": 1.7}, {"temperature": 2.0, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
]  # fmt: skip


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
@pytest.mark.sampled(1)
def test_draws_are_those_of_transformers(name: str) -> None:
    made = generation(name, all_lengths(MAXIMUM), chunk=4 if name == "gemma3_text" else None, scored=True)
    generator, model = with_transformers(made, name)
    ids, texts = torch.tensor([PROMPT]), set()
    for seed, how in enumerate(SAMPLINGS):
        found = list(generator.tokens(PROMPT, NEW, (), Sampling(**how, seed=seed)))
        torch.manual_seed(seed)
        want = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, eos_token_id=None, pad_token_id=0,
            do_sample=how.keys() != {"repetition_penalty"}, **{"top_k": 0, **how},
        )  # fmt: skip
        assert found == want[0, len(PROMPT) :].tolist(), how
        texts.add(tuple(found))
        assert found == list(generator.tokens(PROMPT, NEW, (), Sampling(**how, seed=seed)))
    assert len(texts) > 4


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"top_p": 1.5}, {"min_p": -1.0}, {"repetition_penalty": 0.0}])
def test_sampling_out_of_range_is_an_error(how: dict[str, Any]) -> None:
    (name,) = how
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} .* is out of range"):
        Sampling(**how)


def test_memory_for_a_prompt_is_that_of_a_piece() -> None:
    """The rest grows with the cache: masks, and few scores."""
    whole, pieces, shorter = (
        generation("llama", all_lengths(maximum), maximum, chunk=chunk).memory.prompt
        for maximum, chunk in ((64, None), (64, 4), (32, 4))
    )
    assert 4 * pieces < whole and 3 * shorter > 2 * pieces


def test_a_token_allocates_nothing_and_copies_no_cache(tmp_path: Path) -> None:
    made = generation("llama")
    program, memory = made.token.program, made.memory
    assert program.aliases.keys() == {buffer.name for buffer in program.outputs}
    assert set(program.aliases.values()) == {"input_ids", "cache_0", "cache_1", "cache_2", "cache_3"}
    assert memory.peak == memory.weights + memory.tables + memory.cache + max(memory.prompt, memory.token)
    artefact.save(made.token, tmp_path / "made", cubins=False)
    assert artefact.load(tmp_path / "made").program == program
    assert made.stops == {2}


def test_a_cache_that_may_not_lie_still_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = calls.refusal
    monkeypatch.setattr(calls, "refusal", lambda p, o, s: "because" if s == "cache_1" else refusal(p, o, s))
    copying = generation.__wrapped__("llama")
    assert len(copying.token.program.aliases) == 4 and copying.memory.copied == copying.memory.cache / 4
    generator, model = with_transformers(copying, "llama")
    assert list(generator.tokens(PROMPT, NEW, stops=())) == greedy(model, PROMPT, NEW)


def test_the_weights_are_placed_once() -> None:
    generator, _ = with_transformers(generation("llama"), "llama")
    placed = [
        {id(buffer) for buffer in call.runner({}).session._constants.values()}
        for call in (generator._tokens, generator._prompts)
    ]
    assert len(placed[0] & placed[1]) == len(generator.generation.weights)


def test_what_cannot_be_generated_is_told() -> None:
    mamba = SimpleNamespace(config=SimpleNamespace(layer_types=["full_attention", "linear_attention"]))
    for said, call in {
        "the prompt has no tokens": lambda: check_length(0, MAXIMUM),
        "the prompt has 2 tokens; this was compiled for 5": lambda: generation("llama").pieces(2),
        "layers of the kind `linear_attention` keep no keys and values": lambda: check_attention(mamba, MAXIMUM),
    }.items():
        with pytest.raises(DplcError, match=said):
            call()
