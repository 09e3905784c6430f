"""The dtype of an expression, and of the operands of a scalar function. Literals are weak, as numbers are in torch.

A value of a float of 16 or 8 bits is an f32 in its register: a load widens it, a store rounds it, a cast to the dtype
rounds it on the spot. Only a copy that computes nothing has registers of the dtype itself.

Index arithmetic is i64 as a value of a program, and i32 in a kernel, where it is known to fit: `index` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.dtypes import INTEGERS
from ..ir.expr import Call
from ..ir.facts.structure import LITERALS, expr_dtype
from ..ir.functions import CAST, FLOAT, FUNCTIONS, LOGICAL, SELECT, literal_dtype, opmath, promote
from ..ir.node import Expr

TypeOf = Callable[[str], str]  # the dtype of a name


def is_literal(e: Expr) -> bool:
    return e.__class__ in LITERALS


def dtype_of(e: Expr, type_of: TypeOf, index: str) -> str:
    """Return the dtype of an expression in registers."""
    found = expr_dtype(e, type_of, index)
    return opmath(found) if e.__class__ is Call else found


def operand_dtypes(call: Any, type_of: TypeOf, index: str) -> list[str]:
    """Return the dtype to which a kernel converts each operand of a Call. index: the dtype of index arithmetic."""
    kind = FUNCTIONS[call.fn].kind
    if kind == LOGICAL:
        return ["b8"] * len(call.args)
    chosen = call.args[1:] if kind == SELECT else call.args
    own = [None if is_literal(arg) else dtype_of(arg, type_of, index) for arg in chosen]
    strong = [opmath(dtype) for dtype in own if dtype is not None]
    found = [dtype or literal_dtype(arg, strong) for arg, dtype in zip(chosen, own, strict=True)]
    if kind == CAST:
        return found
    common = promote(*found)
    if kind == FLOAT and common in ("b8", *INTEGERS):
        common = "f32"
    return [*["b8"] * (kind == SELECT), *[common] * len(chosen)]
