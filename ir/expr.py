"""Index and scalar expressions, canonical by construction.

An expression is an `int`, `float`, `bool` or one of the nodes below. The constructors (`add`, `multiply`, `floordiv`,
...) keep sums in linear normal form (terms in order of first occurrence, positive ones first, constant last), fold
constants, and split `(c*n*x + r) // c` and `% c` exactly. Parsing and rewriting use the same constructors, hence
`parse(print(e)) == e`.

`Sum`, `Binary` are never built directly outside of this file.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard, cast

from .node import CLASSES, WEIGHT, Expr, Fn, Int, Name, Node, Role, contents, each_once, marks_of, memoised

Over = Any  # an expression that names axes: in Combine.over
Terms = Any  # ((atom, int coefficient), ...)


class Var(Node):
    """A name in scope: a loop variable, an axis, a value, an accumulator."""

    name: Name


class Axis(Node):
    """A named axis.

    In Tensor IR, an axis has no role and is also a leaf of index expressions. In a Tile it has a role, in a Stage a
    dim.
    """

    name: Name
    extent: Expr = 1
    role: Role | None = None
    dim: Int | None = None
    stride: Int = 1


NameSet = frozenset[str]
Order = tuple[Axis, ...]  # of the axes of loops or of memory


def extents_of(axes: Iterable[Axis]) -> tuple[Expr, ...]:
    """Return the extents of axes: the shape of what has an element for each of their indices."""
    return tuple([axis.extent for axis in axes])


class NotWhole(TypeError):
    """A float in an expression that computes an index."""


class Undecided(Exception):
    """A comparison that is not the same for all that it may meet. condition: the comparison, or words for it."""

    def __init__(self, condition: Any = None):
        super().__init__(condition)
        self.condition = condition


class Size(Node):
    """A symbolic dimension: low..high, both included, a multiple of `multiple`, with the example value `hint`.

    Its number is known at launch. It is a leaf of extents and index expressions and carries its range, so that no
    environment is needed.
    """

    name: Name
    low: Int
    high: Int
    multiple: Int
    hint: Int


class Sum(Node):
    """`c1*t1 + c2*t2 + ... + constant`: at least one term; a single term has a coefficient or a constant.

    terms: ((atom, coefficient), ...). Every coefficient is a non-zero int, and positive coefficients precede negative
    ones.
    """

    terms: Terms
    constant: Int = 0


class Binary(Node):
    """`a op b` for `*` (neither side constant), `//`, `%`, `^`, comparisons, `and`, `or`."""

    op: Name
    a: Expr
    b: Expr


class Not(Node):
    """Logical negation of something that is not a comparison."""

    a: Expr


class Call(Node):
    """A scalar function of expressions: `add(x, y)`, `exp(x)`, `where(c, a, b)`."""

    fn: Fn
    args: tuple[Expr, ...]


Linear = tuple[dict[Any, int], int]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def is_int(value: Any) -> TypeGuard[int]:
    return value.__class__ is int


NUMBERS = (int, float)  # tested by class: True is not a number


def linear(e: Expr) -> Linear:
    """Return e as ({atom: coefficient}, constant). The caller may change the dictionary."""
    if e.__class__ is Sum:
        return dict(e.terms), e.constant
    if e.__class__ is int:
        return {}, e
    return {e: 1}, 0


def from_linear(terms: dict[Any, int], constant: int) -> Expr:
    """Return the expression of a linear form. Zero coefficients are dropped; `a // n * n + a % n` becomes `a`."""
    if not terms:
        return constant
    remainders = [x for x in terms if x.__class__ is Binary and x.op == "%"]
    if remainders and (joined := _joined(terms, remainders)):
        return add(from_linear(terms, constant), joined)
    kept = tuple(terms.items())
    if [True for _, n in kept if n <= 0]:
        kept = (*[term for term in kept if term[1] > 0], *[term for term in kept if term[1] < 0])
        if not kept:
            return constant
    if constant == 0 and len(kept) == 1 and kept[0][1] == 1:
        return kept[0][0]
    return Sum(kept, constant)


def _joined(terms: dict[Any, int], remainders: list[Binary]) -> Expr:
    """Remove each remainder that stands beside a multiple of its quotient, and return the sum of their dividends."""
    found: Expr = 0
    for remainder in remainders:
        times, quotient = terms[remainder], Binary("//", remainder.a, remainder.b)
        if remainder.b.__class__ is int and times and terms.get(quotient) == times * remainder.b:
            del terms[remainder], terms[quotient]
            found = add(found, multiply(remainder.a, times))
    return found


def rejoined(e: Expr, divide: Callable[[Expr, int], Expr]) -> Expr:
    """Return a sum with one `c*(x // n)*n + c*(x % n)` replaced by `c*x`. divide: gives `x // n` as the sum has it."""
    terms = dict(e.terms) if e.__class__ is Sum else {}
    for atom, factor in terms.items():
        divides = atom.__class__ is Binary and atom.op == "%" and atom.b.__class__ is int
        if divides and factor * atom.b in terms.values():
            quotient = divide(atom.a, atom.b)
            if terms.get(quotient) == factor * atom.b:
                kept = {other: n for other, n in terms.items() if other is not atom and other is not quotient}
                return add(from_linear(kept, e.constant), multiply(atom.a, factor))
    return e


def add(a: Expr, b: Expr) -> Expr:
    if a.__class__ is int and b.__class__ is int:
        return a + b
    if a.__class__ is int and a == 0:
        return b
    if b.__class__ is int and b == 0:
        return a
    if a.__class__ is float or b.__class__ is float:
        return _float_or(a, b, operator.add, "+")
    terms, constant = linear(a)
    more, extra = linear(b)
    for atom, n in more.items():
        terms[atom] = terms.get(atom, 0) + n
    return from_linear(terms, constant + extra)


def subtract(a: Expr, b: Expr) -> Expr:
    if a.__class__ is float or b.__class__ is float:
        return _float_or(a, b, operator.sub, "-")
    return add(a, multiply(b, -1))


def negate(a: Expr) -> Expr:
    return -a if a.__class__ in NUMBERS else multiply(a, -1)


def multiply(a: Expr, b: Expr) -> Expr:
    if a.__class__ is int and b.__class__ is not float:
        a, b = b, a
    if b.__class__ is int and a.__class__ is not float:
        if a.__class__ is int:
            return a * b
        if b == 1:
            return a
        terms, constant = linear(a)
        if [True for x in terms if x.__class__ is Binary and x.op == "//" and x.b.__class__ is int]:
            return total((*[_times(atom, n * b) for atom, n in terms.items()], constant * b))
        return from_linear({atom: n * b for atom, n in terms.items()} if b else {}, constant * b)
    if a.__class__ is float or b.__class__ is float:
        return _float_or(a, b, operator.mul, "*")
    return _product(a, b)


def _times(atom: Expr, n: int) -> Expr:
    """Return a multiple of an atom. A quotient without remainder is multiplied back."""
    divided = atom.__class__ is Binary and atom.op == "//" and atom.b.__class__ is int and n % atom.b == 0
    if divided and only_sizes(atom.a) and multiple_of(atom.a) % atom.b == 0:
        return multiply(atom.a, n // atom.b)
    return from_linear({atom: n}, 0) if n else 0


def _product(a: Expr, b: Expr) -> Expr:
    """Return a product in canonical form.

    A sum times sizes becomes a sum of products, with the sizes as one factor on the right, so that strides stay linear.
    """
    if only_sizes(a) and (not only_sizes(b) or (a.__class__ is b.__class__ is Size and b.name < a.name)):
        a, b = b, a
    if not only_sizes(b):
        return Binary("*", a, b)
    for left, right in ((a, b), (b, a)):
        if left.__class__ is Sum:
            products = [multiply(atom, right) for atom, _ in left.terms]
            return total((*products, right), (*[n for _, n in left.terms], left.constant))
    if a.__class__ is Binary and a.op == "*" and only_sizes(a.b) and not only_sizes(a.a):
        return _product(a.a, _product(a.b, b))
    return Binary("*", a, b)


def _float_or(a: Expr, b: Expr, compute: Callable[[Any, Any], Any], op: str) -> Expr:
    """Compute an operation on numbers, of which one may be a float. Raises NotWhole if a float meets an expression."""
    if a.__class__ in NUMBERS and b.__class__ in NUMBERS:
        return compute(a, b)
    raise NotWhole(f"index arithmetic `{op}` on a float: {a!r} {op} {b!r}")


def _split(a: Expr, n: int) -> tuple[dict[Any, int], dict[Any, int], int]:
    terms, constant = linear(a)
    whole = {atom: k // n for atom, k in terms.items() if k % n == 0}
    rest = {atom: k for atom, k in terms.items() if k % n}
    return whole, rest, constant


def split(e: Expr, n: int) -> tuple[Expr, Expr]:
    """Return (q, r) with e == q*n + r, where r has the terms, and the part of the constant, that n does not divide."""
    whole, rest, constant = _split(e, n)
    return from_linear(whole, constant // n), from_linear(rest, constant % n)


def floordiv(a: Expr, b: Expr) -> Expr:
    """Return a // b, rounded down. Multiples of a constant divisor are moved out of the division."""
    if a.__class__ in NUMBERS and b.__class__ in NUMBERS:
        return a // b
    if b.__class__ is not int:
        return Binary("//", a, b)
    if b == 1:
        return a
    whole, rest, constant = _split(a, b)
    if _from_the_end(rest, constant, b):
        return subtract(from_linear(whole, constant // b), floordiv(from_linear(_negated(rest), 0), b))
    if whole or not 0 <= constant < b:
        low = from_linear(rest, constant % b)
        high = from_linear(whole, constant // b)
        if low.__class__ is int:
            return high
        return add(high, Binary("//", low, b))
    return Binary("//", a, b)


def _from_the_end(rest: dict[Any, int], constant: int, b: int) -> bool:
    """Return whether a quotient by b counts an index from its end: `(b*c - 1 - x) // b` is `c - 1 - x // b`."""
    return bool(rest) and constant % b == b - 1 and max(rest.values()) < 0


def _negated(terms: dict[Any, int]) -> dict[Any, int]:
    return {atom: -n for atom, n in terms.items()}


def modulo(a: Expr, b: Expr) -> Expr:
    """Return a % b, which is non-negative for b > 0. Multiples of a constant divisor vanish."""
    if a.__class__ in NUMBERS and b.__class__ in NUMBERS:
        return a % b
    if b.__class__ is not int:
        return Binary("%", a, b)
    if b == 1:
        return 0
    whole, rest, constant = _split(a, b)
    known = [atom for atom, n in rest.items() if n * multiple_of(atom) % b == 0]
    kept = {atom: n for atom, n in rest.items() if atom not in known}
    if _from_the_end(kept, constant, b):
        return subtract(b - 1, modulo(from_linear(_negated(kept), 0), b))
    if whole or known or not 0 <= constant < b:
        low = from_linear(kept, constant % b)
        return low if low.__class__ is int else Binary("%", low, b)
    return Binary("%", a, b)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    if a.__class__ in NUMBERS and b.__class__ in NUMBERS:
        return COMPARISONS[op](a, b)
    if a is b and not isinstance(a, (int, float)):
        return op in ("<=", ">=", "==")
    return Binary(op, a, b)


def both(a: Expr, b: Expr) -> Expr:
    if a is True or b is False:
        return b
    if b is True or a is False:
        return a
    return a if a is b else Binary("and", a, b)


def either(a: Expr, b: Expr) -> Expr:
    if a is True or b is False:
        return a
    if b is True or a is False:
        return b
    return a if a is b else Binary("or", a, b)


@each_once
def invert(a: Expr) -> Expr:
    """Return the canonical expression `not a`."""
    if isinstance(a, bool):
        return not a
    if a.__class__ is Binary and a.op in NEGATED:
        return Binary(NEGATED[a.op], a.a, a.b)
    if a.__class__ is Binary and a.op == "and":
        return either(invert(a.a), invert(a.b))
    if a.__class__ is Binary and a.op == "or":
        return both(invert(a.a), invert(a.b))
    return a.a if a.__class__ is Not else Not(a)


def xor(a: Expr, b: Expr) -> Expr:
    if is_int(a) and is_int(b):
        return a ^ b
    if is_int(b) and b == 0:
        return a
    if is_int(a) and a == 0:
        return b
    return Binary("^", a, b)


OPERATORS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "+": add, "-": subtract, "*": multiply, "//": floordiv, "%": modulo, "^": xor, "and": both, "or": either,
    **{op: cast(Any, lambda a, b, op=op: compare(op, a, b)) for op in COMPARISONS},
}  # fmt: skip


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """Return the canonical expression `a op b`."""
    return OPERATORS[op](a, b)


def total(items: Iterable[Expr], factors: Iterable[Expr] = itertools.repeat(1)) -> Expr:
    """Return the sum of index expressions, each times a number or a size, without building intermediate sums."""
    terms: dict[Any, int] = {}
    constant = 0
    for item, factor in zip(items, factors):
        if factor.__class__ is not int:
            item, factor = multiply(item, factor), 1
        kind = item.__class__
        if kind is int:
            constant += item * factor
        elif kind is Sum:
            constant += item.constant * factor
            for atom, n in item.terms:
                terms[atom] = terms.get(atom, 0) + n * factor
        elif kind is float:
            raise NotWhole(f"index arithmetic on a float: {item!r}")
        else:
            terms[item] = terms.get(item, 0) + factor
    return from_linear(terms, constant)


def rebuild(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return e with `change` applied to its direct operands, in canonical form."""
    kind = e.__class__
    if kind is Sum:
        return total((*[change(atom) for atom, _ in e.terms], e.constant), (*[n for _, n in e.terms], 1))
    if kind is Binary:
        a, b = change(e.a), change(e.b)
        return e if a is e.a and b is e.b else binary(e.op, a, b)
    if kind is Call:
        args = tuple(map(change, e.args))
        return e if args == e.args else Call(e.fn, args)
    if kind is Not:
        return invert(change(e.a))
    return e


def only_sizes(e: Expr) -> bool:
    """Return whether an expression is a whole number at every launch: it contains whole numbers and sizes only."""
    kind = e.__class__
    if kind is int or kind is Size:
        return True
    return (kind is Sum or kind is Binary) and not (e._contents or contents(e)) & _NO_SIZE and _calculates(e)


_NO_SIZE = ~(marks_of(Size, Sum, Binary) | WEIGHT)


@each_once
def _calculates(e: Any) -> bool:
    if e.__class__ is Sum:
        return all(only_sizes(atom) for atom, _ in e.terms)
    return e.op in ("*", "//", "%") and only_sizes(e.a) and only_sizes(e.b)


def multiple_of(e: Expr) -> int:
    """Return a number of which an expression is known to be a multiple; 0 for zero."""
    kind = e.__class__
    if e.__class__ is int:
        return abs(e)
    if e.__class__ is Size:
        return e.multiple
    if kind is Sum:
        return math.gcd(e.constant, *(multiple_of(atom) * n for atom, n in e.terms))
    return multiple_of(e.a) * multiple_of(e.b) if kind is Binary and e.op == "*" else 1


_EMPTY: NameSet = frozenset()


def free_names(value: Any) -> NameSet:
    """Return the names that occur in an expression or a tuple of expressions (on Tensor IR: the names of its axes)."""
    kind = value.__class__
    if kind in CLASSES:
        memo = value._memo  # tested here: this is the most frequent query
        return memo[_names_of] if memo is not None and _names_of in memo else _names(value)
    found = _EMPTY
    for item in value if kind is tuple else ():
        if item.__class__ is tuple or item.__class__ in CLASSES:
            found |= free_names(item)
    return found


def _names_of(e: Any) -> NameSet:
    kind = e.__class__
    if kind is Var or kind is Axis:
        return frozenset((e.name,))
    if kind is Sum:
        return free_names(tuple(atom for atom, _ in e.terms))
    if kind is Binary:
        return free_names(e.a) | free_names(e.b)
    if kind is Call:
        return free_names(e.args)
    if kind is Not:
        return free_names(e.a)
    # a Tensor IR value used as an index carries its own axes
    return frozenset(axis.name for axis in getattr(e, "axes", ()))


_names = memoised(_names_of)
