"""What index arithmetic is computed in: int where the ranges say that nothing leaves it, else 64 bits.

An `i64(..)` around a part is what widens an expression; C computes the rest of it in as many bits.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import COMPARISONS, Binary, Call, Not, Sum, from_linear, multiply, rebuild
from ...ir.node import Expr, Node
from ...ir.ranges import Ranges, interval

INT_LIMIT = 2**31


def widen(e: Expr, ranges: Ranges) -> Expr:
    """An offset computed in 64 bits where 32 may not hold a part of it. A pointer takes its terms one at a time."""
    if e.__class__ is Sum:
        parts = [(_widened(atom, factor, ranges), factor) for atom, factor in e.terms]
        return from_linear(dict(parts), e.constant)
    return _widened(e, 1, ranges) if isinstance(e, Node) else e


def _widened(atom: Any, factor: int, ranges: Ranges) -> Expr:
    """An atom of a sum, in 64 bits if it, what it is computed from, or its multiple may leave an int."""
    if not fits(atom, ranges):
        return wide(atom, ranges)
    lowest, highest = interval(atom, ranges)
    small = max(abs(lowest * factor), abs(highest * factor)) < INT_LIMIT
    return atom if small else Call("i64", (atom,))


def exact(e: Expr, ranges: Ranges) -> Expr:
    """A value or a condition, with the arithmetic that 32 bits may not hold in 64."""
    kind = e.__class__
    if kind is Not or (kind is Binary and (e.op in COMPARISONS or e.op in ("and", "or"))):
        return rebuild(e, lambda part: exact(part, ranges))
    return e if (kind is not Sum and kind is not Binary) or fits(e, ranges) else wide(e, ranges)


def wide(e: Any, ranges: Ranges) -> Expr:
    """e computed in 64 bits: from parts of 64 bits where it is itself computed from what an int may not hold."""
    if not isinstance(e, Node) or (e.__class__ is Call and e.fn == "i64"):
        return e
    if e.__class__ is Sum:  # from left to right: what a wide term is added to, or is added to it, is wide
        (first, factor), *others = e.terms
        terms = [(wide(first, ranges), factor), *((_widened(atom, n, ranges), n) for atom, n in others)]
        return from_linear(dict(terms), e.constant)
    if e.__class__ is Binary and not (fits(e.a, ranges) and fits(e.b, ranges)):
        return rebuild(e, lambda part: wide(part, ranges))
    if e.__class__ is Binary and not fits(e, ranges):
        return rebuild(e, lambda part: Call("i64", (part,)) if isinstance(part, Node) else part)
    return Call("i64", (e,))


def fits(e: Any, ranges: Ranges) -> bool:
    """Whether an int holds e and everything it is computed from."""
    lowest, highest = interval(e, ranges)
    if max(abs(lowest), abs(highest)) >= INT_LIMIT:
        return False
    if e.__class__ is Sum:
        return (
            all(fits(multiply(atom, factor), ranges) for atom, factor in e.terms)
            if len(e.terms) > 1
            else fits(e.terms[0][0], ranges)
        )
    return e.__class__ is not Binary or (fits(e.a, ranges) and fits(e.b, ranges))
