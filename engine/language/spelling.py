"""Syntax to canonical text: a table, `spelling.toml`, has the form of each class of nodes."""

from __future__ import annotations

from functools import cache
from string import Formatter

from ...ir.dtypes import toml_table
from ...ir.text import equations as eq
from ...ir.text.syntax import (
    Assign,
    Choice,
    Chosen,
    Comprehension,
    ForLoop,
    Group,
    LetExpression,
    Nodes,
    Number,
    Operation,
    Prefix,
    SizeItem,
    Syntax,
)

INDENT = "    "
# Binding strength, loosest first.
_TERNARY, _OR, _AND, _NOT, _COMPARE, _SUM, _TERM, _UNARY, _POST = range(9)
_STRENGTH = {
    "or": _OR, "and": _AND, "in": _COMPARE, "not in": _COMPARE,
    "+": _SUM, "-": _SUM, "*": _TERM, "//": _TERM, "%": _TERM, "^": _TERM,
}  # fmt: skip
_AT_LEAST = {None: _TERNARY, "o": _OR, "s": _SUM, "p": _POST}
_EACH = "{variable} in {domain!o}{condition!o: if }"
FORMS: dict[str, str] = toml_table(__package__, "spelling")  # by the class of nodes
_CLOSE = {"(": ")", "[": "]", "{": "}"}


def block(statements: Nodes) -> list[str]:
    """Return the lines of statements, indented by one level."""
    return [INDENT + line for node in statements for line in statement(node)]


def statement(node: Syntax) -> list[str]:
    """Return the lines of a statement, a clause or a declaration."""
    head, body = expression(node), getattr(node, "body", None)
    return [head] if body is None else [f"{head}:", *block(body)]


def items(nodes: Nodes) -> str:
    return ", ".join(map(expression, nodes))


def expression(node: Syntax, strength: int = _TERNARY) -> str:
    """Return an expression or item, or the head of a statement; in parentheses if it binds looser than `strength`."""
    text = _text(node)
    if strength == _TERNARY:
        return text
    match node:
        case Operation():
            own = _STRENGTH.get(node.op, _COMPARE)
        case Choice() | Chosen() | LetExpression():
            own = _TERNARY
        case Prefix() | Number():
            own = _NOT if text.startswith("not ") else _UNARY if text.startswith("-") else _POST
        case _:
            return text
    return f"({text})" if own < strength else text


def _text(node: Syntax) -> str:
    match node:
        case Number():
            return repr(node.value)
        case Operation():
            own = _STRENGTH.get(node.op, _COMPARE)
            left, right = expression(node.a, own + (own == _COMPARE)), expression(node.b, own + 1)
            return f"{left}*{right}" if node.op == "*" else f"{left} {node.op} {right}"
        case Prefix():
            return f"not {expression(node.a, _NOT)}" if node.op == "not" else f"-{expression(node.a, _UNARY)}"
        case Group():
            return f"{node.bracket}{items(node.items)}{_CLOSE[node.bracket]}"
        case Comprehension():
            return f"{node.bracket}{spelled(node, '{element} for ' + _EACH)}{_CLOSE[node.bracket]}"
        case Chosen():
            return f"choose {spelled(node.costs, _EACH)} {node.word} {expression(node.costs.element)}"
        case SizeItem():
            step = "{multiple: by }" if node.multiple != 1 else ""
            return spelled(node, "{name}: {low}..{high}" + step + "{hint: hint }")
        case Assign():
            types = ": ({types})" if len(node.types) > 1 else "{types:: }"
            return spelled(node, "{target}" + types + " = {value}")
        case ForLoop() | eq.PartLoop():
            bounds = " in {start!s}..{stop!s}{step!s: by }" if isinstance(node, ForLoop) else ""
            return " ".join([spelled(node, "for {var}" + bounds), *map(expression, node.attributes)])
    return spelled(node, FORMS[type(node).__name__])


def spelled(node: Syntax, form: str) -> str:
    """Return the text of a node in a form."""
    text = ""
    for literal, field, word, strength in _pieces(form):
        value = getattr(node, field) if field else None
        if isinstance(value, Syntax):
            value = expression(value, _AT_LEAST[strength])
        elif isinstance(value, tuple):
            value = items(value)
        text += literal if value in (None, "") else f"{literal}{word}{value}"
    return text


@cache
def _pieces(form: str) -> list[tuple[str, str | None, str | None, str | None]]:
    return [*Formatter().parse(form)]
