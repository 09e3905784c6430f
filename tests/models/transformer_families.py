"""Models saved to a folder as the hub has them, and what the front doors make of them, beside transformers' own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import architectures
import torch
from torch.utils import _pytree as pytree

from dplc.codegen.target import target
from dplc.engine.compiler import Compiler, compiler_with
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

PROMPT, MAXIMUM, NEW, LENGTH = [7, 3, 41, 12, 3], 16, 8, 7
STEP = 4  # rows by which the part of the cache grows that a call is given


@dataclass(frozen=True)
class Called:
    """A compiled call, and the largest error of a result over its largest value."""

    made: CompiledModel
    error: float


@dataclass(frozen=True)
class Text:
    """Tokens after the prompt: ours and transformers'."""

    made: Generation
    got: list[int]
    want: list[int]


def is_causal(name: str) -> bool:
    return bool(architectures.ARCHITECTURES[name]["head"] == "causal")


def saved(name: str, folder: Path) -> Any:
    """A model whose files are in the folder: a causal one with weights that make it say several words."""
    if not is_causal(name):
        model = base_model(name)
    else:
        model, draw = architectures.model(name), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.3, generator=draw)
    model.save_pretrained(folder)
    return model


def base_model(name: str) -> Any:
    """Without a head, both halves of an encoder and a decoder."""
    from transformers import AutoConfig, AutoModel

    entry = architectures.ARCHITECTURES[name]
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(entry["type"], **entry["config"])).eval()


def options(device: str = "sm_80") -> Compiler:
    return compiler_with(target(device))


def call_of(model: Any, folder: Path, device: str = "sm_80") -> Called:
    """Every result of a call, with the weights that the folder has. Fails where a shape is another."""
    made = compile_model(sources.find(str(folder)), ModelShape(length=LENGTH), options(device))
    captured = made.compilation.captured
    inputs = drawn((p for p in captured.graph.ins if p.name in captured.inputs), made.source.config, seed=2)
    got = DynamicModelRunner(made, emulator(), sources.load(folder, made.weights)).run(inputs)
    part = called(model)
    with torch.no_grad():
        want = [x for x in pytree.tree_leaves(part(**inputs, **plain(part))) if isinstance(x, torch.Tensor)]
    assert [x.shape for x in got] == [x.shape for x in want]
    pairs = [(x.double(), y.double()) for x, y in zip(got, want, strict=True)]
    return Called(made, max(float((x - y).abs().max() / y.abs().max()) for x, y in pairs))


def text_of(model: Any, folder: Path, device: str = "sm_80", chunk: int | None = None) -> Text:
    """Greedy text after the prompt, which is read in chunks; the cache as far as it is written. Raises DplcError for a model that cannot generate here."""
    source = sources.find(str(folder))
    made = compile_generation(
        source, all_lengths(MAXIMUM), MAXIMUM, ModelShape(), options(device), chunk=chunk, step=STEP
    )
    got = list(Generator(made, emulator(), sources.load(folder, made.weights)).tokens(PROMPT, NEW, stops=()))
    ids = torch.tensor([PROMPT])
    want = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0
    )
    return Text(made, got, want[0, len(PROMPT) :].tolist())
