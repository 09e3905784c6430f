"""Predicted times of training steps, forward and backward: the table of examples/training/README.md.

    python examples/benches/training.py [--target h200] [--kernels N]

Layers of the sizes that people train, in float32, are traced by torch.compile(.., backend="dplc") and compiled for the
target. What they compute comes from eager: nothing is measured. --kernels prints the slowest kernels of each part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import dplc
from dplc.codegen.target import Target, target
from dplc.engine import torch_backend
from dplc.engine.cost.instruction_counts import instruction_counts
from dplc.engine.cost.predict import predict

HEAD = """| step | part | kernels | launches | predicted us | slowest kernel us |
|---|---|---|---|---|---|"""
Step = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


class Bottleneck(nn.Module):
    """A block of ResNet-50 at 14 x 14."""

    def __init__(self, channels: int = 1024, inner: int = 256) -> None:
        super().__init__()
        self.first, self.third = nn.Conv2d(channels, inner, 1, bias=False), nn.Conv2d(inner, channels, 1, bias=False)
        self.second = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (inner, inner, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        y = F.relu(self.norms[1](self.second(y)))
        return F.relu(x + self.norms[2](self.third(y)))


def llama(layers: int = 1) -> Step:
    """TinyLlama with so many layers, its head and its loss, of 512 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32, "num_key_value_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=layers, vocab_size=32000))
    return lambda ids: model(ids, labels=ids).loss, (torch.randint(0, 32000, (1, 512)),)


def vit() -> Step:
    block = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return lambda x: block(x).square().mean(), (torch.randn(8, 197, 768, requires_grad=True),)


def resnet() -> Step:
    block = Bottleneck()
    return lambda x: block(x).square().mean(), (torch.randn(8, 1024, 14, 14, requires_grad=True),)


STEPS = {
    "TinyLlama: embedding, a layer, head and loss, 512 tokens": llama,
    "ViT-B: a block, 8 images": vit,
    "ResNet-50: a block at 14 x 14, 8 images": resnet,
}


def traced(step: Callable[[], Step], machine: Target) -> tuple[list[Any], list[Any]]:
    """What is compiled for a step: forward, backward."""
    made: list[Any] = []

    def compiled(graph: Any, inputs: Any, **options: Any) -> Any:
        made.append(dplc.compile(graph, inputs, **options))
        return graph.forward

    torch_backend.compile_function = compiled
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, args = step()
    result = torch.compile(function, backend="dplc", options={"target": machine.arch})(*args)
    forward = list(made)
    if result.requires_grad:
        result.backward()
    return forward, made[len(forward) :]


def rows(name: str, machine: Target, shown: int) -> list[str]:
    """Of a step: forward, backward."""
    parts = zip(("forward", "backward"), traced(STEPS[name], machine), strict=True)
    return [row(name, part, made, machine, shown) for part, made in parts]


def row(name: str, part: str, made: list[Any], machine: Target, shown: int) -> str:
    """A line of the table."""
    kernels = [
        (predict(instruction_counts(kernel), machine).seconds * 1e6, one.compilation.launched.count(index), kernel.name)
        for one in made
        for index, kernel in enumerate(one.compilation.kernels)
    ]
    for microseconds, count, kernel in sorted(kernels, reverse=True)[:shown]:
        print(f"{name}, {part}: {microseconds:9.1f} us, {count} x {kernel}", flush=True)
    total, launches = sum(us * count for us, count, _ in kernels), sum(count for _, count, _ in kernels)
    return f"| {name} | {part} | {len(kernels)} | {launches} | {total:,.0f} | {max(kernels)[0]:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--kernels", type=int, default=0, metavar="N")
    options = parser.parse_args()
    lines = [line for name in STEPS for line in rows(name, target(options.target), options.kernels)]
    print("\n".join((HEAD, *lines)))


if __name__ == "__main__":
    main()
