"""Predicted times of whole models beside their bounds: a table of examples/models/README.md.

    python examples/benches/whole_models.py [--target h200]

Models with made-up weights, in float32, are compiled by torch.compile(.., backend="dplc") for the target; what they
compute comes from eager: nothing is measured. bound: of every part, arguments and results moved once at the DRAM's
published rate or every operation done once at the f32 peak, and its launches. A training step is of one and of two
layers; that of all layers follows from the difference.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from training import Step, llama, traced

from dplc.codegen.target import Target, target
from dplc.engine.bench.bench import kernel_record

HEAD = """| model | launches | bound us | predicted us | ratio |
|---|---|---|---|---|"""
LAYERS = 22


class Times(NamedTuple):
    """Launches, and microseconds by the bound and by the model."""

    launches: int
    bound: float
    predicted: float

    def __add__(self, other: Any) -> Times:
        return Times(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: int) -> Times:
        return Times(*(factor * each for each in self))


def resnet() -> Step:
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval()  # the defaults are ResNet-50
    return lambda x: model(x).logits, (torch.randn(8, 3, 224, 224),)


def vit() -> Step:
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=1000)).eval()  # the defaults are ViT-B/16
    return lambda x: model(x).logits, (torch.randn(8, 3, 224, 224),)


def whisper() -> Step:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072}
    model = WhisperEncoder(WhisperConfig(**sizes)).eval()
    return lambda x: model(x).last_hidden_state, (torch.randn(1, 80, 3000),)


MODELS: dict[str, Callable[[], Step]] = {
    "ResNet-50, 8 images": resnet,
    "ViT-B/16, 8 images": vit,
    "Whisper small, the encoder, 30 s": whisper,
}


def times(step: Callable[[], Step], machine: Target) -> Times:
    """Of all that is compiled for a step."""
    total = Times(0, 0.0, 0.0)
    for part in (one.compilation for parts in traced(step, machine) for one in parts):
        once = [kernel_record(*pair, machine) for pair in zip(part.kernels, part.cuda_kernels, strict=True)]
        predicted = sum(once[index].predicted_us for index in part.launched)
        total += Times(len(part.launched), 1e6 * part.least_seconds, predicted)
    return total


def row(name: str, found: Times) -> str:
    ratio = found.predicted / found.bound
    return f"| {name} | {found.launches} | {found.bound:,.0f} | {found.predicted:,.0f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    machine = target(parser.parse_args().target)
    lines = [HEAD]
    with torch.no_grad():
        lines += [row(name, times(step, machine)) for name, step in MODELS.items()]
    one, two = (times(lambda n=n: llama(n), machine) for n in (1, 2))  # type: ignore[misc]
    layer = two + one.times(-1)
    lines.append(row(f"TinyLlama-1.1B, a training step of 512 tokens, {LAYERS} layers", one + layer.times(LAYERS - 1)))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
