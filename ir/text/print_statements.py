"""Expressions, values and statements to text. Derived from the node classes: a field at its default is not printed."""

from __future__ import annotations

import math
from typing import Any

from .. import expr as e
from ..kernel import Element
from ..loop import Accumulate, For, If, Let, Load, Merge, Store
from ..node import CLASSES, WEIGHT, Expr, Node, contents, replace, with_parts
from ..program import Param, Stmt, TensorType

INDENT = "    "
SHOWN_LEVELS = 5  # of a large expression in a message
# Binding strength, loosest first.
_OR, _AND, _NOT, _COMPARE, _SUM, _TERM, _UNARY, _ATOM = range(1, 9)
_STRENGTH = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(e.COMPARISONS, _COMPARE),
    "*": _TERM,
    "//": _TERM,
    "%": _TERM,
    "^": _TERM,
}


def print_expr(value: Expr, strength: int = 0) -> str:
    """Print an expression, in parentheses if it binds looser than `strength`."""
    text, own = _expr(value)
    return f"({text})" if own < strength else text


def _expr(value: Any) -> tuple[str, int]:
    kind = value.__class__
    if kind is e.Var or kind is e.Size:
        return value.name, _ATOM
    if kind is e.Sum:
        return _sum(value)
    if kind is int or kind is float:
        return print_number(value), _ATOM if value >= 0 else _UNARY
    if kind is e.Binary:
        own = _STRENGTH[value.op]
        # both operands of a comparison are sums; the right operand of a product is an atom
        left = print_expr(value.a, own + 1 if own == _COMPARE else own)
        if own == _TERM and value.a.__class__ is e.Binary and value.a.op != value.op:
            left = print_expr(value.a, _ATOM)
        right = print_expr(value.b, own + 1)
        return (f"{left}*{right}" if value.op == "*" else f"{left} {value.op} {right}"), own
    if kind is e.Call:
        return f"{value.fn}({', '.join(map(print_expr, value.args))})", _ATOM
    if kind is e.Not:
        return f"not {print_expr(value.a, _NOT)}", _NOT
    if kind is Element:
        return f"{value.name}[{', '.join(map(print_expr, value.index))}]", _ATOM
    return print_value(value), _ATOM


def _sum(value: Any) -> tuple[str, int]:
    text = ""
    for atom, n in value.terms:
        size = abs(n)
        part = print_expr(atom, _TERM) if size == 1 else f"{print_expr(atom, _ATOM)}*{size}"
        if not text:
            text = part if n > 0 else f"-{print_expr(atom, _ATOM)}" + (f"*{size}" if size != 1 else "")
        else:
            text += f" {'+' if n > 0 else '-'} {part}"
    if value.constant:
        text += f" {'+' if value.constant > 0 else '-'} {abs(value.constant)}"
    return text, _TERM if len(value.terms) == 1 and not value.constant else _SUM


def print_number(value: int | float) -> str:
    if isinstance(value, float):
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        if math.isnan(value):
            return "nan"
    return repr(value)


def print_value(value: Any) -> str:
    """Print any field value: numbers, names, text, lists, axes, nested nodes."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"({', '.join(map(print_value, value))}{',' if len(value) == 1 and isinstance(value[0], tuple) else ''})"
    if isinstance(value, str):
        return value
    kind = value.__class__
    if kind is e.Axis:
        return print_axis(value)
    if kind is Param:
        return f"{value.name}: {value.dtype}[{', '.join(map(print_expr, value.shape))}]"
    if kind is TensorType:
        return f"{value.dtype}[{', '.join(map(print_expr, value.shape))}]"
    if isinstance(value, (int, float, e.Var, e.Size, e.Sum, e.Binary, e.Call, e.Not, Element)):
        return print_expr(value)
    return _call(value) if isinstance(value, Node) else str(value)


def print_axis(axis: e.Axis) -> str:
    text = f"{axis.name}:{print_expr(axis.extent, _SUM)}"
    if axis.role is not None:
        text += f"={axis.role}"
    if axis.dim is not None:
        text += f"@{axis.dim}"
    return text + (f" by {axis.stride}" if axis.stride != 1 else "")


def _call(node: Any) -> str:
    """Print `Op(positional.., field=value)` by the schema."""
    cls = type(node)
    positional = getattr(cls, "positional", ())
    parts = []
    for name in positional:
        value = getattr(node, name)
        parts += list(map(print_value, value)) if cls.by_name[name].many else [print_value(value)]
    for field in cls.fields:
        value = getattr(node, field.name)
        if field.name not in ("dst", "body", *positional) and not _same(value, field.default):
            parts.append(f"{field.name}={print_value(value)}")
    return f"{cls.__name__}({', '.join(parts)})"


def _same(value: Any, default: Any) -> bool:
    return value is default or (value.__class__ is default.__class__ and value == default)


def print_statement(stmt: Any, depth: int = 0) -> str:
    """Print a statement with its block, indented by `depth` levels, without a newline at the end."""
    lead = INDENT * depth
    kind = stmt.__class__
    index = ", ".join(map(print_expr, stmt.idx)) if kind in (Load, Store) else ""
    if kind is For:
        step = "" if stmt.step == 1 else f" by {print_expr(stmt.step, _SUM)}"
        unroll = "" if stmt.unroll == 1 else f" unroll={stmt.unroll}"
        bounds = f"{print_expr(stmt.start, _SUM)}..{print_expr(stmt.stop, _SUM)}"
        head = f"for {stmt.var} in {bounds}{step} {stmt.role}{unroll}"
    elif kind is If:
        head = f"if {print_expr(stmt.cond)}"
    elif kind is Load:
        guard = (
            ""
            if stmt.when is True and stmt.other == 0
            else f" if {print_expr(stmt.when, _OR)} else {print_expr(stmt.other)}"
        )
        return f"{lead}{stmt.dst} = load {stmt.buf}[{index}]{guard}"
    elif kind is Let:
        return f"{lead}{stmt.dst} = {print_value(stmt.val)}"
    elif kind is Accumulate:
        return f"{lead}{stmt.acc} <- {stmt.fn}({stmt.acc}, {print_value(stmt.val)})"
    elif kind is Merge:
        accs = f"({', '.join(stmt.accs)})"
        return f"{lead}{accs} <- {stmt.fn}({accs}, ({', '.join(map(print_value, stmt.vals))}))"
    elif kind is Store:
        return f"{lead}{stmt.buf}[{index}] = {print_value(stmt.val)}"
    else:
        head = (f"{stmt.dst} = " if hasattr(stmt, "dst") else "") + _call(stmt)
    body = getattr(stmt, "body", None)
    return f"{lead}{head}" if body is None else f"{lead}{head}:\n{print_block(body, depth + 1)}"


def print_head(part: Any) -> str:
    """Return an expression, or the first line of a statement, for a message: `..` is for what is deep in a large one.

    The text of an expression whose parts are shared may be exponentially longer than the expression.
    """
    if hasattr(part, "body"):
        part = replace(part, body=())
    if isinstance(part, Node) and contents(part) & WEIGHT == WEIGHT:
        part = _shallow(part, SHOWN_LEVELS)
    text = print_statement(part) if isinstance(part, Stmt) else print_expr(part)
    return text.split("\n")[0]


def _shallow(part: Any, levels: int) -> Any:
    """Return a node, or nodes, with `..` for the nodes that are so many levels below."""
    if part.__class__ is tuple:
        return tuple(_shallow(item, levels) for item in part)
    if part.__class__ not in CLASSES:
        return part
    return with_parts(part, lambda below: _shallow(below, levels - 1)) if levels else e.Var("..")


def print_block(block: tuple[Any, ...], depth: int = 0) -> str:
    return "\n".join(print_statement(stmt, depth) for stmt in block) or f"{INDENT * depth}pass"
