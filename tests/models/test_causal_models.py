"""`dplc.compile(model, (ids,))` on causal language models as users make them."""

from __future__ import annotations

from pathlib import Path

import architectures
import pytest
import torch

import dplc
from dplc.engine.capture.capture import fold
from dplc.engine.capture.fx_rewrites import tensors
from dplc.engine.models import sources
from dplc.engine.models.compiling import capture_results
from dplc.engine.models.sources import build, find

# Those whose caches and logits nobody has compared in this way.
OTHERS = [
    "gemma3_text",
    "deepseek_v3",
    "deepseek_v2",
    "persimmon",
    "nemotron",
    "exaone4",
    "arcee",
    "helium",
    "olmo3",
    "ernie4_5",
    "seed_oss",
    "glm4",
    "codegen",
    "biogpt",
    "xglm",
    "mamba2",
    "phimoe",
]
CAUSAL = [name for name, entry in architectures.ARCHITECTURES.items() if entry["head"] == "causal"]
FEW = ("llama", "gpt2", "phi3", "mistral")


def check(name: str) -> None:
    model, ids = architectures.model(name), architectures.arguments(name)[0]
    with torch.no_grad():
        want = model(*ids)
    got = dplc.compile(model, ids, device="emulator", trace=False)(*ids)
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
@pytest.mark.parametrize("name", [name for name in CAUSAL if name not in (*FEW, *OTHERS)])
def test_logits_and_cache_of_all(name: str) -> None:
    check(name)


# An architecture without scaled_dot_product_attention; one that indexes with lists; weights that transformers renames
# when it loads them.
MET = ("gemma2", "falcon", "gpt_neox")


@pytest.mark.parametrize("name", MET)
@pytest.mark.sampled(2)
def test_a_configuration_is_captured_and_finds_its_weights(name: str, tmp_path: Path) -> None:
    model = architectures.model(name)
    model.save_pretrained(tmp_path)
    found = capture_results(build(find(str(tmp_path))), 7)
    folded = fold(found.captured)
    assert all(not t.is_meta for n, t in folded.tensors.items() if folded.kinds[n] == "constant")
    loaded = sources.load(tmp_path, found.weights)
    assert loaded.keys() == found.weights.keys()
    for key, want in found.weights.items():
        assert torch.equal(loaded[key], model.state_dict()[want.names[0]])
