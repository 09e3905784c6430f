"""Functions of one and of two elements at the values where they are likely to be wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from operator_samples import Sample, lot, operators
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

# PyTorch divides the least integer by -1, which ends the process, and takes polynomials of degree 2**63.
NOT_AT_EDGES = ("lcm", "polynomial")
INF, NAN = float("inf"), float("nan")
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 3.0, 7.5, 0.1, -0.7, 1e-3, 1e-30, -1e-30, 4.5, 20.5, -21.0, 88.0,
          -104.0, 1e4, 3e20, -3e20, 3.4e38, -3.4e38, INF, -INF, NAN)  # fmt: skip
INTEGERS = (0, 1, -1, 2, -3, 7, 46341, 2**31 - 1, -(2**31))
LONG = (*INTEGERS, 2**53 + 1, 2**63 - 1, -(2**63))


def values(dtype: torch.dtype) -> torch.Tensor:
    """The edges of a dtype."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        return torch.tensor(FLOATS, dtype=torch.float64).to(dtype)
    if dtype.itemsize < 4:
        limits = torch.iinfo(dtype)
        return torch.tensor((*range(-3, 8), limits.max, limits.min, limits.max // 2 + 1)).to(dtype)
    return torch.tensor(LONG if dtype is torch.int64 else INTEGERS, dtype=dtype)


def edges(share: float = 1.0) -> Iterator[Sample]:
    """Every function of one element at the edges, every function of two at all pairs of them; or a share of these."""
    for op, dtype in operators():
        name = f"{op.formatted_name} at edges"
        if lot(f"{name} of {dtype}") >= share or any(word in name for word in NOT_AT_EDGES):
            continue
        ends = values(dtype)
        if isinstance(op, UnaryUfuncInfo):
            yield Sample(name, dtype, 0, op.op, (ends,), {})
        elif isinstance(op, BinaryUfuncInfo):
            a, b = (side.reshape(-1).clone() for side in torch.meshgrid(ends, ends, indexing="ij"))
            yield Sample(name, dtype, 0, op.op, (a, b), {})
