"""What asks for values while PyTorch traces it, though neither what it computes nor its types depend on any.

PyTorch makes these ops of others, and looks at numbers on the way (whether weights sum to zero). While a program is
exported, what they give is said here by shapes and dtypes alone; rules say the rest. Functions in Python that look at
numbers only to refuse them are said without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from .element_writes import write_elements


def by_types() -> AbstractContextManager[None]:
    """Return a context in which these ops are traced whole."""
    return replaced(_table(), torch._C.DispatchKey.CompositeImplicitAutograd)


@contextmanager
def replaced(ops: Mapping[Any, Callable[..., Any]], key: Any) -> Iterator[None]:
    """Return a context in which ops have these kernels for a dispatch key. One thread may enter it at a time."""
    before = {op: dict(op.py_kernels) for op in ops}
    for op, kernel in ops.items():
        op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in ops:
            op.py_kernels.clear()
            op.py_kernels.update(before[op])
            op._dispatch_cache.clear()


def _table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    losses = {aten.ctc_loss.IntList: _ctc_loss, aten.ctc_loss.Tensor: _ctc_loss}
    return {aten.cov.default: _cov, aten.corrcoef.default: _corrcoef, aten.max_pool1d.default: _max_pool1d, **losses}


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


def _ctc_loss(
    x: Any, labels: Any, ends: Any, counts: Any, blank: int = 0, reduction: int = 1, zero_infinity: bool = False
) -> Any:
    """A number of each sequence of x [steps, sequences, classes] or [steps, classes], or one of all."""
    return x.new_empty((x.shape[1],) if reduction == 0 and x.dim() == 3 else ())


def _max_pool1d(
    x: Any, kernel_size: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    """The largest of windows of x [.., channels, length], of which torch's own kernel takes one length alone."""
    rows = x.unsqueeze(-2)
    own = [[1, *setting] for setting in (kernel_size, stride or kernel_size)]
    shape = torch.ops.aten.max_pool2d(rows, *own, [0, *padding], [1, *dilation], ceil_mode).squeeze(-2).shape
    return x.new_empty(shape)


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


def _gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """The loss of a normal distribution, by its formula. Raises ValueError for what torch refuses of shapes."""
    if not isinstance(var, torch.Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(x)
    if var.shape != x.shape:
        if x.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif x.dim() != var.dim() or sum(m for n, m in zip(x.shape, var.shape, strict=True) if n != m) != 1:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (x - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _linspace(start: Any, end: Any, steps: Any = None, **where: Any) -> Any:
    """torch.linspace of a number of steps that is known at a call: from both ends to the middle, as torch does it."""
    if not isinstance(steps, torch.SymInt) or "out" in where:
        return torch.linspace(start, end, steps, **where)
    dtype = where.pop("dtype", None) or torch.get_default_dtype()
    place = torch.arange(steps, **where)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    return torch.where(place < steps // 2, start + place * step, end - (steps - 1 - place) * step).to(dtype)


def _attention(query: Any, key: Any, value: Any, *more: Any, **options: Any) -> Any:
    """Attention that says that keys and values are equally many, which torch's own does not say of open lengths."""
    if isinstance(key.shape[-2], torch.SymInt) or isinstance(value.shape[-2], torch.SymInt):
        torch._check(key.shape[-2] == value.shape[-2])
    return F.scaled_dot_product_attention(query, key, value, *more, **options)


# Functions of torch's in Python, and the same without the look at values.
UNASKED: dict[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: _attention,
    F.gaussian_nll_loss: _gaussian_nll_loss,
    torch.linspace: _linspace,
    torch.Tensor.__setitem__: write_elements,
}
