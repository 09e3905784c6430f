"""Constants of Tensor IR as the numbers that Loop IR has."""

from __future__ import annotations

import math
from typing import Any

from ...ir.dtypes import INTEGERS
from ...ir.expr import Call
from ...ir.tensor import Const


def literal(term: Const) -> Any:
    """The number of a constant, in the kind that its dtype says."""
    if term.dtype == "b8":
        return bool(term.value)
    return int(term.value) if term.dtype in INTEGERS and math.isfinite(term.value) else float(term.value)


def number(term: Const) -> Any:
    """A constant as a value. A bare number is f32 where nothing beside it says otherwise: one of f64 says it."""
    return Call("f64", (literal(term),)) if term.dtype == "f64" else literal(term)


def zero_of(kind: str) -> Any:
    return False if kind == "b8" else 0 if kind in INTEGERS else 0.0
