"""Expressions in which each level reads the one below twice, and the calls that a function makes of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from dplc.ir import expr
from dplc.ir.expr import Call, Var

DEPTH = 24  # levels: as a tree, an expression has at least 2**24 nodes
GROWTH = 3  # of the calls for twice the levels
MOST = 3_000_000  # calls

# f of x_{k+1} = f(x_k, x_k), by what it is built from
GROWING: dict[str, Callable[[Any], Any]] = {
    "calls": lambda x: Call("maximum", (x, Call("negative", (x,)))),
    "products": lambda x: expr.multiply(x, x),
    "bits": lambda x: expr.xor(expr.floordiv(x, 3), expr.modulo(x, 5)),
    "sums": lambda x: expr.floordiv(expr.add(expr.multiply(x, 3), expr.modulo(expr.add(x, 1), 4)), 4),
    "quotients": lambda x: expr.add(expr.floordiv(x, 3), expr.modulo(x, 5)),
    "remainders of sums": lambda x: expr.modulo(expr.add(expr.floordiv(x, 4), expr.multiply(x, 3)), 7),
    "conditions": lambda x: expr.either(expr.both(x, expr.compare("<", Var("x"), 3)), expr.invert(x)),
    "choices": lambda x: Call("where", (expr.compare("<", x, 5), x, Call("minimum", (x, 7)))),
}


def grown(family: str, leaf: Any, depth: int) -> Any:
    """Return an expression in which each level reads the one below twice."""
    e = expr.compare("<", leaf, 4) if family == "conditions" else leaf
    for _ in range(depth):
        e = GROWING[family](e)
    return e


class TooMany(Exception):
    """More calls than the nodes allow."""


def calls_of(function: Callable[[], Any], limit: int) -> int:
    """Return the calls that a function makes. Raises TooMany beyond a limit, because the work would never end."""
    made = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        made += event == "call" or event == "c_call"
        if made > limit and frame.f_code.co_name != "forget":  # Python ignores what a weak reference's callback raises
            raise TooMany

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return made
