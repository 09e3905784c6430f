"""Scalar functions: those allowed in `fn(..)`, with arity, numpy meaning, result type and algebra.

The table is `functions.toml`. Code generation keeps the CUDA text of each in `codegen/scalar.toml`; a test compares the
two lists.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from math import (
    ceil,
    copysign,
    erf,
    erfc,
    exp,
    floor,
    inf,
    isfinite,
    isinf,
    isnan,
    lgamma,
    log,
    log1p,
    nan,
    pi,
    pow,
    sqrt,
)
from typing import Any, NamedTuple

import numpy as np

from .dtypes import DTYPES as NAMES, FLOATS, INTEGERS, NARROW, SMALL_FLOATS, toml_table
from .monoid_texts import PARTS, part_identity

# ---- functions that neither numpy nor Python has


def elementwise(of_numbers: Callable[..., float]) -> Callable[..., Any]:
    """Return a function of numbers as a function of arrays, which broadcast."""

    def of_arrays(*operands: Any) -> Any:
        arrays = np.broadcast_arrays(*(np.asarray(operand, float) for operand in operands))
        return np.vectorize(of_numbers, otypes=[np.float64])(*arrays) if arrays[0].size else arrays[0]

    return of_arrays


def _erfcinv(y: float) -> float:
    """Return x with erfc(x) == y, by Winitzki's approximation and Halley's steps."""
    if not 0 <= y <= 2:
        return nan
    if y in (0, 2):
        return inf if y == 0 else -inf
    if y > 1:
        return -_erfcinv(2 - y)
    logarithm = log(y * (2 - y))
    middle = 2 / (pi * 0.147) + logarithm / 2
    x = sqrt(max(0.0, sqrt(middle * middle - logarithm / 0.147) - middle))
    for _ in range(4):
        x = _step(x, erfc(x) - y)
    return x


def _erfinv(y: float) -> float:
    if abs(y) > 0.5 or y != y:
        return copysign(_erfcinv(1 - abs(y)), y)
    x = y * sqrt(pi) / 2
    for _ in range(6):
        x = _step(x, y - erf(x))
    return x


def _step(x: float, over: float) -> float:
    """Return Halley's step towards the zero of `over`, which falls with the slope of erfc."""
    newton = over / (2 / sqrt(pi) * exp(-x * x))
    return x + newton / (1 - x * newton) if abs(x * newton) < 0.5 else x + newton


def _erfcx(x: float) -> float:
    """Return exp(x * x) * erfc(x), by its asymptotic series far from 0."""
    if x < 10:
        return inf if x < -26.7 else exp(x * x) * erfc(x)
    term = total = 1.0
    for k in range(1, 12):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * sqrt(pi))


def _bessel(kind: str, order: int, x: float) -> float:
    """Return J or Y of an order: `besselj` or `bessely` of mpmath, and their limits."""
    if isnan(x) or (kind == "bessely" and x < 0):
        return nan
    if isinf(x):
        return 0.0
    return float(getattr(_mpmath(), kind)(order, x)) if x or kind == "besselj" else -inf


def _three_terms(n: float, first: float, a: float, b: float, c: float, d: float, e: float) -> float:
    """Return p_n, where p_0 = 1, p_1 = first and (1 + e k) p_(k+1) = (a + b k) p_k - (c + d k) p_(k-1)."""
    before, now = 1.0, first
    if not n >= 1:
        return before
    for k in range(1, int(n) if n < 2.0**63 else 0):
        if now != now:
            break
        before, now = now, ((a + b * k) * now - (c + d * k) * before) / (1 + e * k)
    return now


def _gamma_shares(a: float, x: float) -> tuple[float, float]:
    """Return the shares of the gamma function's integral, of t ** (a - 1) * exp(-t), below x and above x."""
    if not (a >= 0 and x >= 0) or a == x in (0, inf):
        return nan, nan
    if 0 in (a, x) or inf in (a, x) or x > a + 100 * sqrt(a) + 800:  # above that nothing is left
        return float(x > a), float(x < a)
    if a > _LARGE:
        return _gamma_shares_of_large(a, x)
    share = functools.partial(_mpmath().gammainc, a, regularized=True)
    return float(share(0, x)), float(share(x, inf))


def _gamma_shares_of_large(a: float, x: float) -> tuple[float, float]:
    """Return both shares by two terms of Temme's expansion (DLMF 8.12.3, 8.12.4, 8.12.7)."""
    over = (x - a) / a
    if abs(over) < 0.01:
        half = sum((-over) ** k / k for k in range(9, 1, -1))
    else:
        half = over - log1p(over) if over > -1 else inf
    eta = copysign(sqrt(2 * half), over)
    near = max(-1.0, min(1.0, eta))
    first, second = (sum(c * near**k for k, c in enumerate(row)) for row in _TEMME)
    rest = exp(-a * half) / sqrt(2 * pi * a) * (first + second / a)
    place = eta * sqrt(a / 2)
    return erfc(-place) / 2 - rest, erfc(place) / 2 + rest


_LARGE = 20000.0
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860),
)


def _mpmath() -> Any:
    import mpmath  # here: few programs have one of these functions

    return mpmath


def _lgamma(x: float) -> float:
    if x != x or abs(x) == inf:
        return abs(x)
    return inf if x <= 0 and x == floor(x) else lgamma(x)


ARITHMETIC, FLOAT, COMPARE, LOGICAL, SELECT, CAST = "arithmetic", "float", "compare", "logical", "select", "cast"
BITS = "bits"  # of integers alone


class Function(NamedTuple):
    """A scalar function.

    kind: rule for the result type. arithmetic and bits promote, float gives at least f32, compare and logical give b8,
    select promotes the last two operands, cast gives the dtype of its name, or HELD.
    identity: value of an empty reduction, for functions that may reduce.
    operator: of index arithmetic that means the same. folds: whether the compiler computes calls with constants.
    cost: instructions, all and those on the special function unit. meaning: description in words, of operands a and b,
    or x.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    kind: str
    commutative: bool = False
    identity: Any = None
    operator: str = ""
    folds: bool = False
    cost: Sequence[int] = (1, 0)
    meaning: str = ""


def _zeta(s: float, q: float) -> float:
    """Return the sum of (q + k) ** -s over k, with the Euler-Maclaurin formula beyond nine terms and beyond 9."""
    if s == 1:
        return inf
    if s < 1:
        return nan
    if q <= 0 and (q == -inf or q == floor(q)):
        return inf
    if s != s or q != q or (q <= 0 and s != inf and s != floor(s)):
        return nan
    total, steps = 0.0, max(9, ceil(9 - min(q, 9)) + 1)
    for k in range(steps):
        total += copysign(pow(abs(q + k), -s), 1 if q + k > 0 or s % 2 != 1 else -1)
    if s > 1e13 or q == inf:  # one term is all, or none; of none PyTorch says nan
        return total or nan
    end = q + steps
    total += pow(end, 1 - s) / (s - 1) + 0.5 * pow(end, -s)
    factor = s * pow(end, -s - 1)
    for j, bernoulli in enumerate(_BERNOULLI):
        total += bernoulli * factor
        factor *= (s + 2 * j + 1) * (s + 2 * j + 2) / (end * end)
    return total


_BERNOULLI = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
)  # B(2j)/(2j)!


def _gcd(a: Any, b: Any) -> Any:
    """Return the greatest common divisor. As in PyTorch, it is negative where a remainder of the least number is."""
    a, b = np.abs(a), np.abs(b)
    while np.any(a):
        a, b = np.where(a == 0, 0, np.fmod(b, np.where(a == 0, 1, a))), np.where(a == 0, b, a)
    return b


def _shift_left(x: Any, by: Any) -> Any:
    """Shift left. The result is zero if no bit is left or `by` is negative, as in torch."""
    width = 8 * np.asarray(x).dtype.itemsize
    return np.where((by < 0) | (by >= width), x ^ x, np.left_shift(x, by % width))


def _shift_right(x: Any, by: Any) -> Any:
    """Shift right with sign extension. A negative count, or one beyond the width, shifts by the width."""
    kind = np.asarray(x).dtype
    most = 8 * kind.itemsize - (kind.kind == "i")
    last = np.right_shift(np.right_shift(x, most - 1), 1)
    return np.where((by < 0) | (by >= most), last, np.right_shift(x, by % most))


# numpy has no bf16 and no floats of 8 bits, whose bits are held as integers.
DTYPES: dict[str, type] = {
    name: np.dtype(dtype.numpy if dtype.numpy == dtype.torch else "float32").type for name, dtype in NAMES.items()
}
# What an op computes in f32 of 16-bit floats is of their dtype, but rounded by its store only; a cast rounds at once.
HELD = {"as_f16": "f16", "as_bf16": "bf16"}
_RANK = ("b8", "u8", "i8", "i16", "i32", "i64", "e4m3", "e5m2", "f16", "bf16", "f32", "f64")

# Meanings that numpy does not have, of numbers and of arrays; what `functions.toml` names no other way is in numpy.
_OF_NUMBERS: dict[str, Callable[..., float]] = {
    "erf": erf, "erfc": erfc, "lgamma": _lgamma, "erfinv": _erfinv, "erfcinv": _erfcinv, "erfcx": _erfcx,
    "zeta": _zeta, "three_terms": _three_terms,
    "gammainc": lambda a, x: _gamma_shares(a, x)[0], "gammaincc": lambda a, x: _gamma_shares(a, x)[1],
    **{
        f"bessel_{kind}{order}": functools.partial(_bessel, f"bessel{kind}", order)
        for kind, order in itertools.product("jy", (0, 1))
    },
}  # fmt: skip
_OWN: dict[str, Callable[..., Any]] = {
    "sign": lambda x: x if np.asarray(x).dtype == np.bool_ else np.sign(x),
    "copy": lambda x: x, "relu": lambda x: np.maximum(x, 0), "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "reciprocal": lambda x: 1.0 / np.asarray(x, float),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-np.asarray(x, float))),
    "gcd": _gcd, "shift_left": _shift_left, "shift_right": _shift_right,
    **{name: elementwise(of_numbers) for name, of_numbers in _OF_NUMBERS.items()},
}  # fmt: skip


def _function(name: str, kind: str, arity: int = 1, numpy: str = "", **more: Any) -> Function:
    """Return a function of `functions.toml`."""
    return Function(name, arity, _OWN.get(name) or getattr(np, numpy or name), kind, **more)


def _converted(dtype: str, x: Any) -> Any:
    return whole(x, dtype) if dtype in INTEGERS else np.asarray(x).astype(DTYPES[dtype])


_TABLE = (
    *(_function(name, **entry) for name, entry in toml_table(__package__, "functions").items()),
    *(Function(dtype, 1, functools.partial(_converted, dtype), CAST, meaning=f"x as {dtype}") for dtype in DTYPES),
    *(Function(fn, 1, lambda x: x, CAST, meaning=f"x, which its store rounds to {HELD[fn]}") for fn in HELD),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _TABLE}


@functools.cache
def promote(*dtypes: str) -> str:
    """Return the common dtype of operands, as torch promotes tensors of these dtypes."""
    widest = max(dtypes, key=_RANK.index)
    if widest == "bf16" and "f16" in dtypes:
        return "f32"
    return "i16" if widest == "i8" and "u8" in dtypes else widest


def category(dtype: str) -> int:
    """Return 0 for booleans, 1 for integers, 2 for floating point."""
    return 2 if dtype in FLOATS else 0 if dtype == "b8" else 1


def weak_dtype(weakest: int, met: Iterable[str]) -> str:
    """Return the dtype of a number of a category that meets operands of some dtypes.

    As in torch, the number takes their common dtype unless its own category is higher.
    """
    dtypes = tuple(met) or ("b8",)
    common = promote(*dtypes)
    return common if weakest <= category(common) else ("b8", "i64", "f32")[weakest]


def literal_dtype(number: Any, met: Iterable[str]) -> str:
    """Return the dtype of a Python number that meets operands of some dtypes."""
    return weak_dtype((bool, int, float).index(number.__class__), met)


def opmath(dtype: str) -> str:
    """Return the dtype of computation, as in PyTorch: floats of 16 and 8 bits are f32 in registers, not in memory."""
    return "f32" if dtype in SMALL_FLOATS else dtype


def result_dtype(fn: str, *dtypes: str) -> str:
    """Return the dtype that `fn` gives for operands of these dtypes."""
    kind = FUNCTIONS[fn].kind
    if kind == CAST:
        return HELD.get(fn, fn)
    if kind in (COMPARE, LOGICAL):
        return "b8"
    common = promote(*(dtypes[1:] if kind == SELECT else dtypes))
    return "f32" if kind == FLOAT and common not in FLOATS else common


def wrapped(value: int, dtype: str) -> int:
    """Return the integer of a dtype that equals `value` modulo the number of values of the dtype."""
    limits = np.iinfo(DTYPES[dtype])
    least, most = int(limits.min), int(limits.max)
    return value if least <= value <= most else (value - least) % (most - least + 1) + least


def whole(x: Any, dtype: str) -> Any:
    """Convert numbers to integers of a dtype. Floats round to zero, and become the least integer if none fits.

    A float becomes an integer of fewer than 32 bits by way of i32, as in PyTorch on x86.
    """
    data, kind = np.asarray(x), DTYPES[dtype]
    if data.dtype.kind != "f":
        return data.astype(kind, copy=False)
    if dtype in NARROW:
        return whole(data, "i32").astype(kind)
    least = np.iinfo(kind).min
    fits = (data > least - 1.0) & (data < -float(least)) if dtype == "i32" else (data >= least) & (data < -float(least))
    return np.where(fits, np.where(fits, data, 0).astype(kind), kind(least))


def identity(fn: str, dtype: str) -> Any:
    """Return the value from which `fn` may start a reduction, in this dtype."""
    value = part_identity(fn) if fn in PARTS else FUNCTIONS[fn].identity
    if dtype in INTEGERS and isinstance(value, float):
        limits = np.iinfo(DTYPES[dtype])
        return int(limits.min if value < 0 else limits.max)
    if dtype == "b8":
        return bool(value) if isfinite(value) else value > 0
    return float(value) if dtype in FLOATS else value
