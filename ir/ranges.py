"""Intervals of index expressions, and simplification of `//` and `%` that the ranges decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .expr import (
    Axis,
    Binary,
    Call,
    Size,
    Sum,
    Var,
    add,
    binary,
    from_linear,
    is_int,
    linear,
    multiply,
    only_sizes,
    rebuild,
    total,
)
from .node import Expr, Node, contents, marks_of

Interval = tuple[int, int]  # inclusive
Ranges = Mapping[str, Interval]
UNKNOWN: Interval = (-(10**12), 10**12)


def interval(e: Expr, ranges: Ranges) -> Interval:
    """The least and greatest value of an index expression; UNKNOWN where nothing can be said."""
    kind = e.__class__
    if kind is int or kind is bool:
        return int(e), int(e)
    if kind is Var:
        return ranges.get(e.name, UNKNOWN)
    if kind is Axis:
        return 0, interval(e.extent, ranges)[1] - 1
    if kind is Size:
        return e.low, e.high
    if kind is Sum:
        low = high = e.constant
        for atom, n in e.terms:
            a, b = interval(atom, ranges)
            low, high = low + (a * n if n > 0 else b * n), high + (b * n if n > 0 else a * n)
        return low, high
    if kind is Binary:
        return _binary_interval(e, ranges)
    return UNKNOWN


def _binary_interval(e: Any, ranges: Ranges) -> Interval:
    (a, b), (c, d) = interval(e.a, ranges), interval(e.b, ranges)
    if e.op == "*":
        products = (a * c, a * d, b * c, b * d)
        return min(products), max(products)
    if e.op == "//" and c > 0:
        return min(a // c, a // d), max(b // c, b // d)
    if e.op == "%" and c > 0:
        return (a % c, b % c) if c == d and a // c == b // c else (0, d - 1)
    if e.op == "^" and min(a, c) >= 0:
        return 0, (1 << max(b, d).bit_length()) - 1
    return UNKNOWN


def at_ends(e: Expr, end: Callable[[Any], Expr | None]) -> Expr:
    """An upper bound of e that says so of every binding: each atom that is added is as great as it can be.

    end: the greatest value of an atom as an expression of sizes, None where there is none. Of `i - s`, i below s: `-1`,
    where the intervals of i and of s alone know nothing.
    """
    terms, constant = linear(e)
    out: Expr = constant
    for atom, n in terms.items():
        last = end(atom) if n > 0 else None
        out = add(out, multiply(atom if last is None else last, n))
    return out


def below_divisor(atom: Any) -> Expr | None:
    """The greatest value of `x % s` for a divisor of sizes, None of anything else."""
    divides = atom.__class__ is Binary and atom.op == "%" and not is_int(atom.b) and only_sizes(atom.b)
    return add(atom.b, -1) if divides and interval(atom.b, {})[0] > 0 else None


def decide(condition: Expr, ranges: Ranges) -> bool | None:
    """True or False where the ranges decide the condition, else None."""
    if condition.__class__ is bool:
        return bool(condition)
    if condition.__class__ is not Binary:
        return None
    if condition.op in ("and", "or"):
        a, b = decide(condition.a, ranges), decide(condition.b, ranges)
        strong = condition.op == "or"
        if strong in (a, b):
            return strong
        return (not strong) if a is (not strong) and b is (not strong) else None
    if condition.op not in ("<", "<=", ">", ">=", "==", "!="):
        return None
    if condition.b.__class__ is int:
        low, high = interval(condition.a, ranges)
        return _compare_zero(condition.op, low - condition.b, high - condition.b)
    low, high = interval(add(condition.a, multiply(condition.b, -1)), ranges)
    return _compare_zero(condition.op, low, high)


def _compare_zero(op: str, low: int, high: int) -> bool | None:
    if op in (">", "<="):
        return _compare_zero("<" if op == ">" else ">=", -high, -low)
    if op == "<":
        return True if high < 0 else False if low >= 0 else None
    if op == ">=":
        return True if low >= 0 else False if high < 0 else None
    equal = True if low == high == 0 else False if low > 0 or high < 0 else None
    return equal if op == "==" or equal is None else not equal


def simplify(e: Expr, ranges: Ranges) -> Expr:
    """e with every `//` and `%` that the ranges decide taken away; multiples of the divisor come out even inside
    sums.
    """
    kind = e.__class__
    if kind is Var or kind is Axis or not isinstance(e, Node) or not (e._contents or contents(e)) & _DIVIDES:
        return e
    return _simplify_node(e, kind, ranges)


_DIVIDES = marks_of(Binary)


def _simplify_node(e: Any, kind: type, ranges: Ranges) -> Expr:
    if kind is Sum:
        parts = [atom if atom.__class__ is Var else simplify(atom, ranges) for atom, _ in e.terms]
        if parts == [atom for atom, _ in e.terms]:  # equal nodes are one
            return e  # type: ignore[no-any-return]
        return total((*parts, e.constant), (*[n for _, n in e.terms], 1))
    if kind is Binary:
        a, b = simplify(e.a, ranges), e.b if e.b.__class__ is int else simplify(e.b, ranges)
        out = e if a is e.a and b is e.b else binary(e.op, a, b)
        return _simplify_division(out, ranges) if out.__class__ is Binary and out.op in ("//", "%") else out
    if kind is Call:
        return Call(e.fn, tuple(simplify(a, ranges) for a in e.args))
    return e


def _simplify_division(e: Any, ranges: Ranges) -> Expr:
    n = e.b
    if n.__class__ is not int or n <= 0:
        return e
    terms, constant = linear(e.a)
    whole = {atom: k // n for atom, k in terms.items() if k % n == 0}
    rest = from_linear({atom: k for atom, k in terms.items() if k % n}, constant % n)
    low, high = interval(rest, ranges)
    if low >= 0 and high < n:
        return simplify(from_linear(whole, constant // n), ranges) if e.op == "//" else rest
    inner = e.a
    if inner.__class__ is Binary and inner.op == e.op and is_int(inner.b):
        if e.op == "//":
            return simplify(Binary("//", inner.a, inner.b * n), ranges)
        if inner.b % n == 0:
            return simplify(binary("%", inner.a, n), ranges)
    return e  # type: ignore[no-any-return]


def by_steps(e: Expr, ranges: Ranges) -> Expr:
    """e with (m*x + y) // (m*n) as x // n and (m*x + y) % (m*n) as m*(x % n) + y, where 0 <= y < m."""
    if not isinstance(e, Node) or not (e._contents or contents(e)) & _DIVIDES:
        return e
    e = rebuild(e, lambda part: by_steps(part, ranges))
    if e.__class__ is not Binary or e.op not in ("//", "%") or not is_int(e.b) or e.b <= 0:
        return e
    terms, constant = linear(e.a)
    for step in sorted({math.gcd(factor, e.b) for factor in terms.values()} - {1, e.b}, reverse=True):
        whole = {atom: factor // step for atom, factor in terms.items() if factor % step == 0}
        within = from_linear({atom: n for atom, n in terms.items() if n % step}, constant % step)
        low, high = interval(within, ranges)
        if low >= 0 and high < step:
            steps = binary(e.op, from_linear(whole, constant // step), e.b // step)
            return steps if e.op == "//" else add(multiply(steps, step), within)
    return e
