"""Families by their configuration, or from a folder as the hub has it: logits, and text, as transformers gives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from architectures import (
    ARCHITECTURES,
    CAUSAL,
    CONFIGS,
    LENGTH,
    MAXIMUM,
    call_of,
    compiled,
    logits_of,
    saved,
    source,
    text_of,
    tokens,
    whole,
)
from safetensors.torch import load_file, save_file

import dplc
from dplc.codegen.arrays import torch_dtype
from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.compiler import Compiler, compiler_with
from dplc.engine.explore.explore import best
from dplc.engine.explore.saturate import available
from dplc.engine.models import artefact, sources
from dplc.engine.models.artefact import emulator
from dplc.engine.models.benching import GATES, compare
from dplc.engine.models.compiling import DynamicModelRunner, ModelShape, capture_call, compile_model, inputs_of
from dplc.engine.models.generating import all_lengths, compile_generation
from dplc.engine.models.sources import ModelSource, build, make
from dplc.engine.ruleset import toolchain
from dplc.ir.diagnostic import DplcError

FEW = {  # and how many tokens of a prompt are read at a time; None for all, 0 without a text
    "bert": None, "vit": None, "whisper": None,
    "gemma3_text": 2, "mixtral": None, "mistral": 2,  # windows in some layers; experts, each with files of its own
    "falcon": 0, "gpt_neox": 0, "gemma2": 0,  # indexed by lists; weights that are renamed; attention by hand
    "gptj": None, "gpt_neo": None,  # buffers that are used where the weights are; a tensor that the forward pass creates
}  # fmt: skip
# Those that do not generate yet, and why.
REFUSED = {
    "biogpt": "a Python value depends on the values of a tensor",
    "mamba": "layers of the kind `linear_attention` keep no keys and values",
    "mamba2": "is wrong",
}
NO_LOGITS = ("mamba2",)  # of these
UNKNOWN = ("wav2vec2", "resnet", "segformer")  # waves; images of any size


@pytest.mark.parametrize(("name", "chunk"), FEW.items())
@pytest.mark.sampled(3)
def test_a_family_from_a_folder(name: str, chunk: int | None, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    if name not in NO_LOGITS:
        assert call_of(model, tmp_path)[1] <= 1e-5
    if name in REFUSED:
        with pytest.raises(DplcError, match=REFUSED[name]):
            text_of(model, tmp_path, chunk=chunk)
    elif name in CAUSAL and chunk != 0:
        made, got, want = text_of(model, tmp_path, chunk=chunk)
        assert got == want and (chunk is None or len(made.pieces(5)) == 3)


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "chunk"),
    [
        *((name, None) for name in ARCHITECTURES if name not in UNKNOWN and FEW.get(name, 0) == 0),
        *((name, 2) for name in CAUSAL if name not in REFUSED and not FEW.get(name)),
    ],
)
def test_every_family_from_a_folder(name: str, chunk: int | None, tmp_path: Path) -> None:
    test_a_family_from_a_folder(name, chunk, tmp_path)


@pytest.mark.parametrize(
    "made",
    [
        lambda x: torch.tensor(2.5, dtype=x.dtype, device=x.device),
        lambda x: torch.tensor([2.5, 2.5, 2.5, 2.5], device=x.device),
        lambda x: torch.as_tensor([2.5], device=x.device),
    ],
)
def test_a_constant_made_where_the_weights_are_has_its_value(made: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The weights are not loaded: they are nowhere, and so is what a forward pass makes there."""

    class Scaled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * made(x)

    model = Scaled(4, 4, device="meta")
    found = capture_call(model, {"x": torch.empty(2, 4, device="meta")}, model, {}).captured
    (value,) = (found.tensors[name] for name, kind in found.kinds.items() if kind == "constant")
    assert not value.is_meta and set(value.flatten().tolist()) == {2.5}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "tied"])
@pytest.mark.sampled(3)
def test_the_logits_of_an_artefact_are_those_of_transformers(name: str, dtype: str, tmp_path: Path) -> None:
    """Those of halves within twice the error of eager; the arena of one call is used again by the next."""
    artefact.save(compiled(name, dtype), tmp_path / "made", cubins=False)
    found = artefact.load(tmp_path / "made")
    weights = make(found.weights)
    runner = DynamicModelRunner(found, emulator(), weights)
    for seed in range(3):
        ids = tokens(seed=seed)
        (logits,) = runner.run({"input_ids": ids})
        want, eager = (
            logits_of(name, weights, found.weights, ids, kind) for kind in (torch.double, torch_dtype(dtype))
        )
        off = judge([logits], [want]).relative
        assert off <= GATES[dtype] and (dtype == "f32" or off <= 2 * judge([eager], [want]).relative)
        assert compare(found, {**found.constants, **weights, "input_ids": ids}, [logits], {}).ok


def test_the_mask_is_an_index_and_the_angles_are_a_table() -> None:
    """What depends on weights does not fold, and the weight that is two is one."""
    model = compiled("tied")
    text, constants = model.compilation.ir("loop"), model.constants()
    assert "j <= " in text and "cos(" not in text and "sin(" not in text
    assert len({buffer.name for buffer in model.program.constants} - model.weights.keys()) == 2  # cos and sin
    assert all(torch.isfinite(value).all() for value in constants.values())
    assert {buffer.dtype for buffer in model.program.buffers()} == {"f32", "i64"}  # no mask in memory
    (embedding,) = (want.names for want in model.weights.values() if len(want.names) == 2)
    assert set(embedding) == {"model.embed_tokens.weight", "lm_head.weight"}


@pytest.mark.skipif(not available(), reason="egglog is not here")
def test_an_explored_model_is_predicted_to_be_faster_and_is_right() -> None:
    notes: list[str] = []
    compiler = Compiler(toolchain(), target("sm_80"), explore=partial(best, tell=notes.append))
    made = compile_model(source("llama"), ModelShape(length=LENGTH), compiler)
    assert notes == [] and made.compilation.prepared == ()
    assert made.compilation.predicted_seconds < compiled("llama").compilation.predicted_seconds
    weights, ids = make(made.weights), tokens()
    (logits,) = DynamicModelRunner(made, emulator(), weights).run({"input_ids": ids})
    assert judge([logits], [logits_of("llama", weights, made.weights, ids)]).relative < 1e-5


def test_the_class_that_a_configuration_names(tmp_path: Path) -> None:
    """Texts and images at once; what is named and no model of the architecture is not looked up."""
    from transformers import BertConfig, CLIPConfig, CLIPModel

    texts, images = (dict(ARCHITECTURES[f"clip_{kind}_model"]["config"]) for kind in ("text", "vision"))
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(text_config=texts, vision_config=images, projection_dim=16)).eval()
    model.save_pretrained(tmp_path)
    assert call_of(model, tmp_path)[1] <= 1e-5
    config = BertConfig(**ARCHITECTURES["bert"]["config"]).to_dict()
    for named, made in {"BertForMaskedLM": "BertForMaskedLM", "Trainer": "BertLMHeadModel"}.items():
        assert type(build(ModelSource("x", {**config, "architectures": [named]}))).__name__ == made


def test_what_cannot_be_called_is_told() -> None:
    images, compiler = ModelSource("x", CONFIGS["vit"]), compiler_with(target("sm_80"))
    shape, lengths = ModelShape(length=dplc.Dim("s", 1, 8)), all_lengths(MAXIMUM)
    for said, call in {
        "ViTModel is not a causal language model: it cannot generate": lambda: compile_generation(
            images, lengths, MAXIMUM, shape, compiler
        ),
        "this model takes no tokens": lambda: compile_model(images, shape, compiler),
        "the configuration does not say `image_size`": lambda: inputs_of(whole("resnet"), 1, 1),
        "takes `input_values`: only tokens, images and spectra": lambda: inputs_of(whole("wav2vec2"), 1, 1),
    }.items():
        with pytest.raises(DplcError, match=said):
            call()


def test_matrices_of_experts_that_are_not_all_there(tmp_path: Path) -> None:
    """Those of one expert are missing, or of another shape; or those of all are."""
    saved("mixtral", tmp_path)
    wanted = compile_model(
        sources.find(str(tmp_path)), ModelShape(length=LENGTH), compiler_with(target("sm_80"))
    ).weights
    (file,) = tmp_path.glob("*.safetensors")
    tensors, gone = load_file(file), "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    cut = {name: tensor[:-1] for name, tensor in tensors.items() if name.endswith("w3.weight")}
    for said, given in {
        r"no tensor `model\.layers\.1\.mlp\.experts\.gate_up_proj`": {n: t for n, t in tensors.items() if n != gone},
        "have shapes that do not fit each other": {**tensors, gone: cut[gone]},
        r"make \[4, 87, 32\] in .*; the model needs \[4, 88, 32\]": {**tensors, **cut},
    }.items():
        save_file(given, file)
        with pytest.raises(DplcError, match=said):
            sources.check(tmp_path, wanted)
