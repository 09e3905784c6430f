"""Tiny models of many architectures with made-up weights: as users make them, and through the front doors for models.

The list is architectures.json beside this file; pages show what dplc makes of each (examples/benches/coverage.py and
families.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dplc.codegen.target import target
from dplc.engine.capture.fx_rewrites import tensors as tensors_in
from dplc.engine.compiler import compiler_with
from dplc.engine.models import sources
from dplc.engine.models.artefact import emulator
from dplc.engine.models.compiling import (
    CompiledModel,
    DynamicModelRunner,
    ModelShape,
    called,
    compile_model,
    drawn,
    plain,
)
from dplc.engine.models.generating import Generation, Generator, all_lengths, compile_generation
from dplc.engine.models.sources import ModelSource, WeightRequest, build

LIST = Path(__file__).with_name("architectures.json")
ARCHITECTURES: dict[str, dict[str, Any]] = json.loads(LIST.read_text(encoding="utf-8"))
CAUSAL = [name for name, entry in ARCHITECTURES.items() if entry["head"] == "causal"]
CONFIGS: dict[str, dict[str, Any]] = {
    name: {"model_type": entry["type"], **entry["config"]} for name, entry in ARCHITECTURES.items()
}
CONFIGS["tied"] = {**CONFIGS["qwen2"], "tie_word_embeddings": True}  # one tensor for the embedding and the head
WORDS, LENGTH = 50, 7
PROMPT, MAXIMUM, NEW = [7, 3, 41, 12, 3], 16, 8
STEP = 4  # rows by which the part of the cache grows that a call is given


# ---- As users make them: defaults kept.


def whole(name: str, **changes: Any) -> Any:
    """Return a causal language model, or a model without a head: both halves of an encoder and a decoder."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    entry = ARCHITECTURES[name]
    torch.manual_seed(0)
    auto = AutoModelForCausalLM if name in CAUSAL else AutoModel
    return auto.from_config(AutoConfig.for_model(entry["type"], **{**entry["config"], **changes})).eval()


def model(name: str) -> Any:
    """Return what is called at once: of some models the encoder alone."""
    return whole(name).encoder if ARCHITECTURES[name]["head"] == "encoder" else whole(name)


def arguments(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments of a call."""
    draw, kind = torch.Generator().manual_seed(0), ARCHITECTURES[name]["called"]
    ids = torch.randint(3, WORDS, (2, LENGTH), generator=draw)
    if kind == "two texts":
        return (), {"input_ids": ids, "decoder_input_ids": ids[:, :4]}
    shapes = {"image": (2, 3, 32, 32), "spectrum": (2, 8, 32), "wave": (2, 800)}
    return (ids if kind == "tokens" else torch.randn(shapes[kind], generator=draw),), {}


def tensors(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a result in order, with keys and values, or states, of its caches."""
    leaves = pytree.tree_leaves(dict(result) if hasattr(result, "keys") else result)
    layers = (layer for leaf in leaves for layer in getattr(leaf, "layers", ()))
    return tensors_in(leaves, [vars(layer) for layer in layers])


def greedy(model: Any, prompt: list[int], count: int, stop: int | None = None) -> list[int]:
    """Return transformers' own text after a prompt."""
    ids, ends = torch.tensor([prompt]), {"eos_token_id": stop, "pad_token_id": 0}
    found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, **ends)
    return list(map(int, found[0, len(prompt) :]))


# ---- By their configuration.


def source(name: str) -> ModelSource:
    return ModelSource(f"{name}-tiny", dict(CONFIGS[name]))


def compiled(name: str, dtype: str = "f32") -> CompiledModel:
    return compile_model(source(name), ModelShape(length=LENGTH, dtype=dtype), compiler_with(target("sm_80")))


def tokens(length: int = LENGTH, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, WORDS, (1, length), generator=torch.Generator().manual_seed(seed))


def with_weights(
    name: str, weights: Mapping[str, Any], wanted: Mapping[str, WeightRequest], dtype: torch.dtype = torch.float32
) -> Any:
    """Return transformers' model with the same weights in a dtype of its own."""
    model = build(source(name))
    named = {alias: weights[key].to(dtype) for key, want in wanted.items() for alias in want.names}
    model.load_state_dict(named, assign=True)
    return model


def logits_of(
    name: str, weights: Mapping[str, Any], wanted: Mapping[str, WeightRequest], ids: Any,
    dtype: torch.dtype = torch.float64,
) -> Any:  # fmt: skip
    """Return the logits that transformers computes with the same weights."""
    with torch.no_grad():
        return with_weights(name, weights, wanted, dtype)(input_ids=ids, use_cache=False).logits


# ---- From a folder as the hub has it, with config.json and safetensors.


def saved(name: str, folder: Path) -> Any:
    """Return a model whose files are in the folder: a causal one with weights that make it say several words."""
    model, draw = whole(name), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters() if name in CAUSAL else ():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3, generator=draw)
    model.save_pretrained(folder)
    return model


def call_of(model: Any, folder: Path, device: str = "sm_80") -> tuple[CompiledModel, float]:
    """Return a compiled call, and the largest error of a result over its largest value. Fails where a shape is another.

    The weights are those that the folder has.
    """
    made = compile_model(sources.find(str(folder)), ModelShape(length=LENGTH), compiler_with(target(device)))
    captured = made.compilation.captured
    inputs = drawn((p for p in captured.graph.ins if p.name in captured.inputs), made.source.config, seed=2)
    got = DynamicModelRunner(made, emulator(), sources.load(folder, made.weights)).run(inputs)
    part = called(model)
    with torch.no_grad():
        want = tensors_in(part(**inputs, **plain(part)))
    assert [x.shape for x in got] == [x.shape for x in want]
    pairs = [(x.double(), y.double()) for x, y in zip(got, want, strict=True)]
    return made, max(float((x - y).abs().max() / y.abs().max()) for x, y in pairs)


def text_of(
    model: Any, folder: Path, device: str = "sm_80", chunk: int | None = None
) -> tuple[Generation, list[int], list[int]]:
    """Return what generates greedy text, and the tokens after the prompt: ours and transformers'.

    The prompt is read in chunks; the cache as far as it is written. Raises DplcError for a model that cannot generate here.
    """
    lengths, compiler = all_lengths(MAXIMUM), compiler_with(target(device))
    made = compile_generation(
        sources.find(str(folder)), lengths, MAXIMUM, ModelShape(), compiler, chunk=chunk, step=STEP
    )
    got = list(Generator(made, emulator(), sources.load(folder, made.weights)).tokens(PROMPT, NEW, stops=()))
    return made, got, greedy(model, PROMPT, NEW)
