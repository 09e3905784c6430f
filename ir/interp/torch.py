"""The meaning of a Torch IR program: torch itself, in float64. Integers and booleans stay exact.

Torch is imported when a program runs, never before: `ir` stays light.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ..diagnostic import DplcError
from ..dtypes import FLOATS
from ..expr import Var
from ..node import Value
from ..schemas import DTYPES, PARTS, names, op_name
from ..text.torch import print_torch_op
from ..torch import TorchGraph, TorchOp
from .left_open import SETTLED

# Fields that torch requires and Torch IR leaves out, because they say how and not what.
_REQUIRED = {"BatchNorm": {"cudnn_enabled": False}, "InstanceNorm": {"cudnn_enabled": False}}
_OF_ALL = ("Median", "Nanmedian")  # without a dimension they name no place
# What reads and writes files or the memory of another tensor: a program of another author must not.
NO_VALUES = frozenset(("FromFile", "Resize", "ResizeAs", "Set"))
# What torch's own functions ask for without a look: it ends with a signal for dimensions that are not there.
_TRANSFORMS = ("FftC2c", "FftR2c", "FftC2r")


@functools.cache
def aten_names() -> dict[str, str]:
    """{Torch IR name: ATen name} of the live torch. A public op wins over a private one of the same name."""
    import torch

    registered = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    names = {name.removeprefix("aten::").split(".")[0] for name in registered}
    functional = (name for name in names if not name.endswith("_") or name.startswith("__"))
    # private ones first, so that a public one takes the place of its private namesake
    return {op_name(name): name for name in sorted(functional, key=lambda name: (not name.startswith("_"), name))}


def run(graph: TorchGraph, tensors: Mapping[str, Any]) -> list[Any]:
    """The outputs of a program for the tensors of its inputs.

    tensors: {input name: tensor of the declared shape}, on any device. Floating-point values are computed in float64,
    whatever dtype the program names. Returns one tensor per output, on the CPU. Raises KeyError for a missing input.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # factories without a dtype, and integer / integer
    try:
        with torch.no_grad():
            values = {param.name: _widen(torch.as_tensor(tensors[param.name])) for param in graph.ins}
            return evaluated(graph, values)
    finally:
        torch.set_default_dtype(before)


def evaluated(graph: TorchGraph, values: dict[str, Any], wide: bool = True) -> list[Any]:
    """The outputs of a program, op by op. values: {input: what stands for it}, and then for every value.

    wide: dtypes that the program names are float64 where they are floats; without it, as the program says.
    """
    for statement in graph.body:
        try:
            values[statement.dst] = applied(statement, values, wide)
        except (
            RuntimeError,
            IndexError,
            ValueError,
            TypeError,
        ) as error:  # as torch refuses values: a place that is not there
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DplcError(f"`{print_torch_op(statement)}`: torch refuses it", notes=(why,)) from None
    return [values[out.name] for out in graph.outs]


def _widen(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    return tensor.double() if tensor.is_floating_point() else tensor


def applied(statement: TorchOp, values: Mapping[str, Any], wide: bool = False) -> Any:
    """What torch makes of one op."""
    return call(statement.op, {field: argument(value, values, wide) for field, value in statement.args})


def call(op: str, args: Mapping[str, Any]) -> Any:
    """What torch gives for an op; torch picks the overload from the fields. args: as `argument` gives them."""
    import torch

    if op == "Getitem":
        return args["self"][args["index"]]
    if op == "ViewAsReal":  # a conjugate is taken when it is read, and has no pairs before
        return torch.view_as_real(args["self"].resolve_conj())
    if op == "Imag" and not args["self"].is_complex():  # rules ask for it of either factor of a product
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


def _lengths(args: Mapping[str, Any]) -> tuple[int, int]:
    """How many real places half a transform may be of."""
    given = args["self"].shape[args["dim"][-1]] if args["dim"] else 1
    return 2 * given - 2 or 1, 2 * given - 1


def _distinct(dims: Any, rank: int, op: str) -> list[int]:
    """Dimensions of a tensor, counted from the first. Raises DplcError unless each is there and named once."""
    known = isinstance(dims, list) and all(isinstance(n, int) and -rank <= n < rank for n in dims)
    counted = [n % rank for n in dims] if known else []
    if not known or len(set(counted)) < len(counted):
        raise DplcError(f"`{op}` is of dimensions that are there and named once each, not of {dims}")
    return counted


def argument(value: Value, values: Mapping[str, Any], wide: bool = True) -> Any:
    """What torch is given for a field: names become tensors, dtypes torch's (every float is float64 if `wide`)."""
    import torch

    if isinstance(value, Var):
        if value.name in DTYPES:
            if wide and (value.name in (*FLOATS, "f64") or value.name in PARTS):
                return torch.complex128 if value.name in PARTS else torch.float64
            return getattr(torch, DTYPES[value.name])
        return values[value.name]
    return [argument(item, values, wide) for item in value] if isinstance(value, tuple) else value
