"""The CUDA text of scalar functions and literals: one table, with precedence, so that no parenthesis is spare.

Functions come by the dtype of their operands: floating, integer, bool. A hole `{0}` takes an operand, in parentheses
where that binds looser than the operator.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..ir.diagnostic import InternalError
from ..ir.dtypes import DTYPES, INTEGERS, NARROW, SMALL_FLOATS
from ..ir.functions import wrapped

OR, AND, XOR, BITAND, EQUAL, COMPARE, SHIFT, SUM, TERM, UNARY, ATOM = range(2, 13)
TERNARY = 1
LOG2_E = "1.4426950408889634f"


class Form(NamedTuple):
    """A text with holes, how tightly it binds, and how tightly the operands in the holes must bind."""

    text: str
    strength: int = ATOM
    operands: tuple[int, ...] = (0,) * 7


def _infix(op: str, strength: int) -> Form:
    return Form("{0} " + op + " {1}", strength, (strength, strength + 1))


_CALL1, _CALL2 = "{}({{0}})".format, "{}({{0}}, {{1}})".format

# Functions of one operand that the C library or the prelude has for f32 and f64.
_LIBRARY = (
    "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "erfcinv", "erfcx", "lgamma", "floor", "ceil",
    "trunc",
)  # fmt: skip
FLOATING: dict[str, Form] = {
    "add": _infix("+", SUM), "subtract": _infix("-", SUM), "multiply": _infix("*", TERM), "divide": _infix("/", TERM),
    "floor_divide": Form(_CALL2("floor_div")), "remainder": Form(_CALL2("floor_mod")),
    "fmod": Form(_CALL2("fmodf")), "maximum": Form(_CALL2("max_nan")), "minimum": Form(_CALL2("min_nan")),
    "pow": Form(_CALL2("powf")), "zeta": Form(_CALL2("zeta_sum")),
    "gammainc": Form(_CALL2("gamma_share_below")), "gammaincc": Form(_CALL2("gamma_share_above")),
    "three_terms": Form("three_terms({0}, {1}, {2}, {3}, {4}, {5}, {6})"),
    **{fn: Form(_CALL1(fn)) for fn in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")},
    "atan2": Form(_CALL2("atan2f")), "hypot": Form(_CALL2("hypotf")),
    "negative": Form("-{0}", UNARY, (ATOM,)),
    "abs": Form(_CALL1("fabsf")), "sign": Form(_CALL1("sign")), "relu": Form("max_nan({0}, 0.0f)"),
    # exp as one multiplication and one instruction; good to about 1e-6 relative where exp is within the range of f32
    "exp": Form("exp2_approx({0} * " + LOG2_E + ")", ATOM, (TERM,)), "exp2": Form(_CALL1("exp2_approx")),
    "rsqrt": Form(_CALL1("rsqrt_approx")), "reciprocal": Form(_CALL1("rcp_approx")),
    "sigmoid": Form("rcp_approx(1.0f + exp2_approx({0} * -" + LOG2_E + "))", ATOM, (TERM,)),
    "round": Form(_CALL1("rintf")), "isnan": Form("(bool)isnan({0})", UNARY), "isinf": Form("(bool)isinf({0})", UNARY),
    **{fn: Form(_CALL1(fn + "f")) for fn in _LIBRARY},
}  # fmt: skip

# f64. The C library's functions are called by names of their own: `exp` may be a value of a kernel.
DOUBLE: dict[str, Form] = {
    **FLOATING,
    **{fn: Form(_CALL1(fn + "_f64")) for fn in ("exp", "exp2", *_LIBRARY)},
    **{fn: Form(_CALL2(fn + "_f64")) for fn in ("pow", "atan2", "hypot", "fmod")},
    "abs": Form(_CALL1("fabs_f64")), "round": Form(_CALL1("rint_f64")), "relu": Form("max_nan({0}, 0.0)"),
    "rsqrt": Form("1.0 / sqrt_f64({0})", TERM), "reciprocal": Form("1.0 / {0}", TERM, (UNARY,)),
    "sigmoid": Form("1.0 / (1.0 + exp_f64(-{0}))", TERM, (ATOM,)),
}  # fmt: skip

# Values wrap around, as torch's do, which C++'s operators on signed integers need not.
INTEGER: dict[str, Form] = {
    "add": Form(_CALL2("wrap_add")), "subtract": Form(_CALL2("wrap_sub")), "multiply": Form(_CALL2("wrap_mul")),
    "floor_divide": Form(_CALL2("floor_div")), "remainder": Form(_CALL2("floor_mod")),
    "fmod": Form(_CALL2("trunc_mod")),
    "maximum": Form(_CALL2("max")), "minimum": Form(_CALL2("min")), "pow": Form(_CALL2("int_pow")),
    "negative": Form(_CALL1("wrap_neg")), "sign": Form(_CALL1("sign")), "abs": Form(_CALL1("wrap_abs")),
    "relu": Form(_CALL2("max").replace("{1}", "{zero}")), "isnan": Form("false"), "isinf": Form("false"),
    **{fn: Form("{0}", 0, (0,)) for fn in ("floor", "ceil", "trunc", "round")},
    **{fn: Form(_CALL2(fn)) for fn in ("bits_and", "bits_or", "bits_xor", "shift_left", "shift_right")},
    "gcd": Form(_CALL2("common_divisor")),
}  # fmt: skip

# C++'s own functions give an int.
OF_NARROW = INTEGER | {fn: Form(f"{{type}}({INTEGER[fn].text})") for fn in ("maximum", "minimum", "relu")}

_OR, _AND = _infix("||", OR), _infix("&&", AND)
BOOL: dict[str, Form] = {
    "add": _OR, "maximum": _OR, "multiply": _AND, "minimum": _AND, "logical_or": _OR, "logical_and": _AND,
    "logical_xor": _infix("!=", EQUAL), "logical_not": Form("!{0}", UNARY, (UNARY,)),
    "isnan": Form("false"), "isinf": Form("false"),
    **{fn: Form("{0}", 0, (0,)) for fn in ("relu", "abs", "sign", "floor", "ceil", "trunc", "round")},
}  # fmt: skip

ANY: dict[str, Form] = {
    "copy": Form("{0}", 0, (0,)), "where": Form("{0} ? {1} : {2}", TERNARY, (OR, TERNARY, TERNARY)),
    "less": _infix("<", COMPARE), "less_equal": _infix("<=", COMPARE), "greater": _infix(">", COMPARE),
    "greater_equal": _infix(">=", COMPARE), "equal": _infix("==", EQUAL), "not_equal": _infix("!=", EQUAL),
}  # fmt: skip


TABLES = {"f32": FLOATING, "f64": DOUBLE, "b8": BOOL, **dict.fromkeys(NARROW, OF_NARROW)}


def form_of(fn: str, dtype: str) -> Form:
    """Return the text of a function on operands of a dtype. Raises InternalError where there is none."""
    form = TABLES.get(dtype, INTEGER).get(fn) or ANY.get(fn)
    if form is None:
        raise InternalError(f"no CUDA text for `{fn}` on {dtype}")
    if dtype not in INTEGERS:
        return form
    text = form.text.replace("{zero}", literal(0, dtype)[0]).replace("{type}", DTYPES[dtype].c_type)
    return Form(text, form.strength, form.operands)


Text = tuple[str, int]  # C text and how tightly it binds


def apply_form(form: Form, operands: list[Text]) -> Text:
    """Return the text with its holes filled. A form that is nothing but its operand binds as that does."""
    if form.text == "{0}":
        return operands[0]
    filled = [bracket(text, needed) for text, needed in zip(operands, form.operands, strict=False)]
    return form.text.format(*filled), form.strength


def bracket(text: Text, needed: int) -> str:
    """Return the text, in parentheses if it binds looser than `needed`."""
    return f"({text[0]})" if text[1] < needed else text[0]


def convert(text: Text, source: str, target: str) -> Text:
    """Return a value as another dtype."""
    if source == target:
        return text
    if source in SMALL_FLOATS:
        return convert((f"to_float({text[0]})", ATOM), "f32", target)
    if target in SMALL_FLOATS:
        return f"to_{target}({convert(text, source, 'f32')[0]})", ATOM
    if target == "b8":
        return f"{bracket(text, EQUAL)} != 0", EQUAL
    if source in ("f32", "f64") and target in INTEGERS:
        return f"to_{target}({text[0]})", ATOM
    return f"({DTYPES[target].c_type}){bracket(text, UNARY)}", UNARY


def rounded(text: Text, source: str, dtype: str) -> Text:
    """Return a value as an f32 that a float of 16 or 8 bits can hold."""
    return f"round_{dtype}({convert(text, source, 'f32')[0]})", ATOM


def literal(value: Any, dtype: str) -> Text:
    """Return a number of a dtype."""
    if dtype in SMALL_FLOATS:
        return (f"{dtype}{{}}" if value == 0 else f"to_{dtype}({literal(value, 'f32')[0]})"), ATOM
    if dtype == "b8":
        return ("true" if value else "false"), ATOM
    if dtype in INTEGERS:
        text = integer(wrapped(int(value), dtype), dtype == "i64")
        return (f"{DTYPES[dtype].c_type}({text[0]})", ATOM) if dtype in NARROW else text
    number = float(value)
    if dtype == "f64" and not math.isfinite(number):
        name = "double(DPLC_NAN)" if math.isnan(number) else "double(DPLC_INF)"
        return (f"-{name}", UNARY) if number < 0 else (name, ATOM)
    if math.isnan(number):
        return "DPLC_NAN", ATOM
    if dtype != "f64" and abs(number) > 3.4028235677973366e38:  # rounds to infinity in f32
        return ("DPLC_INF", ATOM) if number > 0 else ("-DPLC_INF", UNARY)
    return f"{number!r}{'' if dtype == 'f64' else 'f'}", ATOM if math.copysign(1.0, number) > 0 else UNARY


def integer(value: int, wide: bool = False) -> Text:
    """Return an integer, marked `LL` where an int cannot hold it."""
    if value < -(2**63) + 1:
        return "(-9223372036854775807LL - 1)", ATOM
    if value == -(2**31) and not wide:
        return "(-2147483647 - 1)", ATOM
    suffix = "LL" if wide or not -(2**31) < value < 2**31 else ""
    return f"{value}{suffix}", ATOM if value >= 0 else UNARY
