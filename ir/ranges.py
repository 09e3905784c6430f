"""Intervals of index expressions, and simplification of `//` and `%` that the ranges decide."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .diagnostic import DplcError, Span
from .expr import (
    COMPARISONS,
    Axis,
    Binary,
    Call,
    Not,
    Size,
    Sum,
    Var,
    add,
    binary,
    is_int,
    linear,
    multiply,
    only_sizes,
    rebuild,
    split,
    total,
)
from .node import CLASSES, WEIGHT, Expr, contents, each_once, marks_of, replace
from .sizes import (
    LARGE,
    UNKNOWN,
    Interval,
    bound_to,
    compared_with_zero,
    decide_sizes,
    has_sizes,
    highest,
    interval_of,
    sizes_in,
)
from .substitute import with_sizes
from .tensor import Term

Ranges = Mapping[str, Interval]


def interval(e: Expr, ranges: Ranges) -> Interval:
    """Return the least and greatest value of an index, or UNKNOWN. One that is read from memory is not negative."""
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
        small = (e._contents or contents(e)) & WEIGHT < WEIGHT  # asked here: this is a frequent query
        return (_binary_interval if small else _shared_interval)(e, ranges)
    if kind is Not:
        return 0, 1
    return (0, LARGE) if isinstance(e, Term) else UNKNOWN


def _binary_interval(e: Any, ranges: Ranges) -> Interval:
    return interval_of(e.op, interval(e.a, ranges), interval(e.b, ranges))


_shared_interval = each_once(_binary_interval)


def at_ends(e: Expr, end: Callable[[Any], Expr | None], ranges: Ranges) -> int:
    """Return an upper bound of e: each atom that is added has its greatest value.

    end: the greatest value of an atom as an expression of sizes, or None for `x % s`, whose value is below s, and for
    any other atom. For `i - s`, i below s, the bound is `-1`, which the separate intervals of i and of s do not give.
    """
    terms, constant = linear(e)
    out: Expr = constant
    for atom, n in terms.items():
        last = next(e for e in (end(atom), _below_divisor(atom), atom) if e is not None) if n > 0 else atom
        out = add(out, multiply(last, n))
    return int(highest(out)) if only_sizes(out) else interval(out, ranges)[1]


def _below_divisor(atom: Any) -> Expr | None:
    """Return the greatest value of `x % s` for a divisor of sizes, or None for any other atom."""
    divides = atom.__class__ is Binary and atom.op == "%" and not is_int(atom.b) and only_sizes(atom.b)
    return add(atom.b, -1) if divides and interval(atom.b, {})[0] > 0 else None


@each_once
def decide(condition: Expr, ranges: Ranges) -> bool | None:
    """Return True or False if the ranges decide the condition, else None."""
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
    if condition.op not in COMPARISONS:
        return None
    if condition.b.__class__ is int:
        low, high = interval(condition.a, ranges)
        return compared_with_zero(condition.op, low - condition.b, high - condition.b)
    low, high = interval(add(condition.a, multiply(condition.b, -1)), ranges)
    return compared_with_zero(condition.op, low, high)


def simplify(e: Expr, ranges: Ranges) -> Expr:
    """Return e without every `//` and `%` that the ranges decide, including multiples of the divisor inside sums."""
    kind = e.__class__
    if kind is Var or kind is Axis or kind not in CLASSES:
        return e
    found = e._contents or contents(e)
    if not found & _DIVIDES:
        return e
    return (_simplify_node if found & WEIGHT < WEIGHT else _simplify_shared)(e, kind, ranges)


_DIVIDES = marks_of(Binary)


def _simplify_node(e: Any, kind: type, ranges: Ranges) -> Expr:
    if kind is Sum:
        parts = [atom if atom.__class__ is Var else simplify(atom, ranges) for atom, _ in e.terms]
        if parts == [atom for atom, _ in e.terms]:  # equal nodes are one
            return e
        return total((*parts, e.constant), (*[n for _, n in e.terms], 1))
    if kind is Binary:
        a, b = simplify(e.a, ranges), e.b if e.b.__class__ is int else simplify(e.b, ranges)
        out = e if a is e.a and b is e.b else binary(e.op, a, b)
        return _simplify_division(out, ranges) if out.__class__ is Binary and out.op in ("//", "%") else out
    if kind is Call:
        return Call(e.fn, tuple(simplify(a, ranges) for a in e.args))
    return e


_simplify_shared = each_once(_simplify_node)


def _simplify_division(e: Any, ranges: Ranges) -> Expr:
    n = e.b
    if n.__class__ is not int or n <= 0:
        return e
    whole, rest = split(e.a, n)
    low, high = interval(rest, ranges)
    if low >= 0 and high < n:
        return simplify(whole, ranges) if e.op == "//" else rest
    inner = e.a
    if inner.__class__ is Binary and inner.op == e.op and is_int(inner.b):
        if e.op == "//":
            return simplify(Binary("//", inner.a, inner.b * n), ranges)
        if inner.b % n == 0:
            return simplify(binary("%", inner.a, n), ranges)
    return _of_steps(e, ranges)[0] if e.op == "//" else e


def _of_steps(e: Any, ranges: Ranges) -> tuple[Expr, int, Expr]:
    """Return (x // n, m, y) or (x % n, m, y) for a division of m*x + y by m*n, where 0 <= y < m; (e, 1, 0) if none."""
    factors = linear(e.a)[0].values()
    for step in sorted({math.gcd(factor, e.b) for factor in factors} - {1, e.b}, reverse=True):
        whole, within = split(e.a, step)
        low, high = interval(within, ranges)
        if low >= 0 and high < step:
            return binary(e.op, whole, e.b // step), step, within
    return e, 1, 0


@each_once
def by_steps(e: Expr, ranges: Ranges) -> Expr:
    """Return e with (m*x + y) // (m*n) as x // n and (m*x + y) % (m*n) as m*(x % n) + y, where 0 <= y < m."""
    if e.__class__ not in CLASSES or not (e._contents or contents(e)) & _DIVIDES:
        return e
    e = rebuild(e, lambda part: by_steps(part, ranges))
    if e.__class__ is not Binary or e.op not in ("//", "%") or not is_int(e.b) or e.b <= 0:
        return e
    steps, step, within = _of_steps(e, ranges)
    return steps if e.op == "//" else add(multiply(steps, step), within)


# ---- narrower ranges: a part of the range of a size in which a program is one program and a rule applies


FARTHEST = 1 << 16  # so many lengths on either side of the hint are looked at


class Narrower(DplcError):
    """Error of a step that depends on sizes' numbers in their ranges. sizes: parts of the ranges that decide it."""

    def __init__(self, sizes: Sequence[Size], what: str, span: Span | None, hint: str, notes: Sequence[str] = ()):
        super().__init__(what, span, hint, notes)
        self.sizes = tuple(sizes)


def around_hint(size: Size, holds: Callable[[int], bool]) -> Size | None:
    """Return the longest run of lengths for which a predicate holds, around the hint or else at the end of the range.

    The result is the size itself if the predicate holds for all lengths, and None if it fails at both.
    """
    step = size.multiple
    least, most = -(-size.low // step) * step, size.high // step * step
    start = next((n for n in (size.hint, most) if holds(n)), None)
    if start is None:
        return None
    low = high = start
    for _ in range(FARTHEST):
        lower, higher = low > least and holds(low - step), high < most and holds(high + step)
        if not (lower or higher):
            break
        low, high = low - step * lower, high + step * higher
    return size if (low, high) == (least, most) else replace(size, low=low, high=high, hint=start)


def part_that_decides(condition: Any) -> Size | None:
    """Return the part of a size's range, around its hint, for which an unproved comparison is proved.

    The result is None if that part is less than half of the range, because the next number would need another program.
    """
    if condition.__class__ is not Binary or condition.op not in COMPARISONS or not has_sizes(condition):
        return None
    (size, *others) = sizes_in(condition).values()
    if others:
        return None

    def at(n: int) -> bool:
        binding = {size.name: n}
        return bool(COMPARISONS[condition.op](bound_to(condition.a, binding), bound_to(condition.b, binding)))

    wanted = at(size.hint)
    part = around_hint(size, lambda n: at(n) == wanted)
    wide = part is not None and 2 * (part.high - part.low) >= size.high - size.low
    return part if wide and part is not size else None


def ranges_around_hints(op: str, a: Any, b: Any) -> tuple[Size, ...] | None:
    """Return ranges of several sizes around their hints for all of which a comparison holds.

    Each range is as wide as those before it allow, and the widest is first. The result is None if the comparison fails
    at the hints.
    """
    whole = dict(sorted(sizes_in((a, b)).items(), key=lambda named: named[1].low - named[1].high))
    found = {name: replace(size, low=size.hint, high=size.hint) for name, size in whole.items()}

    def holds(size: Size) -> bool:
        there = {**found, size.name: size}
        return decide_sizes(op, with_sizes(a, there), with_sizes(b, there)) is True

    if not all(map(holds, found.values())):
        return None
    for name, size in whole.items():
        found[name] = _widest(size, found[name], "low", holds)
        found[name] = _widest(size, found[name], "high", holds)
    return tuple(found.values())


def below(e: Any, limit: int) -> tuple[Size, ...] | None:
    """Return ranges of sizes around their hints for all of which an expression is at most a limit.

    The range that is the widest compared with its hint is halved until then. The result is None if the hints exceed it.
    """
    found = sizes_in(e)
    while interval(with_sizes(e, found), {})[1] > limit:
        wide = max(found.values(), key=lambda size: size.high / size.hint, default=None)
        if wide is None or wide.high == wide.hint:
            return None
        found[wide.name] = replace(wide, high=max(wide.hint, wide.high // 2))
    return tuple(found.values())


def _widest(whole: Size, part: Size, end: str, holds: Callable[[Size], bool]) -> Size:
    """Return a part of a size's range whose end is as far from the hint as a predicate holds.

    The predicate holds for `part`, and fails for every range beyond one for which it fails.
    """
    way = whole.multiple if end == "high" else -whole.multiple

    def farther(n: int) -> Size:
        return replace(part, **{end: getattr(part, end) + n * way})

    most = (getattr(whole, end) - getattr(part, end)) // way
    return farther(bisect.bisect(range(1, most + 1), False, key=lambda n: not holds(farther(n))))


def where_decided(what: str, conditions: Iterable[Any], span: Span | None, notes: Sequence[str]) -> Narrower | None:
    """Return the error for a step that is not possible for every length, or None.

    The error names a range of one size that decides one of the unproved conditions.
    """
    part = next(filter(None, map(part_that_decides, conditions)), None)
    if part is None:
        return None
    hint = f'narrow it: Dim("{part.name}", {part.low}, {part.high}), where this is decided'
    return Narrower((part,), f"{what} for every `{part.name}` of the range", span, hint, notes)
