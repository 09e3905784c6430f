"""What torch leaves open: of equal elements an op names the first, and a row that is not in order is counted; and what
CUDA alone does (bins of integers)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..diagnostic import DplcError


def _sort(args: Mapping[str, Any]) -> Any:
    import torch

    return torch.sort(args["self"], dim=args.get("dim", -1), descending=args.get("descending", False), stable=True)


def _argsort(args: Mapping[str, Any]) -> Any:
    return _sort(args)[1]


def _topk(args: Mapping[str, Any]) -> Any:
    x, k, dim = args["self"], args["k"], args.get("dim", -1)
    if not x.dim():
        return x.clone(), x.new_zeros((), dtype=_places())
    values, places = _sort({"self": x, "dim": dim, "descending": args.get("largest", True)})
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def _kth(args: Mapping[str, Any]) -> Any:
    x, dim = args["self"], args.get("dim", -1)
    return _picked(x, dim, _full(x, dim, args["k"] - 1), args)


def _median(args: Mapping[str, Any]) -> Any:
    x, dim = args["self"], args["dim"]
    unknown = _unknown(x, dim)
    n = x.shape[dim] if x.dim() else 1
    return _picked(x, dim, (n - unknown).where(unknown > 0, _full(x, dim, (n - 1) // 2)), args)


def _nanmedian(args: Mapping[str, Any]) -> Any:
    x, dim = args["self"], args["dim"]
    n = x.shape[dim] if x.dim() else 1
    return _picked(x, dim, (n - 1 - _unknown(x, dim)).clamp(min=0) // 2, args)


def _searchsorted(args: Mapping[str, Any]) -> Any:
    row, x = args["sorted_sequence"], args["self"]
    after = args.get("right", False) or args.get("side") == "right"
    return _counted(row, x, after, args)


def _bucketize(args: Mapping[str, Any]) -> Any:
    return _counted(args["boundaries"], args["self"], args.get("right", False), args)


def _counted(row: Any, x: Any, after: bool, args: Mapping[str, Any]) -> Any:
    """How many elements of a row stand before each of x. Raises ValueError where PyTorch does: rows of other x."""
    import torch

    x = torch.as_tensor(x)
    if row.dim() > 1 and row.shape[:-1] != x.shape[:-1]:
        raise ValueError(f"rows of {list(row.shape)} are not those of {list(x.shape)}")
    rows = row.unsqueeze(-2) if x.dim() and row.dim() > 1 else row
    values = x.unsqueeze(-1)
    before = rows > values if after else rows >= values
    return (~before).sum(-1, dtype=torch.int32 if args.get("out_int32", False) else torch.int64)


def _bins(args: Mapping[str, Any]) -> Any:
    """How many elements fall into each bin. Of integers in integers, as CUDA's kernel computes them; torch on a CPU
    refuses these."""
    import torch

    x, count, low, high = args["self"], args.get("bins", 100), args.get("min", 0), args.get("max", 0)
    if x.is_floating_point():
        return torch.histc(x, count, low, high)
    values = x.reshape(-1).long()
    ends = (values.min(), values.max()) if low == high else (torch.tensor(int(low)), torch.tensor(int(high)))
    start, end = (ends[0] - 1, ends[1] + 1) if ends[0] == ends[1] else ends
    inside = values[(values >= start) & (values <= end)]
    places = ((inside - start) * count // (end - start)).clamp(max=count - 1)
    return torch.bincount(places, minlength=count).to(x.dtype)


def _bags(args: Mapping[str, Any]) -> Any:
    """Sums, means and largest rows of runs of indices, and no more of what torch gives. torch looks at no offset: those
    that are not in order, or do not begin with 0, are counted, and what stands before the first is in no bag."""
    import torch

    table, ids, offsets, pad = args["weight"], args["indices"], args["offsets"], args.get("padding_idx")
    mode, weights = args.get("mode", 0), args.get("per_sample_weights")
    bags = offsets.numel() - bool(args.get("include_last_offset", False))
    bag = (offsets[None] <= torch.arange(ids.numel())[:, None]).sum(1) - 1
    rows = table[ids] if weights is None else table[ids] * weights[:, None]
    kept = torch.ones_like(bag, dtype=torch.bool) if pad is None else ids != pad % table.shape[0]
    found = []
    for place in range(bags):
        inside = rows[kept & (bag == place)]
        if mode == 2 and len(inside):
            largest = inside.nan_to_num(-torch.inf, torch.inf, -torch.inf).amax(0)
            found.append(inside[0].where(inside[0].isnan(), largest))
        else:
            found.append(inside.sum(0) / max(len(inside), 1) if mode == 1 else inside.sum(0))
    return torch.stack(found), bag, offsets, offsets


def _picked(x: Any, dim: int, place: Any, args: Mapping[str, Any]) -> Any:
    """The elements at some places of the order, and their places in x."""
    values, places = _sort({"self": x, "dim": dim})
    found = (values.gather(dim, place), places.gather(dim, place)) if x.dim() else (values, places)
    return found if args.get("keepdim", False) or not x.dim() else tuple(one.squeeze(dim) for one in found)


def _unknown(x: Any, dim: int) -> Any:
    return (x != x).sum(dim, keepdim=True)


def _full(x: Any, dim: int, place: int) -> Any:
    shape = list(x.shape)
    if shape:
        shape[dim] = 1
    return x.new_full(shape, place, dtype=_places())


def _places() -> Any:
    import torch

    return torch.int64


def _scaled_mm(args: Mapping[str, Any]) -> Any:
    """A product of 8-bit floats, which PyTorch makes of nothing wider: of float64 by its own words."""
    import torch

    a, b, bias, wanted = args["self"], args["mat2"], args.get("bias"), args.get("out_dtype")
    if a.dtype is not torch.float64:
        return torch.ops.aten._scaled_mm(**args)
    if args.get("scale_result") is not None:
        raise DplcError("`ScaledMm` with a scale of its result has no meaning here")
    made = a @ b * args["scale_a"] * args["scale_b"]
    return (made if bias is None else made + bias).to(a.dtype if wanted is None else wanted)


SETTLED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "Sort": _sort, "Argsort": _argsort, "Topk": _topk, "Kthvalue": _kth, "Median": _median, "Nanmedian": _nanmedian,
    "Searchsorted": _searchsorted, "Bucketize": _bucketize, "Histc": _bins, "EmbeddingBag": _bags,
    "ScaledMm": _scaled_mm,
}  # fmt: skip
