"""Scalar functions: the one table of what may stand in `fn(..)`. Arity, numpy meaning, result type, algebra.

Code generation keeps the CUDA text of each in codegen/scalar.py; a test compares the two lists.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .dtypes import FLOATS, HALVES
from .monoid_texts import PARTS, part_identity

ARITHMETIC, FLOAT, COMPARE, LOGICAL, SELECT, CAST = "arithmetic", "float", "compare", "logical", "select", "cast"


class Function(NamedTuple):
    """kind decides the result type: arithmetic promotes, float gives at least f32, compare and logical give b8,
    select promotes the last two, cast gives the dtype of its name, or HELD. identity: for functions that may reduce."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    kind: str
    commutative: bool = False
    identity: Any = None


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if np.size(x) else np.asarray(x, float)


def _erfc(x: Any) -> Any:
    return np.vectorize(math.erfc, otypes=[np.float64])(x) if np.size(x) else np.asarray(x, float)


def _sign(x: Any) -> Any:
    return x if np.asarray(x).dtype == np.bool_ else np.sign(x)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.asarray(x, float)))


DTYPES: dict[str, type] = {
    "b8": np.bool_,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
}
# What an op computes in f32 of 16-bit floats is of their dtype, but rounded by its store only; a cast rounds at once.
HELD = {"as_f16": "f16", "as_bf16": "bf16"}
_RANK = ("b8", "i32", "i64", "f16", "bf16", "f32")

_TABLE = (
    Function("add", 2, np.add, ARITHMETIC, True, 0),
    Function("subtract", 2, np.subtract, ARITHMETIC),
    Function("multiply", 2, np.multiply, ARITHMETIC, True, 1),
    Function("divide", 2, np.true_divide, FLOAT),
    Function("floor_divide", 2, np.floor_divide, ARITHMETIC),
    Function("remainder", 2, np.remainder, ARITHMETIC),
    Function("fmod", 2, np.fmod, ARITHMETIC),
    Function("maximum", 2, np.maximum, ARITHMETIC, True, -math.inf),
    Function("minimum", 2, np.minimum, ARITHMETIC, True, math.inf),
    Function("pow", 2, np.power, ARITHMETIC),
    Function("atan2", 2, np.arctan2, FLOAT),
    Function("hypot", 2, np.hypot, FLOAT, True),
    Function("negative", 1, np.negative, ARITHMETIC),
    Function("abs", 1, np.abs, ARITHMETIC),
    Function("sign", 1, _sign, ARITHMETIC),
    Function("copy", 1, lambda x: x, ARITHMETIC),
    Function("relu", 1, lambda x: np.maximum(x, 0), ARITHMETIC),
    Function("exp", 1, np.exp, FLOAT),
    Function("exp2", 1, np.exp2, FLOAT),
    Function("expm1", 1, np.expm1, FLOAT),
    Function("log", 1, np.log, FLOAT),
    Function("log2", 1, np.log2, FLOAT),
    Function("log10", 1, np.log10, FLOAT),
    Function("log1p", 1, np.log1p, FLOAT),
    Function("sqrt", 1, np.sqrt, FLOAT),
    Function("rsqrt", 1, lambda x: 1.0 / np.sqrt(x), FLOAT),
    Function("reciprocal", 1, lambda x: 1.0 / np.asarray(x, float), FLOAT),
    Function("sin", 1, np.sin, FLOAT),
    Function("cos", 1, np.cos, FLOAT),
    Function("tan", 1, np.tan, FLOAT),
    Function("asin", 1, np.arcsin, FLOAT),
    Function("acos", 1, np.arccos, FLOAT),
    Function("atan", 1, np.arctan, FLOAT),
    Function("sinh", 1, np.sinh, FLOAT),
    Function("cosh", 1, np.cosh, FLOAT),
    Function("tanh", 1, np.tanh, FLOAT),
    Function("asinh", 1, np.arcsinh, FLOAT),
    Function("acosh", 1, np.arccosh, FLOAT),
    Function("atanh", 1, np.arctanh, FLOAT),
    Function("erf", 1, _erf, FLOAT),
    Function("erfc", 1, _erfc, FLOAT),
    Function("sigmoid", 1, _sigmoid, FLOAT),
    Function("floor", 1, np.floor, ARITHMETIC),
    Function("ceil", 1, np.ceil, ARITHMETIC),
    Function("trunc", 1, np.trunc, ARITHMETIC),
    Function("round", 1, np.round, ARITHMETIC),
    Function("less", 2, np.less, COMPARE),
    Function("less_equal", 2, np.less_equal, COMPARE),
    Function("greater", 2, np.greater, COMPARE),
    Function("greater_equal", 2, np.greater_equal, COMPARE),
    Function("equal", 2, np.equal, COMPARE, True),
    Function("not_equal", 2, np.not_equal, COMPARE, True),
    Function("isnan", 1, np.isnan, COMPARE),
    Function("isinf", 1, np.isinf, COMPARE),
    Function("logical_and", 2, np.logical_and, LOGICAL, True, True),
    Function("logical_or", 2, np.logical_or, LOGICAL, True, False),
    Function("logical_xor", 2, np.logical_xor, LOGICAL, True),
    Function("logical_not", 1, np.logical_not, LOGICAL),
    Function("where", 3, np.where, SELECT),
    *(
        Function(d, 1, lambda x, d=d, t=t: whole(x, d) if d in ("i32", "i64") else np.asarray(x).astype(t), CAST)
        for d, t in DTYPES.items()
    ),
    *(Function(fn, 1, lambda x: x, CAST) for fn in HELD),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _TABLE}


@functools.cache
def promote(*dtypes: str) -> str:
    """The common dtype of operands, as torch promotes tensors of these dtypes."""
    widest = max(dtypes, key=_RANK.index)
    return "f32" if set(HALVES) <= set(dtypes) else widest


def opmath(dtype: str) -> str:
    """What a dtype is computed in, as in PyTorch: 16-bit floats are f32 in registers; memory holds their 16 bits."""
    return "f32" if dtype in FLOATS else dtype


def result_dtype(fn: str, *dtypes: str) -> str:
    """The dtype that `fn` gives for operands of these dtypes."""
    kind = FUNCTIONS[fn].kind
    if kind == CAST:
        return HELD.get(fn, fn)
    if kind in (COMPARE, LOGICAL):
        return "b8"
    common = promote(*(dtypes[1:] if kind == SELECT else dtypes))
    return "f32" if kind == FLOAT and common in ("b8", "i32", "i64") else common


def wrapped(value: int, dtype: str) -> int:
    """The integer of a dtype that is `value` but for multiples of what the dtype can count."""
    limits = np.iinfo(DTYPES[dtype])
    least, most = int(limits.min), int(limits.max)
    return value if least <= value <= most else (value - least) % (most - least + 1) + least


def whole(x: Any, dtype: str) -> Any:
    """Numbers as integers of a dtype: floats round to zero, and become the least integer where they fit in none."""
    data, kind = np.asarray(x), DTYPES[dtype]
    if data.dtype.kind != "f":
        return data.astype(kind, copy=False)
    least = np.iinfo(kind).min
    fits = (data > least - 1.0) & (data < -float(least)) if dtype == "i32" else (data >= least) & (data < -float(least))
    return np.where(fits, np.where(fits, data, 0).astype(kind), kind(least))


def identity(fn: str, dtype: str) -> Any:
    """The value that `fn` may start a reduction from, in this dtype."""
    value = part_identity(fn) if fn in PARTS else FUNCTIONS[fn].identity
    if dtype in ("i32", "i64") and isinstance(value, float):
        limits = np.iinfo(DTYPES[dtype])
        return int(limits.min if value < 0 else limits.max)
    if dtype == "b8":
        return bool(value) if math.isfinite(value) else value > 0
    return float(value) if dtype in FLOATS else value
