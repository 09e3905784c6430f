"""Greedy text, token for token what transformers gives with the same weights; and what a step does to its cache."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from drawing import draws, some
from tiny_models import source

from dplc.codegen.target import target
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.compiler import compiler_with
from dplc.engine.models import artefact, generating
from dplc.engine.models.artefact import emulator
from dplc.engine.models.compiling import BoundModel, CompiledModel, ModelRunner, ModelShape, with_rows
from dplc.engine.models.generating import (
    Generation,
    Generator,
    all_lengths,
    check_attention,
    check_length,
    compile_generation,
)
from dplc.engine.models.sources import ModelSource, build, make
from dplc.engine.run import calls
from dplc.ir.diagnostic import DplcError

PROMPT, MAXIMUM, NEW = [7, 3, 41, 12, 3], 16, 8
SCALE = 0.4  # of made-up weights: far from a model that says one word for ever


def generation_of(name: str, maximum: int, rows: Any = (), chunk: int | None = None, **options: Any) -> Generation:
    """Compiled for every length that there is room for."""
    shape, how = ModelShape(), compiler_with(target("sm_80"))
    return compile_generation(source(name), all_lengths(maximum), maximum, shape, how, rows, chunk, **options)


@cache
def compiled(name: str, length: int = len(PROMPT)) -> Generation:
    return compile_generation(
        source(name), Dim("s", length, length), MAXIMUM, ModelShape(), compiler_with(target("sm_80"))
    )


def prompt_of(generation: Generation, length: int) -> BoundModel:
    """Return the model that reads so many tokens at once, all of a prompt or a piece, given the whole cache."""
    return generation.prompt.at(generation.sizes_of(generation.prompt, length, generation.reach.high))


@cache
def built(name: str) -> Any:
    return build(source(name))


def of_transformers(name: str, weights: dict[str, Any], prompt: list[int], count: int, stop: Any = None) -> list[int]:
    """transformers' own greedy tokens, without the prompt."""
    model = built(name)
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


def texts(generation: Generation, name: str, asked: Iterable[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Tokens after drawn prompts, each as transformers has them. asked: the length of a prompt, and how many tokens."""
    weights, dice = make(generation.weights, seed=3, scale=SCALE), random.Random(7)
    generator = Generator(generation, emulator(), weights)
    for length, count in asked:
        prompt = [dice.randrange(50) for _ in range(length)]
        found = list(generator.tokens(prompt, count, stops=()))
        assert found == of_transformers(name, weights, prompt, len(found)), length
        yield length, found


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Mock:
    counted = Mock(wraps=generating.compile_call)
    monkeypatch.setattr(generating, "compile_call", counted)
    return counted


@pytest.mark.parametrize(("name", "prompt"), [("tied", [9]), ("llama", PROMPT), ("qwen2", PROMPT), ("qwen3", PROMPT)])
@pytest.mark.sampled(1)
def test_the_tokens_are_those_of_transformers(name: str, prompt: list[int]) -> None:
    generation = compiled(name, len(prompt))
    for seed in range(2, 2 + draws(1)):
        weights = make(generation.weights, seed=seed, scale=SCALE)
        found = list(Generator(generation, emulator(), weights).tokens(prompt, NEW, stops=()))
        assert found == of_transformers(name, weights, prompt, NEW)


@pytest.mark.parametrize(("name", "rows"), [("qwen3", (Dim("s", 1, 8),)), ("llama", ())])
@pytest.mark.sampled(1)
def test_one_compile_serves_prompts_of_every_length(name: str, rows: Any, compiles: Mock) -> None:
    """Or one for each row that a prompt is in, of the one captured program."""
    maximum, dice = 64, random.Random(7)
    generation = generation_of(name, maximum, rows)
    lengths = [1, maximum - 1, *(dice.randint(2, maximum - 2) for _ in range(draws(2)))]
    assert len(list(texts(generation, name, [(length, 2) for length in lengths]))) == len(lengths)
    kernels = [{k.text for k in prompt_of(generation, n).program.kernels} for n in (5, 33, 40)]
    assert compiles.call_count == 2 and kernels[1] == kernels[2] and (kernels[0] != kernels[1]) is bool(rows)
    assert list(generation.prompt.rows.made) == ([tuple(rows)] if rows else [])
    assert generation.memory.prompt >= prompt_of(generation, 9).program.arena.bytes  # type: ignore[union-attr]
    with pytest.raises(DplcError, match="the prompt has 64 tokens; this was compiled for 1 to 63"):
        list(texts(generation, name, [(64, 1)]))


@pytest.mark.parametrize(("name", "rows"), [("llama", True), ("qwen3", ()), ("tied", (Dim("s", 1, 1),))])
@pytest.mark.sampled(1)
def test_a_prompt_is_read_in_pieces_by_one_compile(name: str, rows: Any, compiles: Mock) -> None:
    """Of one to three chunks and beside these; every piece is written where the cache lies."""
    chunk, maximum = 8, 48
    generation = generation_of(name, maximum, rows, chunk)
    lengths = some((1, chunk, chunk + 1, 2 * chunk, 23, maximum - 1, 5, 13, 17, 3 * chunk), 3)
    assert len(list(texts(generation, name, [(length, 4) for length in lengths]))) == len(lengths)
    assert compiles.call_count == 2
    caches = {f"cache_{number}" for number in range(4)}
    for count in (1, 2, chunk):
        assert caches <= set(prompt_of(generation, count).program.aliases.values()), count
    with pytest.raises(DplcError, match="the prompt has 48 tokens; this was compiled for 1 to 47"):
        list(texts(generation, name, [(48, 1)]))


@pytest.mark.parametrize(("name", "chunk"), [("qwen3", 5), ("llama", None)])
@pytest.mark.sampled(1)
def test_the_cache_is_read_as_far_as_it_is_written(
    name: str, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By steps of eight rows; each step is a binding of the one compile, and the last of them holds the whole text."""
    given: list[int] = []
    real = ModelRunner.run

    def counted(self: ModelRunner, inputs: Any) -> Any:
        assert len({tensor.shape[0] for key, tensor in inputs.items() if key.startswith("cache_")}) <= 1
        given.extend(tensor.shape[0] for key, tensor in inputs.items() if key == "cache_3")
        return real(self, inputs)

    monkeypatch.setattr(ModelRunner, "run", counted)
    generation = generation_of(name, 36, (), chunk, step=8)
    assert generation.reach.high == 40 and generation.token.sizes["n"].multiple == 8
    for length, found in texts(generation, name, ((3, 20), (8, 2), (17, 30), (35, 1), (1, 9))):
        ends = [] if chunk is None else [*range(chunk, length, chunk), length]
        assert given == [-(-end // 8) * 8 for end in (*ends, *range(length + 1, length + len(found)))], length
        given.clear()
    assert generation.memory.copied == 0 and generation.memory.cache == 4 * 40 * 2 * 8 * 4


def test_memory_for_a_prompt_is_that_of_a_piece() -> None:
    def prompt_bytes(maximum: int, chunk: int | None) -> int:
        made = generation_of("llama", maximum, (), chunk)
        assert made.memory.copied == 0
        return made.memory.prompt

    whole, pieces = prompt_bytes(64, None), prompt_bytes(64, 4)
    assert pieces * 4 < whole
    assert prompt_bytes(32, 4) * 3 > pieces * 2  # what is left grows with the cache: masks, and few scores


def test_it_stops_at_the_end_of_a_text_and_of_its_room() -> None:
    generation = compiled("llama")
    weights = make(generation.weights, seed=2, scale=SCALE)
    generator = Generator(generation, emulator(), weights)
    whole = list(generator.tokens(PROMPT, 99, stops=()))
    assert len(whole) == MAXIMUM - len(PROMPT) and len(set(whole)) > 3
    assert whole == of_transformers("llama", weights, PROMPT, len(whole))
    assert list(generator.tokens(PROMPT, 1, stops=())) == whole[:1] and not list(generator.tokens(PROMPT, 0))
    stop = whole[3]
    found = list(generator.tokens(PROMPT, NEW, stops={stop}))
    assert found == whole[: whole.index(stop) + 1] == of_transformers("llama", weights, PROMPT, NEW, stop)
    assert generation.stops == {2}  # what transformers takes for a llama whose configuration does not say it


def test_prompts_that_do_not_fit() -> None:
    with pytest.raises(DplcError, match="has 16 tokens; with a maximum length of 16 there is no room for another"):
        compiled("llama", length=16)
    with pytest.raises(DplcError, match="the prompt has no tokens"):
        check_length(0, MAXIMUM)
    generation = compiled("llama")
    generator = Generator(generation, emulator(), make(generation.weights))
    with pytest.raises(DplcError, match="the prompt has 2 tokens; this was compiled for 5"):
        list(generator.tokens([1, 2], NEW))


def test_a_token_allocates_nothing_and_copies_no_cache(tmp_path: Path) -> None:
    generation = compiled("llama")
    program = generation.token.program
    assert set(program.aliases) == {buffer.name for buffer in program.outputs}
    assert set(program.aliases.values()) == {"input_ids", "cache_0", "cache_1", "cache_2", "cache_3"}
    memory = generation.memory
    assert memory.copied == 0 and memory.cache == 4 * 2 * MAXIMUM * 8 * 4
    assert memory.peak == memory.weights + memory.tables + memory.cache + max(memory.prompt, memory.token)
    artefact.save(generation.token, tmp_path / "made", cubins=False)
    assert artefact.load(tmp_path / "made").program == program


def test_a_cache_that_may_not_lie_still_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    generation = compiled("llama")
    weights = make(generation.weights, seed=2, scale=SCALE)
    real = calls.refusal
    monkeypatch.setattr(calls, "refusal", lambda p, o, s: "because" if s == "cache_1" else real(p, o, s))
    plain = replace(generation.token.program, aliases={})
    token = with_rows(generation.token, (), lambda made: replace(made, program=plain))
    copying = replace(generation, token=with_rows(token, (), generating._in_place))
    assert len(copying.token.program.aliases) == len(generation.token.program.aliases) - 1
    assert copying.memory.copied == copying.memory.cache / 4
    found = list(Generator(copying, emulator(), weights).tokens(PROMPT, NEW, stops=()))
    assert found == list(Generator(generation, emulator(), weights).tokens(PROMPT, NEW, stops=()))


def test_the_weights_are_placed_once() -> None:
    generation = compiled("llama")
    weights = make(generation.weights, seed=2)
    executor = emulator()
    generator = Generator(generation, executor, weights)
    first = {**generation.prompt.constants(), **generator._prompts.weights}
    token = generation.token
    second = {**token.constants(), **generating._weights(token, weights)}
    placed = executor.prepare(generation.token.program, _shaped(generation.token, second))
    beside = executor.prepare(generation.prompt.program, _shaped(generation.prompt, first), beside=placed)
    ours = {id(buffer) for buffer in placed._constants.values()}
    shared = [name for name in generation.prompt.weights if id(beside._constants[name]) in ours]
    assert len(shared) == len(generation.prompt.weights) == len(weights)


def _shaped(call: CompiledModel, values: dict[str, Any]) -> dict[str, Any]:
    return {buffer.name: values[buffer.name].reshape(buffer.shape) for buffer in call.program.constants}


def test_more_than_the_model_has_positions() -> None:
    changed = ModelSource("other", {**source("qwen2").config, "max_position_embeddings": 12})
    with pytest.raises(DplcError, match="has 12 positions; the maximum length is 16"):
        compile_generation(changed, all_lengths(MAXIMUM), MAXIMUM, ModelShape(), compiler_with(target("sm_80")))


def test_layers_of_another_kind() -> None:
    config = SimpleNamespace(layer_types=["full_attention", "linear_attention"])
    with pytest.raises(DplcError, match="layers of the kind `linear_attention` keep no keys and values"):
        check_attention(SimpleNamespace(config=config), MAXIMUM)
