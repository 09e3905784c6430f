"""Ops that ask for values while PyTorch traces them, though their results' types do not depend on any.

PyTorch makes them of others, and looks at numbers on the way (whether weights sum to zero). While a program is
exported, what they give is said here by shapes and dtypes alone; rules say the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_KEY = torch._C.DispatchKey.CompositeImplicitAutograd


@contextmanager
def by_types() -> Iterator[None]:
    """Within: these ops are traced whole. Not for several threads at once: captures are alone."""
    ops = _table()
    before = {op: dict(op.py_kernels) for op in ops}
    for op, kernel in ops.items():
        op.py_kernels[_KEY] = kernel
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in ops:
            op.py_kernels.clear()
            op.py_kernels.update(before[op])
            op._dispatch_cache.clear()


def _table() -> dict[Any, Callable[..., Any]]:
    return {torch.ops.aten.cov.default: _cov, torch.ops.aten.corrcoef.default: _corrcoef}


def _cov(x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """A number or a square of x [variables, observations]. Raises RuntimeError for what torch refuses."""
    _of_rows("cov", x)
    observations = x.shape[-1] if x.dim() else 1
    for name, weights, kind in (("fweights", fweights, "integral"), ("aweights", aweights, "floating point")):
        if weights is None:
            continue
        if weights.dim() > 1:
            raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {weights.dim()}")
        if weights.is_floating_point() != (kind != "integral"):
            raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {weights.dtype} dtype")
        if weights.numel() != observations:
            raise RuntimeError(
                f"cov(): expected {name} to have the same numel as there are observations in the input but got "
                f"{weights.numel()} != {observations}"
            )
    dtype = x.dtype if aweights is None else torch.promote_types(x.dtype, aweights.dtype)
    return _square(x, dtype)


def _corrcoef(x: Any) -> Any:
    """A number or a square of x [variables, observations]. Raises RuntimeError for what torch refuses."""
    _of_rows("corrcoef", x)
    return _square(x, x.dtype)


def _of_rows(name: str, x: Any) -> None:
    if x.dim() > 2:
        raise RuntimeError(
            f"{name}(): expected input to have two or fewer dimensions but got an input with {x.dim()} dimensions"
        )
    if x.dtype is torch.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")


def _square(x: Any, dtype: Any) -> Any:
    variables = x.shape[0] if x.dim() == 2 else 1
    floats = dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
    return x.new_empty(() if variables == 1 else (variables, variables), dtype=floats)
