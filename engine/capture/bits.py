"""The bits of tensors, of dtypes too that numpy does not know."""

from __future__ import annotations

from typing import Any

import torch


def bits(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor's elements in their order, as numpy has them.

    PyTorch calls a tensor of one element contiguous whatever its stride is (`x[::2]` of two), and then reads it under
    no narrower dtype: the stride is said anew.
    """
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy()
