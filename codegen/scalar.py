"""The CUDA text of scalar functions (the table is `scalar.toml`) and literals, with no parenthesis that is spare."""

from __future__ import annotations

import math
import re
from itertools import chain, repeat
from typing import Any, NamedTuple

from ..ir.diagnostic import InternalError
from ..ir.dtypes import DTYPES, INTEGERS, NARROW, SMALL_FLOATS, toml_table
from ..ir.functions import wrapped

STRENGTHS = ("ternary", "or", "and", "xor", "bitand", "equal", "compare", "shift", "sum", "term", "unary", "atom")
_, OR, AND, XOR, BITAND, EQUAL, COMPARE, SHIFT, SUM, TERM, UNARY, ATOM = range(len(STRENGTHS))
LOOSEST = 0
_INFIX = re.compile(r"\{0\} \S+ \{1\}")


class Form(NamedTuple):
    """A text with holes, how tightly it binds, and how tightly the operands in the holes must bind."""

    text: str
    strength: int = ATOM
    operands: tuple[int, ...] = ()


def _form(written: Any) -> Form:
    """Return an entry of `scalar.toml`: a text, or a list of a text and how tightly it and its operands bind."""
    text, *words = [written] if isinstance(written, str) else written
    strength, *operands = map(STRENGTHS.index, words or ["atom"])
    return Form(text, strength, (strength, strength + 1) if _INFIX.fullmatch(text) else tuple(operands))


_FORMS: dict[str, dict[str, Form]] = {
    name: {fn: _form(written) for fn, written in forms.items()}
    for name, forms in toml_table(__package__, "scalar").items()
}
FLOATING, INTEGER, BOOL, ANY = (_FORMS[name] for name in ("floating", "integer", "bool", "any"))
TABLES = {
    "f32": FLOATING, "f64": FLOATING | _FORMS["double"], "b8": BOOL,
    **dict.fromkeys(NARROW, INTEGER | _FORMS["narrow"]),
}  # fmt: skip


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
    filled = map(bracket, operands, chain(form.operands, repeat(LOOSEST)))
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
