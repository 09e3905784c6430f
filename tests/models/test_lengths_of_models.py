"""`--seq-len A..B` and `--batch A..B`: one compile of a model for all lengths and batches of a range."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny_models import source

from dplc.codegen.target import target
from dplc.engine.api import Compiled
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.cli.models import extent
from dplc.engine.compiler import compiler_with
from dplc.engine.models.benching import of_compiled
from dplc.engine.models.compiling import ModelShape, compile_model
from dplc.engine.models.sources import build, make
from dplc.engine.run.calls import accepted, at_binding
from dplc.ir.diagnostic import DplcError, UsageError

SHAPE = ModelShape(Dim("s", 1, 64, hint=32), Dim("b", 1, 8, hint=2), layers=1)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.sampled(1)
def test_the_logits_are_right_at_every_length_and_batch(name: str) -> None:
    made = compile_model(source(name), SHAPE, compiler_with(target("sm_80")))
    values = make(made.weights, seed=3, scale=0.4)
    model = build(source(name), layers=1)
    given: dict[str, Any] = {made.weights[name].names[0]: value for name, value in values.items()}
    if model.config.tie_word_embeddings:
        given["lm_head.weight"] = given["model.embed_tokens.weight"]
    model.load_state_dict(given, assign=True)
    wide = copy.deepcopy(model).double()
    run = Compiled(made.compilation, "emulator")
    (tokens,) = made.compilation.captured.inputs
    for length, batch in ((1, 1), (32, 2), (64, 8), (17, 3), (33, 1)):
        ids = torch.randint(0, 50, (batch, length))
        inputs = {tokens: ids, **made.constants(), **values}
        (got,) = run.run(inputs)
        assert got.shape == (batch, length, 50)
        assert accepted([got], [wide(ids, use_cache=False).logits], [model(ids, use_cache=False).logits])


def test_a_binding_is_a_model_like_any_other() -> None:
    made = compile_model(source("llama"), SHAPE, compiler_with(target("sm_80")))
    short = at_binding(made.compilation, {"s": 9, "b": 1}).program.arena
    assert short is not None and made.figures.planned_bytes >= short.bytes
    assert SHAPE.described == "1..64 tokens, 1..8 sequences" and SHAPE.at({"s": 9, "b": 3}).numbers == (9, 3)
    with pytest.raises(DplcError, match=r"this needs numbers, not 1\.\.64 tokens"):
        of_compiled(made)


@pytest.mark.parametrize(
    ("text", "found"),
    [("32", 32), ("1..64", Dim("s", 1, 64, hint=64)), ("1..64:8", Dim("s", 1, 64, hint=8)), (" 4 ", 4)],
)
def test_what_the_option_says(text: str, found: Any) -> None:
    assert extent("--seq-len", text, "s") == found


@pytest.mark.parametrize("text", ["", "0", "4..", "1..64:", "x", "0..5", "5..4", "1..64:65"])
def test_what_it_cannot_say(text: str) -> None:
    with pytest.raises(UsageError):
        extent("--seq-len", text, "s")
