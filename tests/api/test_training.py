"""Forward and backward under torch.compile(.., backend="dplc"): gradients, masks and losses are PyTorch's."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from drawing import draws
from dynamo_checks import ALL_COMPILED
from torch import nn

import dplc
from dplc.engine.torch_backend import EagerWarning

Loss = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


SIZES = {"hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4}


def llama() -> tuple[nn.Module, Loss, Callable[[], list[torch.Tensor]]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2, vocab_size=100))
    return (
        model,
        lambda model, ids, labels: model(ids, labels=labels).loss,
        lambda: [torch.randint(0, 100, (2, 13))] * 2,
    )


def vit() -> tuple[nn.Module, Loss, Callable[[], list[torch.Tensor]]]:
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(**SIZES, image_size=24, patch_size=8, num_labels=5))
    batch = lambda: [torch.randn(3, 3, 24, 24), torch.randint(0, 5, (3,))]  # noqa: E731
    return model, lambda model, x, y: F.cross_entropy(model(x).logits, y), batch


@ALL_COMPILED
@pytest.mark.parametrize("made", [llama, vit])
@pytest.mark.sampled(1)
def test_steps_follow_eager(made: Any) -> None:
    ours, loss, batch = made()
    eager = copy.deepcopy(ours)
    step = torch.compile(lambda *args: loss(ours, *args), backend="dplc")
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (ours, eager)]
    for _ in range(draws(1)):
        args = batch()
        losses = [step(*args), loss(eager, *args)]
        for one, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            one.backward()
            optimizer.step()
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)


def windows() -> nn.Module:
    """Convolutions of every kind, pools, norms that keep statistics, and dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4, padding=2, dilation=2), nn.GELU(),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1), nn.GroupNorm(2, 4), nn.SiLU(),
        nn.AvgPool2d(2, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(4, 5),
    )  # fmt: skip


def test_windows_statistics_and_dropout() -> None:
    ours = windows()
    eager = copy.deepcopy(ours)
    step = torch.compile(lambda x, y: F.cross_entropy(ours(x), y, label_smoothing=0.1), backend="dplc")
    x, y = torch.randn(4, 3, 18, 18), torch.tensor([0, 1, 2, 3])
    for seed in range(2):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s)dplc: 3 of .* ops .*native_dropout", EagerWarning)
            step(x, y).backward()
        torch.manual_seed(seed)
        F.cross_entropy(eager(x), y, label_smoothing=0.1).backward()
    for (name, one), other in zip(ours.named_parameters(), eager.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-5 * other.grad.abs().max().item()), name
    for (name, one), other in zip(ours.named_buffers(), eager.buffers(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5), name


def set_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = y * 1
    z[1:4, :4] = x[:, :4]
    return z


def scale_diagonal(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.diagonal().mul_(3)
    return y


def rotate_pairs(x: torch.Tensor) -> torch.Tensor:
    y, even, odd = torch.empty_like(x), x[..., ::2], x[..., 1::2]
    y[..., ::2] = even * 0.8 - odd * 0.6
    y[..., 1::2] = even * 0.6 + odd * 0.8
    return y


def write_through_views(x: torch.Tensor) -> torch.Tensor:
    """Views of views, in another order of memory, by strides, and of what a view was made of."""
    y = (x * 1).t()
    y[1] = x[:, 0]
    y[1:].t()[::2].exp_()
    z = y.t().expand(2, 3, 5).clone()
    z[1, 1:].copy_(x[:2] * 2)
    z.view(-1)[3:9].view(2, 3)[1].zero_()
    z.as_strided((2, 2), (15, 2)).add_(y[:2, :2])
    return z.sum(0) + y.t()


A, B = torch.randn(3, 5), torch.randn(5, 4)
IMAGE, VOLUME = torch.randn(2, 3, 7, 6), torch.randn(2, 5, 4, 3)
DERIVED: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=2, stride=3), (torch.randn(2, 4, 11), torch.randn(6, 4, 3), torch.randn(6))),
    "conv3d": (lambda x, w: F.conv3d(x, w, groups=2), (torch.randn(1, 4, 3, 4, 5), torch.randn(6, 2, 2, 3, 1))),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, groups=2, dilation=3), (torch.randn(2, 4, 7), torch.randn(4, 3, 2))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), (A, torch.randn(5), torch.randn(5))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), (A, torch.randn(5))),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (torch.randn(6, 3, 4),)),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), tuple(torch.randn(2, 3, 7, 8) for _ in range(3))),
    "grouped attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8))),
    "embedding": (lambda w: F.embedding(torch.tensor([[0, 2, 2], [6, 1, 0]]), w, padding_idx=1), (torch.randn(7, 4),)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, -100, 3]), weight=torch.tensor([1.0, 2, 3, 4, 5])), (A,)),
    "ctc_loss": (lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 1, 3], [2, 4, 2]]), torch.tensor([7, 6]), torch.tensor([3, 2]), reduction="none"), (torch.randn(7, 2, 5),)),
    "products": (lambda x, y: torch.einsum("ik,kj->ji", x, y).softmax(-1), (A, B)),
    "a broadcast": (lambda x, y: x[:, None, :4] * y + y, (A, B)),
    "gather and cat": (lambda x: torch.cat([x.gather(1, torch.tensor([[0, 0], [3, 1], [4, 4]])), x[:, ::2], x.flip(1)], 1), (A,)),
    "cumsum and max": (lambda x: x.cumsum(1).amax(0) + x.max(1).values.sum(), (A,)),
    "activations": (lambda x: F.gelu(x, approximate="tanh") + F.elu(x) + F.hardtanh(x) + F.softplus(x) + F.mish(x) + F.hardswish(x) + F.leaky_relu(x), (A,)),
    "std and norm": (lambda x: x.std(1) + x.norm(dim=1) + torch.logsumexp(x, 1), (A,)),
    "an exponent": (lambda x, y: (x.abs() + 1) ** y[:, 0].mean(), (A, B)),
    **{f"distances, norm {p}": (lambda x, y, p=p: torch.cdist(x, torch.cat([y.T, x[:1]]), p), (A, B)) for p in (0.0, 0.7, 1.0, 2.0, 3.0, math.inf)},
    "distances of many": (lambda x, y: torch.cdist(x, y) * torch.cdist(y, x).mT, (torch.randn(2, 27, 3), torch.randn(2, 30, 3))),
    "max pool": (lambda x: F.max_pool2d(x, 3, stride=2, padding=1), (torch.randn(2, 3, 7, 9),)),
    "padding": (lambda x: F.pad(x, (1, 2)) * F.pad(x[None], (2, 1), mode="reflect")[0], (A,)),
    "rows are set": (set_rows, (A, torch.randn(6, 5))),
    "a diagonal is scaled": (scale_diagonal, (A,)),
    "pairs are rotated": (rotate_pairs, (torch.randn(3, 6),)),
    "writes through views": (write_through_views, (A,)),
    "adaptive average pools": (lambda x, y: F.adaptive_avg_pool2d(x, (3, 8)).sum(3) + F.adaptive_avg_pool3d(y, (3, 2, 1)).sum((1, 2, 3))[:, None, None], (IMAGE, VOLUME)),
    "adaptive max pools": (lambda x, y: F.adaptive_max_pool2d(x, (3, 4)).sum(3) + F.adaptive_max_pool3d(y, 2).sum((1, 2, 3))[:, None, None], (IMAGE, VOLUME)),
    "max pool of volumes": (lambda x: F.max_pool3d(x, 2, stride=1, padding=1), (VOLUME,)),
    "average pool, the last window beyond the edge": (lambda x: F.avg_pool2d(x, (3, 2), stride=3, padding=1, ceil_mode=True), (IMAGE,)),
    "bilinear": (lambda x, y, w, b: F.bilinear(x, y, w, b), (A, torch.randn(3, 4), torch.randn(2, 5, 4), torch.randn(2))),
    "samples of a grid": (lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True), (IMAGE, torch.rand(2, 2, 2, 2) * 2.4 - 1.2)),
    "samples at the edges": (lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=True), (IMAGE[:1], torch.tensor([[[[-1.0, 0.3], [1.0, -1.0], [0.1, 3.0]]]]))),
    "lower triangle": (lambda x: torch.tril(x @ x.t()).masked_fill(torch.eye(3) > 0, 2.0), (A,)),
}  # fmt: skip


@ALL_COMPILED
@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.sampled(3)
def test_gradients(name: str) -> None:
    """Against float64, no further than twice as far as PyTorch's own in float32; nothing runs in eager."""
    function, given = DERIVED[name]

    def gradients(call: Any, dtype: torch.dtype) -> list[torch.Tensor]:
        inputs = [tensor.detach().to(dtype).clone().requires_grad_() for tensor in given]
        result = call(*inputs)
        weight = torch.linspace(-1, 2, result.numel(), dtype=dtype).reshape(result.shape)
        return list(torch.autograd.grad((result * weight).sum(), inputs))

    ours = gradients(torch.compile(function, backend="dplc"), torch.float32)
    wide = torch.set_default_dtype
    wide(torch.float64)
    try:
        exact = gradients(function, torch.float64)
    except RuntimeError:  # a constant of the function's own is float32
        exact = [tensor.double() for tensor in gradients(function, torch.float32)]
    finally:
        wide(torch.float32)
    for one, eager, best in zip(ours, gradients(function, torch.float32), exact, strict=True):
        assert one.shape == best.shape and one.isfinite().all()
        allowed = 2 * (eager - best).abs().max() + 1e-5 * max(1.0, best.abs().max().item())
        assert (one - best).abs().max() <= allowed


OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
    "adam": (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {}),
    "adamax": (torch.optim.Adamax, {}),
    "nadam": (torch.optim.NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "radam": (torch.optim.RAdam, {}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    "rprop": (torch.optim.Rprop, {}),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1}),
    "adadelta": (torch.optim.Adadelta, {}),
    "asgd": (torch.optim.ASGD, {}),
}


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.sampled(2)
def test_optimizer_step_is_compiled_whole(name: str, foreach: bool) -> None:
    kind, options = OPTIMIZERS[name]
    ours = [torch.randn(3, 4), torch.randn(5)]
    eager = copy.deepcopy(ours)
    optimizers = [kind(parameters, foreach=foreach, **options) for parameters in (ours, eager)]
    shares = dplc.Shares()
    step = torch.compile(optimizers[0].step, backend="dplc", options={"shares": shares})
    for _ in range(2):
        for one, other in zip(ours, eager, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        step()
        optimizers[1].step()
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
    assert shares.ops and not shares.eager, shares


@pytest.mark.parametrize(("kind", "foreach"), [(2.0, False), (2.0, True), (1.0, True), (math.inf, True)])
@pytest.mark.sampled(2)
def test_clipping_of_gradients_by_their_norm_is_compiled_whole(kind: float, foreach: bool) -> None:
    ours = [torch.randn(3, 4), torch.randn(5)]
    for parameter in ours:
        parameter.grad = torch.randn_like(parameter)
    eager = copy.deepcopy(ours)
    shares = dplc.Shares()
    clip = torch.nn.utils.clip_grad_norm_
    compiled = torch.compile(clip, backend="dplc", options={"shares": shares})
    assert torch.allclose(compiled(ours, 0.5, kind, foreach=foreach), clip(eager, 0.5, kind, foreach=foreach))
    torch.testing.assert_close([x.grad for x in ours], [x.grad for x in eager], rtol=1e-5, atol=1e-8)
    assert shares.ops and not shares.eager, shares
