"""Normal forms of values over named axes: polynomials over atoms, in which sums are split as far as possible.

A polynomial is {product: coefficient}, and a product is ("*", (atom, power), ..). An atom is a tuple of its kind and
its parts. Atoms with bound indices (sums and other reductions) end with their regions, their depth and their body.

A region is a set of axes of any number, with one index for all of them. Two values with equal normal forms are
therefore equal for all ranks and sizes. Sorting by `repr` makes every form independent of hashes.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

Form = Any  # a nested tuple
Polynomial = dict[Form, Fraction]
ONE: Form = ("*",)
UNORDERED = ("*", "+", "maximum", "minimum")
IDEMPOTENT = ("maximum", "minimum", "logical_and", "logical_or")


class Undefined(Exception):
    """An operation on -inf whose result is neither a real number nor -inf."""


class Stopped(Exception):
    """The value or condition that a proof cannot express, in words."""


def ordered(tag: str, items: Iterable[Form]) -> Form:
    return (tag, *sorted(items, key=repr))


def number(value: float | Fraction) -> Polynomial:
    return {ONE: Fraction(value)} if value else {}


def power(atom: Form, exponent: int | Fraction = 1) -> Polynomial:
    return {("*", (atom, exponent)): Fraction(1)} if exponent else {ONE: Fraction(1)}


LOWEST = power(("-inf",))
ZERO, UNIT = number(0), number(1)


def frozen(p: Polynomial) -> Form:
    return ordered("+", p.items())


def thawed(form: Form) -> Polynomial:
    return dict(form[1:])


def single(p: Polynomial) -> Form | None:
    """Return the atom that a polynomial consists of, or None."""
    factors = next(iter(p), ONE)[1:2]
    return factors[0][0] if factors and p == power(factors[0][0]) else None


# ---- Arithmetic.


def plus(p: Polynomial, q: Polynomial, factor: int = 1) -> Polynomial:
    """Return p + factor * q; -inf absorbs real numbers."""
    if q == LOWEST and factor < 0:
        raise Undefined
    if LOWEST in (p, q):
        return LOWEST
    out = dict(p)
    for product, c in q.items():
        out[product] = out.get(product, Fraction(0)) + factor * c
    return {product: c for product, c in out.items() if c}


def times(p: Polynomial, q: Polynomial) -> Polynomial:
    if LOWEST in (p, q) and UNIT not in (p, q):
        raise Stopped("a product with -inf")
    out: Polynomial = {}
    for (a, c), (b, d) in itertools.product(p.items(), q.items()):
        powers = dict(a[1:])
        for atom, n in b[1:]:
            powers[atom] = powers.get(atom, 0) + n
        out = plus(out, {ordered("*", ((atom, n) for atom, n in powers.items() if n)): c * d})
    return out


def inverse(p: Polynomial) -> Polynomial:
    """Return 1 / p. A sum is an atom with a negative power, with its first coefficient taken out."""
    if not p or p == LOWEST:
        raise Undefined
    first = min(p, key=repr)
    if len(p) > 1:
        return {("*", (frozen({product: c / p[first] for product, c in p.items()}), -1)): 1 / p[first]}
    return {("*", *((atom, -n) for atom, n in first[1:])): 1 / p[first]}


def exponential(p: Polynomial) -> Polynomial:
    """Return exp(p): the exponential of a sum is a product, and exp(-inf) = 0."""
    if p == LOWEST:
        return ZERO
    out = UNIT
    for product, c in p.items():
        out = times(out, power(("exp", product), c))
    return out


def logarithm(p: Polynomial) -> Polynomial:
    """Return log(p): the logarithm of a product with exponentials is a sum, and log(0) = -inf."""
    if not p:
        return LOWEST
    powers: Polynomial = {}
    if len(p) == 1:
        ((product, c),) = p.items()
        powers = {atom[1]: n for atom, n in product[1:] if atom[0] == "exp"}
        p = {("*", *(part for part in product[1:] if part[0][0] != "exp")): c}
    return powers if p == UNIT else plus(powers, power(("apply", "log", frozen(p))))


def extreme(fn: str, *values: Polynomial) -> Polynomial:
    """Return the maximum or minimum of some values: nested ones are one, and equal values count once."""
    items = set[Form]()
    for p in values:
        inner = single(p)
        items |= set(inner[1:]) if inner and inner[0] == fn else {frozen(p)}
    if fn == "maximum" and len(items) > 1:
        items.discard(frozen(LOWEST))
    return thawed(*items) if len(items) == 1 else power(ordered(fn, items))


def equal(p: Polynomial, q: Polynomial) -> bool:
    """Return whether two polynomials are equal where no divisor is 0: denominators are multiplied out one by one."""
    if LOWEST in (p, q):
        return p == q
    rest = plus(p, q, -1)
    while rest:
        divisors = {part for product in rest for part in product[1:] if part[1] < 0}
        if not divisors:
            return False
        atom, _ = max(divisors, key=lambda part: (len(repr(part[0])), repr(part[0])))  # others may be inside of it
        most = max(-n for other, n in divisors if other == atom)
        out = ZERO
        for product, c in rest.items():
            missing = most + dict(product[1:]).get(atom, 0)
            term = {("*", *(part for part in product[1:] if part[0] != atom)): c}
            for factor in [thawed(atom)] * missing if atom[0] == "+" else [power(atom, missing)]:
                term = times(term, factor)
            out = plus(out, term)
        rest = out
    return True


# ---- Bound indices.


def parts(form: Form, kind: str) -> Iterator[Form]:
    """Yield the parts of a form of one kind."""
    if isinstance(form, tuple):
        if form[:1] == (kind,):
            yield form
        for part in form:
            yield from parts(part, kind)


def indices(form: Form) -> set[Form]:
    """Return the indices in a form that a reduction around it runs over."""
    return set(parts(form, "index"))


def renamed(form: Form, names: Mapping[Form, Form]) -> Form:
    if not isinstance(form, tuple):
        return form
    if form in names:
        return names[form]
    items = tuple(renamed(part, names) for part in form)
    return ordered(items[0], items[1:]) if items and items[0] in UNORDERED else items


def closed(kind: tuple[str, ...], bound: Collection[Form], body: Form) -> Form:
    """Return the atom that binds indices in a body. Of all orders of the indices, it takes the first."""
    depth = max((index[2] for index in parts(body, "bound")), default=0) + 1

    def in_order(order: tuple[Form, ...]) -> Form:
        names = {index: ("bound", index[1], depth, n) for n, index in enumerate(order)}
        return tuple(index[1] for index in order), depth, renamed(body, names)

    return *kind, *min(map(in_order, itertools.permutations(sorted(bound, key=repr))), key=repr)


class Indices:
    """Fresh indices of one proof."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def fresh(self, region: str) -> Form:
        return ("index", region, next(self._numbers))

    def opened(self, atom: Form) -> tuple[set[Form], Form]:
        """Return fresh indices for those that an atom binds, and its body with them."""
        regions, depth, body = atom[-3:]
        names = {("bound", region, depth, n): self.fresh(region) for n, region in enumerate(regions)}
        return set(names.values()), renamed(body, names)

    def total(self, bound: Collection[Form], p: Polynomial) -> Polynomial:
        """Return the sum over indices: linear, and factors leave it that do not vary."""
        out = ZERO
        for product, c in p.items():
            inner, groups = set(bound), list[tuple[set[Form], Polynomial]]()
            for atom, n in self._factors(inner, list(product[1:])):
                own, factor = indices(atom) & inner, power(atom, n)
                for group in [group for group in groups if group[0] & own]:  # what shares an index stays together
                    groups.remove(group)
                    own, factor = own | group[0], times(factor, group[1])
                groups.append((own, factor))
            free = inner.difference(*(own for own, _ in groups))
            term = number(c)
            for own, factor in [*groups, *((set[Form](), power(("size", index[1]))) for index in free)]:
                term = times(term, power(closed(("sum",), own, next(iter(factor)))) if own else factor)
            out = plus(out, term)
        return out

    def _factors(self, bound: set[Form], waiting: list[Form]) -> Iterator[Form]:
        """Yield the factors of a product. Sums that vary with a bound index are opened: a sum of sums is one sum."""
        while waiting:
            atom, n = waiting.pop()
            if atom[0] == "sum" and n > 0 and indices(atom) & bound:
                for _ in range(n):
                    new, body = self.opened(atom)
                    bound |= new
                    waiting += body[1:]
            else:
                yield atom, n

    def fold(self, fn: str, bound: set[Form], p: Polynomial) -> Polynomial:
        """Return another reduction over indices: a reduction of a reduction is one."""
        body, inner = frozen(p), single(p)
        if inner and inner[:2] == ("fold", fn):
            new, body = self.opened(inner)
            bound = bound | new
        if fn in IDEMPOTENT:
            bound &= indices(body)
            if not bound:
                return thawed(body)
        return power(closed(("fold", fn), bound, body))


# ---- For messages.


def shown(form: Form) -> str:
    """Return a form as text."""
    match form:
        case ("+", *terms):
            return " + ".join(shown(m) if c == 1 else f"{c}*{shown(m)}" for m, c in terms) or "0"
        case ("*", *factors):
            return "*".join(shown(atom) + (f"^{n}" if n != 1 else "") for atom, n in factors) or "1"
        case ("value", name, places):
            mapped = [f"{region} := {index[1]}" for region, index in places if index[0] == "map"]
            return f"{name}[{', '.join(mapped)}]" if mapped else str(name)
        case (("sum" | "fold" | "over"), *fn, regions, _, body):
            return f"{fn[0] if fn else form[0]}({', '.join(regions)}: {shown(body)})"
        case ("apply", fn, *args) | (("maximum" | "minimum" | "exp") as fn, *args):
            return f"{fn}({', '.join(shown(arg) for arg in args if isinstance(arg, tuple))})"
        case ("size", region):
            return f"extent({region})"
    return str(form[0])
