"""Index expressions over axes that know their extents: ranges, and arithmetic that uses them.

`ir.expr` keeps expressions canonical without the ranges of names. Here the leaves are `Axis` nodes, so
`(a*C + c) // C` is `a` when `c < C`, and a comparison that always holds is `True`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from math import gcd
from typing import Any

from .. import ranges
from ..expr import (
    COMPARISONS,
    Axis,
    Binary,
    Call,
    Not,
    Size,
    Sum,
    Var,
    binary,
    is_int,
    linear,
    rebuild,
    rejoined,
    split,
    total,
)
from ..kernel import Assign, Define
from ..node import CLASSES, Expr, each_once, memoised, nodes
from ..program import Block
from ..sizes import UNKNOWN, Interval, compared_with_zero, has_sizes


def interval(e: Expr) -> Interval:
    """Return the least and the greatest value of an index expression.

    For the value of a Term only the sign is known.
    """
    return _interval(e) if e.__class__ in CLASSES else (int(e), int(e))


_NO_RANGES: ranges.Ranges = {}


@memoised
def _interval(e: Any) -> Interval:
    return ranges.interval(e, _NO_RANGES)  # one object: walks keep what they know by its identity


def operate(op: str, a: Expr, b: Expr) -> Expr:
    """Return `a op b` in canonical form, simplified by the ranges of the axes."""
    if op == "//" or op == "%":
        return _divide(op, a, b)
    if op in COMPARISONS:
        return _compare(op, a, b)
    result = binary(op, a, b)
    return _joined(result) if op == "+" or op == "-" else result


def _divide(op: str, a: Expr, b: Expr) -> Expr:
    if b.__class__ is not int or b < 1 or a.__class__ is int:
        return binary(op, a, b)
    low, high = interval(a)
    if low >= 0 and high < b:
        return 0 if op == "//" else a
    (terms, constant), (whole, rest) = linear(a), split(a, b)
    low, high = interval(rest)
    if low >= 0 and high < b:  # (c*b*x + r) // b with 0 <= r < b
        return whole if op == "//" else rest
    inner = [
        x.a if x.__class__ is Binary and x.op == "%" and x.b.__class__ is int and n * x.b % b == 0 else x
        for x, n in terms.items()
    ]
    if op == "%" and inner != [*terms]:  # (n*(x % m) + r) % b with n*m divisible by b
        return _divide("%", total((*inner, constant), (*terms.values(), 1)), b)
    if op == "//" and a.__class__ is Binary and a.op == "//":  # (x // c) // b
        return _divide("//", a.a, a.b * b)
    if op == "//" and a.__class__ is Binary and a.op == "%" and a.b % b == 0:  # (x % (b*c)) // b
        return _divide("%", _divide("//", a.a, b), a.b // b)
    if op == "//":
        common = math.gcd(b, *(n for n in terms.values() if n % b and abs(n) > 1))
        outer, within = split(a, common)
        low, high = interval(within)
        if 1 < common < b and low >= 0 and high < common:  # (c*x + r) // (c*b) with 0 <= r < c
            return _divide("//", outer, b // common)
    return binary(op, a, b)


def _compare(op: str, a: Expr, b: Expr) -> Expr:
    low, high = UNKNOWN if a.__class__ is float or b.__class__ is float else _apart(binary("-", a, b))
    known = compared_with_zero(op, low, high)
    return binary(op, a, b) if known is None else known


def _apart(e: Expr) -> Interval:
    """Return the interval of a difference.

    For `i - s` with i below s, it is tighter than the difference of the separate intervals.
    """
    low, high = interval(e)
    if not has_sizes(e):
        return low, high
    return max(low, -greatest(binary("*", e, -1))), min(high, greatest(e))


def greatest(e: Expr) -> int:
    """Return an upper bound of an expression for all values of its sizes, with each axis at its last index."""
    return ranges.at_ends(e, lambda atom: binary("-", atom.extent, 1) if atom.__class__ is Axis else None, {})


def _joined(e: Expr) -> Expr:
    """Return an expression with `c*(x // n)*n + c*(x % n)` replaced by `c*x`."""
    while (joined := rejoined(e, partial(_divide, "//"))) is not e:
        e = joined
    return e


@each_once
def substitute(e: Expr, axes: Mapping[Axis, Expr], value: Callable[[Any], Expr] = lambda term: term) -> Expr:
    """Return e with axes replaced by expressions and `value` applied to its Terms, in canonical form."""
    kind = e.__class__
    if kind is Axis:
        return axes.get(e, e)
    if kind is Size:
        return e
    if kind is Sum:
        parts = [substitute(atom, axes, value) for atom, _ in e.terms]
        return _joined(total((*parts, e.constant), (*[n for _, n in e.terms], 1)))
    if kind is Binary:
        return operate(e.op, substitute(e.a, axes, value), substitute(e.b, axes, value))
    if kind is Not or kind is Call:
        return rebuild(e, lambda part: substitute(part, axes, value))
    return value(e) if e.__class__ in CLASSES else e


def simplify(e: Expr) -> Expr:
    """Return e with every operation folded that the extents of its axes decide."""
    return substitute(e, {})


# ---- divisors of index expressions: the alignment of addresses


def counters(block: Block) -> dict[str, int]:
    """Return a divisor of every value of each integer register: the slots of a ring are multiples of one slot."""
    found: dict[str, int] = {}
    for stmt in nodes(block, Define, Assign):
        place = Var(stmt.dst) if isinstance(stmt, Define) else stmt.place
        counts = isinstance(place, Var) and (place.name in found or getattr(stmt, "dtype", None) == "i32")
        if counts:
            step = divisor(stmt.val, {**found, place.name: 0})
            found[place.name] = gcd(found.get(place.name, 0), step)
    return found


@each_once
def divisor(e: Expr, strides: Mapping[str, int]) -> int:
    """Return a number that divides every value of an expression; 0 for the number 0."""
    return gcd(*_congruence(e, strides))


def _congruence(e: Expr, strides: Mapping[str, int]) -> tuple[int, int]:
    """Return a modulus and a remainder that every value of an expression has by it; the modulus 0 for a number."""
    if is_int(e):
        return 0, e
    if isinstance(e, Sum):
        parts = [(factor, *_congruence(atom, strides)) for atom, factor in e.terms]
        rest = sum(factor * rest for factor, _, rest in parts)
        return gcd(*(factor * modulus for factor, modulus, _ in parts)), e.constant + rest
    if isinstance(e, Binary) and e.op == "%":
        modulus, rest = _congruence(e.a, strides)
        return gcd(modulus, divisor(e.b, strides)), rest
    return _factor(e, strides), 0


def _factor(e: Expr, strides: Mapping[str, int]) -> int:
    """Return a number that divides every value of an expression other than a sum, a remainder or a number."""
    if isinstance(e, Var):
        return strides.get(e.name, 1)
    if isinstance(e, Size):
        return e.multiple
    if isinstance(e, Binary) and e.op == "*":
        return divisor(e.a, strides) * divisor(e.b, strides)
    if isinstance(e, Binary) and e.op == "^":  # low bits that are zero in both stay so; 3 divides 24, not 24 ^ 9
        both = divisor(e.a, strides) | divisor(e.b, strides)
        return both & -both
    if isinstance(e, Binary) and e.op == "//" and is_int(e.b):
        whole, rest = divmod(divisor(e.a, strides), e.b)
        return 1 if rest else whole
    if isinstance(e, Call) and e.fn == "where":
        return gcd(divisor(e.args[1], strides), divisor(e.args[2], strides))
    return 1
