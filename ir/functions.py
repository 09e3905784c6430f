"""Scalar functions: the table of the functions allowed in `fn(..)`, with arity, numpy meaning, result type and algebra.

Code generation keeps the CUDA text of each in codegen/scalar.py; a test compares the two lists.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .dtypes import FLOATS, INTEGERS, NARROW, SMALL_FLOATS
from .monoid_texts import PARTS, part_identity

# ---- functions that neither numpy nor Python has


def elementwise(of_one: Callable[[float], float]) -> Callable[[Any], Any]:
    """Return a function of one number as a function of arrays."""

    def of_all(x: Any) -> Any:
        return np.vectorize(of_one, otypes=[np.float64])(x) if np.size(x) else np.asarray(x, float)

    return of_all


def _erfcinv(y: float) -> float:
    """Return x with erfc(x) == y, by Winitzki's approximation and Halley's steps."""
    if not 0 <= y <= 2:
        return math.nan
    if y in (0, 2):
        return math.inf if y == 0 else -math.inf
    if y > 1:
        return -_erfcinv(2 - y)
    log = math.log(y * (2 - y))
    middle = 2 / (math.pi * 0.147) + log / 2
    x = math.sqrt(max(0.0, math.sqrt(middle * middle - log / 0.147) - middle))
    for _ in range(4):
        x = _step(x, math.erfc(x) - y)
    return x


def _erfinv(y: float) -> float:
    if abs(y) > 0.5 or y != y:
        return math.copysign(_erfcinv(1 - abs(y)), y)
    x = y * math.sqrt(math.pi) / 2
    for _ in range(6):
        x = _step(x, y - math.erf(x))
    return x


def _step(x: float, over: float) -> float:
    """Return Halley's step towards the zero of `over`, which falls with the slope of erfc."""
    newton = over / (2 / math.sqrt(math.pi) * math.exp(-x * x))
    return x + newton / (1 - x * newton) if abs(x * newton) < 0.5 else x + newton


def _erfcx(x: float) -> float:
    """Return exp(x * x) * erfc(x), by its asymptotic series far from 0."""
    if x < 10:
        return math.inf if x < -26.7 else math.exp(x * x) * math.erfc(x)
    term = total = 1.0
    for k in range(1, 12):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


def _bessel(kind: str, order: int, x: float) -> float:
    """Return J or Y of an order: `besselj` or `bessely` of mpmath, and their limits."""
    if math.isnan(x) or (kind == "bessely" and x < 0):
        return math.nan
    if math.isinf(x):
        return 0.0
    return float(getattr(_mpmath(), kind)(order, x)) if x or kind == "besselj" else -math.inf


def _three_terms(n: float, first: float, a: float, b: float, c: float, d: float, e: float) -> float:
    before, now = 1.0, first
    if not n >= 1:
        return before
    for k in range(1, int(n) if n < 2.0**63 else 0):
        if now != now:
            break
        before, now = now, ((a + b * k) * now - (c + d * k) * before) / (1 + e * k)
    return now


def three_terms(*operands: Any) -> Any:
    """Return p_n, where p_0 = 1, p_1 = first and (1 + e k) p_(k+1) = (a + b k) p_k - (c + d k) p_(k-1).

    operands: n to e.
    """
    arrays = np.broadcast_arrays(*(np.asarray(operand, float) for operand in operands))
    return np.vectorize(_three_terms, otypes=[np.float64])(*arrays) if arrays[0].size else arrays[0]


def _gamma_shares(a: float, x: float) -> tuple[float, float]:
    """Return the shares of the gamma function's integral, of t ** (a - 1) * exp(-t), below x and above x."""
    if not (a >= 0 and x >= 0) or a == x in (0, math.inf):
        return math.nan, math.nan
    if 0 in (a, x) or math.inf in (a, x) or x > a + 100 * math.sqrt(a) + 800:  # above that nothing is left
        return float(x > a), float(x < a)
    if a > _LARGE:
        return _gamma_shares_of_large(a, x)
    share = functools.partial(_mpmath().gammainc, a, regularized=True)
    return float(share(0, x)), float(share(x, math.inf))


def _gamma_shares_of_large(a: float, x: float) -> tuple[float, float]:
    """Return both shares by two terms of Temme's expansion (DLMF 8.12.3, 8.12.4, 8.12.7)."""
    over = (x - a) / a
    if abs(over) < 0.01:
        half = sum((-over) ** k / k for k in range(9, 1, -1))
    else:
        half = over - math.log1p(over) if over > -1 else math.inf
    eta = math.copysign(math.sqrt(2 * half), over)
    near = max(-1.0, min(1.0, eta))
    first, second = (sum(c * near**k for k, c in enumerate(row)) for row in _TEMME)
    rest = math.exp(-a * half) / math.sqrt(2 * math.pi * a) * (first + second / a)
    place = eta * math.sqrt(a / 2)
    return math.erfc(-place) / 2 - rest, math.erfc(place) / 2 + rest


_LARGE = 20000.0
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860),
)


def _mpmath() -> Any:
    import mpmath  # here: few programs have one of these functions

    return mpmath


def _share_of_gamma(which: int, a: Any, x: Any) -> Any:
    """Compute one share of the gamma function for each element."""
    arrays = np.broadcast_arrays(np.asarray(a, float), np.asarray(x, float))
    of_one = np.vectorize(lambda a, x: _gamma_shares(a, x)[which], otypes=[np.float64])
    return of_one(*arrays) if arrays[0].size else arrays[0]


erfinv, erfcinv, erfcx = map(elementwise, (_erfinv, _erfcinv, _erfcx))
bessel_j0, bessel_j1, bessel_y0, bessel_y1 = (
    elementwise(functools.partial(_bessel, kind, order)) for kind in ("besselj", "bessely") for order in (0, 1)
)
gammainc, gammaincc = (functools.partial(_share_of_gamma, which) for which in (0, 1))


ARITHMETIC, FLOAT, COMPARE, LOGICAL, SELECT, CAST = "arithmetic", "float", "compare", "logical", "select", "cast"
BITS = "bits"  # of integers alone


class Function(NamedTuple):
    """A scalar function.

    kind: rule for the result type. arithmetic and bits promote, float gives at least f32, compare and logical give b8,
    select promotes the last two operands, cast gives the dtype of its name, or HELD.
    identity: value of an empty reduction, for functions that may reduce.
    meaning: description in words, of operands a and b, or x.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    kind: str
    commutative: bool = False
    identity: Any = None
    meaning: str = ""


def _lgamma_of_one(x: float) -> float:
    if x != x or abs(x) == math.inf:
        return abs(x)
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


_erf, _erfc, _lgamma = map(elementwise, (math.erf, math.erfc, _lgamma_of_one))


def _zeta(s: Any, q: Any) -> Any:
    return (
        np.vectorize(_zeta_of_one, otypes=[np.float64])(s, q) if np.size(s) * np.size(q) else np.add(s, q, dtype=float)
    )


def _zeta_of_one(s: float, q: float) -> float:
    """Return the sum of (q + k) ** -s over k, with the Euler-Maclaurin formula beyond nine terms and beyond 9."""
    if s == 1:
        return math.inf
    if s < 1:
        return math.nan
    if q <= 0 and (q == -math.inf or q == math.floor(q)):
        return math.inf
    if s != s or q != q or (q <= 0 and s != math.inf and s != math.floor(s)):
        return math.nan
    total, steps = 0.0, max(9, math.ceil(9 - min(q, 9)) + 1)
    for k in range(steps):
        total += math.copysign(math.pow(abs(q + k), -s), 1 if q + k > 0 or s % 2 != 1 else -1)
    if s > 1e13 or q == math.inf:  # one term is all, or none; of none PyTorch says nan
        return total or math.nan
    end = q + steps
    total += math.pow(end, 1 - s) / (s - 1) + 0.5 * math.pow(end, -s)
    factor = s * math.pow(end, -s - 1)
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


def _sign(x: Any) -> Any:
    return x if np.asarray(x).dtype == np.bool_ else np.sign(x)


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


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.asarray(x, float)))


DTYPES: dict[str, type] = {
    "b8": np.bool_,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": np.float32,
    "e4m3": np.float32,
    "e5m2": np.float32,
    "f32": np.float32,
    "u8": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "f64": np.float64,
}
# What an op computes in f32 of 16-bit floats is of their dtype, but rounded by its store only; a cast rounds at once.
HELD = {"as_f16": "f16", "as_bf16": "bf16"}
_RANK = ("b8", "u8", "i8", "i16", "i32", "i64", "e4m3", "e5m2", "f16", "bf16", "f32", "f64")

_TABLE = (
    Function("add", 2, np.add, ARITHMETIC, True, 0, meaning="a + b"),
    Function("subtract", 2, np.subtract, ARITHMETIC, meaning="a - b"),
    Function("multiply", 2, np.multiply, ARITHMETIC, True, 1, meaning="a * b"),
    Function("divide", 2, np.true_divide, FLOAT, meaning="a / b, a float"),
    Function("floor_divide", 2, np.floor_divide, ARITHMETIC, meaning="a / b, rounded down"),
    Function("remainder", 2, np.remainder, ARITHMETIC, meaning="a modulo b, with the sign of b"),
    Function("fmod", 2, np.fmod, ARITHMETIC, meaning="a modulo b, with the sign of a"),
    Function("maximum", 2, np.maximum, ARITHMETIC, True, -math.inf, meaning="the greater of a and b; NaN if one is"),
    Function("minimum", 2, np.minimum, ARITHMETIC, True, math.inf, meaning="the lesser of a and b; NaN if one is"),
    Function("pow", 2, np.power, ARITHMETIC, meaning="a to the power of b"),
    Function("atan2", 2, np.arctan2, FLOAT, meaning="the angle of the point (b, a)"),
    Function("hypot", 2, np.hypot, FLOAT, True, meaning="the square root of a*a + b*b"),
    Function("negative", 1, np.negative, ARITHMETIC, meaning="-x"),
    Function("abs", 1, np.abs, ARITHMETIC, meaning="x without its sign"),
    Function("sign", 1, _sign, ARITHMETIC, meaning="-1, 0 or 1"),
    Function("copy", 1, lambda x: x, ARITHMETIC, meaning="x itself"),
    Function("relu", 1, lambda x: np.maximum(x, 0), ARITHMETIC, meaning="x where it is positive, else 0"),
    Function("exp", 1, np.exp, FLOAT, meaning="e to the power of x"),
    Function("exp2", 1, np.exp2, FLOAT, meaning="2 to the power of x"),
    Function("expm1", 1, np.expm1, FLOAT, meaning="exp(x) - 1, exact near 0"),
    Function("log", 1, np.log, FLOAT, meaning="the natural logarithm"),
    Function("log2", 1, np.log2, FLOAT, meaning="the logarithm to base 2"),
    Function("log10", 1, np.log10, FLOAT, meaning="the logarithm to base 10"),
    Function("log1p", 1, np.log1p, FLOAT, meaning="log(1 + x), exact near 0"),
    Function("sqrt", 1, np.sqrt, FLOAT, meaning="the square root"),
    Function("rsqrt", 1, lambda x: 1.0 / np.sqrt(x), FLOAT, meaning="1 / sqrt(x)"),
    Function("reciprocal", 1, lambda x: 1.0 / np.asarray(x, float), FLOAT, meaning="1 / x"),
    Function("sin", 1, np.sin, FLOAT, meaning="the sine"),
    Function("cos", 1, np.cos, FLOAT, meaning="the cosine"),
    Function("tan", 1, np.tan, FLOAT, meaning="the tangent"),
    Function("asin", 1, np.arcsin, FLOAT, meaning="the inverse sine"),
    Function("acos", 1, np.arccos, FLOAT, meaning="the inverse cosine"),
    Function("atan", 1, np.arctan, FLOAT, meaning="the inverse tangent"),
    Function("sinh", 1, np.sinh, FLOAT, meaning="the hyperbolic sine"),
    Function("cosh", 1, np.cosh, FLOAT, meaning="the hyperbolic cosine"),
    Function("tanh", 1, np.tanh, FLOAT, meaning="the hyperbolic tangent"),
    Function("asinh", 1, np.arcsinh, FLOAT, meaning="the inverse hyperbolic sine"),
    Function("acosh", 1, np.arccosh, FLOAT, meaning="the inverse hyperbolic cosine"),
    Function("atanh", 1, np.arctanh, FLOAT, meaning="the inverse hyperbolic tangent"),
    Function("erf", 1, _erf, FLOAT, meaning="the error function"),
    Function("erfc", 1, _erfc, FLOAT, meaning="1 - erf(x)"),
    Function("lgamma", 1, _lgamma, FLOAT, meaning="the logarithm of the absolute value of the gamma function"),
    Function("erfinv", 1, erfinv, FLOAT, meaning="the inverse of erf"),
    Function("erfcinv", 1, erfcinv, FLOAT, meaning="the inverse of erfc"),
    Function("erfcx", 1, erfcx, FLOAT, meaning="erfc(x) times exp(x * x)"),
    Function("zeta", 2, _zeta, FLOAT, meaning="the sum of 1 / (b + k) ** a over k from 0 on"),
    Function("gammainc", 2, gammainc, FLOAT, meaning="the share of gamma(a), as an integral, that is below b"),
    Function("gammaincc", 2, gammaincc, FLOAT, meaning="the share of gamma(a), as an integral, that is above b"),
    Function("bessel_j0", 1, bessel_j0, FLOAT, meaning="Bessel's function of the first kind of order 0"),
    Function("bessel_j1", 1, bessel_j1, FLOAT, meaning="Bessel's function of the first kind of order 1"),
    Function("bessel_y0", 1, bessel_y0, FLOAT, meaning="Bessel's function of the second kind of order 0"),
    Function("bessel_y1", 1, bessel_y1, FLOAT, meaning="Bessel's function of the second kind of order 1"),
    Function(
        "three_terms",
        7,
        three_terms,
        FLOAT,
        meaning="p_n, where p_0 = 1, p_1 = first and (1 + e*k) * p_(k+1) = (a + b*k) * p_k - (c + d*k) * p_(k-1)",
    ),
    Function("sigmoid", 1, _sigmoid, FLOAT, meaning="1 / (1 + exp(-x))"),
    Function("floor", 1, np.floor, ARITHMETIC, meaning="the greatest integer that is at most x"),
    Function("ceil", 1, np.ceil, ARITHMETIC, meaning="the least integer that is at least x"),
    Function("trunc", 1, np.trunc, ARITHMETIC, meaning="x without its fraction"),
    Function("round", 1, np.round, ARITHMETIC, meaning="the nearest integer, halves to even"),
    Function("less", 2, np.less, COMPARE, meaning="a < b"),
    Function("less_equal", 2, np.less_equal, COMPARE, meaning="a <= b"),
    Function("greater", 2, np.greater, COMPARE, meaning="a > b"),
    Function("greater_equal", 2, np.greater_equal, COMPARE, meaning="a >= b"),
    Function("equal", 2, np.equal, COMPARE, True, meaning="a == b"),
    Function("not_equal", 2, np.not_equal, COMPARE, True, meaning="a != b"),
    Function("isnan", 1, np.isnan, COMPARE, meaning="whether x is not a number"),
    Function("isinf", 1, np.isinf, COMPARE, meaning="whether x is infinite"),
    Function("logical_and", 2, np.logical_and, LOGICAL, True, True, meaning="a and b"),
    Function("logical_or", 2, np.logical_or, LOGICAL, True, False, meaning="a or b"),
    Function("logical_xor", 2, np.logical_xor, LOGICAL, True, meaning="whether one of a and b holds"),
    Function("logical_not", 1, np.logical_not, LOGICAL, meaning="not x"),
    Function("bits_and", 2, np.bitwise_and, BITS, True, meaning="the bits that a and b have"),
    Function("bits_or", 2, np.bitwise_or, BITS, True, meaning="the bits that a or b has"),
    Function("bits_xor", 2, np.bitwise_xor, BITS, True, meaning="the bits that one of a and b has"),
    Function("gcd", 2, _gcd, BITS, True, meaning="the greatest number that divides a and b; 0 of zeros"),
    Function("shift_left", 2, _shift_left, BITS, meaning="a with its bits b places higher"),
    Function("shift_right", 2, _shift_right, BITS, meaning="a with its bits b places lower"),
    Function("where", 3, np.where, SELECT, meaning="a where the condition holds, else b"),
    *(
        Function(
            d,
            1,
            lambda x, d=d, t=t: whole(x, d) if d in INTEGERS else np.asarray(x).astype(t),
            CAST,
            meaning=f"x as {d}",
        )
        for d, t in DTYPES.items()
    ),
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
        return bool(value) if math.isfinite(value) else value > 0
    return float(value) if dtype in FLOATS else value
