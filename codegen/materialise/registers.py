"""Values in registers: the replicated axes they vary with, their dtypes, how the kernel reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ...ir.diagnostic import InternalError
from ...ir.expr import Binary, Call, Var, free_names, rebuild
from ...ir.functions import ARITHMETIC, FUNCTIONS
from ...ir.kernel import Element, Replicate
from ...ir.node import Expr, Node, contents, marks_of
from ...ir.program import Block
from ..dtypes import dtype_of, is_index_arithmetic
from .lowering import Held, LateOperand, Lowering, Words
from .ranges import tidied
from .widths import exact


def axes_of(low: Lowering, e: Any, bound: frozenset[str]) -> tuple[str, ...]:
    """The replicated axes that an expression varies with, outermost first, without those that a loop has fixed."""
    found: set[str] = set()
    for name in free_names(e):
        if name in low.replicated:
            found.add(name)
        elif name in low.env:
            found.update(low.env[name].axes)
    return tuple(axis for axis in low.replicated if axis in found and axis not in bound)


def extents(low: Lowering, axes: Iterable[str]) -> tuple[int, ...]:
    return tuple(low.replicated[axis] for axis in axes)


def nest(low: Lowering, axes: tuple[str, ...], body: Block, snake: bool = False) -> Block:
    """The block once for every value of the axes. snake: inner axes run backwards where the outermost is odd."""
    for depth in reversed(range(len(axes))):
        reverse = axes[0] if snake and depth else None
        body = (Replicate(axes[depth], low.replicated[axes[depth]], body, reverse),)
    return body


def varies(low: Lowering, e: Expr, axis: str) -> bool:
    """Whether a value in the expression (not the axis itself) varies with a replicated axis."""
    return any(axis in low.env[name].axes for name in free_names(e) if name in low.env)


def dtype_in(low: Lowering, e: Expr) -> str:
    """The dtype of an expression of the program."""
    return dtype_of(e, partial(type_of, low), "i64")


def type_of(low: Lowering, name: str) -> str:
    value = low.env.get(name)
    return "i64" if value is None else value.dtype


def in_registers(low: Lowering, e: Expr, fixed: Mapping[str, int] | None = None) -> Expr:
    """A value or a condition of the program in registers, with the axes in `fixed` at one value."""
    return exact(read(low, e, fixed), low.ranges)


_CHANGES = marks_of(Binary, Call)


def read(low: Lowering, e: Expr, fixed: Mapping[str, int] | None = None) -> Expr:
    """An expression of the program in registers, index arithmetic in int outside of calls."""
    fixed = fixed or {}
    kind = e.__class__
    if kind is Var:
        value = low.env.get(e.name)
        if value is None:
            return fixed.get(e.name, e)
        if isinstance(value, Words | LateOperand):
            raise InternalError(f"`{e.name}` is an operand of tensor cores: only an Mma reads it")
        return register_of(low, value, fixed) if isinstance(value, Held) else read(low, value.val, fixed)
    if kind is Call:
        integer = FUNCTIONS[e.fn].kind == ARITHMETIC
        return Call(e.fn, tuple(_operand(low, arg, fixed, integer) for arg in e.args))
    if not isinstance(e, Node):
        return e
    names = free_names(e)
    if names.isdisjoint(low.env) and names.isdisjoint(fixed) and not contents(e) & _CHANGES:
        return e  # a sum of names, as most places are
    return tidied(low, rebuild(e, lambda part: read(low, part, fixed)))


def _operand(low: Lowering, e: Expr, fixed: Mapping[str, int], arithmetic: bool) -> Expr:
    """Index arithmetic is i64 as a value; in a kernel it is int until something computes further with it."""
    further = arithmetic and is_index_arithmetic(e, low.env.__contains__)
    value = in_registers(low, e, fixed)
    return value if not further or (value.__class__ is Call and value.fn == "i64") else Call("i64", (value,))


def register_of(low: Lowering, value: Held, fixed: Mapping[str, int] | None = None, skip: tuple[str, ...] = ()) -> Expr:
    """The registers of a value at the current place of its axes, but for the axes in `skip` at the end."""
    index = tuple((fixed or {}).get(axis, Var(axis)) for axis in value.axes if axis not in skip)
    return Element(value.name, index) if index else Var(value.name)
