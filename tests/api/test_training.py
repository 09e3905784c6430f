"""Forward and backward under torch.compile(.., backend="dplc"): gradients, modes, masks and losses are PyTorch's."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dynamo_checks import ALL_COMPILED
from torch import nn

from dplc.codegen.judge import judge
from dplc.engine.torch_backend import EagerWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
Tensor = torch.Tensor


IDS = torch.randint(0, 100, (2, 13))


def language_model() -> tuple[nn.Module, Callable[..., Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=100))
    return model, lambda model, x: model(IDS, labels=IDS).loss


def windows() -> tuple[nn.Module, Callable[..., Tensor]]:
    """Convolutions of every kind, pools, norms that keep statistics, and dropout."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4, padding=2, dilation=2), nn.GELU(),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1), nn.GroupNorm(2, 4), nn.SiLU(),
        nn.AvgPool2d(2, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(4, 5),
    )  # fmt: skip
    images, labels = torch.randn(4, 3, 18, 18), torch.tensor([0, 1, 2, 3])
    return model, lambda model, x: F.cross_entropy(model(images), labels, label_smoothing=0.1)


def resized() -> tuple[nn.Module, Callable[..., Tensor]]:
    """What its parts keep for the derivative are views by lengths of tensors that no caller sees."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 1))

    def loss(model: Any, x: Tensor) -> Tensor:
        result = F.interpolate(model(x), size=x.shape[2:], mode="bilinear")
        return (result * torch.linspace(-1, 2, result.shape[-1])).sum()

    return model, loss


@ALL_COMPILED
@pytest.mark.parametrize(
    ("made", "eager_ops", "dynamic"),
    [
        (language_model, "", None),
        (windows, "(?s)dplc: 3 of .* ops .*native_dropout.*help: nothing to do: .* from the same seed$", None),
        (resized, "", True),
    ],
)
def test_networks_have_the_losses_gradients_and_statistics_of_eager(made: Any, eager_ops: str, dynamic: Any) -> None:
    ours, loss = made()
    eager, step = copy.deepcopy(ours), torch.compile(loss, backend="dplc", dynamic=dynamic)
    with pytest.warns(EagerWarning, match=eager_ops) if eager_ops else nullcontext():
        for length in (16, 17):
            x, losses = torch.randn(1, 3, length, length + 4), []
            for call, model in ((step, ours), (loss, eager)):
                torch.manual_seed(length)
                losses.append(call(model, x))
                losses[-1].backward()
            assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
    for (name, one), other in zip(ours.named_parameters(), eager.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-4, atol=1e-5 * other.grad.abs().max().item()), name
    torch.testing.assert_close([*ours.buffers()], [*eager.buffers()], rtol=1e-5, atol=1e-8)


def write_through_views(x: Tensor) -> Tensor:
    """Views of views, in another order of memory, by strides, in pairs, and of what a view was made of."""
    y = (x * 1).t()
    y[1] = x[:, 0]
    y.diagonal().mul_(3)
    y[1:].t()[::2].exp_()
    z = y.t().expand(2, 3, 5).clone()
    z[1, 1:].copy_(x[:2] * 2)
    z.view(-1)[3:9].view(2, 3)[1].zero_()
    z.as_strided((2, 2), (15, 2)).add_(y[:2, :2])
    turned = torch.empty_like(z[..., 1:])
    turned[..., ::2] = z[..., :2] * 0.8 - z[..., 2:4] * 0.6
    turned[..., 1::2] = z[..., 2:4] * 0.8
    return turned.sum(0) + z.sum(0)[:, 1:] + y.t()[:, 1:]


def activations(x: Tensor) -> Tensor:
    return sum(f(x) for f in (F.elu, F.hardtanh, F.softplus, F.mish, F.hardswish, F.leaky_relu)) + F.gelu(
        x, approximate="tanh"
    )


AT_EDGES = torch.tensor([[[[-1.0, 0.3], [1.0, -1.0], [0.1, 3.0]]]])
LABELS = torch.tensor([[1, 1, 3], [2, 4, 2]])
DERIVED: dict[str, tuple[Any, ...]] = {  # a function, and its inputs or their shapes
    "convolutions": (lambda x, w, b: F.conv1d(x, w, b, padding=2, stride=3), (2, 4, 11), (6, 4, 3), (6,)),
    "of volumes": (lambda x, w: F.conv3d(x, w, groups=2), (1, 4, 3, 4, 5), (6, 2, 2, 3, 1)),
    "transposed": (lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, groups=2, dilation=3), (2, 4, 7), (4, 3, 2)),
    "norms of rows": (lambda x, w, b: F.layer_norm(x, (5,), w, b) + F.rms_norm(x, (5,), w), (3, 5), (5,), (5,)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (6, 3, 4)),
    "embedding": (lambda w: F.embedding(LABELS, w, padding_idx=1), (7, 4)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, -100, 3]), torch.arange(5).to(x) + 1), (3, 5)),
    "ctc_loss": (lambda x: F.ctc_loss(x.log_softmax(-1), LABELS, (7, 6), (3, 2), reduction="none"), (7, 2, 5)),
    "gather and cat": (lambda x: torch.cat([x.gather(1, LABELS), x[:, ::2], x.flip(1)], 1), (2, 5)),
    "cumsum and max": (lambda x: x.cumsum(1).amax(0) + x.max(1).values.sum(), (3, 5)),
    "activations": (activations, (3, 5)),
    "std and norm": (lambda x: x.std(1) + x.norm(dim=1) + torch.logsumexp(x, 1), (3, 5)),
    "an exponent": (lambda x, y: (x[:, None, :4].abs() + 1) ** y[:, 0].mean() * y, (3, 5), (5, 4)),
    "distances of many": (lambda x, y: torch.cdist(x, y) * torch.cdist(y, x).mT, (2, 27, 3), (2, 30, 3)),
    **{f"distances, norm {p}": (lambda x, y, p=p: torch.cdist(x, torch.cat([y, x[:1]]), p), (3, 5), (4, 5)) for p in (0.0, 1.0, 2.0, 3.0, math.inf, 0.7)},
    "max pools": (lambda x, y: F.max_pool2d(x, 3, stride=2, padding=1).sum() * F.max_pool3d(y, 2, stride=1, padding=1), (2, 3, 7, 9), (2, 5, 4, 3)),
    "padding": (lambda x: F.pad(x, (1, 2)) * F.pad(x[None], (2, 1), mode="reflect")[0], (3, 5)),
    "writes through views": (write_through_views, (3, 5)),
    "adaptive average pools": (lambda x, y: F.adaptive_avg_pool2d(x, (3, 8)).sum() * F.adaptive_avg_pool3d(y, (3, 2, 1)), (2, 3, 7, 6), (2, 5, 4, 3)),
    "adaptive max pools": (lambda x, y: F.adaptive_max_pool2d(x, (3, 4)).sum() * F.adaptive_max_pool3d(y, 2), (2, 3, 7, 6), (2, 5, 4, 3)),
    "average pool, the last window beyond the edge": (lambda x: F.avg_pool2d(x, (3, 2), stride=3, padding=1, ceil_mode=True), (2, 3, 7, 6)),
    "bilinear": (F.bilinear, (3, 5), (3, 4), (2, 5, 4), (2,)),
    "samples of a grid": (lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True), (2, 3, 7, 6), torch.rand(2, 2, 2, 2) * 2.4 - 1.2),
    "samples at the edges": (lambda x, g: F.grid_sample(x, g, padding_mode="reflection", align_corners=True), (1, 3, 7, 6), AT_EDGES),
}  # fmt: skip


@ALL_COMPILED
@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.sampled(3)
def test_gradients(name: str) -> None:
    """Against float64, no further than twice as far as PyTorch's own in float32; nothing runs in eager."""
    function, *inputs = DERIVED[name]
    given = [x if isinstance(x, Tensor) else torch.randn(x) for x in inputs]

    def gradients(call: Any, dtype: torch.dtype) -> Any:
        wanted = [x.to(dtype).requires_grad_() for x in given]
        result = call(*wanted)
        weight = torch.linspace(-1, 2, result.numel(), dtype=dtype).reshape(result.shape)
        return torch.autograd.grad((result * weight).sum(), wanted)

    ours = gradients(torch.compile(function, backend="dplc"), torch.float32)
    exact, eager = (gradients(function, dtype) for dtype in (torch.float64, torch.float32))
    assert judge(ours, exact, eager).ok and all(x.isfinite().all() for x in ours)


OPTIMIZERS: list[tuple[Any, dict[str, Any]]] = [
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
    (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (torch.optim.Adamax, {}),
    (torch.optim.NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    (torch.optim.RAdam, {}),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    (torch.optim.Rprop, {}),
    (torch.optim.Adagrad, {"lr_decay": 0.1}),
    (torch.optim.Adadelta, {}),
    (torch.optim.ASGD, {}),
]


@ALL_COMPILED
@pytest.mark.parametrize(("norm", "foreach"), [(2.0, False), (2.0, True), (1.0, True), (math.inf, True)])
@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
@pytest.mark.sampled(3)
def test_a_step_of_an_optimizer_with_clipping_is_compiled_whole(
    kind: Any, options: dict[str, Any], norm: float, foreach: bool
) -> None:
    parameters = [torch.randn(3, 4), torch.randn(5)]
    both = parameters, copy.deepcopy(parameters)
    optimizers = [kind(each, foreach=foreach, **options) for each in both]

    def step(which: int) -> Tensor:
        size: Tensor = torch.nn.utils.clip_grad_norm_(both[which], 0.5, norm, foreach=foreach)
        optimizers[which].step()
        return size

    compiled = torch.compile(step, backend="dplc")
    for _ in range(2):
        for one, other in zip(*both, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        torch.testing.assert_close(compiled(0), step(1))
        torch.testing.assert_close(*both, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(*([x.grad for x in each] for each in both), rtol=1e-5, atol=1e-8)


# ---- gradient modes in and around a function: everything is as AOTAutograd's


def within(mode: Callable[[], Any]) -> Callable[[Tensor], Any]:
    def function(x: Tensor) -> Any:
        with mode():
            y = x * 2
        return y, y + x

    return function


def left(enabled: bool) -> Callable[[Tensor], Any]:
    return lambda x: (x * 2, torch.set_grad_enabled(enabled), x * 3)[::2]


def nested(x: Tensor) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
        return a, b, x * 4


def detached(x: Tensor) -> Any:
    y, z = x.detach().requires_grad_(), x * 2
    z.detach_()
    return y * 2, x * y, z * x


def derivative(x: Tensor) -> Any:
    """The guidance of a diffusion model, the forces of a potential; and by weights of its own."""
    with torch.enable_grad():
        y, w = x.detach().requires_grad_(), torch.ones(2).requires_grad_()
        (slope,) = torch.autograd.grad((y**3).sum(), y)
        (other,) = torch.autograd.grad((w * 3 + x.detach()).sum(), w)
    return slope, slope + x, other + x, w.detach()


def changed_in_place(x: Tensor) -> Any:
    y = x * 1
    with torch.no_grad():
        y.mul_(2)
    return y * x


MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
}
PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    **{f"set_grad_enabled({enabled}) stays": left(enabled) for enabled in (False, True)},
    **{f"with {name}": within(mode) for name, mode in MODES.items()},
    **{f.__name__: f for f in (nested, detached, changed_in_place, derivative)},
}


@pytest.mark.parametrize("outer", ["none", "no_grad", "inference_mode"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_gradient_modes_agree_with_aot_eager(name: str, outer: str) -> None:
    """The mode after the call, and of every result whether it requires a gradient, its value, and its gradient."""
    for wanted in (True, False):
        ours, theirs = (observed(name, outer, wanted, backend) for backend in ("dplc", "aot_eager"))
        assert ours == theirs, f"requires_grad={wanted}"


def observed(name: str, outer: str, wanted: bool, backend: str) -> list[Any]:
    torch._dynamo.reset()
    x = torch.tensor([1.0, 2.0], requires_grad=wanted)
    with torch.enable_grad(), MODES.get(outer, nullcontext)():
        results = torch.utils._pytree.tree_leaves(torch.compile(PROGRAMS[name], backend=backend)(x))
        seen: list[Any] = [torch.is_grad_enabled()]
    for y in results:
        seen += [y.requires_grad, y.is_inference(), y.tolist()]
        if wanted and y.requires_grad and not y.is_inference():
            (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True, allow_unused=True)
            seen.append(None if gradient is None else gradient.tolist())
    return seen
