"""Families from a folder as the hub has it, config.json and safetensors: logits, and text, as transformers gives them."""

from __future__ import annotations

from pathlib import Path

import architectures
import pytest
import torch
from transformer_families import LENGTH, MAXIMUM, base_model, call_of, is_causal, options, saved, text_of

import dplc
from dplc.engine.models import sources
from dplc.engine.models.compiling import ModelShape, compile_model, inputs_of
from dplc.engine.models.generating import all_lengths, compile_generation
from dplc.engine.models.sources import ModelSource, build
from dplc.ir.diagnostic import DplcError

FEW = ("gemma3_text", "mixtral", "mistral")  # windows in some layers; experts, each with files of its own; a window
FEW_ENCODERS = ("bert", "vit", "whisper")
IN_PIECES = ("gemma3_text", "mistral")
# Those that do not generate yet, and why.
REFUSED = {
    "gpt_neo": "buffer that its configuration gives beside weights",
    "xglm": "buffer that its configuration gives beside weights",
    "biogpt": "a Python value depends on the values of a tensor",
    "mamba": "layers of the kind `linear_attention` keep no keys and values",
    "mamba2": "is wrong",
}
NO_LOGITS = ("gpt_neo", "xglm", "mamba2")  # of these
UNKNOWN = ("wav2vec2", "resnet", "segformer")  # waves; images of any size
ENCODERS = [name for name, entry in architectures.ARCHITECTURES.items() if entry["head"] != "causal"]
CAUSAL = [name for name, entry in architectures.ARCHITECTURES.items() if entry["head"] == "causal"]


def check(name: str, folder: Path, chunk: int | None = None) -> None:
    model = saved(name, folder)
    if name not in NO_LOGITS:
        assert call_of(model, folder).error <= 1e-5
    if name in REFUSED:
        with pytest.raises(DplcError, match=REFUSED[name]):
            text_of(model, folder, chunk=chunk)
    elif is_causal(name):
        text = text_of(model, folder, chunk=chunk)
        assert text.got == text.want
        assert chunk is None or len(text.made.pieces(5)) == 3


@pytest.mark.parametrize("name", FEW_ENCODERS)
@pytest.mark.sampled(1)
def test_an_encoder(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_the_class_that_a_configuration_names(tmp_path: Path) -> None:
    """Texts and images at once; what is named and no model of the architecture is not looked up."""
    from transformers import BertConfig, CLIPConfig, CLIPModel

    widths = architectures.ARCHITECTURES["clip_vision_model"]["config"]
    texts = {**architectures.ARCHITECTURES["clip_text_model"]["config"]}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(text_config=texts, vision_config=widths, projection_dim=16)).eval()
    model.save_pretrained(tmp_path)
    assert call_of(model, tmp_path).error <= 1e-5
    config = BertConfig(**architectures.ARCHITECTURES["bert"]["config"]).to_dict()
    for named, made in {"BertForMaskedLM": "BertForMaskedLM", "Trainer": "BertLMHeadModel"}.items():
        assert type(build(ModelSource("x", {**config, "architectures": [named]}))).__name__ == made


def test_what_cannot_be_called_is_told(tmp_path: Path) -> None:
    base_model("vit").save_pretrained(tmp_path)
    source = sources.find(str(tmp_path))
    with pytest.raises(DplcError, match="ViTModel is not a causal language model: it cannot generate"):
        compile_generation(source, all_lengths(MAXIMUM), MAXIMUM, ModelShape(), options())
    with pytest.raises(DplcError, match="this model takes no tokens"):
        compile_model(source, ModelShape(length=dplc.Dim("s", 1, 8)), options())
    with pytest.raises(DplcError, match="the configuration does not say `image_size`"):
        inputs_of(base_model("resnet"), 1, 1)
    with pytest.raises(DplcError, match="takes `input_values`: only tokens, images and spectra"):
        inputs_of(base_model("wav2vec2"), 1, 1)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.sampled(1)
def test_a_family(name: str, tmp_path: Path) -> None:
    """A prompt of five tokens, two at a time where the family reads it so."""
    check(name, tmp_path, 2 if name in IN_PIECES else None)


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "chunk"),
    [
        *((name, None) for name in (*ENCODERS, *CAUSAL) if name not in (*FEW_ENCODERS, *UNKNOWN, *FEW)),
        *((name, 2) for name in CAUSAL if name not in (*IN_PIECES, *REFUSED)),
    ],
)
def test_every_family(name: str, chunk: int | None, tmp_path: Path) -> None:
    check(name, tmp_path, chunk)


def test_matrices_of_experts_that_are_not_all_there(tmp_path: Path) -> None:
    """Those of one expert are missing, or of another shape."""
    from safetensors.torch import load_file, save_file

    saved("mixtral", tmp_path)
    made = compile_model(sources.find(str(tmp_path)), ModelShape(length=LENGTH), options())
    (file,) = tmp_path.glob("*.safetensors")
    tensors, gone = load_file(file), "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    save_file({name: tensor for name, tensor in tensors.items() if name != gone}, file)
    with pytest.raises(DplcError, match=r"no tensor `model\.layers\.1\.mlp\.experts\.gate_up_proj`"):
        sources.check(tmp_path, made.weights)
    save_file({**tensors, gone: tensors[gone][:-1]}, file)
    with pytest.raises(DplcError, match="have shapes that do not fit each other"):
        sources.check(tmp_path, made.weights)
    every = {name: tensor[:-1] if name.endswith("w3.weight") else tensor for name, tensor in tensors.items()}
    save_file(every, file)
    with pytest.raises(DplcError, match=r"make \[4, 87, 32\] in .*; the model needs \[4, 88, 32\]"):
        sources.check(tmp_path, made.weights)
