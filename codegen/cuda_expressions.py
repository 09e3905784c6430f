"""The CUDA text of Kernel IR expressions, typed as it goes: values, places of registers, addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.dtypes import DTYPES, SMALL_FLOATS
from ..ir.expr import COMPARISONS, Binary, Call, Not, Size, Sum, Var, is_int
from ..ir.functions import CAST, FUNCTIONS, HELD
from ..ir.kernel import Address, Element
from ..ir.node import Expr
from ..ir.program import Kernel
from . import scalar
from .dtypes import dtype_of, is_literal, operand_dtypes
from .scalar import (
    ATOM,
    BITAND,
    SHIFT,
    SUM,
    TERM,
    UNARY,
    Text,
    apply_form,
    bracket,
    convert,
    form_of,
    rounded,
)

_BINARY = {"and": ("&&", scalar.AND), "or": ("||", scalar.OR), "==": ("==", scalar.EQUAL), "!=": ("!=", scalar.EQUAL)}
_BINARY |= {op: (op, scalar.COMPARE) for op in COMPARISONS if op not in _BINARY}


class ExpressionPrinter:
    """Prints the expressions of one kernel. names: the identifier of every name."""

    def __init__(self, kernel: Kernel, names: Mapping[str, str]):
        self.names = names
        self.taken = set(names.values())
        self.dtypes: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.pointers = {param.name: DTYPES[param.dtype].c_type + "*" for param in kernel.outs}
        self.pointers |= {param.name: f"const {DTYPES[param.dtype].c_type}*" for param in kernel.ins}

    def type_of(self, name: str) -> str:
        return self.dtypes.get(name, "i32")

    def dtype(self, e: Expr) -> str:
        return dtype_of(e, self.type_of, "i32")

    def text(self, e: Expr, needed: int = 0) -> str:
        """An expression, in parentheses if it binds looser than `needed`."""
        return bracket(self.expr(e), needed)

    def value(self, e: Expr, dtype: str) -> Text:
        """An expression as a value of a dtype."""
        e = unrounded(e, dtype)
        return scalar.literal(e, dtype) if is_literal(e) else convert(self.expr(e), self.dtype(e), dtype)

    def expr(self, e: Any) -> Text:
        kind = e.__class__
        if kind is Var or kind is Size:
            return self.names[e.name], ATOM
        if kind is Element:
            return self.names[e.name] + "".join(f"[{self.text(i)}]" for i in e.index), ATOM
        if kind is Sum:
            return self.sum(e, None)
        if kind is Binary:
            return self.binary(e)
        if kind is Call:
            return self.call(e)
        if kind is Not:
            return f"!{self.text(e.a, UNARY)}", UNARY
        return scalar.literal(e, self.dtype(e)) if not is_int(e) else scalar.integer(e)

    def sum(self, e: Any, first: str | None) -> Text:
        """The terms of a sum behind a first one; division by constants of powers of two is a shift."""
        text = first or ""
        for atom, factor in e.terms:
            size = abs(factor)
            part = self.text(atom, TERM) if size == 1 else f"{self.text(atom, TERM)} * {scalar.integer(size)[0]}"
            sign = "-" if factor < 0 else "+"
            text = f"{text} {sign} {part}" if text else (f"-{part}" if factor < 0 else part)
        if e.constant:
            number = scalar.integer(abs(e.constant))[0]
            text = f"{text} {'-' if e.constant < 0 else '+'} {number}"
        if len(e.terms) > 1 or e.constant or first is not None:
            return text, SUM
        negated = e.terms[0][1] == -1 and self.expr(e.terms[0][0])[1] != TERM
        return text, UNARY if negated else TERM  # -a*b binds as a product does

    def plus(self, first: str, e: Expr) -> str:
        """`first + e`, without a trailing `+ 0`."""
        if e.__class__ is int:
            return first if e == 0 else f"{first} {'-' if e < 0 else '+'} {scalar.integer(abs(e))[0]}"
        return self.sum(e, first)[0] if e.__class__ is Sum else f"{first} + {self.text(e, TERM)}"

    def binary(self, e: Any) -> Text:
        if e.op in _BINARY:
            op, strength = _BINARY[e.op]
            return f"{self.text(e.a, strength)} {op} {self.text(e.b, strength + 1)}", strength
        if e.op == "^":
            return f"{self.text(e.a, TERM)} ^ {self.text(e.b, TERM)}", scalar.XOR
        power = is_int(e.b) and e.b > 0 and e.b & (e.b - 1) == 0
        if e.op == "//" and power:
            return f"{self.text(e.a, TERM)} >> {e.b.bit_length() - 1}", SHIFT
        if e.op == "%" and power:
            return f"{self.text(e.a, TERM)} & {e.b - 1}", BITAND
        op = "/" if e.op == "//" else e.op
        return f"{self.text(e.a, TERM)} {op} {self.text(e.b, UNARY)}", TERM

    def call(self, e: Any) -> Text:
        operands = operand_dtypes(e, self.type_of, "i32")
        texts = [self.value(arg, dtype) for arg, dtype in zip(e.args, operands, strict=True)]
        if e.fn in SMALL_FLOATS:
            return rounded(texts[0], operands[0], e.fn)
        if e.fn in HELD:
            return convert(texts[0], operands[0], "f32")
        if FUNCTIONS[e.fn].kind == CAST:
            whole = e.fn == "f64" and is_literal(e.args[0])
            return scalar.literal(e.args[0], "f64") if whole else convert(texts[0], operands[0], e.fn)
        return apply_form(form_of(e.fn, operands[-1]), texts)

    def address(self, address: Address) -> str:
        base = self.names[address.base]
        if address.xor.__class__ is int and address.xor == 0:
            return self.plus(base, address.offset)
        flipped = f"{base} ^ {self.text(address.xor, TERM)}"
        alone = address.offset.__class__ is int and address.offset == 0
        return flipped if alone else self.plus(f"({flipped})", address.offset)  # C's + binds tighter than ^

    def is_shared(self, name: str) -> bool:
        return name not in self.pointers


def unrounded(e: Any, dtype: str) -> Any:
    """What is rounded to a float of 16 or 8 bits, where the conversion to that dtype does it anyhow."""
    return e.args[0] if dtype in SMALL_FLOATS and e.__class__ is Call and e.fn == dtype else e
