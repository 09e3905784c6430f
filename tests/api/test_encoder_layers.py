"""torch.nn's transformer layers in evaluation mode, which PyTorch runs as one op: no part of them is left to eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dplc  # noqa: F401  (its backend)

pytestmark = pytest.mark.filterwarnings("error")
LAYERS = {
    "relu": lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
    "gelu, normed first": lambda: nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, norm_first=True, activation="gelu"),
    "several": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False),
    "places first": lambda: nn.TransformerEncoderLayer(16, 2, 32),
}  # fmt: skip


def compared(module: nn.Module, *given: object, **named: object) -> None:
    """As in eager mode, and not by it."""
    module.eval()
    torch._dynamo.reset()
    with torch.no_grad():
        want = module(*given, **named)
        got = torch.compile(module, backend="dplc")(*given, **named)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        assert (a is None and b is None) or torch.allclose(a, b, atol=2e-6)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.sampled(2)
def test_layers(name: str) -> None:
    torch.manual_seed(3)
    compared(LAYERS[name](), torch.randn(3, 5, 16))


def test_masks() -> None:
    torch.manual_seed(4)
    layer, x = LAYERS["relu"](), torch.randn(3, 5, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    later = nn.Transformer.generate_square_subsequent_mask(5)
    compared(layer, x, src_key_padding_mask=padding)
    compared(layer, x, src_mask=later)
    compared(layer, x, src_mask=later, src_key_padding_mask=torch.where(padding, -torch.inf, 0.0))


@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"average_attn_weights": False}])
@pytest.mark.sampled(2)
def test_attention(options: dict[str, bool]) -> None:
    torch.manual_seed(5)
    module, x = nn.MultiheadAttention(16, 4, batch_first=True), torch.randn(2, 7, 16)
    compared(module, x, x, x, **options)
    hidden = torch.zeros(2, 7, dtype=torch.bool)
    hidden[1, 4:] = True
    compared(module, x, x, x, key_padding_mask=hidden, **options)
