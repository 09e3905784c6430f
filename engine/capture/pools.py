"""Derivatives of pools that PyTorch has no formula for.

An element of the input gets its share of each window that it is in: the derivative over the elements of the window, or
all of it where the element is the largest.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch


def max_pool_backward(spatial: int, grad: Any, x: Any, *settings: Any) -> Any:
    """Derive a maximum pool over the last dimensions of x. settings: the last holds the index of each maximum in x."""
    flat, places = (given.flatten(-spatial) for given in (grad, settings[-1]))
    zeros = torch.zeros_like(x, memory_format=torch.contiguous_format)
    return zeros.flatten(-spatial).scatter_add(-1, places, flat).view(x.shape)


def avg_pool_backward(
    spatial: int,
    grad: Any,
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """Derive means of windows of x. Returns NotImplemented if all windows have one divisor, which a rule handles."""
    if divisor_override is not None or not (ceil_mode or (max(padding) and not count_include_pad)):
        return NotImplemented
    counts = []
    for d in range(-spatial, 0):
        k, s, a = (setting[d % len(setting)] for setting in (kernel, stride or kernel, padding))
        beyond = a if count_include_pad else 0
        start = torch.arange(grad.shape[d], device=x.device) * s - a
        counts.append((start + k).clamp(max=x.shape[d] + beyond) - start.clamp(min=-beyond))
    op = torch.ops.aten.avg_pool2d_backward if spatial == 2 else torch.ops.aten.avg_pool3d_backward
    return op(grad / _product(counts), x, kernel, stride, padding, ceil_mode, count_include_pad, 1)


def adaptive_avg_pool_backward(spatial: int, grad: Any, x: Any) -> Any:
    """Derive means of parts of x. The parts that contain an element are a slice of the result."""
    pool = torch.ops.aten.adaptive_avg_pool2d if spatial == 2 else torch.ops.aten.adaptive_avg_pool3d
    sizes, parts = x.shape[-spatial:], grad.shape[-spatial:]
    shares = grad / _product([_parts(n, m, x) for n, m in zip(sizes, parts, strict=True)])
    return pool(shares, sizes) * _product([_parts(m, n, x) for n, m in zip(sizes, parts, strict=True)])


def _parts(n: int, m: int, like: Any) -> Any:
    """Return the lengths of the m parts of n elements, as adaptive pools cut them."""
    place = torch.arange(m, device=like.device)
    return (place * n + n + m - 1) // m - place * n // m


def _product(counts: Sequence[Any]) -> Any:
    """The product of a number for each place along each dimension."""
    return functools.reduce(operator.mul, (n.reshape(-1, *[1] * d) for d, n in enumerate(reversed(counts))))
