"""The dtype of an expression, and of the operands of a scalar function. Literals are weak, as numbers are in torch.

A value of a float of 16 or 8 bits is an f32 in its register: a load widens it, a store rounds it, a cast to the dtype
rounds it on the spot. Only a copy that computes nothing has registers of the dtype itself.

Index arithmetic is i64 as a value of a program, and i32 in a kernel, where it is known to fit: `index` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.dtypes import INTEGERS
from ..ir.expr import Binary, Call, Sum, Var
from ..ir.facts.structure import LITERALS, expr_dtype
from ..ir.functions import (
    ARITHMETIC,
    BITS,
    CAST,
    COMPARE,
    FLOAT,
    FUNCTIONS,
    LOGICAL,
    SELECT,
    literal_dtype,
    opmath,
    promote,
)
from ..ir.node import Expr

TypeOf = Callable[[str], str]  # the dtype of a name


def is_literal(e: Expr) -> bool:
    return e.__class__ in LITERALS


def dtype_of(e: Expr, type_of: TypeOf, index: str) -> str:
    """Return the dtype of an expression in registers."""
    found = expr_dtype(e, type_of, index)
    return opmath(found) if e.__class__ is Call else found


def operand_dtypes(call: Any, type_of: TypeOf) -> list[str]:
    """Return the dtype to which a kernel converts each operand of a Call."""
    kind = FUNCTIONS[call.fn].kind
    if kind == SELECT:
        return ["b8", *_common(call.args[1:], type_of)]
    if kind == LOGICAL:
        return ["b8"] * len(call.args)
    if kind == CAST:
        return _own(call.args, type_of)
    common = _common(call.args, type_of)
    if kind == FLOAT and common[0] in ("b8", *INTEGERS):
        return ["f32"] * len(common)
    assert kind in (ARITHMETIC, BITS, COMPARE, FLOAT)
    return common


def _own(args: Sequence[Expr], type_of: TypeOf) -> list[str]:
    own = [None if is_literal(arg) else dtype_of(arg, type_of, "i32") for arg in args]
    strong = [opmath(dtype) for dtype in own if dtype is not None]
    return [dtype or literal_dtype(arg, strong) for arg, dtype in zip(args, own, strict=True)]


def _common(args: Sequence[Expr], type_of: TypeOf) -> list[str]:
    return [promote(*_own(args, type_of))] * len(args)


def is_index_arithmetic(e: Expr, is_value: Callable[[str], bool]) -> bool:
    """Return whether an expression computes with axes and loop variables rather than with values."""
    kind = e.__class__
    return kind is Sum or (kind is Var and not is_value(e.name)) or (kind is Binary and e.op in ("*", "//", "%", "^"))
