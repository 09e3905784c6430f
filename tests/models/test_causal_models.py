"""`dplc.compile(model, (ids,))` on causal language models as users make them."""

from __future__ import annotations

from pathlib import Path

import causal_configs
import pytest
import torch

import dplc
from dplc.codegen.launch import executor
from dplc.codegen.target import target
from dplc.engine.capture.capture import fold
from dplc.engine.capture.fx_rewrites import tensors
from dplc.engine.compiler import compiler_with
from dplc.engine.models import sources
from dplc.engine.models.compiling import DynamicModelRunner, ModelShape, capture_results, compile_model
from dplc.engine.models.sources import ModelSource, build

FEW = ("llama", "gpt2", "phi3", "mistral")


def check(name: str) -> None:
    model, ids = causal_configs.model(name), causal_configs.tokens()
    with torch.no_grad():
        want = model(ids)
    compiled = dplc.compile(model, (ids,), device="emulator", trace=False)
    got = compiled(ids)
    assert type(got) is type(want)
    torch.testing.assert_close(got.logits, want.logits, rtol=1e-4, atol=1e-5)
    key = next(name for name in ("past_key_values", "cache") if name in want)
    for one, other in zip(got[key].layers, want[key].layers, strict=True):
        kept, wanted = tensors(vars(one)), tensors(vars(other))
        assert len(wanted) > 1  # keys and values, or states
        torch.testing.assert_close(kept, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.sampled(1)
def test_logits_and_cache(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in causal_configs.CONFIGS if name not in FEW])
def test_logits_and_cache_of_all(name: str) -> None:
    check(name)


# ---- from a configuration and files of weights, without the model in memory

# An architecture without scaled_dot_product_attention; one that indexes with lists; integers in buffers; weights that
# transformers renames when it loads them.
MET = ("gemma2", "falcon", "bert", "gpt_neox")
BUFFERED = {"gpt_neo": "a buffer that its configuration gives"}


def source(name: str) -> ModelSource:
    return ModelSource(name, causal_configs.config(name))


@pytest.mark.parametrize("name", MET)
@pytest.mark.sampled(2)
def test_a_configuration_is_captured_and_finds_its_weights(name: str, tmp_path: Path) -> None:
    model = causal_configs.model(name)
    model.save_pretrained(tmp_path)
    found = capture_results(build(source(name)), 7)
    folded = fold(found.captured)
    assert all(not t.is_meta for n, t in folded.tensors.items() if folded.kinds[n] == "constant")
    loaded = sources.load(tmp_path, found.weights)
    assert loaded.keys() == found.weights.keys()
    for key, want in found.weights.items():
        assert torch.equal(loaded[key], model.state_dict()[want.names[0]])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in causal_configs.CONFIGS if name not in BUFFERED])
def test_a_configuration_with_weights_gives_the_logits(name: str, tmp_path: Path) -> None:
    model, ids = causal_configs.model(name), causal_configs.tokens(1)
    model.save_pretrained(tmp_path)
    made = compile_model(source(name), ModelShape(length=7), compiler_with(target("sm_80")))
    weights = sources.load(tmp_path, made.weights)
    (logits,) = DynamicModelRunner(made, executor("emulator"), weights).run({"input_ids": ids})
    torch.testing.assert_close(logits, model(ids).logits.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUFFERED)
def test_a_configuration_refused_by_name(name: str) -> None:
    with pytest.raises(dplc.DplcError, match=BUFFERED[name]):
        compile_model(source(name), ModelShape(length=7), compiler_with(target("sm_80")))
