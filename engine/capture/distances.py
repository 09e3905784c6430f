"""Distances of rows from rows as they stand beside gradients: what AOTAutograd leaves of `cdist`, by its definition.

Rows are x [.., n, k] and y [.., m, k], what comes of them [.., n, m]; the batches in front are the same.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def distances(x: Any, y: Any, p: float, mode: int | None = None) -> Any:
    """The p-norm of each difference. mode: by which way PyTorch would compute it."""
    gap = _gaps(x, y)
    if p == 2:
        return (gap * gap).sum(-1).sqrt()
    if p == 0:
        return (gap != 0).to(x.dtype).sum(-1)
    if math.isinf(p):
        return gap.abs().amax(-1)
    return gap.abs().sum(-1) if p == 1 else gap.abs().pow(p).sum(-1).pow(1 / p)


def distances_backward(gradient: Any, x: Any, y: Any, p: float, found: Any) -> Any:
    """The derivative by x. Rows that are the same give 0; of the infinite norm every greatest element counts."""
    gap, far = _gaps(x, y), found[..., None]
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        share = gap.sign()
    elif math.isinf(p):
        share = gap.sign() * (gap.abs() == far)
    else:
        apart = (far != 0) & (gap != 0)
        share = torch.where(apart, gap.sign() * (gap.abs() / torch.where(apart, far, 1)).pow(p - 1), 0)
    return (gradient[..., None] * share).sum(-2)


def _gaps(x: Any, y: Any) -> Any:
    """[.., n, m, k]"""
    return x[..., :, None, :] - y[..., None, :, :]
