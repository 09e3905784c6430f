"""What torch leaves open: of equal elements an op names the first, and a row that is not in order is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


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
    """How many elements of a row stand before each of x."""
    import torch

    x = torch.as_tensor(x)
    rows = row.unsqueeze(-2) if x.dim() and row.dim() > 1 else row
    values = x.unsqueeze(-1)
    before = rows > values if after else rows >= values
    return (~before).sum(-1, dtype=torch.int32 if args.get("out_int32", False) else torch.int64)


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


SETTLED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "Sort": _sort, "Argsort": _argsort, "Topk": _topk, "Kthvalue": _kth, "Median": _median, "Nanmedian": _nanmedian,
    "Searchsorted": _searchsorted, "Bucketize": _bucketize,
}  # fmt: skip
