"""Arithmetic that is done while a text is read: what cannot be computed is told with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..diagnostic import DplcError
from . import syntax as s
from .parse import LARGEST_INT

LARGEST_EXTENT = 2**48


def calculated(node: s.Syntax, compute: Callable[..., Any], *operands: Any) -> Any:
    """compute(*operands). Raises DplcError at the node where it gives nothing, or an integer of more than 64 bits."""
    try:
        found = compute(*operands)
    except ZeroDivisionError:
        raise DplcError("division by zero", node.span) from None
    except (TypeError, ArithmeticError, ValueError) as error:
        raise DplcError(str(error), node.span) from None
    if found.__class__ is int and not -LARGEST_INT <= found < LARGEST_INT:
        raise DplcError("this number is too large: an integer has 64 bits", node.span)
    return found


def extent(node: s.Syntax, value: Any, least: int = 0) -> Any:
    """An extent as it was read: a whole number that memory could hold, or an expression. Raises DplcError."""
    if value.__class__ is float or value.__class__ is bool or value is None:
        raise DplcError(f"an extent is a whole number, not {str(value).lower()}", node.span)
    if value.__class__ is int and not least <= value <= LARGEST_EXTENT:
        raise DplcError(f"an extent is {least} to 2^48, not {value}", node.span)
    return value
