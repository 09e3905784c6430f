"""What divides the values of index expressions: how far addresses are aligned, whatever the program counts."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from ..expr import Binary, Call, Size, Sum, Var, is_int
from ..kernel import Assign, Define
from ..node import Expr, nodes
from ..program import Block


def counters(block: Block) -> dict[str, int]:
    """A divisor of every value that an integer register takes: the slots of a ring are multiples of one slot."""
    found: dict[str, int] = {}
    for stmt in nodes(block, Define, Assign):  # type: ignore[type-var]
        place = Var(stmt.dst) if isinstance(stmt, Define) else stmt.place  # type: ignore[attr-defined]
        counts = isinstance(place, Var) and (place.name in found or getattr(stmt, "dtype", None) == "i32")
        if counts:
            step = divisor(stmt.val, {**found, place.name: 0})  # type: ignore[attr-defined]
            found[place.name] = gcd(found.get(place.name, 0), step)
    return found


def divisor(e: Expr, strides: Mapping[str, int]) -> int:
    """A number that divides every value of an expression; 0 for the number 0."""
    if is_int(e):
        return abs(e)  # type: ignore[no-any-return]
    if isinstance(e, Var):
        return strides.get(e.name, 1)
    if isinstance(e, Size):
        return e.multiple
    if isinstance(e, Binary) and e.op == "*":
        return divisor(e.a, strides) * divisor(e.b, strides)
    if isinstance(e, Sum):
        return gcd(e.constant, *(factor * divisor(atom, strides) for atom, factor in e.terms))
    if isinstance(e, Binary) and e.op == "%":
        return gcd(divisor(e.a, strides), divisor(e.b, strides))
    if isinstance(e, Binary) and e.op == "^":  # low bits that are zero in both stay so; 3 divides 24, not 24 ^ 9
        both = divisor(e.a, strides) | divisor(e.b, strides)
        return both & -both
    if isinstance(e, Binary) and e.op == "//" and is_int(e.b):
        whole, rest = divmod(divisor(e.a, strides), e.b)  # type: ignore[operator]
        return 1 if rest else whole
    if isinstance(e, Call) and e.fn == "where":
        return gcd(divisor(e.args[1], strides), divisor(e.args[2], strides))
    return 1
