"""Fourier transforms as products with a table of cosines and sines, of pairs: real and imaginary parts.

A table depends on no input, so it folds. That is a transform's definition: right at every length, quick at short ones.
Results are real here: what gives complex numbers is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

LONGEST = 1024  # of a dimension: beyond, a product takes more than 20 times as long as its memory does

Pair = tuple[Any, Any]  # the imaginary part may be None: nothing


def inverse_of_half(
    x: Any,
    sizes: Sequence[int] | int | None = None,
    dims: Sequence[int] | int | None = None,
    norm: str | None = None,
    back: bool = True,
    most: int | None = None,
) -> Any:
    """The real tensor that has the real tensor x as the first half of its spectrum, over some dimensions.

    sizes: of the result, there. back: of an inverse transform (irfft); else of a transform of half a signal (hfft),
    which differs in its scale. most: how many dimensions, where neither says. NotImplemented for complex numbers, and
    for dimensions longer than LONGEST.
    """
    if x.is_complex():
        return NotImplemented
    over = _dims(x, sizes, dims, most)
    own = [*(x.shape[d] for d in over[:-1]), 2 * (x.shape[over[-1]] - 1)]
    asked = [-1] * len(own) if sizes is None else _listed(sizes)
    wanted = [mine if n == -1 else n for n, mine in zip(asked, own, strict=True)]
    if not all(0 < n <= LONGEST for n in wanted) or not x.numel():
        return NotImplemented
    kind = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    real = x.to(kind)
    pair: Pair = (real, None)
    for d, n in zip(over[:-1], wanted[:-1], strict=True):
        pair = _transformed(pair, d, n)
    whole = math.prod(wanted)
    scale = 1 / math.sqrt(whole) if norm == "ortho" else 1 / whole if back is (norm in (None, "backward")) else 1.0
    return _from_half(pair, over[-1], wanted[-1]) * scale


def _listed(sizes: Sequence[int] | int) -> Sequence[int]:
    return (sizes,) if isinstance(sizes, int) else sizes


def _dims(x: Any, sizes: Sequence[int] | int | None, dims: Sequence[int] | int | None, most: int | None) -> list[int]:
    """The dimensions that are transformed, as non-negative numbers; the last ones where none are given."""
    if dims is None:
        count = most or (x.dim() if sizes is None else len(_listed(sizes)))
        return list(range(x.dim() - count, x.dim()))
    return [d % x.dim() for d in _listed(dims)]


def _table(rows: int, columns: int, n: int, like: Any) -> Pair:
    """cos and sin of 2 pi j k / n, for j below `rows` and k below `columns`. The angles are those of one turn."""
    j = torch.arange(rows, device=like.device)
    k = torch.arange(columns, device=like.device)
    angle = torch.remainder(j[:, None] * k[None, :], n).double() * (2 * math.pi / n)
    return torch.cos(angle).to(like.dtype), torch.sin(angle).to(like.dtype)


def _first(part: Any, d: int, n: int) -> Any:
    """The first n places of dimension d, which comes last."""
    return None if part is None else part.movedim(d, -1)[..., :n]


def _transformed(pair: Pair, d: int, n: int) -> Pair:
    """Dimension d, cut or filled up to n, as its sums times exp(2 pi i j k / n)."""
    real, imaginary = (_first(part, d, n) for part in pair)
    cosines, sines = _table(real.shape[-1], n, n, real)
    first, second = real @ cosines, real @ sines
    if imaginary is not None:
        first = first - imaginary @ sines
        second = second + imaginary @ cosines
    return first.movedim(-1, d), second.movedim(-1, d)


def _from_half(pair: Pair, d: int, n: int) -> Any:
    """The real sums along d of a spectrum whose other half mirrors this one: all but its ends count twice."""
    real, imaginary = (_first(part, d, n // 2 + 1) for part in pair)
    cosines, sines = _table(real.shape[-1], n, n, real)
    j = torch.arange(real.shape[-1], device=real.device)
    times = torch.where((j == 0) | (2 * j == n), 1, 2).to(real.dtype)[:, None]
    total = real @ (cosines * times)
    if imaginary is not None:
        total = total - imaginary @ (sines * times)
    return total.movedim(-1, d)
