"""Layers of transformers that `torch.nn` computes by one op in evaluation mode, written out as their modules say them.

ATen has these ops in C++ only. Of nested tensors they are left as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

OF_SCORES, OF_KEYS = 0, 1  # torch's numbers of masks; any other is of [batch, heads, queries, keys]
HIDDEN = -float("inf")


def encoder_layer(
    x: Any, width: int, heads: int, qkv: Any, qkv_bias: Any, out: Any, out_bias: Any, use_gelu: bool, norm_first: bool,
    eps: float, scale_1: Any, shift_1: Any, scale_2: Any, shift_2: Any, up: Any, up_bias: Any, down: Any,
    down_bias: Any, mask: Any = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """nn.TransformerEncoderLayer. x: [batch, places, width]. NotImplemented where `attention` is."""

    def attended(y: Any) -> Any:
        return attention(y, y, y, width, heads, qkv, qkv_bias, out, out_bias, mask, False, True, mask_type)

    def passed_on(y: Any) -> Any:
        wide = functional.linear(y, up, up_bias)
        return functional.linear(functional.gelu(wide) if use_gelu else functional.relu(wide), down, down_bias)

    def normed(y: Any, scale: Any, shift: Any) -> Any:
        return functional.layer_norm(y, (width,), scale, shift, eps)

    found = attended(normed(x, scale_1, shift_1) if norm_first else x)
    if found is NotImplemented:
        return found
    x = x + found[0]
    if norm_first:
        return x + passed_on(normed(x, scale_2, shift_2))
    x = normed(x, scale_1, shift_1)
    return normed(x + passed_on(x), scale_2, shift_2)


def attention(
    query: Any, key: Any, value: Any, width: int, heads: int, qkv: Any, qkv_bias: Any, out: Any, out_bias: Any,
    mask: Any = None, need_weights: bool = True, average_weights: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """nn.MultiheadAttention: results [batch, places, width], and weights where they are needed, else nothing.

    mask: what is not 0 is hidden. NotImplemented for nested tensors and for a mask of no kind.
    """
    if query.is_nested or query.dim() != 3 or (mask is not None and mask_type is None):
        return NotImplemented

    def rows(x: Any, number: int) -> Any:
        part = slice(number * width, (number + 1) * width)
        made = functional.linear(x, qkv[part], qkv_bias[part])
        return made.reshape(*x.shape[:2], heads, width // heads).transpose(1, 2)

    q, k, v = (rows(x, number) for number, x in enumerate((query, key, value)))
    hidden = None if mask is None else _spread(mask.to(torch.bool), mask_type)
    if need_weights:
        scores = (q * (width // heads) ** -0.5) @ k.transpose(-1, -2)
        weights = torch.softmax(scores if hidden is None else scores.masked_fill(hidden, HIDDEN), -1)
        made = weights @ v
        kept = weights.mean(1) if average_weights else weights
    else:
        made = functional.scaled_dot_product_attention(q, k, v, None if hidden is None else hidden.logical_not())
        kept = query.new_empty(0)
    return functional.linear(made.transpose(1, 2).reshape(*query.shape[:2], width), out, out_bias), kept


def _spread(hidden: Any, mask_type: int | None) -> Any:
    """A mask as it stands beside scores [batch, heads, queries, keys]."""
    return hidden[:, None, None] if mask_type == OF_KEYS else hidden[None, None] if mask_type == OF_SCORES else hidden
