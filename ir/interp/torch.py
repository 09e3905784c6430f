"""The meaning of a Torch IR program: torch itself, in float64. Integers and booleans stay exact.

Torch is imported when a program runs, never before: `ir` stays light.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ..diagnostic import DplcError, first_line
from ..dtypes import FLOATS
from ..expr import Var
from ..node import Value, nodes
from ..schemas import DTYPES, LOOP, PARTS, draws, names, op_name, resolve
from ..tensor import OperatorCall
from ..text.torch import print_torch_op
from ..torch import TorchGraph, TorchOp

Args = Mapping[str, Any]  # {field of an op: its value}

# ---- results that torch leaves open (the first of equal elements, unsorted rows), and bins of integers (CUDA only)


def _sort(args: Args) -> Any:
    import torch

    return torch.sort(args["self"], dim=args.get("dim", -1), descending=args.get("descending", False), stable=True)


def _topk(args: Args) -> Any:
    x, k, dim = args["self"], args["k"], args.get("dim", -1)
    if not x.dim():
        return x.clone(), x.new_zeros((), dtype=_places())
    values, places = _sort({"self": x, "dim": dim, "descending": args.get("largest", True)})
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def _kth(args: Args) -> Any:
    x, dim = args["self"], args.get("dim", -1)
    return _picked(x, dim, _full(x, dim, args["k"] - 1), args)


def _median(args: Args) -> Any:
    x, dim = args["self"], args["dim"]
    unknown = _unknown(x, dim)
    n = x.shape[dim] if x.dim() else 1
    return _picked(x, dim, (n - unknown).where(unknown > 0, _full(x, dim, (n - 1) // 2)), args)


def _nanmedian(args: Args) -> Any:
    x, dim = args["self"], args["dim"]
    n = x.shape[dim] if x.dim() else 1
    return _picked(x, dim, (n - 1 - _unknown(x, dim)).clamp(min=0) // 2, args)


def _searchsorted(args: Args) -> Any:
    row, x = args["sorted_sequence"], args["self"]
    after = args.get("right", False) or args.get("side") == "right"
    return _counted(row, x, after, args)


def _counted(row: Any, x: Any, after: bool, args: Args) -> Any:
    """Return the number of elements of a row that precede each of x. Raises ValueError if the shapes do not match."""
    import torch

    x = torch.as_tensor(x)
    if row.dim() > 1 and row.shape[:-1] != x.shape[:-1]:
        raise ValueError(f"rows of {list(row.shape)} are not those of {list(x.shape)}")
    rows = row.unsqueeze(-2) if x.dim() and row.dim() > 1 else row
    values = x.unsqueeze(-1)
    before = rows > values if after else rows >= values
    return (~before).sum(-1, dtype=torch.int32 if args.get("out_int32", False) else torch.int64)


def _bins(args: Args) -> Any:
    """Return the number of elements in each bin.

    For integers the counts are computed in integers, as in the CUDA kernel. torch rejects integers on a CPU.
    """
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


def _bags(args: Args) -> Any:
    """Return sums, means or maxima of runs of indices, without the further results of torch.

    torch does not check offsets. If they are unordered or do not begin with 0, this function counts them, and indices
    before the first offset are in no bag. Raises ValueError if `padding_idx` is not a row of the table.
    """
    import torch

    table, ids, offsets, pad = args["weight"], args["indices"], args["offsets"], args.get("padding_idx")
    if pad is not None and not -len(table) <= pad < len(table):
        raise ValueError(f"padding_idx {pad} is not a row of {len(table)}")
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


def _picked(x: Any, dim: int, place: Any, args: Args) -> Any:
    """Return the elements at given positions of the sorted order, and their indices in x."""
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


def _scaled_mm(args: Args) -> Any:
    """Return a product of 8-bit floats.

    For float64 operands, which PyTorch rejects, the product is computed by its definition.
    """
    import torch

    a, b, bias, wanted = args["self"], args["mat2"], args.get("bias"), args.get("out_dtype")
    if a.dtype is not torch.float64:
        return torch.ops.aten._scaled_mm(**args)
    if args.get("scale_result") is not None:
        raise DplcError("`ScaledMm` with a scale of its result has no meaning here")
    made = a @ b * args["scale_a"] * args["scale_b"]
    return (made if bias is None else made + bias).to(a.dtype if wanted is None else wanted)


SETTLED: dict[str, Callable[[Args], Any]] = {
    "Sort": _sort, "Argsort": lambda args: _sort(args)[1], "Topk": _topk, "Kthvalue": _kth, "Median": _median,
    "Nanmedian": _nanmedian, "Searchsorted": _searchsorted, "Histc": _bins, "EmbeddingBag": _bags,
    "Bucketize": lambda args: _counted(args["boundaries"], args["self"], args.get("right", False), args),
    "ScaledMm": _scaled_mm,
}  # fmt: skip


# Fields that torch requires and Torch IR leaves out, because they say how and not what.
_REQUIRED = {"BatchNorm": {"cudnn_enabled": False}, "InstanceNorm": {"cudnn_enabled": False}}
_OF_ALL = ("Median", "Nanmedian")  # without a dimension they name no index
# What reads and writes files or the memory of another tensor: a program of another author must not.
NO_VALUES = frozenset(("FromFile", "Resize", "ResizeAs", "Set"))
_BY_STRIDES = ("AsStridedCopy", "AsStridedScatter")  # read memory that a copy of their operand lacks
# What torch's own functions read unchecked: a missing dimension ends the process with a signal.
_TRANSFORMS = ("FftC2c", "FftR2c", "FftC2r")


@functools.cache
def aten_names() -> dict[str, str]:
    """Return {Torch IR name: ATen name} of the live torch. A public op wins over a private op of the same name."""
    import torch

    registered = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    names = {name.removeprefix("aten::").split(".")[0] for name in registered}
    functional = (name for name in names if not name.endswith("_") or name.startswith("__"))
    # private ones first, so that a public one replaces its private namesake
    return {op_name(name): name for name in sorted(functional, key=lambda name: (not name.startswith("_"), name))}


def run(graph: TorchGraph, tensors: Args, seed: int | None = None, tf32: Collection[str] = ()) -> list[Any]:
    """Return the outputs of a program for the tensors of its inputs.

    tensors: {input name: tensor of the declared shape}, on any device. Floating-point values are computed in float64,
    whatever dtype the program names. seed: draws errors of rounding for every op, with those of the operators
    in `tf32` (see `evaluated`). Returns one tensor per output, on the CPU. Raises KeyError for a missing input.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # factories without a dtype, and integer / integer
    try:
        with torch.no_grad():
            values = {param.name: _widen(torch.as_tensor(tensors[param.name])) for param in graph.ins}
            noise = None if seed is None else torch.Generator().manual_seed(seed)
            return evaluated(graph, values, noise=noise, tf32=() if seed is None else tf32)
    finally:
        torch.set_default_dtype(before)


def evaluated(
    graph: TorchGraph, values: dict[str, Any], wide: bool = True, noise: Any = None, tf32: Collection[str] = ()
) -> list[Any]:
    """Compute the outputs of a program, op by op. values: {input: its value}, extended by the value of every op.

    wide: dtypes that the program names are float64 where they are floats; without it, as the program says. noise: a
    generator that draws errors of rounding. tf32: the operators whose f32 operands are rounded to TF32.
    """
    kinds = {param.name: param.dtype for param in graph.ins}
    for statement in graph.body:
        kinds[statement.dst] = statement.types[0].dtype
        with _refused(statement):
            in_tf32 = statement.op in tf32 and kinds[statement.dst] == "f32"
            given = {**values, **_in_tf32(statement, values, kinds, noise)} if in_tf32 else values
            made = applied(statement, given, wide, noise, tf32)
            values[statement.dst] = made if noise is None else _rounded(statement, made, noise)
    return [values[out.name] for out in graph.outs]


def _rounded(statement: TorchOp, made: Any, noise: Any) -> Any:
    """Return results of an op with errors of rounding: Monte Carlo arithmetic (Parker 1997).

    An element moves by up to one unit in the last place of its dtype, unless the dtype holds it exactly. So copies stay
    equal, and a step or a choice moves only with its operands.
    """
    import torch

    kinds = iter([getattr(torch, DTYPES[kind.dtype]) for kind in statement.types])

    def moved(exact: Any) -> Any:
        kind = next(kinds, exact.dtype)
        if not (kind.is_floating_point and exact.is_floating_point()):
            return exact
        error = torch.finfo(kind).eps * (2 * torch.rand(exact.shape, generator=noise, dtype=exact.dtype) - 1)
        return torch.where(exact.to(kind) == exact, exact, (exact * (1 + error)).to(kind))

    return torch.utils._pytree.tree_map_only(torch.Tensor, moved, made)


TF32_ROUNDOFF = 2.0**-11  # the largest relative error of a number that is rounded to TF32


def _in_tf32(statement: TorchOp, values: Args, kinds: Mapping[str, str], noise: Any) -> Args:
    """Return the f32 operands of an op rounded to TF32. noise: moves each by a random error of that size at most."""
    import torch

    def rounded(x: Any) -> Any:
        if noise is None:
            return in_tf32(x)
        return x * (1 + TF32_ROUNDOFF * (2 * torch.rand(x.shape, generator=noise, dtype=x.dtype) - 1))

    read = {x.name for x in nodes(statement, Var)}
    return {name: rounded(values[name]) for name in read if kinds.get(name) == "f32"}


def in_tf32(x: Any) -> Any:
    """Return a tensor with numbers of f32 rounded to the nearest of TF32, ties away from zero, as by `cvt.rna`."""
    import torch

    if x.dtype not in (torch.float32, torch.float64):
        return x
    nearest = (x.float().contiguous().view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)
    return torch.where(x.isfinite(), nearest.to(x.dtype), x)


def _widen(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    return tensor.double() if tensor.is_floating_point() else tensor


def operator(op: str, args: Value) -> Any:
    """Return torch's operator for an op, looked up in torch's registry.

    Raises DplcError unless its schema says that it only computes: it writes no argument, and gives no view of one.
    """
    import torch

    overload = resolve(op, args)
    if overload is None or op in (*NO_VALUES, *_BY_STRIDES, "Getitem", LOOP):
        raise DplcError(f"`{op}` is not an operator of torch that can be called")
    name, _, which = overload.name.partition(".")
    found = getattr(getattr(torch.ops.aten, name), which or "default")
    schema = found._schema
    if schema.is_mutable or any(x.alias_info is not None for x in (*schema.arguments, *schema.returns)):
        raise DplcError(f"torch op '{name}' writes an argument or gives a view of one: it cannot be called")
    return found


def called(call: OperatorCall, buffers: Args, wide: bool = False) -> dict[str, Any]:
    """Return {result: tensor} of a call of torch's operator, on the device of what it reads.

    buffers: {name: a tensor of its elements}. wide: as in `evaluated`. Raises DplcError where torch refuses the values.
    """
    import torch

    with torch.no_grad(), _refused(call.statement):
        tensors = {param.name: buffers[param.name].reshape(param.shape) for param in call.given}
        made = applied(call.statement, tensors, wide)
    found = made if isinstance(made, tuple | list) else (made,)
    return dict(zip((param.name for param in call.results), found, strict=True))


@contextlib.contextmanager
def _refused(statement: TorchOp) -> Iterator[None]:
    """Raise DplcError where torch refuses values: an index out of range, a singular matrix."""
    try:
        yield
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        what = f"`{print_torch_op(statement)}`: torch refuses it"
        raise DplcError(what, notes=(first_line(error),)) from None


def applied(statement: TorchOp, values: Args, wide: bool = False, noise: Any = None, tf32: Collection[str] = ()) -> Any:
    """Return the result of torch for one op. wide, noise, tf32: as in `evaluated`, for the body of a loop.

    Random numbers are drawn in their own dtype, so that they are those of eager.
    """
    from torch import Tensor
    from torch.utils._pytree import tree_map_only

    drawn = draws(statement.op, dict(statement.args))
    given = {field: argument(value, values, wide and not drawn) for field, value in statement.args}
    if statement.op == LOOP:
        return _looped(**given, step=functools.partial(evaluated, wide=wide, noise=noise, tf32=tf32))
    if not drawn:
        return call(statement.op, given)
    kind = argument(Var(statement.types[0].dtype), {}, False)
    found = operator(statement.op, statement.args)
    if any(x.name == "dtype" for x in found._schema.arguments):
        given["dtype"] = kind
    if wide and kind.is_floating_point:
        given = tree_map_only(Tensor, lambda x: x.to(kind), given)
    made = found(**given)
    return tree_map_only(Tensor, _widen, made) if wide else made


def _looped(
    init: list[Any], xs: list[Any], reads: list[Any], body: TorchGraph, step: Callable[..., list[Any]]
) -> tuple[Any, ...]:
    """Return the last carried values of a loop, and its stacked rows. step: runs the body for values of its inputs."""
    import torch

    carried, rows = init, list[list[Any]]()
    for row in zip(*xs, strict=True):
        made = step(body, dict(zip((param.name for param in body.ins), (*carried, *row, *reads), strict=True)))
        carried = made[: len(init)]
        rows.append(made[len(init) :])
    return *carried, *map(torch.stack, zip(*rows, strict=True))


def call(op: str, args: Args) -> Any:
    """Return the result of torch for an op. torch selects the overload by the fields.

    args: fields in the form that `argument` returns.
    """
    import torch

    if op == "Getitem":
        return args["self"][args["index"]]
    if op == "ViewAsReal":  # a conjugate is taken when it is read, and has no pairs before
        return torch.view_as_real(args["self"].resolve_conj())
    if op == "Imag" and not args["self"].is_complex():  # rules query it for both factors of a product
        return torch.zeros_like(args["self"])
    if op in ("View", "UnsafeView") and "size" in args:  # values have no strides that a view could depend on
        return args["self"].reshape(args["size"])
    if op in SETTLED and not (op in _OF_ALL and "dim" not in args):
        return SETTLED[op](args)
    if op in NO_VALUES or op not in names():
        raise DplcError(f"`{op}` has no meaning as a function of tensors: it is not run")
    if op in _TRANSFORMS:
        args = {**args, "dim": _distinct(args["dim"], args["self"].dim(), op)}
        last = args.get("last_dim_size")
        if args["normalization"] not in (0, 1, 2) or last not in (None, *_lengths(args)):
            raise DplcError(f"`{op}` has a scale 0 to 2, and of n places n // 2 + 1 are given")
    return getattr(torch.ops.aten, aten_names()[op])(**args, **_REQUIRED.get(op, {}))


def _lengths(args: Args) -> tuple[int, int]:
    """Return the two numbers of real elements that a half transform may have, even and odd."""
    given = args["self"].shape[args["dim"][-1]] if args["dim"] else 1
    return 2 * given - 2 or 1, 2 * given - 1


def _distinct(dims: Any, rank: int, op: str) -> list[int]:
    """Return dimensions of a tensor, counted from the first. Raises DplcError unless each exists and occurs once."""
    known = isinstance(dims, list) and all(isinstance(n, int) and -rank <= n < rank for n in dims)
    counted = [n % rank for n in dims] if known else []
    if not known or len(set(counted)) < len(counted):
        raise DplcError(f"`{op}` is of dimensions that are there and named once each, not of {dims}")
    return counted


def argument(value: Value, values: Args, wide: bool = True) -> Any:
    """Return the value of a field as torch needs it: names become tensors, and dtypes those of torch.

    wide: replace every float dtype by float64, and every complex dtype by complex128.
    """
    import torch

    if isinstance(value, Var):
        if value.name in DTYPES:
            if wide and (value.name in (*FLOATS, "f64") or value.name in PARTS):
                return torch.complex128 if value.name in PARTS else torch.float64
            return getattr(torch, DTYPES[value.name])
        return values[value.name]
    return [argument(item, values, wide) for item in value] if isinstance(value, tuple) else value
