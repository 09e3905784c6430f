"""The CUDA text of scalar functions and literals: one table, with precedence, so that no parenthesis is spare.

Functions come by the dtype of their operands: floating, integer, bool. A hole `{0}` takes an operand, in parentheses
where that binds looser than the operator.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..ir.diagnostic import InternalError
from ..ir.dtypes import DTYPES, HALVES
from ..ir.functions import wrapped

OR, AND, XOR, BITAND, EQUAL, COMPARE, SHIFT, SUM, TERM, UNARY, ATOM = range(2, 13)
TERNARY = 1
LOG2_E = "1.4426950408889634f"


class Form(NamedTuple):
    """A text with holes, how tightly it binds, and how tightly the operands in the holes must bind."""

    text: str
    strength: int = ATOM
    operands: tuple[int, ...] = (0, 0, 0)


def _infix(op: str, strength: int) -> Form:
    return Form("{0} " + op + " {1}", strength, (strength, strength + 1))


_CALL1, _CALL2 = "{}({{0}})".format, "{}({{0}}, {{1}})".format

FLOATING: dict[str, Form] = {
    "add": _infix("+", SUM), "subtract": _infix("-", SUM), "multiply": _infix("*", TERM), "divide": _infix("/", TERM),
    "floor_divide": Form(_CALL2("floor_div")), "remainder": Form(_CALL2("floor_mod")),
    "fmod": Form(_CALL2("fmodf")), "maximum": Form(_CALL2("max_nan")), "minimum": Form(_CALL2("min_nan")),
    "pow": Form(_CALL2("powf")), "atan2": Form(_CALL2("atan2f")), "hypot": Form(_CALL2("hypotf")),
    "negative": Form("-{0}", UNARY, (ATOM,)),
    "abs": Form(_CALL1("fabsf")), "sign": Form(_CALL1("sign")), "relu": Form("max_nan({0}, 0.0f)"),
    # exp as one multiplication and one instruction; good to about 1e-6 relative where exp is within the range of f32
    "exp": Form("exp2_approx({0} * " + LOG2_E + ")", ATOM, (TERM,)), "exp2": Form(_CALL1("exp2_approx")),
    "rsqrt": Form(_CALL1("rsqrt_approx")), "reciprocal": Form(_CALL1("rcp_approx")),
    "sigmoid": Form("rcp_approx(1.0f + exp2_approx({0} * -" + LOG2_E + "))", ATOM, (TERM,)),
    "round": Form(_CALL1("rintf")), "isnan": Form("(bool)isnan({0})", UNARY), "isinf": Form("(bool)isinf({0})", UNARY),
    **{fn: Form(_CALL1(fn + "f")) for fn in (
        "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
        "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc",
    )},
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
}  # fmt: skip

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

INTEGERS = ("i32", "i64")


def form_of(fn: str, dtype: str) -> Form:
    """The text of a function on operands of a dtype. Raises InternalError where there is none."""
    table = FLOATING if dtype == "f32" else BOOL if dtype == "b8" else INTEGER
    form = table.get(fn) or ANY.get(fn)
    if form is None:
        raise InternalError(f"no CUDA text for `{fn}` on {dtype}")
    return Form(form.text.replace("{zero}", "0LL" if dtype == "i64" else "0"), form.strength, form.operands)


Text = tuple[str, int]  # C text and how tightly it binds


def apply_form(form: Form, operands: list[Text]) -> Text:
    """The text with its holes filled. A form that is nothing but its operand binds as that does."""
    if form.text == "{0}":
        return operands[0]
    filled = [bracket(text, needed) for text, needed in zip(operands, form.operands, strict=False)]
    return form.text.format(*filled), form.strength


def bracket(text: Text, needed: int) -> str:
    """The text, in parentheses if it binds looser than `needed`."""
    return f"({text[0]})" if text[1] < needed else text[0]


def convert(text: Text, source: str, target: str) -> Text:
    """A value as another dtype."""
    if source == target:
        return text
    if source in HALVES:
        return convert((f"to_float({text[0]})", ATOM), "f32", target)
    if target in HALVES:
        return f"to_{target}({convert(text, source, 'f32')[0]})", ATOM
    if target == "b8":
        return f"{bracket(text, EQUAL)} != 0", EQUAL
    if source == "f32" and target in INTEGERS:
        return f"to_{target}({text[0]})", ATOM
    return f"({DTYPES[target].c_type}){bracket(text, UNARY)}", UNARY


def rounded(text: Text, source: str, dtype: str) -> Text:
    """A value as an f32 that f16 or bf16 can hold."""
    return f"round_{dtype}({convert(text, source, 'f32')[0]})", ATOM


def literal(value: Any, dtype: str) -> Text:
    """A number of a dtype."""
    if dtype in HALVES:
        return (f"{dtype}{{}}" if value == 0 else f"to_{dtype}({literal(value, 'f32')[0]})"), ATOM
    if dtype == "b8":
        return ("true" if value else "false"), ATOM
    if dtype in INTEGERS:
        return integer(wrapped(int(value), dtype), dtype == "i64")
    number = float(value)
    if math.isnan(number):
        return "DPLC_NAN", ATOM
    if math.isinf(number) or abs(number) > 3.4028235677973366e38:  # rounds to infinity in f32
        return ("DPLC_INF", ATOM) if number > 0 else ("-DPLC_INF", UNARY)
    return f"{number!r}f", ATOM if math.copysign(1.0, number) > 0 else UNARY


def integer(value: int, wide: bool = False) -> Text:
    """An integer, marked `LL` where an int cannot hold it."""
    if value < -(2**63) + 1:
        return "(-9223372036854775807LL - 1)", ATOM
    if value == -(2**31) and not wide:
        return "(-2147483647 - 1)", ATOM
    suffix = "LL" if wide or not -(2**31) < value < 2**31 else ""
    return f"{value}{suffix}", ATOM if value >= 0 else UNARY
