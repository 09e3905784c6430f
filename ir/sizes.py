"""Queries about sizes: proofs for all their values, and estimates at the hint if only profit depends on them.

A number that only affects performance may be a guess: inside of `at_the_hints`, sizes have their hints as values.
Correctness is never decided there, and no fact remembers an answer that was given there.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from .expr import (
    COMPARISONS,
    Binary,
    Call,
    Size,
    Sum,
    Undecided,
    add,
    compare,
    floordiv,
    linear,
    modulo,
    multiply,
    negate,
    only_sizes,
    rebuild,
    subtract,
)  # fmt: skip
from .node import CLASSES, Expr, contents, distinct, each_once, marks_of, memoised

Binding = Mapping[str, int]  # {name of a size: its number}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}  # a comparison of b and a
AT_HINTS: Binding = MappingProxyType({})
_SIZES = marks_of(Size)
_PROVED, _OF_CHOICES, _HINTED = range(3)
MOST_FACTORS = 6  # of a sum of products, whose corners are looked at: 64
MOST_ATOMS = 16  # of a sum that is divided, whose quotient is multiplied out
_asked: ContextVar[int] = ContextVar("what is asked of sizes", default=_PROVED)


class _Asking:
    """Context manager that sets how comparisons of sizes are decided.

    It is a class and not a generator because every clause of a rule enters one, and a class is cheaper.
    """

    __slots__ = ("token", "what")

    def __init__(self, what: int):
        self.what = what

    def __enter__(self) -> None:
        self.token = _asked.set(self.what)

    def __exit__(self, *raised: object) -> None:
        _asked.reset(self.token)


def at_the_hints() -> AbstractContextManager[None]:
    """Return a context manager that decides unproved comparisons at the hints."""
    return _Asking(_HINTED)


def among_choices() -> AbstractContextManager[None]:
    """Return a context manager that drops each choice whose validity depends on a size."""
    return _Asking(_OF_CHOICES)


def leaves_out() -> bool:
    """Return whether a list may lack unproved items: in choices, or if only profit depends on it, not in proofs."""
    return _asked.get() != _PROVED


def has_sizes(value: Any) -> bool:
    """Return whether a size occurs in a node, or in a list of nodes."""
    if value.__class__ is tuple:
        return any(map(has_sizes, value))
    return value.__class__ in CLASSES and bool(contents(value) & _SIZES)


def sizes_in(value: Any) -> dict[str, Size]:
    """Return the sizes of a program, by name."""
    found: set[Size] = set()
    seen: set[Any] = set()  # what programs share, they share often: each node once
    pending = [value]
    while pending:
        item = pending.pop()
        if item.__class__ is tuple:
            pending.extend(reversed(item))  # in order: operands first keeps what `contents` remembers shallow
        elif item.__class__ is Size:
            found.add(item)
        elif has_sizes(item) and item not in seen:
            seen.add(item)
            pending.extend(getattr(item, name) for name in type(item).inner)
    return {size.name: size for size in sorted(found, key=lambda size: size.name)}


def hints(value: Any) -> dict[str, int]:
    """Return the sizes of a program at their hints."""
    return {name: size.hint for name, size in sizes_in(value).items()}


def numbers(size: Size) -> list[int]:
    """Return the values of a size to try: its ends, its hint, and the values next to the hint."""
    by = size.multiple
    asked = (-(-size.low // by) * by, size.high // by * by, size.hint, size.hint - by, size.hint + by)
    return [n for n in dict.fromkeys(asked) if size.low <= n <= size.high]


def telling(sizes: Mapping[str, Size]) -> list[dict[str, int]]:
    """Return bindings that cover most of a program: all sizes at their least numbers, at their greatest, and so on.

    A program without sizes has one binding.
    """
    each = {name: numbers(size) for name, size in sizes.items()}
    count = max(map(len, each.values()), default=1)
    return [{name: found[min(place, len(found) - 1)] for name, found in each.items()} for place in range(count)]


def at_hint(e: Expr) -> Any:
    """Return the value of an expression of sizes at their hints, for costs. Anything else is returned as it is."""
    return _replaced(e, lambda size: size.hint) if e.__class__ in CLASSES and only_sizes(e) else e


def hinted(e: Expr) -> Any:
    """Return `at_hint` for a fact that measures profit. Raises Undecided if the caller proves something."""
    if e.__class__ is int or e.__class__ not in CLASSES:
        return e
    if _asked.get() != _HINTED or divides_sizes(e):
        raise Undecided(e)
    return at_hint(e)


def highest(e: Expr) -> Any:
    """Return the greatest value of an expression of sizes."""
    return size_ends(e)[1]


def lowest(e: Expr) -> Any:
    """Return the least value of an expression of sizes."""
    return size_ends(e)[0]


def bound_to(e: Expr, values: Mapping[str, int]) -> Any:
    """Return an expression with sizes replaced by numbers."""
    return _replaced(e, lambda size: values[size.name])


@each_once
def _replaced(e: Expr, number: Callable[[Size], int]) -> Any:
    if e.__class__ is Size:
        return number(e)
    if e.__class__ is Call and e.fn in _EXTREMES:
        args = [_replaced(x, number) for x in e.args]
        return _EXTREMES[e.fn](args) if all(x.__class__ is int for x in args) else Call(e.fn, tuple(args))
    return rebuild(e, lambda part: _replaced(part, number)) if e.__class__ in CLASSES else e


_EXTREMES: dict[str, Callable[[Iterable[Any]], Any]] = {"minimum": min, "maximum": max}


def value_of(e: Expr, values: Mapping[str, int]) -> int:
    """Return the value of an expression of sizes at a binding."""
    found = e if e.__class__ is int else bound_to(e, values)  # as most extents are, and a call needs all of them
    assert found.__class__ is int, found
    return found


@each_once
def known_at_launch(e: Any) -> bool:
    """Return whether a node is a number at every launch: `only_sizes`, or functions of those (`reciprocal(s)`)."""
    if e.__class__ is Call:
        return all(x.__class__ is float or known_at_launch(x) for x in e.args)
    return e.__class__ in CLASSES and only_sizes(e)


def divides_sizes(e: Expr) -> bool:
    """Return whether a remainder of sizes occurs. A hint gives no information about the divisors of a size."""
    return any(part.op == "%" for part in distinct(e, Binary))


def decided(op: str, a: Expr, b: Expr) -> bool:
    """Decide a comparison for all values of its sizes, or at their hints if only profit depends on it.

    Raises Undecided if neither is possible.
    """
    known, of_sizes = _compared(op, a, b), has_sizes((a, b))
    if known is not None and of_sizes:
        return known
    if _asked.get() != _HINTED or not of_sizes or not all(x.__class__ is float or only_sizes(x) for x in (a, b)):
        raise Undecided(Binary(op, a, b))
    if divides_sizes((a, b)):
        return False  # not known to pay
    return bool(COMPARISONS[op](at_hint(a), at_hint(b)))


# ---- ranges


Interval = tuple[int, int]  # inclusive
LARGE = 1 << 62  # beyond every extent
UNKNOWN: Interval = (-LARGE, LARGE)


def size_ends(e: Expr) -> Interval:
    """Return the least and the greatest value of an expression of sizes."""
    return _ends(e) if e.__class__ in CLASSES else (e, e)


@memoised
def _ends(e: Any) -> Interval:
    kind = e.__class__
    if kind is Size:
        return e.low, e.high
    if kind is Sum:
        pairs = [(size_ends(atom), n) for atom, n in e.terms]
        low = e.constant + sum(min(a * n, b * n) for (a, b), n in pairs)
        high = e.constant + sum(max(a * n, b * n) for (a, b), n in pairs)
        return max(low, _least(e, 1)), min(high, -_least(e, -1))
    return interval_of(e.op, size_ends(e.a), size_ends(e.b)) if kind is Binary else (e, e)


def interval_of(op: str, left: Interval, right: Interval) -> Interval:
    """Return the least and greatest value of `a op b` for operands in two intervals, or UNKNOWN."""
    (a, b), (c, d) = left, right
    if op == "*":
        products = (a * c, a * d, b * c, b * d)
        return min(products), max(products)
    if op == "//" and c > 0:
        return min(a // c, a // d), max(b // c, b // d)
    if op == "%" and c > 0:
        return (a % c, b % c) if c == d and a // c == b // c else (0, d - 1)
    if op == "^" and min(a, c) >= 0:
        return 0, (1 << max(b, d).bit_length()) - 1
    return (0, 1) if op in COMPARISONS or op in ("and", "or") else UNKNOWN


def _least(e: Expr, sign: int) -> int:
    """Return a lower bound of a sum times 1 or -1, in which `x // n` counts as about x/n: `s - s//4` is above 0.

    Alternatively, a quotient counts as the same number in every term: `(s//2)*(t//2) - t//2` is not below 0.
    """
    terms, constant = _undivided(e)[sign < 0]
    least = math.ceil(constant + _least_of_products(terms))
    if len(e.terms) > 1 and any(atom not in terms for atom, _ in e.terms):
        same = _least_of_products({atom: sign * n for atom, n in e.terms})
        least = max(least, math.ceil(sign * e.constant + same))
    return least


Factor = tuple[Any, int]  # an atom, and which of its powers in a product this is
Bound = tuple[dict[Any, Fraction], Fraction]  # of a sum: the coefficients of its atoms, and its constant


def _least_of_products(terms: Mapping[Any, Fraction | int]) -> Fraction | int:
    """Return a lower bound of a sum of products that uses their common factors: `2*s*t - s` is above 0.

    Such a sum is linear in each factor, where the second s of s*s may be another number than the first. So it is least
    at a corner of the box of their ranges.
    """
    few = all(_degree(atom) <= MOST_FACTORS for atom in terms)
    products = {atom: _factors(atom) for atom in terms} if few else {}
    factors = list(dict.fromkeys(factor for own in products.values() for factor in own))
    if not few or len(factors) == sum(map(len, products.values())) or len(factors) > MOST_FACTORS:
        ends = {atom: size_ends(atom) for atom in terms}
        return sum(n * ends[atom][n < 0] for atom, n in terms.items())
    corners = itertools.product(*(size_ends(atom) for atom, _ in factors))
    found = (dict(zip(factors, corner)) for corner in corners)
    return min(sum(n * math.prod(at[f] for f in products[atom]) for atom, n in terms.items()) for at in found)


@each_once
def _degree(e: Expr) -> int:
    """Count the factors of a product."""
    return _degree(e.a) + _degree(e.b) if e.__class__ is Binary and e.op == "*" else 1


def _factors(e: Expr, powers: Counter[Any] | None = None) -> tuple[Factor, ...]:
    powers = Counter() if powers is None else powers
    if e.__class__ is Binary and e.op == "*":
        return (*_factors(e.a, powers), *_factors(e.b, powers))
    powers[e] += 1
    return ((e, powers[e]),)


@memoised
def _undivided(e: Any) -> tuple[Bound, Bound]:
    """Return lower bounds of `e` and of `-e` without quotients: ({atom: coefficient}, constant) each."""
    return _without_quotients(e, 1), _without_quotients(e, -1)


def _without_quotients(e: Expr, sign: int) -> Bound:
    atoms, rest = linear(e)
    terms, constant = dict[Any, Fraction](), Fraction(sign * rest)
    for atom, n in atoms.items():
        each = Fraction(sign * n)
        inner = {atom: each}
        if atom.__class__ is Binary and atom.op == "//" and atom.b.__class__ is int and atom.b > 0:
            found, slack = _undivided(atom.a)[each < 0]
            if len(found) <= MOST_ATOMS:
                times = abs(each) / atom.b
                inner = {part: times * count for part, count in found.items()}
                constant += times * slack - (each * Fraction(atom.b - 1, atom.b) if each > 0 else 0)
        for part, count in inner.items():
            terms[part] = terms.get(part, Fraction()) + count
    return terms, constant


def decide_sizes(op: str, a: Expr, b: Expr) -> bool | None:
    """Return a comparison of expressions of sizes if it is the same for all their values, else None."""
    return compared_with_zero(
        op, *(size_ends(subtract(a, b)) if b.__class__ is not float else (end - b for end in size_ends(a)))
    )


def _compared(op: str, a: Expr, b: Expr) -> bool | None:
    """Return `decide_sizes` of expressions of sizes, one of which may be a float, or None for any others."""
    if a.__class__ is float:
        op, a, b = MIRRORED.get(op, op), b, a
    return decide_sizes(op, a, b) if only_sizes(a) and (b.__class__ is float or only_sizes(b)) else None


def compared_with_zero(op: str, low: float, high: float) -> bool | None:
    """Return whether a number from low to high compares so with 0; None where that depends on the number."""
    if op in (">", "<="):
        op, low, high = ("<" if op == ">" else ">="), -high, -low
    if op == "<":
        return True if high < 0 else False if low >= 0 else None
    if op == ">=":
        return True if low >= 0 else False if high < 0 else None
    equal = True if low == high == 0 else False if low > 0 or high < 0 else None
    return equal if op == "==" or equal is None else not equal


def compared(op: str, a: Expr, b: Expr) -> Any:
    """Return a comparison as an expression: True or False if it is the same for all values of the sizes."""
    made = compare(op, a, b)
    sized = made.__class__ is Binary and has_sizes(made) and only_sizes(a) and only_sizes(b)
    known = decide_sizes(op, a, b) if sized else None
    return made if known is None else known


def settled(op: str, a: Expr, b: Expr) -> bool:
    """Return a comparison that has the same result for all values of the sizes. Raises Undecided for any other."""
    known = _compared(op, a, b)
    if known is None:
        raise Undecided(compare(op, a, b))
    return known


# ---- Python's operators on sizes; none converts a size to an int


def _comparing(op: str) -> Callable[[Any, Any], Any]:
    def compared(a: Any, b: Any) -> Any:
        return (
            settled(op, a, b)
            if b.__class__ is int or b.__class__ is float or b.__class__ in CLASSES
            else NotImplemented
        )

    return compared


def _attach(*classes: type) -> None:
    calculating = {"add": add, "sub": subtract, "mul": multiply, "floordiv": floordiv, "mod": modulo}
    comparing = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for kind in classes:
        for name, operate in calculating.items():
            setattr(kind, f"__{name}__", operate)
            setattr(kind, f"__r{name}__", lambda a, b, operate=operate: operate(b, a))
        for name, op in comparing.items():
            setattr(kind, f"__{name}__", _comparing(op))
        setattr(kind, "__neg__", negate)  # noqa: B010


_attach(Size, Sum, Binary)
