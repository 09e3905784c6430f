"""Extents of an artefact's buffers that are made of sizes, `s*2048`: a text of names, whole numbers and + - * // %."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from ...ir.diagnostic import DplcError
from ...ir.node import Node
from ...ir.text.print_statements import print_expr

MOST = 2**48  # elements of any buffer
ExtentText = Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9_ +*/%()-]+\Z")]

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def extent_record(extent: Any) -> int | str:
    """An extent as a plan holds it."""
    return print_expr(extent) if isinstance(extent, Node) else int(extent)


def extent_at(extent: int | str, sizes: Mapping[str, int]) -> int:
    """The number that an extent is where sizes are numbers. Raises DplcError for what is none."""
    if isinstance(extent, int):
        return extent
    try:
        found = _value(_tree(extent), sizes)
    except (KeyError, ZeroDivisionError, RecursionError):
        found = -1
    if not 0 <= found <= MOST:
        raise DplcError(f"`{extent}` is no extent made of {', '.join(sizes) or 'no sizes'}")
    return found


@functools.lru_cache(4096)
def _tree(text: str) -> ast.expr:
    """What a text says, which is parsed and never evaluated by Python. Raises DplcError."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise DplcError(f"`{text}` is no extent") from None


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    """Raises KeyError for what is no name of a size, and for any other thing."""
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_value(tree.operand, sizes)
    if isinstance(tree, ast.BinOp):
        return _OPERATIONS[type(tree.op)](_value(tree.left, sizes), _value(tree.right, sizes))
    raise KeyError(tree)
