"""Training at lengths that are known at a call: one compile of forward and backward serves every length."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
Tensor = torch.Tensor


class After(nn.Module):
    """A function after a layer, by default a linear one, whose weight gets a gradient."""

    def __init__(self, function: Callable[[Tensor], Tensor], width: int = 8, layer: nn.Module | None = None):
        super().__init__()
        self.layer, self.function = layer or nn.Linear(8, width), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


def attention(qkv: Tensor) -> Tensor:
    """Attention of two heads, of rows [batch, length, 3 * width]."""
    q, k, v = qkv.unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)


class Block(nn.Module):
    """A decoder block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(8), After(attention, 24), nn.Linear(8, 8))
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


class Words(nn.Module):
    """Words, which a loss compares with themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.detach().abs().sum(-1) * 7).long() % 20
        return F.cross_entropy(self.head(self.words(ids)).flatten(0, 1), ids.flatten())


LENGTHS = ((3, 5), (2, 7), (4, 6), (5, 9), (2, 12), (7, 5), (3, 11), (6, 6), (4, 20), (2, 33))  # batch, length
WAYS = {"dynamic": (True, 2), "marked": (None, 2), "after the second shape": (None, 4)}  # of torch.compile, compiles


def rows(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, 8)


def images(batch: int, length: int) -> Tensor:
    return torch.randn(batch, 4, length + 4, length + 6)


def batches(batch: int, length: int) -> Tensor:
    """Images, 16 or more: PyTorch itself traces a convolution on the CPU again where `batch < 16` changes."""
    return torch.randn(batch + 14, 4, length + 1, length + 2)


class Training(NamedTuple):
    """A model, and its arguments for a batch and a length."""

    model: Callable[[], nn.Module]
    data: Callable[[int, int], Tensor] = rows


MODELS = {
    "an mlp": Training(lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))),
    "a decoder block": Training(Block),
    "a convolution net": Training(
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 3, 1)),
        batches,
    ),
    "attention": Training(lambda: After(attention, 24)),
    "attention whose heads are open, too": Training(
        lambda: After(lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]), layer=nn.Identity())
    ),
    "a loss of words": Training(Words),
    "a mean of squares": Training(lambda: After(lambda y: F.mse_loss(y, y.detach().sin()))),
    "a mean over the length": Training(lambda: After(lambda y: y.mean(1))),
    "a softmax over the length": Training(lambda: After(lambda y: torch.softmax(y, 1))),
    "a pad and a piece": Training(lambda: After(lambda y: F.pad(y, (0, 0, 1, 2))[:, 1:])),
    "a group norm": Training(lambda: nn.GroupNorm(2, 4), images),
    "a batch norm": Training(lambda: nn.BatchNorm2d(4), images),
    "convolutions without padding": Training(lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.Tanh(), nn.Conv2d(6, 4, 3)), images),
    "convolutions with strides": Training(
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.SiLU(), nn.Conv2d(6, 4, 3, 2, 1), nn.AdaptiveAvgPool2d(1)), images
    ),
    "a transposed convolution": Training(lambda: nn.ConvTranspose2d(4, 3, 2, 2), images),
    "an upsampling": Training(lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.Upsample(scale_factor=2)), images),
    "patches": Training(lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.Unfold(3)), images),
    "patches with strides": Training(lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.Unfold(3, padding=1, stride=2)), images),
}  # fmt: skip


def trained(model: nn.Module, compiled: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Return the result of a model, its buffers, and the gradients of a sum of its elements with weights."""
    result = compiled(x.requires_grad_())
    weights = torch.linspace(-0.01, 0.02, result.numel(), dtype=x.dtype).view_as(result)
    slopes = torch.autograd.grad((result * weights).sum(), [x, *model.parameters()], allow_unused=True)
    return [result, *model.buffers(), *slopes]


@pytest.mark.filterwarnings("error::dplc.engine.torch_backend.LengthWarning")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.sampled(8)
def test_one_compile_trains_every_length(name: str, way: str, compiles: list[Any]) -> None:
    """Forward and backward, with the values of eager in float64."""
    (make, data), (dynamic, wanted) = MODELS[name], WAYS[way]
    model, sample = make(), data(2, 3).shape
    same = copy.deepcopy(model).double()
    compiled = torch.compile(model, backend="dplc", dynamic=dynamic)
    for batch, length in LENGTHS:
        x = data(batch, length)
        theirs = trained(same, same, x.double())
        changing = [place for place, n in enumerate(data(4, 6).shape) if n != sample[place]]
        torch._dynamo.mark_dynamic(x, changing if way == "marked" else [])
        for ours, value in zip(trained(model, compiled, x), theirs, strict=True):
            torch.testing.assert_close(ours, None if value is None else value.to(ours.dtype), rtol=1e-4, atol=1e-5)
    assert sum("made" in each for each in compiles) == wanted
